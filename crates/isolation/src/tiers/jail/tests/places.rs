//! What a box has of its own, and what may be done where.

use blastbox_policy::{ThreatLevel, Workspace};
use blastbox_wire::plan::{Exec, GrantAccess, Owner, Slot, Step};

use super::*;

fn access(plan: &Plan, at: &str) -> Option<GrantAccess> {
    plan.landlock.grants.iter().find(|grant| grant.at.as_str() == at).map(|grant| grant.access)
}

#[test]
fn the_default_box_has_these_places_of_its_own() {
    let plan = lowered(&default_policy(), &good_host()).plan;
    let scratch = |at: &str, owner, exec| Step::ScratchDirectory { at: at.parse().unwrap(), owner, exec };
    assert_eq!(
        plan.own,
        [
            Step::Scratch { bytes: 256 << 20, inodes: 65_536 },
            scratch("/tmp", Owner::Everybody, Exec::Allowed),
            scratch("/home/user", Owner::Payload, Exec::Allowed),
            scratch("/dev/shm", Owner::Everybody, Exec::Denied),
            scratch("/workspace", Owner::Payload, Exec::Allowed),
            Step::Processes,
            Step::Terminals,
        ]
    );
    assert_eq!((plan.ids, plan.network), (Ids::OwnRange, Network::Empty));
    assert_eq!(plan.cgroups, Cgroups::Enforce { memory: true, cpu: true, pids: true });
    let expected =
        Limits { millicpus: 1_000, memory: 512 << 20, pids: 128, open_files: 1_024, file_size: 256 << 20 };
    assert_eq!(plan.limits, expected);
    assert_eq!((plan.landlock.least_abi, plan.denials), (6, Denials::Reported));
}

#[test]
fn grants_name_what_is_there_and_nothing_of_the_rest() {
    let plan = lowered(&default_policy(), &good_host()).plan;
    for (at, expected) in [
        ("/usr", Some(GrantAccess::ReadExecute)),
        ("/etc", Some(GrantAccess::Read)),
        ("/proc", Some(GrantAccess::ReadWrite)),
        ("/dev", Some(GrantAccess::Devices)),
        ("/dev/pts", Some(GrantAccess::Terminals)),
        ("/dev/tty", Some(GrantAccess::Terminals)),
        ("/dev/shm", Some(GrantAccess::ReadWrite)),
        ("/tmp", Some(GrantAccess::ReadWriteExecute)),
        ("/home/user", Some(GrantAccess::ReadWriteExecute)),
        ("/workspace", Some(GrantAccess::ReadWriteExecute)),
        ("/home", None),
        ("/run", None),
        ("/sys", None),
    ] {
        assert_eq!(access(&plan, at), expected, "{at}");
    }
}

#[test]
fn scratch_space_without_programs_is_so_in_mounts_and_in_landlock() {
    let draft = Profile::Default.draft().unwrap().exec(blastbox_policy::ScratchExec::Denied);
    let plan = lowered(&policy(draft), &good_host()).plan;
    let allowed = |step: &Step| matches!(step, Step::ScratchDirectory { exec: Exec::Allowed, .. });
    assert!(!plan.own.iter().any(allowed));
    for at in ["/tmp", "/home/user", "/workspace"] {
        assert_eq!(access(&plan, at), Some(GrantAccess::ReadWrite), "{at}");
    }
}

#[test]
fn a_directory_image_is_no_view_of_the_host_and_travels_before_the_workspace() {
    let rootfs = Rootfs::new("slots");
    let image = rootfs.image();
    let medium = policy(Profile::Medium.draft().unwrap());
    let request = Request { workspace: Some(WorkspaceAccess::CopyOnWrite), ..request(&image) };
    let lowered = lower(&medium, &good_host(), &request).unwrap();
    assert_eq!(lowered.gaps, [Gap::SharedKernel]);
    assert_eq!(request.descriptors(&medium), 3);
    assert!(lowered.plan.template.contains(&Step::Image { slot: Slot(1) }));
    let second = |step: &Step| matches!(step, Step::Workspace { slot: Slot(2), .. });
    assert!(lowered.plan.own.iter().any(second));
    assert_eq!(access(&lowered.plan, "/app"), Some(GrantAccess::ReadExecute));
    assert_eq!(access(&lowered.plan, "/etc"), Some(GrantAccess::Read));
}

#[test]
fn the_workspace_is_never_more_than_the_policy_allows() {
    use WorkspaceAccess::{CopyOnWrite, ReadOnly};
    let image = Image::host();
    for (allowed, asked, expected) in [
        (Workspace::ReadOnly, ReadOnly, ReadOnly),
        (Workspace::ReadOnly, CopyOnWrite, ReadOnly),
        (Workspace::CopyOnWrite, ReadOnly, ReadOnly),
        (Workspace::CopyOnWrite, CopyOnWrite, CopyOnWrite),
    ] {
        let policy = policy(Profile::Medium.draft().unwrap().workspace(allowed));
        let request = Request { workspace: Some(asked), ..request(&image) };
        let plan = lower(&policy, &good_host(), &request).unwrap().plan;
        let found = plan.own.iter().find_map(|step| match step {
            Step::Workspace { slot: Slot(1), access, .. } => Some(*access),
            _ => None,
        });
        assert_eq!(found, Some(expected));
        let grant =
            if expected == ReadOnly { GrantAccess::ReadExecute } else { GrantAccess::ReadWriteExecute };
        assert_eq!(access(&plan, "/workspace"), Some(grant));
    }
}

#[test]
fn a_directory_that_the_policy_has_no_place_for_is_refused() {
    let image = Image::host();
    let request = Request { workspace: Some(WorkspaceAccess::ReadOnly), ..request(&image) };
    for (workspace, level) in [(Workspace::None, ThreatLevel::High), (Workspace::Scratch, ThreatLevel::High)]
    {
        let policy = policy(Draft::at(level).workspace(workspace));
        let refused = lower(&policy, &good_host(), &request);
        assert_eq!(refused, Err(Refusal::WorkspaceNotAllowed { level }));
    }
}

#[test]
fn no_workspace_means_no_place_and_no_grant() {
    let plan = lowered(&policy(Profile::Low.draft().unwrap()), &good_host()).plan;
    assert_eq!(access(&plan, "/workspace"), None);
    let at_workspace =
        |step: &Step| matches!(step, Step::ScratchDirectory { at, .. } if at.as_str() == "/workspace");
    assert!(!plan.own.iter().any(at_workspace));
}
