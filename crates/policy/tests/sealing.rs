//! What seals and what does not: every rule that denies, and its neighbour that is still allowed.

use blastbox_policy::{
    BoxRoot, Bytes, Cpus, CredentialMode, Draft, Gap, Loopback, NetworkMode, OnDenied, PolicyError,
    ScratchExec, Seconds, ThreatLevel, Tier, TierChoice, Workspace,
};

const TIB: u64 = 1 << 40;

fn high() -> Draft {
    Draft::at(ThreatLevel::High)
}

fn critical() -> Draft {
    Draft::at(ThreatLevel::Critical)
}

#[track_caller]
fn assert_seals(draft: Draft) {
    assert_eq!(draft.seal().err(), None);
}

/// Refused for this key, with the value and the range in the message.
#[track_caller]
fn assert_out_of_range(draft: Draft, message: &str) {
    let error = draft.seal().map(|_| ()).map_err(|error| {
        assert!(matches!(error, PolicyError::OutOfRange { .. }), "{error}");
        error.to_string()
    });
    assert_eq!(error, Err(message.to_owned()));
}

#[test]
fn every_level_seals_as_drafted_and_accepts_nothing() {
    for level in ThreatLevel::ALL {
        let policy = Draft::at(*level).seal().unwrap();
        assert_eq!(policy.level(), *level);
        assert!(policy.accepted().is_empty());
        assert_eq!(policy.kernel().tier, TierChoice::ByThreat);
        assert_eq!(policy.kernel().cpus, Cpus::from_millis(1_000));
        assert_eq!(policy.kernel().memory, Bytes(512 << 20));
        assert_eq!(policy.kernel().pids, 128);
        assert_eq!(policy.kernel().on_denied_syscall, OnDenied::Record);
        assert_eq!(policy.files().disk, Bytes(256 << 20));
        assert_eq!(policy.files().inodes, 65_536);
        assert_eq!(policy.files().file_size, Bytes(256 << 20));
        assert_eq!(policy.files().open_files, 1_024);
        assert_eq!(policy.network().mode, NetworkMode::Off);
        assert_eq!(policy.network().loopback, Loopback::None);
        assert_eq!(policy.credentials().mode, CredentialMode::None);
        assert_eq!(policy.lifetime().timeout, Seconds(300));
        assert_eq!(policy.lifetime().output, Bytes(16 << 20));
    }
}

#[test]
fn workspace_and_exec_follow_the_level() {
    for (level, workspace, exec) in [
        (ThreatLevel::Low, Workspace::None, ScratchExec::Allowed),
        (ThreatLevel::Medium, Workspace::CopyOnWrite, ScratchExec::Allowed),
        (ThreatLevel::High, Workspace::Scratch, ScratchExec::Allowed),
        (ThreatLevel::Critical, Workspace::Scratch, ScratchExec::Denied),
    ] {
        let policy = Draft::at(level).seal().unwrap();
        assert_eq!((policy.files().workspace, policy.files().exec), (workspace, exec), "{level}");
    }
}

#[test]
fn impossible_processors_do_not_seal() {
    let range = "is out of range; permitted is 0.01 to 1024";
    assert_out_of_range(high().cpus(Cpus::from_millis(0)), &format!("kernel.cpus = 0 {range}"));
    assert_out_of_range(high().cpus(Cpus::from_millis(9)), &format!("kernel.cpus = 0.009 {range}"));
    assert_out_of_range(
        high().cpus(Cpus::from_millis(1_024_001)),
        &format!("kernel.cpus = 1024.001 {range}"),
    );
    assert_seals(high().cpus(Cpus::from_millis(10)));
    assert_seals(high().cpus(Cpus::from_millis(1_024_000)));
}

#[test]
fn impossible_memory_does_not_seal() {
    let range = "is out of range; permitted is 4MiB to 1TiB";
    assert_out_of_range(high().memory(Bytes(0)), &format!("kernel.memory = 0B {range}"));
    assert_out_of_range(high().memory(Bytes((4 << 20) - 1)), &format!("kernel.memory = 4194303B {range}"));
    assert_out_of_range(high().memory(Bytes(2 * TIB)), &format!("kernel.memory = 2TiB {range}"));
    assert_seals(high().memory(Bytes(4 << 20)));
    assert_seals(high().memory(Bytes(TIB)));
}

#[test]
fn impossible_process_counts_do_not_seal() {
    let range = "is out of range; permitted is 2 to 4194304";
    assert_out_of_range(high().pids(0), &format!("kernel.pids = 0 {range}"));
    assert_out_of_range(high().pids(1), &format!("kernel.pids = 1 {range}"));
    assert_out_of_range(high().pids(4_194_305), &format!("kernel.pids = 4194305 {range}"));
    assert_seals(high().pids(2));
    assert_seals(high().pids(4_194_304));
}

#[test]
fn impossible_disks_do_not_seal() {
    let range = "is out of range; permitted is 4KiB to 1TiB";
    assert_out_of_range(high().disk(Bytes(0)), &format!("files.disk = 0B {range}"));
    assert_out_of_range(high().disk(Bytes(TIB + 1)), &format!("files.disk = 1099511627777B {range}"));
    assert_seals(high().disk(Bytes(4_096)));
    assert_seals(high().disk(Bytes(TIB)));
}

#[test]
fn impossible_file_counts_do_not_seal() {
    let range = "is out of range; permitted is 16 to 4294967296";
    assert_out_of_range(high().inodes(0), &format!("files.inodes = 0 {range}"));
    assert_out_of_range(high().inodes(15), &format!("files.inodes = 15 {range}"));
    assert_out_of_range(high().inodes((1 << 32) + 1), &format!("files.inodes = 4294967297 {range}"));
    assert_seals(high().inodes(16));
    assert_seals(high().inodes(1 << 32));
}

#[test]
fn impossible_file_sizes_do_not_seal() {
    let range = "is out of range; permitted is 4KiB to 1TiB";
    assert_out_of_range(high().file_size(Bytes(0)), &format!("files.file_size = 0B {range}"));
    assert_out_of_range(high().file_size(Bytes(3 * TIB)), &format!("files.file_size = 3TiB {range}"));
    assert_seals(high().file_size(Bytes(4_096)));
    assert_seals(high().file_size(Bytes(TIB)));
}

#[test]
fn impossible_descriptor_counts_do_not_seal() {
    let range = "is out of range; permitted is 16 to 1048576";
    assert_out_of_range(high().open_files(15), &format!("files.open_files = 15 {range}"));
    assert_out_of_range(high().open_files(1_048_577), &format!("files.open_files = 1048577 {range}"));
    assert_seals(high().open_files(16));
    assert_seals(high().open_files(1_048_576));
}

#[test]
fn impossible_timeouts_do_not_seal() {
    let range = "is out of range; permitted is 1s to 2592000s";
    assert_out_of_range(high().timeout(Seconds(0)), &format!("lifetime.timeout = 0s {range}"));
    assert_out_of_range(high().timeout(Seconds(2_592_001)), &format!("lifetime.timeout = 2592001s {range}"));
    assert_seals(high().timeout(Seconds(1)));
    assert_seals(high().timeout(Seconds(2_592_000)));
}

#[test]
fn impossible_output_limits_do_not_seal() {
    let range = "is out of range; permitted is 1B to 1TiB";
    assert_out_of_range(high().output(Bytes(0)), &format!("lifetime.output = 0B {range}"));
    assert_out_of_range(high().output(Bytes(2 << 40)), &format!("lifetime.output = 2TiB {range}"));
    assert_seals(high().output(Bytes(1)));
    assert_seals(high().output(Bytes(1 << 40)));
}

#[test]
fn critical_refuses_every_tier_but_the_microvm() {
    for tier in [Tier::Wasm, Tier::Jail, Tier::Gvisor] {
        let error = critical().tier(tier).seal().unwrap_err();
        assert_eq!(error, PolicyError::TierNotAtLevel { tier, level: ThreatLevel::Critical });
        assert_eq!(
            error.to_string(),
            format!("kernel.tier = {tier} is not permitted at threat level critical; permitted is microvm")
        );
    }
    assert_seals(critical().tier(Tier::Microvm));
    assert_seals(critical().tier(TierChoice::ByThreat));
}

#[test]
fn the_levels_below_critical_may_name_any_tier() {
    for level in [ThreatLevel::Low, ThreatLevel::Medium, ThreatLevel::High] {
        for tier in Tier::ALL {
            assert_seals(Draft::at(level).tier(*tier));
        }
    }
}

#[test]
fn critical_refuses_a_workspace_that_shows_host_files() {
    for workspace in [Workspace::ReadOnly, Workspace::CopyOnWrite] {
        let error = critical().workspace(workspace).seal().unwrap_err();
        assert_eq!(error, PolicyError::WorkspaceNotAtLevel { workspace, level: ThreatLevel::Critical });
        assert!(error.to_string().ends_with("permitted is none, scratch"), "{error}");
    }
    assert_seals(critical().workspace(Workspace::None));
    assert_seals(critical().workspace(Workspace::Scratch));
}

#[test]
fn high_may_name_a_workspace_that_shows_host_files() {
    assert_seals(high().workspace(Workspace::ReadOnly));
    assert_seals(high().workspace(Workspace::CopyOnWrite));
}

#[test]
fn critical_cannot_accept_a_stand_in_for_a_kernel_of_its_own_nor_a_view_of_the_host_nor_volumes() {
    for gap in [Gap::SharedKernel, Gap::HostImage, Gap::EmulatedCpu, Gap::VolumeSize] {
        let error = critical().accept(gap).seal().unwrap_err();
        assert_eq!(error, PolicyError::GapNotAtLevel { gap, level: ThreatLevel::Critical });
        assert_seals(high().accept(gap));
    }
}

#[test]
fn critical_may_accept_the_other_gaps_by_name() {
    let refused = [Gap::SharedKernel, Gap::HostImage, Gap::EmulatedCpu, Gap::VolumeSize];
    for gap in Gap::ALL.iter().filter(|gap| !refused.contains(gap)) {
        assert_seals(critical().accept(*gap));
    }
}

#[test]
fn only_what_was_named_is_accepted() {
    let policy = high().accept(Gap::SharedUid).accept(Gap::SharedUid).seal().unwrap();
    for gap in Gap::ALL {
        assert_eq!(policy.accepts(*gap), *gap == Gap::SharedUid, "{gap}");
    }
    assert_eq!(policy.accepted().len(), 1);
}

#[test]
fn every_builder_method_changes_the_policy() {
    let closed = high().seal().unwrap();
    for draft in [
        high().tier(Tier::Gvisor),
        high().cpus(Cpus::from_millis(500)),
        high().memory(Bytes(64 << 20)),
        high().pids(7),
        high().on_denied_syscall(OnDenied::Kill),
        high().root(BoxRoot::Allowed),
        high().workspace(Workspace::None),
        high().disk(Bytes(1 << 20)),
        high().inodes(99),
        high().file_size(Bytes(1 << 20)),
        high().open_files(64),
        high().exec(ScratchExec::Denied),
        high().report_writes(true),
        high().loopback(Loopback::Own),
        high().timeout(Seconds(1)),
        high().output(Bytes(1)),
        high().accept(Gap::HostImage),
    ] {
        assert_ne!(draft.seal().unwrap(), closed);
    }
}

#[test]
fn root_of_the_box_is_off_and_impossible_at_critical() {
    for level in ThreatLevel::ALL {
        assert_eq!(Draft::at(*level).seal().unwrap().kernel().root, BoxRoot::None);
        let sealed = Draft::at(*level).root(BoxRoot::Allowed).seal();
        match level {
            ThreatLevel::Critical => assert_eq!(sealed, Err(PolicyError::RootNotAtLevel { level: *level })),
            ThreatLevel::Low | ThreatLevel::Medium | ThreatLevel::High => assert!(sealed.is_ok()),
        }
    }
}
