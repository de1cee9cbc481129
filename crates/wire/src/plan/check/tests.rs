//! Plans that no warden carries out.

use super::*;
use crate::BoxId;
use crate::plan::{Cgroups, Exec, Grant, Owner, WorkspaceAccess};

fn at(text: &str) -> GuestPath {
    text.parse().unwrap()
}

fn scratch_at(text: &str) -> Step {
    Step::ScratchDirectory { at: at(text), owner: Owner::Root, exec: Exec::Denied }
}

fn volume(text: &str) -> Step {
    Step::Volume { slot: Slot(1), at: at(text), exec: Exec::Denied }
}

/// A plan whose scratch space is followed by these steps.
fn with(steps: impl IntoIterator<Item = Step>) -> Plan {
    Plan {
        box_id: BoxId::from_random([7; 20]),
        template: Vec::new(),
        own: [Step::Scratch { bytes: 1 << 20, inodes: 100 }].into_iter().chain(steps).collect(),
        ids: Ids::OwnBlock,
        network: Network::Loopback,
        cgroups: Cgroups::Absent,
        limits: Limits { millicpus: 1_000, memory: 64 << 20, pids: 10, open_files: 64, file_size: 1 << 20 },
        landlock: Landlock {
            least_abi: 1,
            grants: vec![
                Grant { at: at("/usr"), access: GrantAccess::ReadExecute },
                Grant { at: at("/mnt/a"), access: GrantAccess::Shared },
                Grant { at: at("/mnt/b"), access: GrantAccess::Shared },
            ],
        },
        denials: Denials::Silent,
        first: First::Agent,
    }
}

fn unsafe_place(steps: impl IntoIterator<Item = Step>, place: &str) {
    assert_eq!(with(steps).check(2).unwrap_err(), UnsafePlan::VolumePlace(at(place)));
}

#[test]
fn a_volume_is_a_name_in_the_directory_that_was_made_for_volumes() {
    let good =
        [scratch_at("/tmp"), scratch_at(VOLUMES_AT), volume("/mnt/a"), volume("/mnt/b"), Step::Processes];
    assert!(with(good).check(2).is_ok());
    for place in ["/mnt", "/mnt/a/b", "/mntx", "/mnt-a", "/tmp/a", "/etc"] {
        unsafe_place([scratch_at("/tmp"), scratch_at(VOLUMES_AT), volume(place)], place);
    }
}

#[test]
fn nothing_lies_over_the_directory_of_volumes_when_one_is_made_there() {
    unsafe_place([volume("/mnt/a")], "/mnt/a");
    unsafe_place([volume("/mnt/a"), scratch_at(VOLUMES_AT)], "/mnt/a");
    let (exec, access) = (Exec::Denied, WorkspaceAccess::ReadOnly);
    // A directory of the host, or of the image: the warden would make one more in it.
    for over in [
        Step::Workspace { slot: Slot(1), at: at(VOLUMES_AT), access, exec },
        Step::Writable { at: at(VOLUMES_AT) },
        Step::ProcessesAt { at: at(VOLUMES_AT) },
        scratch_at("/mnt/a"),
    ] {
        unsafe_place([scratch_at(VOLUMES_AT), over.clone(), volume("/mnt/b")], "/mnt/b");
        unsafe_place([scratch_at(VOLUMES_AT), volume("/mnt/a"), over, volume("/mnt/b")], "/mnt/b");
    }
}

#[test]
fn nothing_is_made_in_a_scratch_space_that_is_not_there() {
    let (exec, access, slot) = (Exec::Denied, WorkspaceAccess::ReadOnly, Slot(1));
    let workspace = Step::Workspace { slot, at: at("/workspace"), access, exec };
    let first = |step| {
        let mut plan = with([]);
        plan.own.insert(0, step);
        plan.check(2).unwrap_err()
    };
    for step in [scratch_at("/tmp"), Step::Writable { at: at("/opt") }, workspace] {
        assert_eq!(first(step), UnsafePlan::Scratch);
    }
    assert_eq!(first(volume("/mnt/a")), UnsafePlan::VolumePlace(at("/mnt/a")));
}

#[test]
fn a_volume_comes_as_a_descriptor() {
    for slot in [0, 2, 255] {
        let volume = Step::Volume { slot: Slot(slot), at: at("/mnt/a"), exec: Exec::Denied };
        let plan = with([scratch_at(VOLUMES_AT), volume]);
        assert_eq!(plan.check(2).unwrap_err(), UnsafePlan::BadSlot(slot));
    }
}

#[test]
fn sockets_are_kept_out_of_a_volume_by_landlock() {
    let tried = |change: &dyn Fn(&mut Landlock)| {
        let mut plan = with([scratch_at(VOLUMES_AT), volume("/mnt/a"), volume("/mnt/b")]);
        change(&mut plan.landlock);
        plan.check(2).map(drop)
    };
    let open = |place| Err(UnsafePlan::OpenVolume(at(place)));
    assert_eq!(tried(&|_| {}), Ok(()));
    assert_eq!(tried(&|landlock| landlock.least_abi = 0), open("/mnt/a"));
    assert_eq!(tried(&|landlock| landlock.grants.retain(|grant| grant.at != at("/mnt/b"))), open("/mnt/b"));
    // A second grant adds to the first, and one above or beneath holds there too.
    for place in ["/mnt/a", "/mnt", "/mnt/a/deep"] {
        let more = Grant { at: at(place), access: GrantAccess::ReadWrite };
        assert_eq!(tried(&|landlock| landlock.grants.push(more.clone())), open("/mnt/a"), "{place}");
    }
    let beside = Grant { at: at("/mntx"), access: GrantAccess::ReadWrite };
    assert_eq!(tried(&|landlock| landlock.grants.push(beside.clone())), Ok(()));
    let mut without = with([scratch_at(VOLUMES_AT)]);
    without.landlock.least_abi = 0;
    assert!(without.check(2).is_ok(), "the policy accepts that there is none, and no volume is there");
}
