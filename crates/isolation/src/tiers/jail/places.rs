//! The places of a box that are its own, and what may be done where.

use blastbox_images::{Image, TreeUse};
use blastbox_policy::{NetworkMode, ScratchExec};
use blastbox_wire::egress::{BUNDLE, GATEWAY_V4};
use blastbox_wire::plan::{Exec, Grant, GrantAccess, GuestPath, Owner, Slot, Step, WorkspaceAccess};

use crate::request::{Request, Worksite};

const WORKSPACE: &str = "/workspace";

const RESOLVERS: &str = "/etc/resolv.conf";

/// The root of a box of this image. One with network asks its gateway for names, and nobody else.
pub(super) fn template(image: &Image, network: NetworkMode) -> Vec<Step> {
    let mut steps = image.template_steps(Request::IMAGE);
    if network == NetworkMode::Off {
        return steps;
    }
    let ours = format!("# The gateway of this box.\nnameserver {GATEWAY_V4}\n");
    let own = steps.iter_mut().find_map(|step| match step {
        Step::File { at, text } if at.as_str() == RESOLVERS => Some(text),
        _ => None,
    });
    match own {
        Some(text) => *text = ours,
        None => steps.extend(path(RESOLVERS).map(|at| Step::Cover { at, text: ours })),
    }
    steps
}

/// What decides over the places of a box.
pub(super) struct Places<'a> {
    pub(super) image: &'a Image,
    pub(super) worksite: Worksite,
    /// Where the workspace's directory travels, if one is given.
    pub(super) slot: Slot,
    pub(super) exec: ScratchExec,
    pub(super) trust: Trust,
}

/// Whom programs of the box believe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// Whom the image believes.
    AsImage,
    /// An authority of the box's own besides: its gateway ends TLS.
    OwnAuthority,
}

impl Places<'_> {
    /// The root with a place for the bundle of authorities, where one will lie there.
    pub(super) fn with_bundle(&self, mut template: Vec<Step>) -> Vec<Step> {
        if self.trust == Trust::OwnAuthority {
            template.extend(path(BUNDLE).map(|at| Step::File { at, text: String::new() }));
        }
        template
    }

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
        if self.trust == Trust::OwnAuthority {
            steps.push(Step::Trust { authority: String::new() });
        }
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
        let bundle = (self.trust == Trust::OwnAuthority).then_some((BUNDLE, GrantAccess::Read));
        let ours = ours.into_iter().chain(worksite.map(|access| (WORKSPACE, access))).chain(bundle);
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
