//! Virtual machines, for real: whoever is killed, nothing is left; what a hostile guest says ends its own box. It counts, and so runs alone; what needs no count is in `microvm_boxes.rs`. Where the host has no fast KVM the processor is emulated, and a boot takes seconds.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;

use blastbox_tests::census::{Census, child_of};
use blastbox_tests::daemon::signal;
use blastbox_tests::machines::{ONE_AT_A_TIME, PATIENCE, Workshop};
use blastbox_tests::{Caller, both_ways, wait_until};
use rustix::process::Signal;

both_ways!(
    whoever_of_a_machine_is_killed_nothing_is_left,
    a_guest_that_gives_up_floods_or_keeps_silent_loses_its_box_alone,
);

/// What a directory of the host asks for by name, where the processor is emulated or nobody is root.
const GAPS: [&str; 6] =
    ["shared-uid", "no-memory-limit", "no-cpu-limit", "no-pids-limit", "shared-kernel", "swap-unlimited"];

fn text(path: &Path) -> String {
    blastbox_tests::text(path).to_owned()
}

fn whoever_of_a_machine_is_killed_nothing_is_left(caller: &Caller) {
    let _turn = ONE_AT_A_TIME.lock();
    let Some(workshop) = Workshop::new(caller) else { return };
    workshop.template(&[]);
    let mut census = Census::begin(caller);
    census.accept_files();
    // First while the template boots; then, from another one that is there, while a copy runs.
    let other = ["--timeout", "100s", "--memory", "288MiB"];
    for (victim, asleep) in
        [("blastbox", false), ("warden", false), ("blastbox", true), ("warden", true), ("qemu", true)]
    {
        let options = if asleep { &other[..2] } else { &other[..] };
        let mut held = workshop.start(options, "sleep 90");
        let (mut warden, mut qemu) = (None, None);
        assert!(wait_until(|| {
            warden = child_of(held.id());
            qemu = warden.and_then(child_of).filter(|pid| is_qemu(*pid));
            qemu.is_some() || held.is_over()
        }));
        census.see();
        if victim == "qemu" {
            expect_no_power(caller, qemu.expect("a machine"));
        }
        let chosen = match victim {
            "blastbox" => Some(held.id()),
            "warden" => warden,
            _ => qemu,
        };
        signal(chosen.expect("a victim"), Signal::KILL);
        if victim == "blastbox" {
            assert!(wait_until(|| held.is_over()));
        } else {
            let boxed = held.end_within(PATIENCE).boxed();
            // Before the machine of the box was asked for, there was no box that could be lost.
            let expected = if asleep { "lost" } else { "failed" };
            assert_eq!(boxed.outcome(), expected, "{victim} {asleep}: {:?}", boxed.receipt.reason);
        }
        census.expect_nothing(victim);
    }
}

/// QEMU has no power on the host: no user but its own, no capability, nothing to gain by a program, a filter, and no network of the host's.
fn expect_no_power(caller: &Caller, qemu: u32) {
    let status = fs::read_to_string(format!("/proc/{qemu}/status")).expect("a machine that runs");
    let mut seen = 0;
    for (field, value) in status.lines().filter_map(|line| line.split_once(":\t")) {
        match field {
            "CapInh" | "CapPrm" | "CapEff" | "CapBnd" | "CapAmb" => {
                let is_none = value == "0000000000000000";
                assert!(field == "CapBnd" && !caller.is_root() || is_none, "{field} {value}");
            }
            "NoNewPrivs" => assert_eq!(value, "1"),
            "Seccomp" => assert_eq!(value, "2"),
            "Uid" => assert!(!caller.is_root() || !value.split('\t').any(|id| id == "0"), "{value}"),
            _ => continue,
        }
        seen += 1;
    }
    assert_eq!(seen, 8, "{status}");
    let network = |of: &str| fs::read_link(format!("/proc/{of}/ns/net")).expect("its network");
    assert_ne!(network(&qemu.to_string()), network("self"), "QEMU is in the host's network");
}

fn is_qemu(pid: u32) -> bool {
    // By its first argument: what the kernel calls a program that was started from a descriptor differs.
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"qemu-system"))
}

fn a_guest_that_gives_up_floods_or_keeps_silent_loses_its_box_alone(caller: &Caller) {
    let _turn = ONE_AT_A_TIME.lock();
    let Some(workshop) = Workshop::new(caller) else { return };
    workshop.template(&[]);
    let first = workshop.first_files();
    let project = format!("{}:ro", text(&caller.directory("project")));
    let errors = fs::File::create(caller.place().join("errors")).expect("a file");
    let census = Census::begin(caller);
    // A neighbour, which began before: it is asked after each of them.
    let (reader, mut ask) = std::io::pipe().expect("a pipe");
    let (said, out) = std::io::pipe().expect("a pipe");
    let answer = "echo up; while read line; do echo here $line; done";
    let words = workshop.words(&["run", "-i"], &["--timeout", "900s"], &["sh", "-c", answer]);
    let neighbour = caller.blastbox(words).start_with([reader.into(), out.into(), errors.into()]);
    let mut said = BufReader::new(said).lines();
    assert_eq!(said.next().expect("a line").expect("text"), "up");
    let drivers = "
        b=/bin/busybox; $b mount -t devtmpfs d /dev
        for m in /m/*; do $b insmod $m; done
        until [ -e /dev/vport1p1 ] || [ -e /dev/vport0p1 ]; do $b sleep 0.2; done";
    let flood = format!("{drivers}\n$b cat /dev/zero > $(echo /dev/vport?p1)\n$b sleep 1000");
    // With a workspace a machine boots by itself; the first one gives up as a template, too.
    let alone: Vec<&str> = ["--profile", "medium", "--workspace", &project]
        .into_iter()
        .chain(GAPS.iter().flat_map(|gap| ["--accept", gap]))
        .collect();
    // A word in time is what a build for tests waits seconds for, and every other one four minutes.
    let patient = caller.blastbox_for_tests();
    if patient.is_none() {
        caller.leave_out(
            "a guest that never speaks",
            "the programs with failpoints are not built: `make test` builds them",
        );
    }
    let mute = "/bin/busybox sleep 1000";
    let cases = [
        ("exit 1", "lost", "agent_gone", ["--timeout", "200s"], &[][..]),
        (flood.as_str(), "lost", "guest_broke_protocol", ["--timeout", "200s"], &alone),
        (mute, "timed_out", "", ["--timeout", "5s"], &alone),
        (mute, "lost", "agent_silent", ["--timeout", "200s"], &alone),
    ];
    // Whoever asks, templates are made by the same hands, and the same clock ends who gives up or says nothing: once is enough. What floods
    // is read by a process of the caller's.
    let own = cases.into_iter().filter(|(script, ..)| caller.comes_first() || *script == flood);
    for (script, outcome, code, timeout, more) in own {
        workshop.hostile(&first, script);
        let words = workshop.words(&["run", "--json"], &[&timeout, more].concat(), &["true"]);
        let start = match &patient {
            _ if code != "agent_silent" => caller.blastbox(words),
            Some(program) => caller.program(program, words).env("BLASTBOX_SILENCE", "5"),
            None => continue,
        };
        let boxed = start.start().end_within(PATIENCE).boxed();
        let why = boxed.receipt.reason.as_ref().map_or("", |reason| reason.code.as_str());
        assert_eq!((boxed.outcome(), why), (outcome, code), "{script}: {:?}", boxed.receipt.reason);
        assert_eq!((boxed.stdout.as_str(), boxed.receipt.exit_code != 0), ("", true), "{script}");
        // Nobody heard its console, which would have told why.
        let fix = boxed.receipt.reason.as_ref().and_then(|reason| reason.fix.as_deref()).unwrap_or_default();
        let helps = ["agent_gone", "agent_silent"].contains(&code);
        assert_eq!(fix.contains("--console FILE"), helps, "{script}: {fix}");
        writeln!(ask, "{outcome}").expect("the neighbour reads");
        assert_eq!(said.next().expect("a line").expect("text"), format!("here {outcome}"));
    }
    drop(ask);
    assert_eq!(neighbour.end_within(PATIENCE).code, 0);
    census.expect_nothing("hostile guests");
}
