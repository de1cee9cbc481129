//! What a machine makes of policies: which are refused and why, and what is around QEMU.

use std::fs;
use std::path::PathBuf;

use blastbox_images::machine::{Kernels, NewKernel};
use blastbox_images::store::{Import, Store};
use blastbox_images::{HostImage, Image};
use blastbox_policy::{AllowRule, Bytes, Cpus, Draft, Gap, Profile, Refusal, RuleParts, ThreatLevel, Tier};
use blastbox_wire::BoxId;
use blastbox_wire::plan::{DeviceName, First, GrantAccess, MonitorKind, Step, WorkspaceAccess};

use super::*;
use crate::facts::tests::good_host;

/// A store with one image and, if asked for, a kernel; gone at the end.
struct Shelf(PathBuf);

impl Shelf {
    fn new(name: &str, kernel: bool) -> Self {
        let path = std::env::temp_dir().join(format!("microvm-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("tree/bin")).unwrap();
        fs::write(path.join("tree/bin/sh"), "").unwrap();
        fs::write(path.join("agent"), "agent").unwrap();
        let store = Store::open(&path.join("store")).unwrap();
        let (tree, image) = (path.join("tree"), "tools".parse().unwrap());
        let what = Import {
            path: &tree,
            name: Some(&image),
            tag: None,
            platform: blastbox_images::oci::Platform::here(),
            caps: blastbox_images::tree::Caps::default(),
        };
        store.import(&what, &mut |_| {}).unwrap();
        if kernel {
            let mut elf = b"\x7fELF".to_vec();
            elf.resize(64, 0);
            elf[18] = 62;
            fs::write(path.join("vmlinux"), elf).unwrap();
            let image = path.join("vmlinux");
            let new = NewKernel { image: &image, modules: None, source: String::new() };
            Kernels::of_store(store.path()).add(&new).unwrap();
        }
        Self(path)
    }

    fn image(&self) -> Image {
        let store = Store::look(&self.0.join("store")).unwrap();
        Image::find("tools", store.as_ref()).unwrap()
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn host(kvm: Kvm, version: Option<(u32, u32)>) -> Facts {
    let reads = vec!["/usr/lib".to_owned(), "/usr/share/qemu".to_owned()];
    let build = blastbox_wire::event::Hash::from_bytes([5; 32]);
    let found = Found { version, kvm, processors: 2, view: HostImage::look(), reads, build };
    Facts { machines: Machines::of(found), ..good_host() }
}

fn slow() -> Kvm {
    Kvm::Unusable("there is no /dev/kvm".to_owned())
}

fn emulating() -> Facts {
    host(slow(), Some((7, 2)))
}

fn draft() -> Draft {
    Profile::Default.draft().unwrap().tier(Tier::Microvm).accept(Gap::EmulatedCpu)
}

fn lowered(draft: Draft, facts: &Facts, image: &Image) -> Result<Lowered, Refusal> {
    let policy = draft.seal().unwrap();
    let request = Request { box_id: BoxId::from_random([1; 20]), image, workspace: None, volumes: &[] };
    prepare(&policy, facts, &request);
    lower(&policy, facts, &request)
}

/// What the engine does before it chooses, with an agent that is there.
fn prepare(policy: &SealedPolicy, facts: &Facts, request: &Request<'_>) {
    if let Some((workshop, _)) = crate::preparation(policy, facts, request) {
        workshop.prepare(&std::env::current_exe().unwrap());
    }
}

/// The directory of disks is made with the first disk.
fn has_disks(shelf: &Shelf) -> bool {
    shelf.0.join("store/disks").exists()
}

#[track_caller]
fn why(refused: Result<Lowered, Refusal>) -> String {
    match refused {
        Err(Refusal::TierUnavailable { tier: Tier::Microvm, why }) => why,
        other => panic!("{other:?}"),
    }
}

/// What QEMU is told of devices.
fn devices(words: &[String]) -> Vec<&str> {
    let pairs = words.iter().zip(words.iter().skip(1));
    pairs.filter(|(option, _)| *option == "-device").map(|(_, value)| value.as_str()).collect()
}

#[test]
fn a_machine_is_a_jail_with_qemu_in_it_and_nothing_to_see() {
    let shelf = Shelf::new("whole", true);
    let image = shelf.image();
    let lowered = lowered(draft(), &emulating(), &image).unwrap();
    assert_eq!((lowered.tier, lowered.shows.len()), (Tier::Microvm, 3));
    let parts = image.machine().unwrap().unwrap();
    assert_eq!(lowered.kernel, Some(parts.digest), "what the ledger says of it");
    let plan = &lowered.plan;
    let First::Monitor(monitor) = &plan.first else { panic!("{:?}", plan.first) };
    assert_eq!((monitor.kind, monitor.environment.len()), (MonitorKind::Qemu, 0));
    let line = monitor.arguments.join(" ");
    for part in [
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-accel tcg",
        "-m 384M",
        "-smp 1",
        "fd=3",
        "read-only=on",
        "-sandbox on",
        "panic=-1",
        "-- guest bytes=",
        "denials=yes",
        "workspace=yes",
        "asleep=no",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    for weak in [
        "mitigations",
        "nokaslr",
        "init_on_alloc=0",
        "lsm=",
        "-netdev",
        "-serial ",
        "isa-serial",
        "-monitor",
        "-qmp",
    ] {
        assert!(!line.contains(weak), "{weak}: {line}");
    }
    // All of them, so that none comes in unseen.
    assert_eq!(
        devices(&monitor.arguments),
        [
            "vmgenid,guid=auto",
            "virtio-serial-pci,max_ports=2",
            "virtserialport,chardev=control,name=blastbox.control",
            "virtio-blk-pci,drive=disk",
            "virtio-rng-pci,rng=random",
        ]
    );
    assert_eq!(plan.denials, Denials::Silent);
    assert!(!plan.template.contains(&Step::Device { name: DeviceName::Kvm }));
    // Nothing that QEMU could write to, and nothing of the host that it may read but what it needs.
    let writes = plan
        .landlock
        .grants
        .iter()
        .filter(|grant| matches!(grant.access, GrantAccess::ReadWrite | GrantAccess::ReadWriteExecute));
    assert_eq!(writes.count(), 0);
    assert!(!plan.landlock.grants.iter().any(|grant| grant.at.as_str() == "/usr"));
    // Nobody maintains an emulated processor as a boundary: what is left is the jail around it.
    assert_eq!(lowered.gaps, [Gap::SharedKernel, Gap::EmulatedCpu]);
    let kernel = lowered.report.iter().flat_map(|line| &line.how).cloned().collect::<Vec<_>>().join("\n");
    assert!(kernel.contains("not a security boundary") && kernel.contains("sha256:"), "{kernel}");
    // Whoever has no KVM at all is told what that costs.
    assert!(kernel.contains("slow (seconds for a boot): there is no /dev/kvm"), "{kernel}");
    assert_eq!(lowered.effective().len(), 5);
}

#[test]
fn with_a_fast_kvm_there_is_no_gap_and_one_device_more() {
    let shelf = Shelf::new("kvm", true);
    let facts = host(Kvm::Fast, Some((10, 0)));
    let draft = Draft::at(ThreatLevel::Critical);
    let lowered = lowered(draft, &facts, &shelf.image()).unwrap();
    assert_eq!(lowered.gaps, []);
    // At critical every box boots by itself.
    assert_eq!(lowered.copies, None);
    assert!(lowered.plan.template.contains(&Step::Device { name: DeviceName::Kvm }));
    let First::Monitor(monitor) = &lowered.plan.first else { panic!("{:?}", lowered.plan.first) };
    let line = monitor.arguments.join(" ");
    // Without what machines of its own would need.
    assert!(line.contains("-accel kvm -cpu host,vmx=off,svm=off "), "{line}");
    assert!(!line.contains("no_timer_check"), "{line}");
    assert!(!lowered.report.iter().flat_map(|line| &line.how).any(|how| how.contains("slow")));
}

#[test]
fn a_copy_has_a_private_view_of_sealed_memory_and_the_words_of_its_template() {
    let shelf = Shelf::new("copies", true);
    let image = shelf.image();
    let first = lowered(draft(), &emulating(), &image).unwrap();
    let copies = first.copies.as_ref().unwrap();
    let line = |plan: &Plan| match &plan.first {
        First::Monitor(monitor) => (monitor.arguments.join(" "), monitor.inherits.clone()),
        First::Agent => panic!("no machine"),
    };
    let (template, inherits) = line(&copies.template);
    let (copy, same) = line(&copies.copy);
    assert_eq!((inherits.len(), &inherits), (2, &same));
    assert!(template.contains("mem-path=/proc/self/fd/4,share=on") && template.contains("asleep=yes"));
    // What boots is in the memory of a copy.
    let (before, rest) = template.split_once(" -kernel ").unwrap();
    let (_, behind) = rest.split_once(" -device virtio-serial-pci").unwrap();
    let begun = format!("{before} -device virtio-serial-pci{behind}");
    assert_eq!(copy.replace("share=off", "share=on").replace(" -incoming defer", ""), begun);
    assert!(!template.contains("name=bx-"), "copies of all boxes have the same words: {template}");
    assert_eq!(copies.memory, 384 << 20);
    // The same machine is bound to the same, whatever the name of the box; another rule, build or agent to something else.
    let bound = |draft, facts: &Facts| lowered(draft, facts, &image).unwrap().copies.unwrap().bound;
    assert_eq!(bound(draft(), &emulating()), copies.bound);
    assert_ne!(bound(draft().memory(Bytes::mib(600)), &emulating()), copies.bound);
    assert_ne!(bound(draft().pids(77), &emulating()), copies.bound);
    let found = Found {
        build: blastbox_wire::event::Hash::from_bytes([6; 32]),
        ..emulating().machines.found().clone()
    };
    let updated = Facts { machines: Machines::of(found), ..emulating() };
    assert_ne!(bound(draft(), &updated), copies.bound);
}

#[test]
fn a_console_is_there_only_where_somebody_hears_it_and_such_a_machine_boots_by_itself() {
    let shelf = Shelf::new("console", true);
    let image = shelf.image();
    let line = |lowered: &Lowered| match &lowered.plan.first {
        First::Monitor(monitor) => (monitor.arguments.join(" "), monitor.inherits.len()),
        First::Agent => panic!("no machine"),
    };
    let without = lowered(draft(), &emulating(), &image).unwrap();
    let (words, _) = line(&without);
    assert!(words.contains("8250.nr_uarts=0") && !words.contains("ttyS0"), "{words}");
    let facts = Facts { hears_console: true, ..emulating() };
    let with = lowered(draft(), &facts, &image).unwrap();
    let (words, inherits) = line(&with);
    assert!(words.contains("-chardev socket,id=console,fd=4 -device isa-serial,chardev=console"), "{words}");
    assert!(words.contains("console=ttyS0") && !words.contains("quiet") && inherits == 1, "{words}");
    assert!(with.copies.is_none() && without.copies.is_some());
    let how = with.report.iter().flat_map(|line| &line.how).cloned().collect::<Vec<_>>().join("\n");
    assert!(how.contains("a console"), "{how}");
}

#[test]
fn a_card_is_there_only_with_network_and_a_template_has_nobody_at_its_other_end() {
    let shelf = Shelf::new("card", true);
    let image = shelf.image();
    let words = |plan: &Plan| match &plan.first {
        First::Monitor(monitor) => (monitor.arguments.join(" "), monitor.inherits.len()),
        First::Agent => panic!("no machine"),
    };
    let without = lowered(draft(), &emulating(), &image).unwrap();
    assert_eq!(without.plan.network, Network::Empty);
    let (line, inherits) = words(&without.plan);
    assert!(!line.contains("net-pci") && line.contains("network=no authority=no") && inherits == 0, "{line}");
    let allow = |draft: Draft| {
        draft.allow(AllowRule::new("api.example.com".parse().unwrap(), RuleParts::default()).unwrap())
    };
    // A machine needs no device of the host for that.
    let facts = Facts { tun: crate::facts::Tun::Absent, ..emulating() };
    let with = lowered(allow(draft()), &facts, &image).unwrap();
    // Behind the channel and the image's directory.
    assert_eq!(with.plan.network, Network::Card { slot: Slot(2) });
    let (line, inherits) = words(&with.plan);
    assert!(line.contains("-netdev socket,id=wire,fd=4 ") && inherits == 1, "{line}");
    assert!(line.contains("network=yes"), "{line}");
    let copies = with.copies.as_ref().unwrap();
    assert_eq!((copies.template.network, copies.copy.network), (Network::Empty, with.plan.network));
    for plan in [&copies.template, &copies.copy] {
        let (line, inherits) = words(plan);
        assert!(line.contains("-netdev socket,id=wire,fd=6 ") && inherits == 3, "{line}");
    }
    assert!(copies.card && copies.bound != without.copies.unwrap().bound);
    let how = with.report.iter().flat_map(|line| &line.how).cloned().collect::<Vec<_>>().join("\n");
    assert!(
        how.contains("network card ends in that gateway") && !how.contains("whose one interface"),
        "{how}"
    );
}

#[test]
fn an_emulated_processor_has_to_be_accepted_by_name_and_never_at_critical() {
    let shelf = Shelf::new("gap", true);
    let image = shelf.image();
    let policy = Profile::Default.draft().unwrap().tier(Tier::Microvm).seal().unwrap();
    let request =
        Request { box_id: BoxId::from_random([1; 20]), image: &image, workspace: None, volumes: &[] };
    prepare(&policy, &emulating(), &request);
    assert!(!has_disks(&shelf));
    let refusal = crate::choose(&policy, &emulating(), &request).chosen.unwrap_err();
    let Refusal::GapNotAccepted { gap: Gap::EmulatedCpu, found } = &refusal else { panic!("{refusal:?}") };
    assert_eq!(found.as_deref(), Some("there is no /dev/kvm"));
    assert!(refusal.to_string().ends_with("; on this host there is no /dev/kvm"), "{refusal}");
    assert!(Draft::at(ThreatLevel::Critical).accept(Gap::EmulatedCpu).seal().is_err());
}

#[test]
fn what_is_missing_is_said_with_the_command_that_brings_it() {
    let with = Shelf::new("with", true);
    let without = Shelf::new("without", false);
    let facts = emulating();
    let absent = Facts { machines: Machines::default(), ..good_host() };
    assert!(why(lowered(draft(), &absent, &with.image())).contains("apt-get install qemu-system-x86"));
    let old = host(slow(), Some((6, 1)));
    let old = why(lowered(draft(), &old, &with.image()));
    assert!(
        old.contains("QEMU 6.1 is older than 7.2") && old.contains("apt-get install qemu-system-x86"),
        "{old}"
    );
    assert!(why(lowered(draft(), &host(slow(), None), &with.image())).contains("does not say its version"));
    assert!(why(lowered(draft(), &facts, &without.image())).contains("blastbox kernel get"));
    assert!(why(lowered(draft(), &facts, &Image::host())).contains("blastbox image import"));
}

#[test]
fn what_no_machine_can_have_is_refused_before_it_starts() {
    let shelf = Shelf::new("bad", true);
    let (facts, image) = (emulating(), shelf.image());
    let many = why(lowered(draft().cpus(Cpus::from_millis(64_000)), &facts, &image));
    assert!(many.contains("64 processors") && many.contains("--cpus"), "{many}");
    let small = why(lowered(draft().memory(Bytes::mib(128)), &facts, &image));
    assert!(small.contains("256 MiB") && small.contains("--memory"), "{small}");
    // None of it was worth copying an image for.
    assert!(!has_disks(&shelf));
}

#[test]
fn a_directory_of_the_host_is_a_second_disk_that_comes_last_and_such_a_machine_boots_by_itself() {
    let shelf = Shelf::new("workspace", true);
    let image = shelf.image();
    let rule = AllowRule::new("api.example.com".parse().unwrap(), RuleParts::default()).unwrap();
    let draft = Profile::Medium.draft().unwrap().tier(Tier::Microvm).accept(Gap::EmulatedCpu).allow(rule);
    let policy = draft.seal().unwrap();
    for (access, word) in
        [(WorkspaceAccess::ReadOnly, "workspace=ro "), (WorkspaceAccess::CopyOnWrite, "workspace=cow ")]
    {
        let request = Request {
            box_id: BoxId::from_random([1; 20]),
            image: &image,
            workspace: Some(access),
            volumes: &[],
        };
        prepare(&policy, &emulating(), &request);
        let lowered = lower(&policy, &emulating(), &request).unwrap();
        let First::Monitor(monitor) = &lowered.plan.first else { panic!("{:?}", lowered.plan.first) };
        let line = monitor.arguments.join(" ");
        assert!(
            line.contains("fd=4 ") && line.contains("/proc/self/fd/5,read-only=on") && line.contains(word)
        );
        // Channel, image, directory, line to the gateway, three that are shown; then these.
        assert_eq!(monitor.inherits, [Slot(7), Slot(8)]);
        assert_eq!((lowered.copies, lowered.workspace_disk.unwrap().bytes), (None, policy.files().disk.0));
        // The directory itself is nowhere in the jail around QEMU.
        assert!(!lowered.plan.own.iter().any(|step| matches!(step, Step::Workspace { .. })));
    }
}

#[test]
fn an_emulated_machine_stands_behind_gvisor_and_in_front_of_the_bare_jail() {
    let shelf = Shelf::new("behind", true);
    let image = shelf.image();
    let gaps = [Gap::EmulatedCpu, Gap::NoPidsLimit, Gap::SilentDenials];
    let policy = gaps.into_iter().fold(Profile::Default.draft().unwrap(), Draft::accept).seal().unwrap();
    let order = |facts: &Facts| {
        let request =
            Request { box_id: BoxId::from_random([1; 20]), image: &image, workspace: None, volumes: &[] };
        prepare(&policy, facts, &request);
        let choice = crate::choose(&policy, facts, &request);
        (choice.considered.iter().map(|one| one.tier).collect::<Vec<_>>(), choice.chosen.unwrap().tier)
    };
    let gvisor = crate::Gvisor::of(crate::Version::Of(20_250_101));
    let with_gvisor = Facts { gvisor, ..emulating() };
    assert_eq!(order(&with_gvisor), (vec![Tier::Gvisor, Tier::Microvm, Tier::Jail], Tier::Gvisor));
    assert!(!has_disks(&shelf), "nobody needs a disk for a tier that is not chosen");
    assert_eq!(order(&emulating()), (vec![Tier::Gvisor, Tier::Microvm, Tier::Jail], Tier::Microvm));
    let fast = host(Kvm::Fast, Some((10, 0)));
    assert_eq!(order(&fast).0, [Tier::Microvm, Tier::Gvisor, Tier::Jail]);
}

#[test]
fn without_a_name_for_it_no_image_is_copied_for_a_machine_that_the_policy_would_refuse() {
    let shelf = Shelf::new("lazy", true);
    let image = shelf.image();
    let policy = Profile::Default.draft().unwrap().seal().unwrap();
    let request =
        Request { box_id: BoxId::from_random([1; 20]), image: &image, workspace: None, volumes: &[] };
    prepare(&policy, &emulating(), &request);
    assert!(image.machine().is_none() && !has_disks(&shelf));
    assert_eq!(crate::choose(&policy, &emulating(), &request).chosen.unwrap().tier, Tier::Jail);
}
