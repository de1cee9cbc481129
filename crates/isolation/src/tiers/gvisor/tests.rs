//! What gVisor makes of policies on many hosts.

use blastbox_images::Image;
use blastbox_policy::{AllowRule, Boundary, Draft, Profile, RuleParts, ScratchExec};
use blastbox_wire::{BoxId, Reader, Writer};

use super::*;
use crate::Gvisor;
use crate::facts::tests::{good_host, rootless_host};

fn with_runsc(facts: Facts, day: u32) -> Facts {
    Facts { gvisor: Gvisor::of(Version::Of(day)), ..facts }
}

fn host() -> Facts {
    with_runsc(good_host(), OLDEST_RUNSC)
}

fn request(image: &Image) -> Request<'_> {
    Request { box_id: BoxId::from_random([7; 20]), image, workspace: None, volumes: &[] }
}

fn draft() -> Draft {
    Profile::Default.draft().unwrap().accept(Gap::SilentDenials).tier(Tier::Gvisor)
}

fn lowered(draft: Draft, facts: &Facts) -> Result<Lowered, Refusal> {
    lower(&draft.seal().unwrap(), facts, &request(&Image::host()))
}

fn why(refusal: Refusal) -> String {
    let Refusal::TierUnavailable { tier: Tier::Gvisor, why } = refusal else { panic!("{refusal:?}") };
    why
}

fn arguments(plan: &Plan) -> String {
    let First::Monitor(monitor) = &plan.first else { panic!() };
    assert_eq!(monitor.kind, MonitorKind::Gvisor);
    monitor.arguments.join(" ")
}

#[test]
fn the_kernel_is_not_shared_and_denials_are_silent() {
    let user = lowered(draft(), &with_runsc(rootless_host(), OLDEST_RUNSC)).unwrap();
    assert!(user.gaps.contains(&Gap::SharedUid) && user.gaps.contains(&Gap::NoMemoryLimit));
    let lowered = lowered(draft(), &host()).unwrap();
    assert_eq!(lowered.gaps, [Gap::HostImage, Gap::NoPidsLimit, Gap::SilentDenials]);
    assert_eq!(lowered.effective(), Boundary::ALL);
    for report in &lowered.report {
        assert!(!report.how.iter().any(|line| line.contains("the host's kernel")), "{report:?}");
        assert!(report.gaps.iter().all(|gap| lowered.gaps.contains(gap)), "{report:?}");
    }
    for gap in &lowered.gaps {
        assert!(lowered.report.iter().any(|report| report.gaps.contains(gap)), "{gap}");
    }
}

#[test]
fn the_plan_is_the_jails_with_another_first_process_and_survives_the_way_to_the_warden() {
    let (image, policy) = (Image::host(), draft().seal().unwrap());
    let request = request(&image);
    let ours = lower(&policy, &host(), &request).unwrap();
    let jail = jail::lower(&policy, &host(), &request).unwrap().plan;
    assert!(ours.plan.template.starts_with(&jail.template));
    assert_eq!((ours.plan.ids, ours.plan.cgroups), (jail.ids, jail.cgroups));
    let moved = |step: &Step| match step {
        Step::ProcessesAt { .. } => Step::Processes,
        other => other.clone(),
    };
    assert_eq!(ours.plan.own.iter().map(moved).collect::<Vec<_>>(), jail.own);
    // Nobody may open what is beneath the view of processes: gVisor's memory is there.
    let within = |grant: &&Grant| PROCESSES.starts_with(grant.at.as_str());
    assert_eq!(ours.plan.landlock.grants.iter().find(within), None);
    assert_eq!(ours.plan.limits.memory, jail.limits.memory);
    assert_eq!(ours.shows.len(), 3);
    let mut to = Writer::default();
    ours.plan.encode(&mut to);
    let bytes = to.finish();
    assert_eq!(Plan::decode(&mut Reader::new(&bytes)).unwrap(), ours.plan);
    ours.plan.check(request.descriptors(&policy) + 3).unwrap();
}

#[test]
fn what_the_policy_limits_inside_is_told_to_gvisor() {
    let plan = lowered(draft(), &host()).unwrap().plan;
    let text = arguments(&plan);
    assert!(text.contains("--network none") && text.contains("--platform systrap"), "{text}");
    for place in ["/tmp=exec", "/home/user=exec", "/workspace=exec", "/dev/shm=noexec"] {
        assert!(text.contains(&format!("--place {place}")), "{text}");
    }
    let strict = lowered(draft().exec(ScratchExec::Denied), &host()).unwrap().plan;
    let text = arguments(&strict);
    for place in ["/tmp", "/home/user", "/workspace"] {
        assert!(text.contains(&format!("--place {place}=noexec")), "{text}");
    }
    let rule = AllowRule::new("api.example.com".parse().unwrap(), RuleParts::default()).unwrap();
    let open = lowered(draft().allow(rule), &host()).unwrap();
    assert!(arguments(&open.plan).contains("--network host"));
    let network = open.report.iter().find(|report| report.boundary == Boundary::Network).unwrap();
    assert!(network.how.join("\n").contains("sockets of its network namespace"), "{:?}", network.how);
}

#[test]
fn a_missing_an_old_and_an_unclear_gvisor_are_refused_by_name() {
    assert!(why(lowered(draft(), &good_host()).unwrap_err()).contains("not installed"));
    let old = why(lowered(draft(), &with_runsc(good_host(), 20_221_219)).unwrap_err());
    assert!(old.contains("20221219") && old.contains("20240729"), "{old}");
    let odd = Gvisor::of(Version::Unclear("it says \"\"".to_owned()));
    assert!(why(lowered(draft(), &Facts { gvisor: odd, ..good_host() }).unwrap_err()).contains("unclear"));
    lowered(draft(), &with_runsc(good_host(), 20_251_013)).unwrap();
    let mut half = host().gvisor;
    half.keeper = None;
    assert!(
        why(lowered(draft(), &Facts { gvisor: half, ..good_host() }).unwrap_err())
            .contains("blastbox-gvisor")
    );
}

#[test]
fn what_gvisor_cannot_keep_is_refused() {
    let kill = draft().on_denied_syscall(OnDenied::Kill);
    assert!(why(lowered(kill, &host()).unwrap_err()).contains("denied system call"));
    assert!(why(lowered(draft().report_writes(true), &host()).unwrap_err()).contains("report_writes"));
    let bare = Facts { landlock_abi: 0, ..host() };
    assert!(why(lowered(draft(), &bare).unwrap_err()).contains("Landlock"));
    let small = draft().memory(blastbox_policy::Bytes(48 << 20));
    assert!(why(lowered(small, &host()).unwrap_err()).contains("48M"));
}

/// A host whose KVM was found so.
fn with_kvm(kvm: Kvm) -> Facts {
    let build = blastbox_wire::event::Hash::from_bytes([5; 32]);
    let view = blastbox_images::HostImage::look();
    let found = crate::facts::Found { version: None, kvm, processors: 2, view, reads: Vec::new(), build };
    Facts { machines: crate::Machines::of(found), ..host() }
}

#[test]
fn its_platform_is_the_policys_and_kvm_only_where_there_is_a_fast_one() {
    let kvm = Step::Device { name: DeviceName::Kvm };
    let traced = lowered(draft().gvisor_platform(GvisorPlatform::Ptrace), &host()).unwrap();
    assert!(arguments(&traced.plan).contains("--platform ptrace") && !traced.plan.template.contains(&kvm));
    let fast = with_kvm(Kvm::Fast);
    assert!(!lowered(draft(), &fast).unwrap().plan.template.contains(&kvm), "nobody asked for it");
    let virtual_one = lowered(draft().gvisor_platform(GvisorPlatform::Kvm), &fast).unwrap();
    assert!(
        arguments(&virtual_one.plan).contains("--platform kvm") && virtual_one.plan.template.contains(&kvm)
    );
    assert!(virtual_one.report.iter().any(|report| report.how.join(" ").contains("platform kvm")));
    let slow = with_kvm(Kvm::Unusable("there is no /dev/kvm".to_owned()));
    let said = why(lowered(draft().gvisor_platform(GvisorPlatform::Kvm), &slow).unwrap_err());
    assert!(said.contains("kernel.gvisor_platform") && said.contains("no /dev/kvm"), "{said}");
}

#[test]
fn without_the_gap_accepted_nobody_starts_a_program_to_ask() {
    let unasked = Gvisor::of(Version::Of(20_221_219));
    let policy = Profile::Default.draft().unwrap().tier(Tier::Gvisor);
    // Refused later, for the gap: the version decides nothing.
    let gaps = lowered(policy, &Facts { gvisor: unasked, ..good_host() }).unwrap().gaps;
    assert!(gaps.contains(&Gap::SilentDenials));
}

#[test]
fn without_a_group_the_length_of_the_memory_file_is_the_limit_and_the_report_says_so() {
    let lines = |lowered: &Lowered| {
        lowered.report.iter().flat_map(|report| report.how.clone()).collect::<Vec<_>>().join("\n")
    };
    let held = lowered(draft(), &host()).unwrap();
    assert_eq!(held.plan.limits.file_size, FILE_SIZE);
    let big = draft().memory(blastbox_policy::Bytes((3 << 30) / 2));
    let user = lowered(big, &with_runsc(rootless_host(), OLDEST_RUNSC)).unwrap();
    assert_eq!(user.plan.limits.file_size, 2 << 30);
    let said = lines(&user);
    assert!(
        said.contains("at most 2GiB, gVisor's own is not counted") && !said.contains("each process alone"),
        "{said}"
    );
}

#[test]
fn a_loopback_that_the_policy_closes_is_said_to_be_there() {
    let lowered = lowered(draft().loopback(blastbox_policy::Loopback::None), &host()).unwrap();
    let network = lowered.report.iter().find(|report| report.boundary == Boundary::Network).unwrap();
    let said = network.how.join("\n");
    assert!(said.contains("has a loopback whatever the policy says"), "{said}");
    assert!(said.contains("around gVisor") && !said.contains("of its own, without even"), "{said}");
}

fn gpu_host(runsc: Gvisor) -> Facts {
    let gpu = crate::facts::Gpu {
        driver: "580.159.04".to_owned(),
        libraries: vec!["/usr/lib64/libcuda.so.1".into()],
    };
    Facts { gpu: Some(gpu), gvisor: runsc, ..good_host() }
}

fn wants_gpu() -> Draft {
    draft().accept(Gap::GpuDriverSurface).gpu(Gpu::One)
}

#[test]
fn a_driver_that_this_gvisor_does_not_know_is_refused_with_the_versions_of_both() {
    let runsc = Gvisor::of(Version::Of(20_240_729)).knowing("550.54.15");
    let refused = lowered(wants_gpu(), &gpu_host(runsc)).unwrap_err();
    assert_eq!(refused.code(), "gpu_unavailable");
    let said = refused.to_string();
    for part in ["runsc of 20240729", "NVIDIA driver 580.159.04", "knows those of: 550.54.15", "--tier jail"]
    {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_driver_that_it_knows_is_named_to_it_and_the_gap_is_still_there() {
    let facts = gpu_host(Gvisor::of(Version::Of(20_240_729)).knowing("580.159.04"));
    let lowered = lowered(wants_gpu(), &facts).unwrap();
    assert!(arguments(&lowered.plan).contains("--gpu 580.159.04"));
    for name in DeviceName::GPU {
        assert!(lowered.plan.template.contains(&Step::Device { name }), "{name:?}");
    }
    assert!(lowered.gaps.contains(&Gap::GpuDriverSurface));
    let kernel = lowered.report.iter().find(|report| report.boundary == Boundary::Kernel).unwrap();
    assert!(kernel.how.iter().any(|how| how.contains("580.159.04")), "{kernel:?}");
    // Without the rule it hears of none.
    let without = super::lower(&draft().seal().unwrap(), &facts, &request(&Image::host())).unwrap();
    assert!(!arguments(&without.plan).contains("--gpu"));
}
