//! What the tier makes of policies on described hosts.

use blastbox_images::{Form, Image, ModuleImage};
use blastbox_policy::{AllowRule, Boundary, Draft, Profile, RuleParts};
use blastbox_wire::BoxId;
use blastbox_wire::plan::WorkspaceAccess;

use super::*;
use crate::facts::tests::{good_host, rootless_host};

fn host() -> Facts {
    Facts { wasm: Some(Guests::of(&["js", "python"])), ..good_host() }
}

fn lowered(facts: &Facts, draft: Draft) -> Result<Lowered, Refusal> {
    lowered_with(&Image::host(), facts, draft)
}

fn lowered_with(image: &Image, facts: &Facts, draft: Draft) -> Result<Lowered, Refusal> {
    let request = Request { box_id: BoxId::from_random([7; 20]), image, workspace: None, volumes: &[] };
    lower(&draft.seal().unwrap(), facts, &request)
}

/// A module or component of the caller's.
fn own(name: &str, form: Form) -> Image {
    let (name, digest) = (name.to_owned(), "0a".repeat(32));
    Image::Module(Box::new(ModuleImage { directory: "/cache/x".into(), name, form, digest }))
}

fn default() -> Draft {
    Profile::Default.draft().unwrap()
}

#[test]
fn a_good_host_has_no_gap_and_five_boundaries() {
    let lowered = lowered(&host(), default()).unwrap();
    assert_eq!(lowered.gaps, []);
    assert_eq!(lowered.effective(), Boundary::ALL);
    assert_eq!(lowered.shows, [std::path::PathBuf::from("/opt/wasm")]);
}

#[test]
fn the_box_has_nothing_but_the_worker_and_two_devices() {
    let plan = lowered(&host(), default()).unwrap().plan;
    assert_eq!(plan.network, Network::Empty);
    let shown: Vec<&str> = plan
        .template
        .iter()
        .filter_map(|step| match step {
            Step::Show { at, .. } => Some(at.as_str()),
            Step::Device { name } => Some(name.as_str()),
            Step::Directory { .. } => None,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(shown, ["null", "urandom", "/wasm"]);
    let granted: Vec<&str> = plan.landlock.grants.iter().map(|grant| grant.at.as_str()).collect();
    assert_eq!(granted, ["/wasm", "/dev"]);
    assert_eq!(plan.template.len(), DIRECTORIES.len() + 3);
}

#[test]
fn the_worker_is_told_the_limits_of_the_policy_and_its_guests() {
    let First::Monitor(monitor) = lowered(&host(), default()).unwrap().plan.first else { panic!() };
    let said = monitor.arguments.join(" ");
    assert!(said.contains("--memory 536870912 --disk 268435456"), "{said}");
    assert!(said.ends_with("--shelf /wasm --guest js --guest python"), "{said}");
    assert_eq!(monitor.kind, MonitorKind::Wasm);
    assert!(monitor.environment.is_empty());
}

#[test]
fn what_the_tier_cannot_do_is_refused_by_name() {
    let no_worker = lowered(&good_host(), default()).unwrap_err();
    assert_eq!(no_worker.code(), "tier_unavailable");
    assert!(no_worker.to_string().contains("make wasm"), "{no_worker}");
    let kills = lowered(&host(), default().on_denied_syscall(OnDenied::Kill)).unwrap_err();
    assert_eq!(kills.code(), "tier_unavailable");
    let writes = lowered(&host(), default().report_writes(true)).unwrap_err();
    assert!(writes.to_string().contains("report_writes"), "{writes}");
    assert_eq!(
        lowered(&host(), default().dangerously_open_network()).unwrap_err().code(),
        "tier_unavailable"
    );
}

#[test]
fn a_run_that_can_be_repeated_is_the_workers_business_and_refused_elsewhere() {
    let lowered = lowered(&host(), default().deterministic(true)).unwrap();
    let First::Monitor(monitor) = lowered.plan.first else { panic!() };
    assert!(monitor.arguments.join(" ").contains("--deterministic true"), "{:?}", monitor.arguments);
    let (image, policy) = (Image::host(), default().deterministic(true).seal().unwrap());
    let request =
        Request { box_id: BoxId::from_random([7; 20]), image: &image, workspace: None, volumes: &[] };
    for tier in [Tier::Jail, Tier::Gvisor, Tier::Microvm] {
        let refused = crate::tiers::lower(tier, &policy, &host(), &request).unwrap_err();
        assert!(refused.to_string().contains("kernel.deterministic"), "{refused}");
    }
}

#[test]
fn a_run_that_can_be_repeated_asks_no_host() {
    let rule = || AllowRule::new("api.example.com".parse().unwrap(), RuleParts::default()).unwrap();
    let asks = || default().allow(rule());
    assert!(lowered(&host(), asks()).is_ok());
    let refused = lowered(&host(), asks().deterministic(true)).unwrap_err();
    assert_eq!(refused.code(), "tier_unavailable");
    let said = refused.to_string();
    assert!(said.contains("kernel.deterministic") && said.contains("network.allow"), "{said}");
}

#[test]
fn work_that_is_counted_is_the_workers_business_and_refused_elsewhere() {
    let lowered = lowered(&host(), default().fuel(Some(7))).unwrap();
    let First::Monitor(monitor) = lowered.plan.first else { panic!() };
    assert!(monitor.arguments.join(" ").contains("--fuel 7"), "{:?}", monitor.arguments);
    assert_eq!(lowered.fuel, Some(7), "and no more is believed");
    assert!(lowered.report.iter().any(|line| line.how.iter().any(|how| how.contains("7 units of work"))));
    let (image, policy) = (Image::host(), default().fuel(Some(7)).seal().unwrap());
    let request =
        Request { box_id: BoxId::from_random([7; 20]), image: &image, workspace: None, volumes: &[] };
    for tier in [Tier::Jail, Tier::Gvisor, Tier::Microvm] {
        let refused = crate::tiers::lower(tier, &policy, &host(), &request).unwrap_err();
        assert!(refused.to_string().contains("kernel.fuel"), "{refused}");
    }
    // Where no guest counts, nothing runs uncounted.
    let none = Facts { wasm: Some(Guests::unmetered(&["js"])), ..good_host() };
    let refused = super::lower(&policy, &none, &request).unwrap_err();
    assert!(refused.to_string().contains("make wasm"), "{refused}");
}

#[test]
fn a_directory_of_the_host_is_shown_to_the_worker_and_never_writable() {
    let image = Image::host();
    let medium = Profile::Medium.draft().and_then(Draft::seal).unwrap();
    for (access, word) in [(WorkspaceAccess::ReadOnly, "ro"), (WorkspaceAccess::CopyOnWrite, "cow")] {
        let request = Request {
            box_id: BoxId::from_random([7; 20]),
            image: &image,
            workspace: Some(access),
            volumes: &[],
        };
        let plan = lower(&medium, &host(), &request).unwrap().plan;
        let shown = plan.own.iter().find_map(|step| match step {
            Step::Workspace { slot, access, exec, .. } => Some((*slot, *access, *exec)),
            _ => None,
        });
        assert_eq!(shown, Some((Slot(1), WorkspaceAccess::ReadOnly, Exec::Denied)));
        assert!(plan.template.contains(&Step::Show { slot: Slot(2), at: "/wasm".parse().unwrap() }));
        let grant = plan.landlock.grants.iter().find(|grant| grant.at.as_str() == "/workspace").unwrap();
        assert_eq!(grant.access, GrantAccess::Read);
        let First::Monitor(monitor) = plan.first else { panic!() };
        assert!(monitor.arguments.join(" ").contains(&format!("--workspace {word}")), "{word}");
    }
}

#[test]
fn without_root_what_does_not_hold_is_a_gap() {
    let facts = Facts { wasm: Some(Guests::of(&["js"])), ..rootless_host() };
    let lowered = lowered(&facts, default()).unwrap();
    assert_eq!(lowered.gaps, [Gap::SharedUid, Gap::NoMemoryLimit, Gap::NoCpuLimit, Gap::NoPidsLimit]);
    assert!(!lowered.effective().contains(&Boundary::Lifecycle));
    let told = |word: &str| lowered.report.iter().any(|line| line.how.iter().any(|how| how.contains(word)));
    assert!(told("rewrites of its own image"), "memory that nobody counts is told");
}

#[test]
fn a_module_of_the_caller_has_a_place_of_its_own_and_covers_no_guest_of_its_name() {
    let lowered = lowered_with(&own("js", Form::Module), &host(), default()).unwrap();
    let First::Monitor(monitor) = &lowered.plan.first else { panic!() };
    let said = monitor.arguments.join(" ");
    assert!(said.ends_with("--shelf /wasm --guest js --guest python --shelf /module --own js"), "{said}");
    assert_eq!(lowered.shows.len(), 2);
}

#[test]
fn a_component_has_a_worker_of_its_own_and_no_guest_beside_it() {
    let tool = own("tool", Form::Component);
    let lowered = lowered_with(&tool, &host(), default()).unwrap();
    let First::Monitor(monitor) = &lowered.plan.first else { panic!() };
    assert_eq!(monitor.program.as_str(), "/wasm/blastbox-wasm-component");
    let said = monitor.arguments.join(" ");
    assert!(said.starts_with("blastbox-wasm-component --memory"), "{said}");
    assert!(said.ends_with("--shelf /wasm --shelf /module --own tool"), "{said}");
    assert_eq!(monitor.kind, MonitorKind::Wasm);
    assert_eq!(tool.label(), format!("module:tool@sha256:{}", "0a".repeat(32)));

    let unarmed = Guests::of(&["js"]).without_component_worker();
    let unarmed = Facts { wasm: Some(unarmed), ..good_host() };
    let refused = lowered_with(&tool, &unarmed, default()).unwrap_err();
    assert!(refused.to_string().contains("wasm_no_component_worker"), "{refused}");
}

#[test]
fn no_other_tier_runs_a_module() {
    let (image, policy) = (own("tool", Form::Module), default().seal().unwrap());
    let request =
        Request { box_id: BoxId::from_random([7; 20]), image: &image, workspace: None, volumes: &[] };
    for tier in [Tier::Jail, Tier::Gvisor, Tier::Microvm] {
        let refused = crate::tiers::lower(tier, &policy, &host(), &request).unwrap_err();
        assert!(refused.to_string().contains("tool is a WebAssembly module"), "{refused}");
        assert!(refused.fix().starts_with("use --tier wasm"), "{}", refused.fix());
    }
}

#[test]
fn however_many_guests_an_operator_adds_those_that_come_with_blastbox_stay_and_who_is_left_out_is_told() {
    let added: Vec<String> = (10..34).map(|number| format!("a{number}")).collect();
    let all: Vec<&str> = added.iter().map(String::as_str).chain(["js", "python"]).collect();
    let guests = Guests::crowded(&all);
    assert!(guests.names().len() == 24 && guests.has("python") && guests.has("js"), "{:?}", guests.names());
    assert!(guests.names().is_sorted());
    assert_eq!(guests.left_out(), ["a32", "a33"]);
    let lowered = lowered(&Facts { wasm: Some(guests), ..good_host() }, default()).unwrap();
    let told = |word: &str| lowered.report.iter().any(|line| line.how.iter().any(|how| how.contains(word)));
    assert!(told("left out, since more lie there than a worker loads: a32, a33"));
    // As many as one loads are nothing to be told of.
    assert_eq!(Guests::crowded(&all[2..]).left_out(), <[String; 0]>::default());
}

#[test]
fn a_box_whose_policy_names_a_guest_has_no_other_and_its_worker() {
    let guests = Guests::of(&["js", "python"]).with_components(&["tool"]);
    let host = Facts { wasm: Some(guests.clone()), ..good_host() };
    let named = |name: &str| default().guest(Some(name.parse().unwrap()));
    let said = |draft| {
        let plan = lowered(&host, draft).unwrap().plan;
        let First::Monitor(monitor) = plan.first else { panic!() };
        format!("{} {}", monitor.program.as_str(), monitor.arguments.join(" "))
    };
    let all = said(default());
    assert!(all.starts_with("/wasm/blastbox-wasm blastbox-wasm "), "{all}");
    assert!(all.ends_with("--guest js --guest python --guest tool"), "who asks is told: {all}");
    let tool = said(named("tool"));
    assert!(tool.starts_with("/wasm/blastbox-wasm-component blastbox-wasm-component "), "{tool}");
    assert!(tool.ends_with("--shelf /wasm --guest tool"), "{tool}");
    let js = said(named("js"));
    assert!(js.starts_with("/wasm/blastbox-wasm blastbox-wasm "), "{js}");
    assert!(js.ends_with("--shelf /wasm --guest js"), "{js}");

    let refused = |facts: &Facts, name: &str| {
        let refused = lowered(facts, named(name)).unwrap_err();
        assert_eq!(refused.code(), "tier_unavailable");
        format!("{refused}; {}", refused.fix())
    };
    let none = refused(&host, "other");
    assert!(none.contains("none of that name lies on the shelf") && none.contains("doctor"), "{none}");
    let unarmed = Facts { wasm: Some(guests.clone().without_component_worker()), ..good_host() };
    assert!(refused(&unarmed, "tool").contains("wasm_no_component_worker"));
    let two = lowered_with(&own("mine", Form::Module), &host, named("tool")).unwrap_err().to_string();
    assert!(two.contains("mine.wasm is another"), "{two}");

    let (image, policy) = (Image::host(), named("js").seal().unwrap());
    let request =
        Request { box_id: BoxId::from_random([7; 20]), image: &image, workspace: None, volumes: &[] };
    for tier in [Tier::Jail, Tier::Gvisor, Tier::Microvm] {
        let refused = crate::tiers::lower(tier, &policy, &host, &request).unwrap_err();
        assert!(refused.to_string().contains("kernel.guest"), "{refused}");
        assert!(refused.fix().starts_with("use --tier wasm"), "{}", refused.fix());
    }
}
