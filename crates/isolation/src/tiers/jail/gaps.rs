//! What the jail cannot enforce on this host, by name.

use blastbox_images::Image;
use blastbox_policy::Gap;
use blastbox_wire::plan::{Denials, DeviceName, Ids, Plan, Step};

use super::WANTED_LANDLOCK_ABI;
use crate::request::Worksite;
use crate::{Facts, KernelVersion, Swap};

/// The first kernel whose overlays can lie on a directory with mapped owners. Every workspace lies behind an overlay.
pub(super) const OVERLAY_OWNER_MAP: KernelVersion = KernelVersion::new(5, 19);

/// Every gap of this plan on this host, in the order of [`Gap::ALL`].
pub(super) fn find(plan: &Plan, facts: &Facts, image: &Image, worksite: Worksite) -> Vec<Gap> {
    let (memory, cpu, pids) = super::held(plan.cgroups);
    let holds = |gap: &Gap| match gap {
        Gap::SharedKernel => true,
        Gap::HostImage => match image {
            Image::Host(_) => true,
            Image::Directory(_) | Image::Stored(_) | Image::Module(_) => false,
        },
        Gap::SharedUid => plan.ids == Ids::CallerOnly,
        Gap::NoMemoryLimit => !memory,
        Gap::NoCpuLimit => !cpu,
        Gap::NoPidsLimit => !pids,
        Gap::WeakLandlock => plan.landlock.least_abi < WANTED_LANDLOCK_ABI,
        Gap::SilentDenials => plan.denials == Denials::Silent,
        Gap::SwapUnlimited => match facts.swap {
            Swap::Uncounted => true,
            Swap::Counted => !memory,
            Swap::Absent => false,
        },
        // Without ids of its own the box is the caller, and the caller's files are its own.
        Gap::OwnerMapMissing => owner_map_missing(facts, plan, worksite),
        Gap::GpuDriverSurface => plan
            .template
            .iter()
            .any(|step| matches!(step, Step::Device { name } if DeviceName::GPU.contains(name))),
        Gap::VolumeSize => plan.own.iter().any(|step| matches!(step, Step::Volume { .. })),
        // A jail has no processor of its own.
        Gap::EmulatedCpu => false,
    };
    Gap::ALL.iter().copied().filter(holds).collect()
}

/// Whether the files of a given directory keep owners that the box does not have.
pub(in crate::tiers) fn owner_map_missing(facts: &Facts, plan: &Plan, worksite: Worksite) -> bool {
    plan.ids != Ids::CallerOnly
        && matches!(worksite, Worksite::Directory(_))
        && facts.version < OVERLAY_OWNER_MAP
}
