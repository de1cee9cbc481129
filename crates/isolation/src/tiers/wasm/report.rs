//! Which of the five boundaries hold in a Wasm box, and what holds them, in words for people.

use blastbox_policy::{Boundary, Gap, NetworkMode, SealedPolicy};
use blastbox_wire::plan::{Ids, Plan, WorkspaceAccess};

use super::Guests;
use crate::request::Worksite;
use crate::tiers::jail::{self, ends_after};
use crate::{BoundaryReport, Facts};

/// The report for each boundary, in the order of [`Boundary::ALL`].
pub(super) fn write(
    policy: &SealedPolicy,
    facts: &Facts,
    plan: &Plan,
    (guests, worksite): (&Guests, Worksite),
    gaps: &[Gap],
) -> Vec<BoundaryReport> {
    let has = |gap| gaps.contains(&gap);
    let report = |boundary: &Boundary| {
        let (effective, how) = match boundary {
            Boundary::Kernel => (true, kernel(policy, plan, guests, gaps)),
            Boundary::Files => (true, files(policy, facts, worksite)),
            Boundary::Network => (true, network(policy)),
            Boundary::Credentials => (true, credentials(policy)),
            Boundary::Lifecycle => {
                (!has(Gap::NoMemoryLimit) && !has(Gap::NoPidsLimit), lifecycle(policy, gaps))
            }
        };
        let ends = |gap: &Gap| matches!(gap, Gap::NoMemoryLimit | Gap::NoPidsLimit);
        let weakened =
            |gap: &Gap| gap.boundary() == *boundary || (*boundary == Boundary::Lifecycle && ends(gap));
        let gaps = gaps.iter().copied().filter(weakened).collect();
        BoundaryReport { boundary: *boundary, effective, how, gaps }
    };
    Boundary::ALL.iter().map(report).collect()
}

fn kernel(policy: &SealedPolicy, plan: &Plan, guests: &Guests, gaps: &[Gap]) -> Vec<String> {
    let rules = policy.kernel();
    let all: Vec<&str> =
        guests.names().iter().map(String::as_str).chain(guests.own().map(|own| own.name.as_str())).collect();
    vec![
        "no system call of its own: guests are WebAssembly, compiled beforehand and run by Wasmtime".to_owned(),
        guests_of(&all, guests),
        "around them a jail of one worker process: no program, no socket, no new file and no executable memory once a \
         guest runs (seccomp), namespaces of its own, no capabilities"
            .to_owned(),
        "what the worker itself is denied fails, and nobody learns of it".to_owned(),
        match plan.ids {
            Ids::OwnRange | Ids::OwnBlock => "host user ids that no other box has",
            Ids::CallerOnly => "the user id of the caller",
        }
        .to_owned(),
        if gaps.contains(&Gap::NoMemoryLimit) {
            format!(
                "guests and files share {}; nothing else counts the worker's memory, and nobody what each guest that runs rewrites of \
                 its own image (Python's has 40 MB, python-data's 110 MB)",
                rules.memory
            )
        } else {
            format!("at most {} of memory, files included", rules.memory)
        },
        if gaps.contains(&Gap::NoCpuLimit) {
            "processor time is not limited".to_owned()
        } else {
            format!("at most {} processors", rules.cpus)
        },
    ]
}

fn guests_of(all: &[&str], guests: &Guests) -> String {
    let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
    let others = |names: &[String], why: &str| match names {
        [] => String::new(),
        names => format!("; {why}: {}", names.join(", ")),
    };
    let left_out = others(guests.left_out(), "left out, since more lie there than a worker loads");
    let components =
        others(guests.components(), "components, each of which needs a box of its own (kernel.guest)");
    format!("guests: {all}{left_out}{components}")
}

fn files(policy: &SealedPolicy, facts: &Facts, worksite: Worksite) -> Vec<String> {
    let rules = policy.files();
    let given = match worksite {
        Worksite::Absent | Worksite::Scratch => None,
        Worksite::Directory(WorkspaceAccess::ReadOnly) => {
            Some("the workspace is a copy of a host directory, which guests cannot change")
        }
        Worksite::Directory(WorkspaceAccess::CopyOnWrite) => {
            Some("the workspace is a copy of a host directory; changes stay in the box")
        }
    };
    let mut how = vec![
        "files exist in the worker's memory alone, without links of any kind".to_owned(),
        format!("at most {} in {} files can be written", rules.disk, rules.inodes),
        "of the host the worker sees itself and its guests, read-only".to_owned(),
        match facts.landlock_abi {
            0 => "no Landlock: what the mounts show is not checked a second time".to_owned(),
            abi => format!("Landlock (version {abi}) checks a second time what the worker may open"),
        },
    ];
    how.extend(given.map(str::to_owned));
    how
}

fn network(policy: &SealedPolicy) -> Vec<String> {
    let mut how = vec![
        "guests are offered no sockets".to_owned(),
        "the worker is in an empty network namespace of its own, and its filter has no socket".to_owned(),
    ];
    if policy.network().mode != NetworkMode::Off {
        how.push(
            "HTTP requests are a call: the engine brings each to the box's gateway, which decides, makes and records it"
                .to_owned(),
        );
        how.push(jail::allowed(policy));
    }
    how
}

fn credentials(policy: &SealedPolicy) -> Vec<String> {
    let held = match policy.credentials().bind.len() {
        0 => "no secret is given to the box".to_owned(),
        count => format!("{count} secrets are put into requests by the gateway; none is in the box"),
    };
    vec![held, "its environment is built from nothing: the caller's variables do not reach it".to_owned()]
}

fn lifecycle(policy: &SealedPolicy, gaps: &[Gap]) -> Vec<String> {
    let rules = policy.lifetime();
    let mut how = vec![
        ends_after(rules.timeout),
        format!("ended after {} of output", rules.output),
        "every command begins from the guest's image; what an earlier one left in memory is gone".to_owned(),
    ];
    if policy.kernel().deterministic {
        how.push(
            "clocks count and chance comes from a fixed seed: the same command does the same again"
                .to_owned(),
        );
    }
    if let Some(fuel) = policy.kernel().fuel {
        how.push(format!("every command is ended after {fuel} units of work, counted and not timed"));
    }
    if gaps.contains(&Gap::NoMemoryLimit) || gaps.contains(&Gap::NoPidsLimit) {
        how.push("limits hold for the worker alone: see the gaps".to_owned());
    }
    how
}
