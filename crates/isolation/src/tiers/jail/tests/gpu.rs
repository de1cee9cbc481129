//! A GPU of the host in a box: what the plan shows of it, and where there is none.

use std::path::PathBuf;

use blastbox_policy::{Gpu, TierChoice};
use blastbox_wire::plan::{DeviceName, GrantAccess};

use super::*;
use crate::{choose, tiers};

fn gpu_host() -> Facts {
    let libraries =
        vec![PathBuf::from("/usr/lib64/libcuda.so.1"), PathBuf::from("/usr/lib64/libnvidia-ml.so.1")];
    Facts { gpu: Some(crate::facts::Gpu { driver: "580.1.2".to_owned(), libraries }), ..good_host() }
}

fn wants_gpu() -> Draft {
    Profile::Default
        .draft()
        .unwrap()
        .gpu(Gpu::One)
        .tier(TierChoice::Exactly(Tier::Jail))
        .accept(Gap::SharedKernel)
}

#[test]
fn a_gpu_is_three_devices_and_a_gap() {
    let lowered = lowered(&policy(wants_gpu()), &gpu_host());
    for name in DeviceName::GPU {
        assert!(lowered.plan.template.contains(&Step::Device { name }), "{name:?}");
        let at = format!("/dev/{}", name.as_str());
        let grant = lowered.plan.landlock.grants.iter().find(|grant| grant.at.as_str() == at).unwrap();
        assert_eq!(grant.access, GrantAccess::Terminals, "calls into the driver are ioctls");
    }
    assert!(lowered.gaps.contains(&Gap::GpuDriverSurface));
    assert_eq!(lowered.shows, Vec::<PathBuf>::new(), "the host's view has its libraries");
    let kernel = lowered.report.iter().find(|line| line.boundary == Boundary::Kernel).unwrap();
    assert!(kernel.how.iter().any(|how| how.contains("580.1.2")), "{kernel:?}");
}

#[test]
fn without_the_rule_nothing_of_it_is_shown_or_admitted() {
    let lowered = lowered(&default_policy(), &gpu_host());
    assert!(!lowered.gaps.contains(&Gap::GpuDriverSurface));
    let devices = lowered.plan.template.iter().filter(|step| matches!(step, Step::Device { .. })).count();
    assert_eq!(devices, DeviceName::HARMLESS.len());
    assert!(!lowered.plan.landlock.grants.iter().any(|grant| grant.at.as_str().contains("nvidia")));
}

#[test]
fn an_image_of_its_own_is_shown_the_drivers_libraries() {
    let rootfs = Rootfs::new("gpu");
    let image = rootfs.image();
    let lowered = lower(&policy(wants_gpu()), &gpu_host(), &request(&image)).unwrap();
    assert_eq!(lowered.shows, gpu_host().gpu.unwrap().libraries);
    let shown: Vec<(Slot, &str)> = lowered
        .plan
        .template
        .iter()
        .filter_map(|step| match step {
            Step::Show { slot, at } => Some((*slot, at.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(
        shown,
        [(Slot(2), "/.blastbox/gpu/libcuda.so.1"), (Slot(3), "/.blastbox/gpu/libnvidia-ml.so.1")],
        "after the control channel and the image"
    );
}

#[test]
fn a_gap_that_is_not_accepted_and_a_gpu_that_is_not_there_are_refused_by_name() {
    let image = Image::host();
    let refused =
        |draft: Draft, facts: &Facts| choose(&policy(draft), facts, &request(&image)).chosen.unwrap_err();
    assert_eq!(
        refused(wants_gpu().accept(Gap::HostImage), &gpu_host()),
        Refusal::not_accepted(Gap::GpuDriverSurface)
    );
    assert_eq!(refused(wants_gpu().accept(Gap::GpuDriverSurface), &good_host()).code(), "gpu_unavailable");
}

#[test]
fn no_other_tier_has_one() {
    let sealed = policy(wants_gpu().tier(TierChoice::ByThreat));
    let image = Image::host();
    for (tier, code) in [
        (Tier::Gvisor, "gpu_unavailable"),
        (Tier::Microvm, "gpu_unavailable"),
        (Tier::Wasm, "tier_unavailable"),
    ] {
        // Before anything is looked for: the tier wasm alone says first that it is not installed on this host.
        let refusal = tiers::lower(tier, &sealed, &gpu_host(), &request(&image)).unwrap_err();
        assert_eq!(refusal.code(), code, "{tier}: {refusal}");
    }
    let gvisor = tiers::lower(Tier::Gvisor, &sealed, &gpu_host(), &request(&image)).unwrap_err();
    assert!(gvisor.to_string().contains("580.1.2"), "{gvisor}");
}
