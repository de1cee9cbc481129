//! What a caller wants in one box, beside the policy.

use blastbox_images::Image;
use blastbox_policy::{NetworkMode, Refusal, SealedPolicy, Workspace};
use blastbox_wire::BoxId;
use blastbox_wire::plan::{GuestPath, Slot, WorkspaceAccess};

/// What a caller wants in one box, beside the policy.
///
/// The descriptors travel with the plan in this order: the control channel, the image's directory if it has one, the
/// workspace's directory if one is given, those of volumes, the socket to the gateway if the policy has network, what a tier shows
/// of the host.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The name of the box.
    pub box_id: BoxId,
    /// Its root file system.
    pub image: &'a Image,
    /// A directory of the host is given as workspace, for this use at most: the policy may allow less, never more.
    pub workspace: Option<WorkspaceAccess>,
    /// Where directories of the host appear that the box writes to, each a name in [`VOLUMES_AT`](blastbox_wire::plan::VOLUMES_AT).
    pub volumes: &'a [GuestPath],
}

/// Volumes of one box. Each travels as a descriptor.
pub const MOST_VOLUMES: usize = 4;

/// Where the payload works, after policy and request have been put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Worksite {
    /// Nowhere.
    Absent,
    /// In an empty directory of the scratch space.
    Scratch,
    /// In the caller's directory.
    Directory(WorkspaceAccess),
}

impl Request<'_> {
    /// Where the first of what a tier shows of the host travels.
    #[must_use]
    pub fn first_show(&self, policy: &SealedPolicy) -> Slot {
        Slot(u8::try_from(self.descriptors(policy)).unwrap_or(u8::MAX))
    }

    /// How many descriptors travel with the plan, the control channel included, and without what a tier shows.
    #[must_use]
    pub fn descriptors(&self, policy: &SealedPolicy) -> usize {
        let gateway = policy.network().mode != NetworkMode::Off;
        usize::from(self.gateway_slot().0) + usize::from(gateway)
    }

    /// Where the socket to the gateway travels, if the policy has network.
    pub(crate) fn gateway_slot(&self) -> Slot {
        let volumes = u8::try_from(self.volumes.len()).unwrap_or(u8::MAX);
        Slot(self.first_volume().0.saturating_add(volumes))
    }

    /// Where the first volume travels, if there is one.
    pub(crate) fn first_volume(&self) -> Slot {
        Slot(1 + u8::from(self.image.dir().is_some()) + u8::from(self.workspace.is_some()))
    }

    /// Where the image's directory travels, if it has one.
    pub(crate) const IMAGE: Slot = Slot(1);

    /// Where the workspace's directory travels, if one is given.
    pub(crate) fn workspace_slot(&self) -> Slot {
        if self.image.dir().is_some() { Slot(2) } else { Slot(1) }
    }

    /// Where the payload works, or a refusal where the policy has no place for the directory that is given.
    pub(crate) fn worksite(&self, policy: &SealedPolicy) -> Result<Worksite, Refusal> {
        match (policy.files().workspace, self.workspace) {
            (Workspace::None | Workspace::Scratch, Some(_)) => {
                Err(Refusal::WorkspaceNotAllowed { level: policy.level() })
            }
            (Workspace::None, None) => Ok(Worksite::Absent),
            (Workspace::Scratch | Workspace::ReadOnly | Workspace::CopyOnWrite, None) => {
                Ok(Worksite::Scratch)
            }
            (Workspace::ReadOnly, Some(_)) => Ok(Worksite::Directory(WorkspaceAccess::ReadOnly)),
            (Workspace::CopyOnWrite, Some(access)) => Ok(Worksite::Directory(access)),
        }
    }
}
