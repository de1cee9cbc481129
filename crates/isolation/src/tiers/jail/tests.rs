//! What the jail makes of policies on many hosts.

mod gpu;
mod places;

use blastbox_images::Image;
use blastbox_policy::{AllowRule, Boundary, Draft, Gap, Profile, RuleParts};
use blastbox_wire::plan::{Slot, Step, WorkspaceAccess};
use blastbox_wire::{BoxId, Reader, Writer};

use super::*;
use crate::facts::tests::{good_host, rootless_host};
use crate::{Swap, UserNamespaces};

fn request(image: &Image) -> Request<'_> {
    Request { box_id: BoxId::from_random([7; 20]), image, workspace: None, volumes: &[] }
}

fn policy(draft: Draft) -> SealedPolicy {
    draft.seal().unwrap()
}

fn default_policy() -> SealedPolicy {
    policy(Profile::Default.draft().unwrap())
}

fn lowered(policy: &SealedPolicy, facts: &Facts) -> Lowered {
    lower(policy, facts, &request(&Image::host())).unwrap()
}

/// The gaps of the default policy on a host, without the two that a jail with the host's image always has.
fn gaps(facts: &Facts) -> Vec<Gap> {
    let all = lowered(&default_policy(), facts).gaps;
    assert!(all.starts_with(&[Gap::SharedKernel, Gap::HostImage]));
    all[2..].to_vec()
}

/// A directory image of this test's own, gone at the end.
struct Rootfs(std::path::PathBuf);

impl Rootfs {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("jail-{name}-{}", std::process::id()));
        for sub in ["usr/bin", "etc", "app", "tmp"] {
            std::fs::create_dir_all(path.join(sub)).unwrap();
        }
        Self(path)
    }
    fn image(&self) -> Image {
        Image::parse(self.0.to_str().unwrap()).unwrap()
    }
}

impl Drop for Rootfs {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn every_host_has_exactly_the_gaps_that_it_has() {
    let good = good_host;
    let no_limits = [Gap::NoMemoryLimit, Gap::NoCpuLimit, Gap::NoPidsLimit];
    let shared = |rest: &[Gap]| [&[Gap::SharedUid], rest].concat();
    let table: [(&str, Facts, Vec<Gap>); 11] = [
        ("root, v2", good(), vec![]),
        ("root, v1", Facts { cgroups: CgroupKind::V1, ..good() }, vec![]),
        ("root, swap counted", Facts { swap: Swap::Counted, ..good() }, vec![]),
        ("root, swap not counted", Facts { swap: Swap::Uncounted, ..good() }, vec![Gap::SwapUnlimited]),
        ("root, no cpu", Facts { cpu: false, ..good() }, vec![Gap::NoCpuLimit]),
        ("root, no Landlock", Facts { landlock_abi: 0, ..good() }, vec![Gap::WeakLandlock]),
        ("root, Landlock 3", Facts { landlock_abi: 3, ..good() }, vec![Gap::WeakLandlock]),
        ("root, Landlock 6", Facts { landlock_abi: 6, ..good() }, vec![]),
        ("root, no reports", Facts { seccomp_user_notif: false, ..good() }, vec![Gap::SilentDenials]),
        ("user", rootless_host(), shared(&no_limits)),
        ("user, delegated", Facts { privileged: false, ..good() }, shared(&[])),
    ];
    for (name, facts, expected) in table {
        assert_eq!(gaps(&facts), expected, "{name}");
    }
}

#[test]
fn every_plan_holds_to_the_rules_and_survives_the_way_to_the_warden() {
    let rootfs = Rootfs::new("trip");
    let images = [Image::host(), rootfs.image()];
    let old = Facts { landlock_abi: 3, seccomp_user_notif: false, ..rootless_host() };
    for facts in [good_host(), rootless_host(), old] {
        for image in &images {
            for (profile, workspace) in [
                (Profile::Default, None),
                (Profile::Low, None),
                (Profile::Medium, None),
                (Profile::Medium, Some(WorkspaceAccess::ReadOnly)),
                (Profile::Medium, Some(WorkspaceAccess::CopyOnWrite)),
            ] {
                let request = Request { workspace, ..request(image) };
                let policy = policy(profile.draft().unwrap());
                let plan = lower(&policy, &facts, &request).unwrap().plan;
                let mut to = Writer::default();
                plan.encode(&mut to);
                let bytes = to.finish();
                let mut from = Reader::new(&bytes);
                assert_eq!(Plan::decode(&mut from).unwrap(), plan);
                from.end().unwrap();
                plan.check(request.descriptors(&policy)).unwrap();
            }
        }
    }
}

#[test]
fn a_box_has_a_loopback_only_where_the_policy_says_so() {
    let network = |abi, loopback| {
        let policy = policy(Profile::Default.draft().unwrap().loopback(loopback));
        lowered(&policy, &Facts { landlock_abi: abi, ..good_host() }).plan.network
    };
    for abi in [0, 5, 6, 7] {
        assert_eq!(network(abi, Loopback::None), Network::Empty);
        assert_eq!(network(abi, Loopback::Own), Network::Loopback);
    }
}

#[test]
fn an_open_network_is_reported_as_no_boundary() {
    let policy = policy(Profile::Default.draft().unwrap().dangerously_open_network());
    let lowered = lowered(&policy, &good_host());
    assert_eq!(lowered.plan.network, Network::Gateway { slot: Slot(1), loopback: false });
    let line = lowered.report.iter().find(|line| line.boundary == Boundary::Network).unwrap();
    assert!(!line.effective && line.how.join("; ").contains("dangerously open"), "{line:?}");
}

#[test]
fn a_box_with_network_has_one_way_out_and_asks_its_gateway_for_names() {
    let rule = AllowRule::new("api.example.com".parse().unwrap(), RuleParts::default()).unwrap();
    let policy = policy(Profile::Default.draft().unwrap().allow(rule));
    let lowered = lowered(&policy, &good_host());
    assert_eq!(lowered.plan.network, Network::Gateway { slot: Slot(1), loopback: false });
    let resolvers = |step: &Step| matches!(step, Step::File { at, text } if at.as_str() == "/etc/resolv.conf" && text.contains("nameserver 198.18.0.1"));
    assert!(lowered.plan.template.iter().any(resolvers));
    let how = lowered.report.iter().find(|line| line.boundary == Boundary::Network).unwrap().how.join("; ");
    assert!(how.contains("1 rule allowed: api.example.com:443"), "{how}");
    let rootfs = Rootfs::new("resolvers");
    let image = rootfs.image();
    let plan = lower(&policy, &good_host(), &request(&image)).unwrap().plan;
    assert_eq!(plan.network, Network::Gateway { slot: Slot(2), loopback: false });
    assert!(matches!(plan.template.last(), Some(Step::Cover { .. })));
}

#[test]
fn a_host_without_the_device_for_interfaces_refuses_network_and_says_what_to_do() {
    let image = Image::host();
    let rule = AllowRule::new("api.example.com".parse().unwrap(), RuleParts::default()).unwrap();
    let policy = policy(Profile::Default.draft().unwrap().allow(rule));
    for (tun, fix) in [(Tun::Forbidden, "chmod 0666 /dev/net/tun"), (Tun::Absent, "modprobe tun")] {
        let refused = lower(&policy, &Facts { tun, ..good_host() }, &request(&image)).unwrap_err();
        assert_eq!(refused.code(), "host_unfit");
        assert!(refused.fix().contains(fix), "{}", refused.fix());
    }
}

#[test]
fn ending_the_box_at_a_denied_call_needs_reports() {
    let image = Image::host();
    let kill = policy(
        Profile::Default.draft().unwrap().accept(Gap::SilentDenials).on_denied_syscall(OnDenied::Kill),
    );
    let silent = Facts { seccomp_user_notif: false, ..good_host() };
    let refused = lower(&kill, &silent, &request(&image)).unwrap_err();
    assert_eq!(refused.code(), "tier_unavailable");
    assert_eq!(lowered(&kill, &good_host()).plan.denials, Denials::Reported);
    assert_eq!(lowered(&default_policy(), &silent).plan.denials, Denials::Silent);
}

#[test]
fn reporting_writes_needs_reports_and_eyes() {
    let image = Image::host();
    let writes = policy(Profile::Default.draft().unwrap().accept(Gap::SilentDenials).report_writes(true));
    let seen = lowered(&writes, &good_host());
    assert_eq!(seen.plan.denials, Denials::WithWrites);
    assert_eq!(seen.plan.limits.pids, writes.kernel().pids + 1, "the agent's second thread");
    let many =
        Profile::Default.draft().unwrap().accept(Gap::SilentDenials).report_writes(true).pids(4_194_304);
    assert_eq!(lowered(&policy(many), &good_host()).plan.limits.pids, 4_194_304, "more no kernel has");
    let files = seen.report.iter().find(|line| line.boundary == Boundary::Files).unwrap();
    assert!(files.how.iter().any(|how| how.contains("unexpected paths are reported")), "{:?}", files.how);
    for (facts, word) in [
        (Facts { seccomp_user_notif: false, ..good_host() }, "cannot report a system call"),
        (Facts { reads_own_children: false, ..good_host() }, "ptrace_scope"),
    ] {
        let refused = lower(&writes, &facts, &request(&image)).unwrap_err();
        assert_eq!(refused.code(), "tier_unavailable");
        assert!(refused.to_string().contains(word), "{refused}");
        lower(
            &policy(Profile::Default.draft().unwrap().accept(Gap::SilentDenials)),
            &facts,
            &request(&image),
        )
        .unwrap();
    }
}

#[test]
fn an_unfit_host_is_refused_with_what_helps() {
    let image = Image::host();
    let off = UserNamespaces { switched_off: true, ..UserNamespaces::default() };
    let few = UserNamespaces { few_ids: true, ..UserNamespaces::default() };
    let none = UserNamespaces { most: Some(0), ..UserNamespaces::default() };
    for (facts, fix) in [
        (Facts { version: KernelVersion::new(5, 12), ..good_host() }, "5.13"),
        (Facts { user_namespaces: none, ..good_host() }, "user.max_user_namespaces"),
        (Facts { user_namespaces: off, ..rootless_host() }, "unprivileged_userns_clone=1"),
        (Facts { user_namespaces: few, ..good_host() }, "outside of that namespace"),
    ] {
        let refused = lower(&default_policy(), &facts, &request(&image)).unwrap_err();
        assert_eq!(refused.code(), "host_unfit");
        assert!(refused.fix().contains(fix), "{}", refused.fix());
    }
    lowered(&default_policy(), &Facts { version: KernelVersion::new(5, 13), ..good_host() });
    lowered(&default_policy(), &Facts { user_namespaces: off, ..good_host() });
}

#[test]
fn owners_are_a_gap_only_for_a_directory_of_another_user_on_an_old_kernel() {
    let image = Image::host();
    let medium = policy(Profile::Medium.draft().unwrap());
    let old = Facts { version: KernelVersion::new(5, 18), ..good_host() };
    let gap = |facts: &Facts, workspace| {
        let request = Request { workspace, ..request(&image) };
        lower(&medium, facts, &request).unwrap().gaps.contains(&Gap::OwnerMapMissing)
    };
    assert!(gap(&old, Some(WorkspaceAccess::CopyOnWrite)));
    assert!(gap(&old, Some(WorkspaceAccess::ReadOnly)));
    assert!(!gap(&old, None));
    assert!(!gap(&good_host(), Some(WorkspaceAccess::CopyOnWrite)));
    assert!(!gap(&Facts { privileged: false, ..old }, Some(WorkspaceAccess::CopyOnWrite)));
}

#[test]
fn boundaries_are_effective_only_where_something_holds_them() {
    let effective = |facts: &Facts| lowered(&default_policy(), facts).effective();
    let without = |missing: Boundary| -> Vec<Boundary> {
        Boundary::ALL.iter().copied().filter(|boundary| *boundary != missing).collect()
    };
    assert_eq!(effective(&good_host()), Boundary::ALL);
    assert_eq!(effective(&rootless_host()), without(Boundary::Lifecycle));
    assert_eq!(effective(&Facts { pids: false, ..good_host() }), without(Boundary::Lifecycle));
    assert_eq!(effective(&Facts { cpu: false, ..good_host() }), Boundary::ALL);
    assert_eq!(effective(&Facts { landlock_abi: 0, ..good_host() }), without(Boundary::Files));
    assert_eq!(effective(&Facts { landlock_abi: 1, ..good_host() }), Boundary::ALL);
}

#[test]
fn every_gap_is_told_at_its_boundary_and_every_boundary_says_what_holds_it() {
    let old = Facts { landlock_abi: 0, seccomp_user_notif: false, swap: Swap::Uncounted, ..rootless_host() };
    let lowered = lowered(&default_policy(), &old);
    for gap in &lowered.gaps {
        let told = lowered.report.iter().find(|report| report.boundary == gap.boundary()).unwrap();
        assert!(told.gaps.contains(gap), "{gap}");
    }
    for report in &lowered.report {
        assert!(!report.how.is_empty());
        for line in &report.how {
            assert!(!line.contains("  ") && !line.ends_with('.'), "{line}");
        }
    }
}

#[test]
fn what_is_written_to_volumes_is_not_said_to_be_in_memory_nor_to_go_with_the_box() {
    let (image, volume) = (Image::host(), ["/mnt/v".parse().unwrap()]);
    let told = |volumes: &[_]| -> Vec<String> {
        let lowered =
            lower(&default_policy(), &good_host(), &Request { volumes, ..request(&image) }).unwrap();
        lowered.report.into_iter().flat_map(|report| report.how).collect()
    };
    let has = |lines: &[String], end: &str| lines.iter().any(|line| line.ends_with(end));
    let (with, without) = (told(&volume), told(&[]));
    assert!(has(&with, "files can be written outside of volumes, all of it in memory"), "{with:?}");
    assert!(has(&with, "what it wrote goes with it, but for what lies in volumes"), "{with:?}");
    assert!(has(&without, "files can be written, all of it in memory"), "{without:?}");
    assert!(has(&without, "what it wrote goes with it"), "{without:?}");
    assert!(!without.iter().any(|line| line.contains("volumes")), "{without:?}");
}

#[test]
fn without_landlock_there_are_no_volumes() {
    let (image, volumes) = (Image::host(), ["/mnt/v".parse().unwrap()]);
    let with = Request { volumes: &volumes, ..request(&image) };
    let tried = |landlock_abi| lower(&default_policy(), &Facts { landlock_abi, ..good_host() }, &with);
    let Err(Refusal::HostUnfit { why, .. }) = tried(0) else { unreachable!("it was not refused") };
    assert!(why.contains("Landlock"), "{why}");
    assert!(!matches!(tried(6), Err(Refusal::HostUnfit { .. })));
}
