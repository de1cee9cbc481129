//! Where a volume goes is the warden's to believe or not: whoever has taken over the daemon writes plans of its own.
//!
//! Runs as whoever runs the tests. `BLASTBOX_BIN_DIR` names the directory of the built programs.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail at once")]

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use blastbox_images::Image;
use blastbox_isolation::tiers::jail;
use blastbox_isolation::{Facts, Heard, Request, Warden};
use blastbox_policy::{Gap, Profile};
use blastbox_wire::BoxId;
use blastbox_wire::plan::{GrantAccess, Plan, Step, VOLUMES};
use blastbox_wire::warden::{Answer, Ask};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn warden() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/blastbox");
    let dir = std::env::var_os("BLASTBOX_BIN_DIR").map_or_else(beside, PathBuf::from);
    let found = Some(dir.join("blastbox-warden")).filter(|program| program.exists());
    if found.is_none() {
        blastbox_skips::skip_this("no blastbox-warden is built; `make build` makes it");
    }
    found
}

/// Why there is no box, or that there is one.
fn answer(warden: &mut Warden) -> Answer {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        match warden.answer().unwrap() {
            Heard::Answer(answer @ (Answer::Failed { .. } | Answer::Launched { .. })) => return answer,
            Heard::Answer(_) | Heard::Waiting => std::thread::sleep(Duration::from_millis(2)),
            Heard::Gone => break,
        }
    }
    panic!("the warden says nothing")
}

#[test]
fn a_warden_makes_no_volume_elsewhere_and_none_that_landlock_does_not_close() {
    let Some(program) = warden() else { return };
    let place = std::env::temp_dir().join(format!("blastbox-volume-places-{}", std::process::id()));
    let volume = place.join("v");
    std::fs::create_dir_all(&volume).unwrap();
    std::fs::write(place.join(VOLUMES), "").unwrap();
    let mut warden = Warden::start_program(&program).unwrap();
    let facts = Facts::probe(&warden.wait_ready(PATIENCE).unwrap());
    let policy = Gap::ALL.iter().fold(Profile::Default.draft().unwrap(), |draft, gap| draft.accept(*gap));
    let (policy, image) = (policy.seal().unwrap(), Image::host());
    let volumes = ["/mnt/v".parse().unwrap()];
    let mut number = 0;
    let mut ask = |change: &dyn Fn(&mut Plan)| {
        number += 1;
        let box_id = BoxId::from_random([number; 20]);
        let request = Request { box_id, image: &image, workspace: None, volumes: &volumes };
        let mut plan = jail::lower(&policy, &facts, &request).unwrap().plan;
        change(&mut plan);
        let (_ours, theirs) = UnixStream::pair().unwrap();
        let directory = std::fs::File::open(&volume).unwrap();
        warden.ask(&Ask::Launch(Box::new(plan)), &[theirs.as_fd(), directory.as_fd()]).unwrap();
        answer(&mut warden)
    };
    let to = |elsewhere: &str| {
        let elsewhere = elsewhere.parse().unwrap();
        move |plan: &mut Plan| {
            for step in &mut plan.own {
                if let Step::Volume { at, .. } = step {
                    *at = Clone::clone(&elsewhere);
                }
            }
        }
    };
    let nothing_made = |plan: &mut Plan| {
        plan.own.retain(|step| !matches!(step, Step::ScratchDirectory { at, .. } if at.as_str() == "/mnt"));
    };
    let good = ask(&|_| {});
    assert!(matches!(good, Answer::Launched { .. }), "{good:?}");
    let mut refuse = |what: &str, why: &str, change: &dyn Fn(&mut Plan)| {
        let Answer::Failed { tried, .. } = ask(change) else { panic!("{what}: there is a box") };
        assert!(tried.contains(why), "{what}: {tried}");
    };
    let no_place = "is no place for a volume";
    for elsewhere in ["/mnt/a/b", "/mnt", "/tmp/v", "/home/user/v"] {
        refuse(elsewhere, no_place, &to(elsewhere));
    }
    refuse("in the template's own directory", no_place, &nothing_made);
    let open = "nothing keeps sockets and pipes out of the volume";
    refuse("a kernel without Landlock would do", open, &|plan| plan.landlock.least_abi = 0);
    refuse("a grant that lets sockets be made", open, &|plan| {
        for grant in plan.landlock.grants.iter_mut().filter(|grant| grant.at.as_str() == "/mnt/v") {
            grant.access = GrantAccess::ReadWrite;
        }
    });
    std::fs::remove_dir_all(&place).unwrap();
}
