//! The places of a box that are its own, and what may be done where.

use blastbox_images::{Image, TreeUse};
use blastbox_policy::ScratchExec;
use blastbox_wire::plan::{Exec, Grant, GrantAccess, GuestPath, Owner, Slot, Step, WorkspaceAccess};

use crate::request::Worksite;

const WORKSPACE: &str = "/workspace";

/// What decides over the places of a box.
pub(super) struct Places<'a> {
    pub(super) image: &'a Image,
    pub(super) worksite: Worksite,
    /// Where the workspace's directory travels, if one is given.
    pub(super) slot: Slot,
    pub(super) exec: ScratchExec,
}

impl Places<'_> {
    /// What belongs to this box alone.
    pub(super) fn own_steps(&self, bytes: u64, inodes: u64) -> Vec<Step> {
        let exec = self.exec();
        let mut steps = vec![Step::Scratch { bytes, inodes }];
        let mut scratch = |at: &str, owner, exec| {
            steps.extend(path(at).map(|at| Step::ScratchDirectory { at, owner, exec }));
        };
        scratch("/tmp", Owner::Everybody, exec);
        scratch("/home/user", Owner::Payload, exec);
        // Shared memory is never a place for programs, whatever the policy says about scratch space.
        scratch("/dev/shm", Owner::Everybody, Exec::Denied);
        match self.worksite {
            Worksite::Absent => {}
            Worksite::Scratch => scratch(WORKSPACE, Owner::Payload, exec),
            Worksite::Directory(access) => {
                let slot = self.slot;
                steps.extend(path(WORKSPACE).map(|at| Step::Workspace { slot, at, access, exec }));
            }
        }
        steps.extend([Step::Processes, Step::Terminals]);
        steps
    }

    /// What may be done where. Nothing else may be done anywhere.
    pub(super) fn grants(&self) -> Vec<Grant> {
        let trees = self.image.trees().into_iter().map(|tree| Grant {
            at: tree.at,
            access: match tree.used_for {
                TreeUse::Programs => GrantAccess::ReadExecute,
                TreeUse::Settings => GrantAccess::Read,
            },
        });
        let scratch = match self.exec {
            ScratchExec::Allowed => GrantAccess::ReadWriteExecute,
            ScratchExec::Denied => GrantAccess::ReadWrite,
        };
        let ours = [
            // Written to by programs about themselves: comm, oom_score_adj. Other processes are not to be seen.
            ("/proc", GrantAccess::ReadWrite),
            ("/dev", GrantAccess::Devices),
            ("/dev/pts", GrantAccess::Terminals),
            ("/dev/tty", GrantAccess::Terminals),
            ("/dev/shm", GrantAccess::ReadWrite),
            ("/tmp", scratch),
            ("/home/user", scratch),
        ];
        let worksite = match (self.worksite, self.exec) {
            (Worksite::Absent, _) => None,
            (Worksite::Directory(WorkspaceAccess::ReadOnly), ScratchExec::Allowed) => {
                Some(GrantAccess::ReadExecute)
            }
            (Worksite::Directory(WorkspaceAccess::ReadOnly), ScratchExec::Denied) => Some(GrantAccess::Read),
            (Worksite::Scratch | Worksite::Directory(WorkspaceAccess::CopyOnWrite), _) => Some(scratch),
        };
        let ours = ours.into_iter().chain(worksite.map(|access| (WORKSPACE, access)));
        trees.chain(ours.filter_map(|(at, access)| path(at).map(|at| Grant { at, access }))).collect()
    }

    fn exec(&self) -> Exec {
        match self.exec {
            ScratchExec::Allowed => Exec::Allowed,
            ScratchExec::Denied => Exec::Denied,
        }
    }
}

/// Every path here is written by us and plain; a test counts what comes out.
fn path(text: &str) -> Option<GuestPath> {
    text.parse().ok()
}
