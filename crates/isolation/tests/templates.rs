//! What boxes of one kind share is kept by the warden for the next one of them, and of many kinds only for those that were used last: a
//! warden lives for months. Perl stands in for a monitor, and says which kind of root it finds itself in.
//!
//! Runs as whoever runs the tests. `BLASTBOX_BIN_DIR` names the directory of the built programs.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail at once")]

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use blastbox_images::Image;
use blastbox_isolation::tiers::jail;
use blastbox_isolation::{Facts, Heard, Request, Warden};
use blastbox_policy::{Gap, Profile};
use blastbox_wire::BoxId;
use blastbox_wire::plan::{Denials, First, Grant, GrantAccess, Monitor, MonitorKind, Plan, Step};
use blastbox_wire::warden::{Answer, Ask};
use rustix::fs::{Mode, OFlags, open};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// What a warden keeps at most: `MOST_MADE` in its `template.rs`.
const MOST: usize = 64;
const SCRIPT: &str =
    r#"open(my $control, ">&=", 3); print $control join " ", grep { -d "/$_" } map { "kind-$_" } 0..100;"#;

/// A plan whose root has a directory that no other kind has.
fn plan(facts: &Facts, kind: usize, number: u8) -> Plan {
    let policy = Gap::ALL.iter().fold(Profile::Default.draft().unwrap(), |draft, gap| draft.accept(*gap));
    let (policy, image) = (policy.seal().unwrap(), Image::host());
    let box_id = BoxId::from_random([number; 20]);
    let request = Request { box_id, image: &image, workspace: None, volumes: &[] };
    let mut plan = jail::lower(&policy, facts, &request).unwrap().plan;
    let program: blastbox_wire::plan::GuestPath = "/monitor".parse().unwrap();
    plan.template.push(Step::Show { slot: request.first_show(&policy), at: program.clone() });
    let own: blastbox_wire::plan::GuestPath = format!("/kind-{kind}").parse().unwrap();
    plan.template.push(Step::Directory { at: own });
    plan.landlock.grants.push(Grant { at: program.clone(), access: GrantAccess::ReadExecute });
    plan.denials = Denials::Silent;
    plan.first = First::Monitor(Monitor {
        kind: MonitorKind::Qemu,
        program,
        arguments: ["perl", "-e", SCRIPT].map(str::to_owned).to_vec(),
        environment: Vec::new(),
        inherits: Vec::new(),
    });
    plan
}

/// What the first process of a box of this kind finds.
fn found(warden: &mut Warden, facts: &Facts, kind: usize, number: u8) -> String {
    let plan = plan(facts, kind, number);
    let (mut stream, theirs) = UnixStream::pair().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let program = open("/usr/bin/perl", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let id = plan.box_id.clone();
    warden.ask(&Ask::Launch(Box::new(plan)), &[theirs.as_fd(), program.as_fd()]).unwrap();
    drop(theirs);
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    warden.ask(&Ask::Kill(id), &[]).unwrap();
    let begun = Instant::now();
    loop {
        match warden.answer().unwrap() {
            Heard::Answer(Answer::Ended { .. }) => return text,
            Heard::Answer(answer @ Answer::Failed { .. }) => panic!("{answer:?}"),
            Heard::Gone => panic!("the warden is gone"),
            Heard::Answer(_) | Heard::Waiting => std::thread::sleep(Duration::from_millis(1)),
        }
        assert!(begun.elapsed() < PATIENCE, "the box does not end");
    }
}

/// The mount namespaces that a process holds, if this user may know.
fn held(pid: u32) -> Option<usize> {
    let all = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let links = all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    Some(links.filter(|link| link.to_string_lossy().starts_with("mnt:[")).count())
}

#[test]
fn a_warden_keeps_what_was_used_last_and_makes_the_rest_again() {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/blastbox");
    let programs = std::env::var_os("BLASTBOX_BIN_DIR").map_or_else(beside, PathBuf::from);
    let mut warden = Warden::start_program(&programs.join("blastbox-warden")).unwrap();
    let facts = Facts::probe(&warden.wait_ready(PATIENCE).unwrap());
    let before = held(warden.pid());
    // The second of a kind makes the template, and is in it.
    let mut number = 0_u8;
    let mut try_it = |kind: usize| {
        number = number.wrapping_add(1);
        assert_eq!(found(&mut warden, &facts, kind, number), format!("kind-{kind}"));
    };
    for kind in 0..MOST + 6 {
        try_it(kind);
        try_it(kind);
    }
    // One that is there, one that went, and one that was used last and stays: all are what they were.
    for kind in [MOST, 0, 0, 0, MOST, 1, MOST + 5] {
        try_it(kind);
    }
    match (before, held(warden.pid())) {
        (Some(before), Some(after)) => assert_eq!(after - before, MOST),
        _ => blastbox_skips::left_out(
            "a_warden_keeps_what_was_used_last_and_makes_the_rest_again",
            "what it holds is counted",
            "this user may not look at the warden's descriptors",
        ),
    }
}
