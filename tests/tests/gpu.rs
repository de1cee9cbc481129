//! A GPU of the host in a box: only where the policy names it, and nothing of the host's other devices with it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail at once")]

use std::path::Path;

use blastbox_tests::{Caller, both_ways};

both_ways!(
    without_the_switch_there_is_no_gpu,
    a_gpu_is_there_with_the_gap_and_nothing_else_is,
    what_is_not_there_is_refused_by_name,
);

const SURFACE: [&str; 3] = ["--gpu", "--accept", "gpu-driver-surface"];

fn host_has_one() -> bool {
    ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"].iter().all(|path| Path::new(path).exists())
}

fn without_the_switch_there_is_no_gpu(caller: &Caller) {
    let boxed = caller.sh(&[], "ls /dev");
    assert_eq!(boxed.outcome(), "exited", "{}", boxed.stderr);
    assert!(boxed.stdout.contains("null") && !boxed.stdout.contains("nvidia"), "{}", boxed.stdout);
}

fn a_gpu_is_there_with_the_gap_and_nothing_else_is(caller: &Caller) {
    if !host_has_one() {
        caller.skip("this host has no NVIDIA GPU");
        return;
    }
    let refused = caller.run(&["--gpu"], &["true"]);
    assert_eq!(refused.outcome(), "refused", "{}", refused.stderr);
    assert!(
        format!("{:?}", refused.receipt.reason).contains("gap_not_accepted"),
        "{:?}",
        refused.receipt.reason
    );
    let boxed = caller.sh(&SURFACE, "ls /dev | grep nvidia; exec 3<>/dev/nvidiactl && echo opened");
    let lines: Vec<&str> = boxed.stdout.lines().collect();
    assert_eq!(lines, ["nvidia-uvm", "nvidia0", "nvidiactl", "opened"], "{}", boxed.stderr);
}

fn what_is_not_there_is_refused_by_name(caller: &Caller) {
    let mut tiers = vec!["wasm", "microvm", "gvisor"];
    if host_has_one() {
        caller.leave_out("the jail without a GPU", "this host has one");
    } else {
        tiers.push("jail");
    }
    for tier in tiers {
        let boxed = caller.run(&[&SURFACE[..], &["--tier", tier]].concat(), &["true"]);
        let why = boxed.receipt.reason.as_ref().map(|reason| format!("{reason:?}")).unwrap();
        assert_eq!(boxed.outcome(), "refused", "{tier}: {why}");
        // Where the tier wasm is not installed, that is said first.
        let absent = tier == "wasm" && why.contains("tier_unavailable");
        assert!(absent || why.contains("gpu_unavailable"), "{tier}: {why}");
    }
}
