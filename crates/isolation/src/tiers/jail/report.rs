//! Which of the five boundaries hold in a jail, and what holds them, in words for people.

use blastbox_policy::{
    AllowRule, Boundary, BoxRoot, Gap, Gpu, NetworkMode, OnDenied, ScratchExec, SealedPolicy, Seconds,
    SurvivesDaemon,
};
use blastbox_wire::plan::{Denials, Ids, Network, Plan, Step, WorkspaceAccess};

use super::WANTED_LANDLOCK_ABI;
use crate::request::Worksite;
use crate::{BoundaryReport, Facts};

/// The report for each boundary, in the order of [`Boundary::ALL`].
pub(super) fn write(
    policy: &SealedPolicy,
    facts: &Facts,
    plan: &Plan,
    worksite: Worksite,
    gaps: &[Gap],
) -> Vec<BoundaryReport> {
    let has = |gap| gaps.contains(&gap);
    let report = |boundary: &Boundary| {
        let (effective, how) = match boundary {
            Boundary::Kernel => (true, kernel(policy, facts, plan, gaps)),
            Boundary::Files => (facts.landlock_abi > 0, files(policy, facts, plan, worksite)),
            // What reaches everything public holds nothing back.
            Boundary::Network => (policy.network().mode != NetworkMode::Open, network(policy, facts, plan)),
            Boundary::Credentials => (true, credentials()),
            // Without limits for the whole box, what it started can outgrow the host before its time is over.
            Boundary::Lifecycle => {
                (!has(Gap::NoMemoryLimit) && !has(Gap::NoPidsLimit), lifecycle(policy, plan, gaps))
            }
        };
        let weakened =
            |gap: &Gap| gap.boundary() == *boundary || (*boundary == Boundary::Lifecycle && ends(*gap));
        let gaps = gaps.iter().copied().filter(weakened).collect();
        BoundaryReport { boundary: *boundary, effective, how, gaps }
    };
    Boundary::ALL.iter().map(report).collect()
}

/// Gaps of the kernel boundary that the lifecycle boundary leans on too.
fn ends(gap: Gap) -> bool {
    matches!(gap, Gap::NoMemoryLimit | Gap::NoPidsLimit)
}

fn kernel(policy: &SealedPolicy, facts: &Facts, plan: &Plan, gaps: &[Gap]) -> Vec<String> {
    let rules = policy.kernel();
    let interface = facts.cgroups.as_str();
    let held = |gap, limit: String, instead: &str| {
        if gaps.contains(&gap) { instead.to_owned() } else { format!("{limit} ({interface})") }
    };
    let mut how = vec![
        "the host's kernel, reached only through a list of allowed system calls (seccomp)".to_owned(),
        match (plan.denials, rules.on_denied_syscall) {
            (Denials::Reported | Denials::WithWrites, OnDenied::Record) => "a denied system call fails and is reported",
            (Denials::Reported | Denials::WithWrites, OnDenied::Kill) => "the first denied system call ends the box",
            (Denials::Silent, _) => "a denied system call fails, and nobody learns of it",
        }
        .to_owned(),
        match rules.root {
            BoxRoot::None => "namespaces of its own, no capabilities, no new privileges",
            BoxRoot::Allowed => {
                "namespaces of its own, no new privileges; commands may become root of the box, with power over its own \
                 users and files alone"
            }
        }
        .to_owned(),
        match plan.ids {
            Ids::OwnRange => "host user ids that no other box has",
            Ids::OwnBlock => "65,536 host user ids that no other box has",
            Ids::CallerOnly => "the user id of the caller",
        }
        .to_owned(),
        held(
            Gap::NoMemoryLimit,
            format!("at most {} of memory, scratch space included", rules.memory),
            "memory is limited for each process alone",
        ),
        held(Gap::NoCpuLimit, format!("at most {} processors", rules.cpus), "processor time is not limited"),
        held(
            Gap::NoPidsLimit,
            format!("at most {} processes and threads", rules.pids),
            "processes are limited by user id alone",
        ),
    ];
    if let (Gpu::One, Some(gpu)) = (rules.gpu, &facts.gpu) {
        how.push(format!(
            "the first GPU of the host, by NVIDIA's driver {}: its memory is not limited, and others may use it at the same time",
            gpu.driver
        ));
    }
    how
}

/// How many of the host's directories the box writes to.
fn volumes(plan: &Plan) -> usize {
    plan.own.iter().filter(|step| matches!(step, Step::Volume { .. })).count()
}

fn files(policy: &SealedPolicy, facts: &Facts, plan: &Plan, worksite: Worksite) -> Vec<String> {
    let rules = policy.files();
    let volumes = volumes(plan);
    let mut how = vec![
        match plan.own.iter().any(|step| matches!(step, Step::Writable { .. })) {
            false => "a root of its own that is read-only",
            true => {
                "a root of its own; what the image has there can be changed by root of the box, in memory"
            }
        }
        .to_owned(),
        match facts.landlock_abi {
            0 => "no Landlock: what the mounts show is not checked a second time".to_owned(),
            abi => format!("Landlock (version {abi}) checks a second time what may be opened"),
        },
        format!(
            "at most {} in {} files can be written{}, all of it in memory",
            rules.disk,
            rules.inodes,
            if volumes > 0 { " outside of volumes" } else { "" }
        ),
        match worksite {
            Worksite::Absent => "no workspace",
            Worksite::Scratch => "an empty workspace in memory",
            Worksite::Directory(WorkspaceAccess::ReadOnly) => "the workspace is a host directory, read-only",
            Worksite::Directory(WorkspaceAccess::CopyOnWrite) => {
                "the workspace is a host directory; changes stay in the box"
            }
        }
        .to_owned(),
    ];
    if rules.exec == ScratchExec::Denied {
        how.push("nothing can be executed where the box can write".to_owned());
    }
    if volumes > 0 {
        how.push(format!(
            "{volumes} of the host's directories can be written (volumes): no programs with other rights, no devices, no sockets"
        ));
    }
    if rules.report_writes {
        how.push(
            "writes at unexpected paths are reported; the walls above decide about them, not the report"
                .to_owned(),
        );
    }
    how
}

/// The first Landlock that can refuse TCP.
const TCP_LANDLOCK_ABI: u32 = 4;

/// How a box of the jail reaches its gateway.
pub(in crate::tiers) const INTERFACE: &str =
    "a network namespace of its own, whose one interface ends in that gateway";

/// Hosts that are named in a report before the rest is only counted.
const NAMED: usize = 8;

fn plural(count: usize) -> String {
    if count == 1 { "1 rule".to_owned() } else { format!("{count} rules") }
}

/// How many rules there are, and the first of them.
pub(in crate::tiers) fn allowed(policy: &SealedPolicy) -> String {
    let rules = &policy.network().allow;
    let shown = |rule: &AllowRule| {
        let ports: Vec<String> = rule.ports().iter().map(u16::to_string).collect();
        format!("{}:{}", rule.host(), ports.join(","))
    };
    let mut named: Vec<String> = rules.iter().take(NAMED).map(shown).collect();
    if rules.len() > NAMED {
        named.push(format!("{} more", rules.len() - NAMED));
    }
    format!("{} allowed: {}", plural(rules.len()), named.join(", "))
}

fn network(policy: &SealedPolicy, facts: &Facts, plan: &Plan) -> Vec<String> {
    let mut how = match plan.network {
        Network::Empty => vec![
            "no way out: no interface leads anywhere".to_owned(),
            "an empty network namespace of its own, without even a loopback".to_owned(),
        ],
        Network::Loopback => vec![
            "no way out: no interface leads anywhere".to_owned(),
            "a network namespace of its own with nothing but a loopback".to_owned(),
        ],
        Network::Gateway { .. } | Network::Card { .. } => vec![
            "one way out: a gateway of its own, which makes each connection itself if a rule allows it".to_owned(),
            INTERFACE.to_owned(),
            match policy.network().mode {
                NetworkMode::Open => {
                    "dangerously open: every public address can be reached on every TCP port".to_owned()
                }
                NetworkMode::Off | NetworkMode::Allow => allowed(policy),
            },
            "addresses that are private, local or a cloud's metadata are never dialled, unless opened by name".to_owned(),
        ],
    };
    if plan.network == Network::Empty && facts.landlock_abi >= TCP_LANDLOCK_ABI {
        how.push("Landlock refuses TCP".to_owned());
    }
    if facts.landlock_abi >= WANTED_LANDLOCK_ABI {
        how.push("Landlock keeps abstract sockets and signals inside the box".to_owned());
    }
    how
}

fn credentials() -> Vec<String> {
    vec![
        "no secret is given to the box".to_owned(),
        "its environment is built from nothing: the caller's variables do not reach it".to_owned(),
    ]
}

/// What is said of when a box ends that has no keeper: whoever keeps boxes by a clock of its own says its own word there.
#[must_use]
pub fn ends_after(timeout: Seconds) -> String {
    format!("ends after {timeout} at the latest, with everything that it started")
}

fn lifecycle(policy: &SealedPolicy, plan: &Plan, gaps: &[Gap]) -> Vec<String> {
    let rules = policy.lifetime();
    let mut how = vec![
        ends_after(rules.timeout),
        match volumes(plan) {
            0 => "what it wrote goes with it",
            _ => "what it wrote goes with it, but for what lies in volumes",
        }
        .to_owned(),
        format!("says at most {}; the rest is cut off", rules.output),
    ];
    if rules.survives_daemon == SurvivesDaemon::Yes {
        how.push(
            "goes on when its daemon is killed: a new one has 60 s to take it over, and its deadline stays"
                .to_owned(),
        );
    }
    if gaps.contains(&Gap::NoMemoryLimit) {
        how.push("nothing limits the memory of all its processes together".to_owned());
    }
    if gaps.contains(&Gap::NoPidsLimit) {
        how.push("nothing counts the processes of this box alone".to_owned());
    }
    how
}
