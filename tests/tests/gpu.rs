//! A GPU of the host in a box: only where the policy names it, and nothing of the host's other devices with it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail at once")]

use std::path::Path;

use blastbox_tests::{Caller, both_ways};

both_ways!(
    without_the_switch_there_is_no_gpu,
    a_gpu_is_there_with_the_gap_and_nothing_else_is,
    a_program_computes_on_it_and_sees_one,
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

/// A program for CUDA, by the driver's own library: what it computed, and how many GPUs it saw.
const CUDA: &str = include_str!("../gpu/cuda.py");

fn a_program_computes_on_it_and_sees_one(caller: &Caller) {
    if !host_has_one() {
        caller.skip("this host has no NVIDIA GPU");
        return;
    }
    // It maps much, and its driver's library starts threads.
    let room = ["--memory", "16GiB", "--pids", "512", "--timeout", "60s"];
    let boxed = caller.run(&[&SURFACE[..], &room].concat(), &["python3", "-c", CUDA]);
    assert!(boxed.stdout.starts_with("devices=1 wrong=0 "), "{}{}", boxed.stdout, boxed.stderr);
    // On gVisor's kernel, where its version knows the driver; elsewhere both versions are named.
    let gvisor = [&SURFACE[..], &room, &["--tier", "gvisor", "--accept", "silent-denials"]].concat();
    let boxed = caller.run(&gvisor, &["python3", "-c", CUDA]);
    match boxed.outcome() {
        "refused" => {
            let why = format!("{:?}", boxed.receipt.reason);
            let versions =
                ["of 20", "NVIDIA driver ", "knows those of"].iter().all(|part| why.contains(part));
            assert!(versions || why.contains("tier_unavailable"), "{why}");
            caller.leave_out(
                "a program on gVisor's kernel",
                "this host's runsc does not know its driver, or is not there",
            );
        }
        _ => assert!(boxed.stdout.starts_with("devices=1 wrong=0 "), "{}{}", boxed.stdout, boxed.stderr),
    }
}

fn what_is_not_there_is_refused_by_name(caller: &Caller) {
    let mut tiers = vec!["wasm", "microvm"];
    if host_has_one() {
        caller.leave_out("jail and gVisor without a GPU", "this host has one");
    } else {
        tiers.extend(["jail", "gvisor"]);
    }
    for tier in tiers {
        let boxed = caller.run(&[&SURFACE[..], &["--tier", tier]].concat(), &["true"]);
        let why = boxed.receipt.reason.as_ref().map(|reason| format!("{reason:?}")).unwrap();
        assert_eq!(boxed.outcome(), "refused", "{tier}: {why}");
        // Where a tier is not installed, that is said first.
        let absent = ["wasm", "gvisor"].contains(&tier) && why.contains("tier_unavailable");
        assert!(absent || why.contains("gpu_unavailable"), "{tier}: {why}");
    }
}
