//! What holds the five boundaries of a box on gVisor's kernel: the jail's report with the lines that differ.

use blastbox_policy::{Boundary, Bytes, Gap, Gpu, SealedPolicy};
use blastbox_wire::plan::{Cgroups, Ids, Network, Plan};

use crate::{BoundaryReport, Facts};

/// The report for each boundary, in the order in which the jail's came.
pub(super) fn write(
    policy: &SealedPolicy,
    facts: &Facts,
    plan: &Plan,
    jail: Vec<BoundaryReport>,
    gaps: &[Gap],
) -> Vec<BoundaryReport> {
    let change = |line: BoundaryReport| {
        let BoundaryReport { boundary, effective, how, gaps: jail } = line;
        let mut told: Vec<Gap> = jail.into_iter().filter(|gap| gaps.contains(gap)).collect();
        let how = match boundary {
            Boundary::Kernel => {
                told = gaps.iter().copied().filter(|gap| gap.boundary() == Boundary::Kernel).collect();
                kernel(policy, facts, plan, gaps)
            }
            Boundary::Files => std::iter::once(
                "gVisor's kernel opens no file itself: a process of its own does, which sees the box's root alone"
                    .to_owned(),
            )
            .chain(how)
            .collect(),
            Boundary::Network => network(plan, how),
            Boundary::Credentials => how,
            Boundary::Lifecycle => {
                told = gaps.iter().copied().filter(|gap| matches!(gap, Gap::NoMemoryLimit | Gap::NoPidsLimit)).collect();
                let counted = matches!(plan.cgroups, Cgroups::Enforce { pids: true, .. });
                let threads = counted.then(|| "nothing counts the threads inside: memory bounds them".to_owned());
                how.into_iter().chain(threads).collect()
            }
        };
        BoundaryReport { boundary, effective, how, gaps: told }
    };
    jail.into_iter().map(change).collect()
}

fn kernel(policy: &SealedPolicy, facts: &Facts, plan: &Plan, gaps: &[Gap]) -> Vec<String> {
    let rules = policy.kernel();
    let interface = facts.cgroups.as_str();
    let memory_alone = format!(
        "the memory of its programs is at most {}, gVisor's own is not counted",
        Bytes(plan.limits.file_size)
    );
    let held = |gap, limit: String, instead: &str| {
        if gaps.contains(&gap) { instead.to_owned() } else { format!("{limit} ({interface})") }
    };
    let gpu = facts.gpu.as_ref().filter(|_| rules.gpu == Gpu::One).map(|gpu| {
        format!("calls into the NVIDIA driver {} are those that gVisor knows (nvproxy); what they ask is the driver's to check", gpu.driver)
    });
    let lines = vec![
        format!(
            "gVisor's kernel in user space answers every system call of the payload (platform {})",
            rules.gvisor_platform
        ),
        "a call that it does not offer fails, and nobody learns of it".to_owned(),
        "around it the jail: a list of allowed system calls of its own (seccomp), namespaces, no capabilities, no new \
         privileges"
            .to_owned(),
        match plan.ids {
            Ids::OwnRange | Ids::OwnBlock => "it runs as a host user that no other box has",
            Ids::CallerOnly => "it runs as the caller's user",
        }
        .to_owned(),
        held(
            Gap::NoMemoryLimit,
            format!("at most {} of memory, gVisor's own and scratch space included", rules.memory),
            &memory_alone,
        ),
        held(Gap::NoCpuLimit, format!("at most {} processors", rules.cpus), "processor time is not limited"),
        match plan.cgroups {
            Cgroups::Enforce { pids: true, .. } => format!(
                "at most {} tasks of the host stand behind it ({interface}), for {} processes inside; threads are not counted",
                plan.limits.pids, rules.pids
            ),
            Cgroups::Enforce { pids: false, .. } | Cgroups::Absent => {
                "processes are limited by user id alone".to_owned()
            }
        },
    ];
    lines.into_iter().chain(gpu).collect()
}

fn network(plan: &Plan, jail: Vec<String>) -> Vec<String> {
    let ours = match plan.network {
        Network::Empty | Network::Card { .. } => {
            "inside, gVisor's own network has a loopback whatever the policy says, and nothing else"
        }
        Network::Loopback => "gVisor's own network has a loopback, and nothing else",
        Network::Gateway { .. } => "gVisor makes the box's connections with sockets of its network namespace",
    };
    let around = |line: String| {
        line.replace("network namespace of its own, without", "network namespace around gVisor, without")
    };
    let mut how: Vec<String> = jail.into_iter().map(around).collect();
    how.push(ours.to_owned());
    how
}
