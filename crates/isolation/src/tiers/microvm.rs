//! The tier `microvm`: a guest kernel of the box's own, in a virtual machine that QEMU plays.
//!
//! The plan is a jail's with QEMU as its first process: whoever breaks out of the machine is where a payload of the jail
//! begins, with less to see and fewer calls to make. The guest is told the same rules by its command line, and holds
//! its payload to them as a jail does.
//!
//! Must not: do I/O. Everything that it knows is in its arguments.

mod report;
mod spec;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use blastbox_images::Image;
use blastbox_images::machine::Parts;
use blastbox_policy::{Gap, NetworkMode, Refusal, SealedPolicy, Tier, TierChoice, tiers_for};
use blastbox_wire::plan::{
    Cgroups, Denials, DeviceName, Exec, First, Grant, GrantAccess, GuestPath, Landlock, Limits, Monitor,
    MonitorKind, Owner, Plan, Slot, Step,
};

use super::jail;
use crate::facts::{Found, Kvm, Machines};
use crate::request::Worksite;
use crate::{Facts, Lowered, Request};
use spec::{LEAST_MEMORY, OLDEST_QEMU, Processor, VmSpec};

/// Threads of QEMU beside the guest's processors: its loop, its workers for disks.
const OWN_THREADS: u32 = 80;
const OPEN_FILES: u32 = 256;
/// What QEMU maps and does not use: stacks, arenas of its threads.
const MAPPED: u64 = 1 << 30;
/// QEMU writes no file.
const FILE_SIZE: u64 = 64 * 1024;
/// The scratch space of the root around QEMU, which nobody writes to.
const SCRATCH: (u64, u64) = (64 * 1024, 64);
const WORKSPACE: &str = "/workspace";

/// What a virtual machine makes of the policy. Its gaps are reported, not judged.
pub fn lower(policy: &SealedPolicy, facts: &Facts, request: &Request<'_>) -> Result<Lowered, Refusal> {
    let (program, parts) = have(facts, request)?;
    let workspace = match request.worksite(policy)? {
        Worksite::Absent => false,
        Worksite::Scratch => true,
        Worksite::Directory(_) => {
            return unavailable("it shows no directory of the host; copy files in with `blastbox cp`");
        }
    };
    if policy.network().mode != NetworkMode::Off {
        return unavailable("a machine has no network in this version; use --tier jail or --tier gvisor");
    }
    let found = facts.machines.found();
    match found.version {
        Some(version) if version >= OLDEST_QEMU => {}
        Some((major, minor)) => {
            let (least, lesser) = OLDEST_QEMU;
            return unavailable(&format!(
                "QEMU {major}.{minor} is older than {least}.{lesser} (apt-get install qemu-system-x86)"
            ));
        }
        None => return unavailable("QEMU does not say its version (apt-get install qemu-system-x86)"),
    }
    let machine = machine(policy, found, request, workspace)?;
    let host = Image::Host(found.view.clone());
    let around = Request { box_id: request.box_id.clone(), image: &host, workspace: None };
    let Lowered { plan, report, gaps, .. } = jail::lower(policy, facts, &around)?;
    let shows = vec![parts.kernel.clone(), parts.first_files.clone(), parts.disk.clone()];
    let plan = around_qemu(plan, program, found, request.first_show(policy), &machine, workspace)?;
    let descriptors = request.descriptors(policy).saturating_add(shows.len());
    if let Err(wrong) = plan.clone().check(descriptors) {
        return unavailable(&format!("its plan does not hold: {wrong}"));
    }
    let gaps = gaps_of(&gaps, machine.processor);
    let report = report::write(policy, facts, &plan, &machine, parts, report, &gaps);
    Ok(Lowered { tier: Tier::Microvm, plan, shows, report, gaps })
}

/// Finds or makes what a machine of this image starts from, where this policy could have one here: the one part of this
/// tier that touches a disk, for whoever lowers afterwards. What goes wrong is the refusal's to say.
pub fn prepare(policy: &SealedPolicy, facts: &Facts, image: &Image) {
    let Machines { qemu: Some(_), agent: Some(agent), .. } = &facts.machines else { return };
    let could = match policy.kernel().tier {
        TierChoice::Exactly(tier) => tier == Tier::Microvm,
        TierChoice::ByThreat => {
            tiers_for(policy).contains(&Tier::Microvm)
                && image.has_kernel()
                && (policy.accepts(Gap::EmulatedCpu) || facts.machines.found().kvm == Kvm::Fast)
        }
    };
    if could {
        image.prepare_machine(agent);
    }
}

fn unavailable<T>(why: &str) -> Result<T, Refusal> {
    Err(Refusal::TierUnavailable { tier: Tier::Microvm, why: why.to_owned() })
}

/// What no machine starts without.
fn have<'a>(facts: &'a Facts, request: &'a Request<'_>) -> Result<(&'a PathBuf, &'a Parts), Refusal> {
    let Machines { qemu, agent, .. } = &facts.machines;
    let Some(program) = qemu else {
        return unavailable("QEMU is not installed (apt-get install qemu-system-x86)");
    };
    if agent.is_none() {
        return unavailable("blastbox-agent is not installed beside blastbox");
    }
    match (request.image.machine(), request.image) {
        (Some(Ok(parts)), _) => Ok((program, parts)),
        (Some(Err(why)), _) => unavailable(why),
        (None, Image::Host(_) | Image::Directory(_)) => unavailable(
            "it starts from an image of the store, not from the host or a directory (blastbox image import DIR --name NAME)",
        ),
        (None, Image::Stored(_)) if request.image.has_kernel() => unavailable(
            "its processor would be emulated, which the policy does not accept (--accept emulated-cpu)",
        ),
        (None, Image::Stored(_)) => unavailable("it has no guest kernel (blastbox kernel get)"),
    }
}

/// The machine that the policy asks for.
fn machine(
    policy: &SealedPolicy,
    found: &Found,
    request: &Request<'_>,
    workspace: bool,
) -> Result<VmSpec, Refusal> {
    let processor = match found.kvm {
        Kvm::Fast => Processor::Kvm,
        Kvm::Unusable(_) => Processor::Emulated,
    };
    let rules = policy.kernel();
    let processors = rules.cpus.millis().div_ceil(1000);
    if processors > found.processors {
        return unavailable(&format!(
            "{processors} processors for a guest are more than this host has ({}); use --cpus",
            found.processors
        ));
    }
    let memory = rules.memory.0.saturating_sub(processor.overhead());
    if memory < LEAST_MEMORY {
        let least = LEAST_MEMORY.saturating_add(processor.overhead()) >> 20;
        return unavailable(&format!(
            "{} of memory is less than a guest's kernel and the machine around it need ({least} MiB); use --memory",
            rules.memory
        ));
    }
    let orders = VmSpec::orders(policy, &request.box_id, workspace);
    Ok(VmSpec { processor, processors, memory, orders })
}

/// A jail's plan, with QEMU as its first process and nothing in it that QEMU does not need.
fn around_qemu(
    jail: Plan,
    program: &std::path::Path,
    found: &Found,
    mut slot: Slot,
    machine: &VmSpec,
    workspace: bool,
) -> Result<Plan, Refusal> {
    let mut plan = jail;
    plan.template.push(Step::Directory { at: path(spec::HOME)? });
    for at in [spec::KERNEL, spec::FIRST_FILES, spec::DISK] {
        plan.template.push(Step::Show { slot, at: path(at)? });
        slot = Slot(slot.0.saturating_add(1));
    }
    let (bytes, inodes) = SCRATCH;
    plan.own = vec![Step::Scratch { bytes, inodes }];
    if workspace {
        // Where commands begin is read off the plan; in the guest there is one of the policy's size.
        plan.own.push(Step::ScratchDirectory {
            at: path(WORKSPACE)?,
            owner: Owner::Payload,
            exec: Exec::Denied,
        });
    }
    plan.own.push(Step::Processes);
    let program = path(&program.to_string_lossy())?;
    let mut grants = vec![
        Grant { at: program.clone(), access: GrantAccess::ReadExecute },
        Grant { at: path(Machines::loader())?, access: GrantAccess::ReadExecute },
        Grant { at: path(spec::HOME)?, access: GrantAccess::Read },
        Grant { at: path("/dev")?, access: GrantAccess::Devices },
    ];
    for read in &found.reads {
        grants.push(Grant { at: path(read)?, access: GrantAccess::Read });
    }
    if machine.processor == Processor::Kvm {
        plan.template.push(Step::Device { name: DeviceName::Kvm });
        // With its ioctls, without which it is nothing.
        grants.push(Grant { at: path("/dev/kvm")?, access: GrantAccess::Terminals });
    }
    plan.landlock = Landlock { least_abi: plan.landlock.least_abi, grants };
    plan.denials = Denials::Silent;
    let pids = OWN_THREADS.saturating_add(machine.processors);
    let memory = match plan.cgroups {
        Cgroups::Enforce { memory: true, .. } => plan.limits.memory,
        // What the guest has is bounded by the machine itself. Without a group, what is left to limit is what QEMU maps,
        // which is more than it uses.
        Cgroups::Enforce { memory: false, .. } | Cgroups::Absent => plan.limits.memory.saturating_add(MAPPED),
    };
    let Limits { millicpus, .. } = plan.limits;
    plan.limits = Limits { millicpus, memory, pids, open_files: OPEN_FILES, file_size: FILE_SIZE };
    plan.first = First::Monitor(Monitor {
        kind: MonitorKind::Qemu,
        program,
        arguments: machine.qemu(),
        environment: Vec::new(),
    });
    Ok(plan)
}

/// The jail's gaps, but for those of a payload that the host's kernel serves and that sees the host's files.
fn gaps_of(jail: &[Gap], processor: Processor) -> Vec<Gap> {
    let holds = |gap: &Gap| match gap {
        Gap::SharedKernel | Gap::HostImage | Gap::OwnerMapMissing => false,
        // The guest's kernel reports them, whatever the host's can do.
        Gap::SilentDenials => false,
        Gap::EmulatedCpu => processor == Processor::Emulated,
        other => jail.contains(other),
    };
    Gap::ALL.iter().copied().filter(holds).collect()
}

/// Every path here is ours or was found on this host.
fn path(text: &str) -> Result<GuestPath, Refusal> {
    text.parse().map_err(|_| Refusal::TierUnavailable {
        tier: Tier::Microvm,
        why: format!("{text:?} is no path that a box can have"),
    })
}
