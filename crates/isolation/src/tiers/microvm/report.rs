//! What holds the five boundaries of a box in a virtual machine: the jail's report with the lines that differ.

use blastbox_images::machine::Parts;
use blastbox_policy::{Boundary, Gap, OnDenied, SealedPolicy};
use blastbox_wire::plan::{Ids, Plan, WorkspaceAccess};

use super::spec::{Processor, VmSpec};
use crate::facts::Kvm;
use crate::request::Worksite;
use crate::tiers::jail::INTERFACE;
use crate::{BoundaryReport, Facts, MachineEngine};

/// The report for each boundary, in the order in which the jail's came.
pub(super) fn write(
    policy: &SealedPolicy,
    facts: &Facts,
    plan: &Plan,
    (engine, machine, worksite): (MachineEngine, &VmSpec, Worksite),
    parts: &Parts,
    jail: Vec<BoundaryReport>,
    gaps: &[Gap],
) -> Vec<BoundaryReport> {
    let change = |line: BoundaryReport| {
        let BoundaryReport { boundary, effective, how, gaps: jail } = line;
        let mut told: Vec<Gap> = jail.into_iter().filter(|gap| gaps.contains(gap)).collect();
        let how = match boundary {
            Boundary::Kernel => {
                told = gaps.iter().copied().filter(|gap| gap.boundary() == Boundary::Kernel).collect();
                kernel(policy, facts, plan, (engine, machine), parts, gaps)
            }
            Boundary::Files => files(policy, engine, worksite),
            Boundary::Network => network(engine, machine, how),
            Boundary::Credentials | Boundary::Lifecycle => how,
        };
        BoundaryReport { boundary, effective, how, gaps: told }
    };
    jail.into_iter().map(change).collect()
}

fn network(engine: MachineEngine, machine: &VmSpec, jail: Vec<String>) -> Vec<String> {
    if !machine.card {
        let ours = "the machine has no network card; around it:".to_owned();
        return std::iter::once(ours).chain(jail).collect();
    }
    let ours = |line: String| match line.as_str() {
        INTERFACE => format!(
            "the machine's one network card ends in that gateway; {} around it is in an empty network namespace",
            engine.title()
        ),
        _ => line,
    };
    jail.into_iter().map(ours).collect()
}

fn kernel(
    policy: &SealedPolicy,
    facts: &Facts,
    plan: &Plan,
    (engine, machine): (MachineEngine, &VmSpec),
    parts: &Parts,
    gaps: &[Gap],
) -> Vec<String> {
    let rules = policy.kernel();
    let interface = facts.cgroups.as_str();
    let held = |gap, limit: String, instead: &str| {
        if gaps.contains(&gap) { instead.to_owned() } else { format!("{limit} ({interface})") }
    };
    let mut how =
        vec![format!("a kernel of its own in a virtual machine: Linux {} ({})", parts.release, parts.digest)];
    let (title, name) = (engine.title(), engine.name());
    let version =
        facts.machines.found().version.map(|(major, minor)| format!(" {major}.{minor}")).unwrap_or_default();
    how.push(format!("its machine is played by {title}{version} (engine {name})"));
    match (machine.processor, &facts.machines.found().kvm) {
        (Processor::Kvm, _) | (_, Kvm::Fast) => {
            how.push("the processor itself keeps guest and host apart (KVM)".to_owned());
        }
        (Processor::Emulated, Kvm::Unusable(why)) => {
            how.push(format!(
                "its processor is played by a program, which is not a security boundary, and slow (seconds for a boot): {why}"
            ));
        }
    }
    how.extend([
        match (machine.card, machine.console) {
            (false, false) => "four devices: a port to the agent, a read-only disk, randomness, a clock",
            (true, false) => {
                "five devices: a port to the agent, a read-only disk, randomness, a clock, a network card"
            }
            (false, true) => {
                "five devices: a port to the agent, a read-only disk, randomness, a clock, a console"
            }
            (true, true) => {
                "six devices: a port to the agent, a read-only disk, randomness, a clock, a network card, a console"
            }
        }
        .to_owned(),
        match rules.on_denied_syscall {
            OnDenied::Record => "in the guest, a denied system call fails and is reported",
            OnDenied::Kill => "in the guest, the first denied system call ends the box",
        }
        .to_owned(),
        format!(
            "around {title} the jail: a list of allowed system calls of its own (seccomp), namespaces, no capabilities, no new \
             privileges"
        ),
        match plan.ids {
            Ids::OwnRange | Ids::OwnBlock => format!("{title} runs as a host user that no other box has"),
            Ids::CallerOnly => format!("{title} runs as the caller's user"),
        },
        held(
            Gap::NoMemoryLimit,
            format!(
                "at most {} of memory, of which the guest has {} MiB, scratch space included",
                rules.memory,
                machine.memory >> 20
            ),
            "memory is limited by what the guest was given",
        ),
        held(Gap::NoCpuLimit, format!("at most {} processors", rules.cpus), "processor time is not limited"),
        format!("at most {} processes and threads in the guest", rules.pids),
    ]);
    how
}

fn files(policy: &SealedPolicy, engine: MachineEngine, worksite: Worksite) -> Vec<String> {
    let rules = policy.files();
    let mut how = vec![
        match worksite {
            Worksite::Absent | Worksite::Scratch => {
                "the image is a read-only disk; nothing of the host's files is in the guest"
            }
            Worksite::Directory(WorkspaceAccess::ReadOnly) => {
                "the image is a read-only disk; the workspace is a copy of a host directory on another one, read-only"
            }
            Worksite::Directory(WorkspaceAccess::CopyOnWrite) => {
                "the image is a read-only disk; the workspace is a copy of a host directory on another one, and changes stay in the guest's memory"
            }
        }
        .to_owned(),
        format!(
            "{} sees its own libraries and firmware, the kernel and the disk, all read-only, and Landlock checks it a second time",
            engine.title()
        ),
        format!("at most {} in {} files can be written, all of it in the guest's memory", rules.disk, rules.inodes),
    ];
    if rules.exec == blastbox_policy::ScratchExec::Denied {
        how.push("nothing can be executed where the box can write".to_owned());
    }
    if rules.report_writes {
        how.push(
            "writes at unexpected paths are reported; the walls above decide about them, not the report"
                .to_owned(),
        );
    }
    how
}
