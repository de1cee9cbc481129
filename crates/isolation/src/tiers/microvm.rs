//! The tier `microvm`: a guest kernel of the box's own, in a virtual machine that an engine plays (`engines`).
//!
//! The plan is a jail's with the engine as its first process: whoever breaks out of the machine is where a payload of the jail
//! begins, with less to see and fewer calls to make. The guest is told the same rules by its command line, and holds
//! its payload to them as a jail does.
//!
//! Must not: do I/O. Everything that it knows is in its arguments.

mod report;
pub(crate) mod spec;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use blastbox_images::Image;
use blastbox_images::machine::{CopyCaps, Parts, Workshop};
use blastbox_policy::{
    BoxRoot, FileRules, Gap, Gpu, NetworkMode, Refusal, SealedPolicy, ThreatLevel, Tier, TierChoice,
};
use blastbox_wire::BoxId;
use blastbox_wire::egress::BUNDLE;
use blastbox_wire::event::Hash;
use blastbox_wire::plan::{
    Cgroups, Denials, DeviceName, Exec, First, Grant, GrantAccess, GuestPath, Landlock, Limits, Monitor,
    Network, Owner, Plan, Slot, Step, WorkspaceAccess,
};

use super::jail;
use crate::engines::Room;
use crate::facts::{Found, Installed, Kvm, Machines};
use crate::request::Worksite;
use crate::{Copies, Facts, Lowered, MachineEngine, Request};
use spec::{Form, LEAST_MEMORY, Processor, VmSpec};

/// An engine writes no file.
const FILE_SIZE: u64 = 64 * 1024;
/// The scratch space of the root around it, which nobody writes to.
const SCRATCH: (u64, u64) = (64 * 1024, 64);
const WORKSPACE: &str = "/workspace";

/// What a virtual machine makes of the policy. Its gaps are reported, not judged.
pub fn lower(policy: &SealedPolicy, facts: &Facts, request: &Request<'_>) -> Result<Lowered, Refusal> {
    jail::ends_with_daemon(policy, Tier::Microvm)?;
    let Fit { installed: Installed { engine, program }, machine, worksite, around, gaps } =
        fits(policy, facts, request)?;
    let parts = match request.image.machine() {
        Some(Ok(parts)) => parts,
        Some(Err(why)) => return unavailable(why),
        None => return Err(not_made(policy, facts, request.image, &gaps)),
    };
    let found = facts.machines.found();
    let (shows, box_id) =
        (vec![parts.kernel.clone(), parts.first_files.clone(), parts.disk.clone()], &request.box_id);
    let Lowered { plan, report, .. } = around;
    let mut plan = around_engine(plan, (*engine, found), request.first_show(policy), &machine, worksite)?;
    let (program, descriptors) =
        (path(&program.to_string_lossy())?, request.descriptors(policy) + shows.len());
    plan.landlock.grants.push(Grant { at: program.clone(), access: GrantAccess::ReadExecute });
    if machine.card {
        if !parts.network {
            return unavailable(
                "its kernel was added without the driver of a network card; add it anew (blastbox kernel get, or add)",
            );
        }
        plan.network = Network::Card { slot: request.gateway_slot() };
    }
    if worksite == Worksite::Directory(WorkspaceAccess::CopyOnWrite) && !parts.overlay {
        return unavailable(
            "its kernel was added without the driver overlay, which changes in a workspace need; add it anew (blastbox kernel get, or add), or give the directory read-only (:ro)",
        );
    }
    let own = [machine.card, machine.workspace, machine.console].into_iter().filter(|has| *has).count();
    let slots = |from: usize, count: usize| -> Vec<Slot> {
        (from..from + count).map(|slot| Slot(u8::try_from(slot).unwrap_or(u8::MAX))).collect()
    };
    let first = |form, inherits| {
        let arguments = engine.arguments(&machine, form, box_id);
        let (kind, environment) = (engine.kind(), Vec::new());
        First::Monitor(Monitor { kind, program: program.clone(), arguments, environment, inherits })
    };
    plan.first = first(Form::Alone, slots(descriptors, own));
    if let Err(wrong) = plan.clone().check(descriptors + own) {
        return unavailable(&format!("its plan does not hold: {wrong}"));
    }
    // At this level no two boxes have memory in common, not even what nobody can write to.
    // A template could have neither anybody's directory nor a disk that becomes another one, and has said all that a console hears of a boot.
    let apart = machine.workspace || machine.console;
    let copies = (policy.level() < ThreatLevel::Critical && !apart).then(|| {
        let of =
            |form, network| Plan { first: first(form, slots(descriptors, 2 + own)), network, ..plan.clone() };
        // No gateway is at the other end of a template's card.
        let template = if machine.card { Network::Empty } else { plan.network };
        let heir = of(Form::Heir, template);
        let (template, copy) = (of(Form::Template, template), of(Form::Copy, plan.network));
        let (bound, memory, card) = (bound(*engine, &machine, parts, found), machine.memory, machine.card);
        let authority = policy.network().needs_authority();
        Box::new(Copies { engine: *engine, bound, memory, card, authority, template, copy, heir })
    });
    for plan in copies.iter().flat_map(|copies| [&copies.template, &copies.copy, &copies.heir]) {
        if let Err(wrong) = plan.clone().check(descriptors + 2 + own) {
            return unavailable(&format!("the plan of its copies does not hold: {wrong}"));
        }
    }
    let report = report::write(policy, facts, &plan, (*engine, &machine, worksite), parts, report, &gaps);
    let FileRules { disk, inodes, file_size, .. } = policy.files();
    let caps = CopyCaps { bytes: disk.0, entries: *inodes, file: file_size.0 };
    let workspace_disk = machine.workspace.then_some(caps);
    let (kernel, engine) = (Some(parts.digest), Some(*engine));
    Ok(Lowered {
        kernel,
        engine,
        copies,
        workspace_disk,
        ..Lowered::new(Tier::Microvm, plan, shows, report, gaps)
    })
}

/// Where what a machine starts from has to be found or made before this request is lowered, and by which agent; `None`: it
/// would be refused all the same, or needs nothing. For whoever may wait for a disk.
pub(crate) fn preparation(
    policy: &SealedPolicy,
    facts: &Facts,
    request: &Request<'_>,
) -> Option<(Arc<Workshop>, PathBuf)> {
    let fit = fits(policy, facts, request).ok()?;
    let accepted = fit.gaps.iter().all(|gap| policy.accepts(*gap));
    if !accepted || request.image.machine().is_some() || !request.image.has_kernel() {
        return None;
    }
    request.image.workshop().zip(facts.machines.agent.clone())
}

/// What a machine could be, as far as that can be said without its parts.
struct Fit<'a> {
    installed: &'a Installed,
    machine: VmSpec,
    worksite: Worksite,
    /// The jail around its engine.
    around: Lowered,
    gaps: Vec<Gap>,
}

/// Everything that is refused without looking at a kernel or a disk.
fn fits<'a>(policy: &SealedPolicy, facts: &'a Facts, request: &Request<'_>) -> Result<Fit<'a>, Refusal> {
    if policy.kernel().gpu != Gpu::None {
        return Err(Refusal::GpuUnavailable {
            why: "a virtual machine has none: it would have to be taken from the host altogether".to_owned(),
        });
    }
    let installed = have(facts, request.image)?;
    let worksite = request.worksite(policy)?;
    if matches!(worksite, Worksite::Directory(_)) && !facts.reads_directories {
        return unavailable(
            "it would have to copy the workspace, and a daemon reads no directory of its callers: use `blastbox run`, or `blastbox cp`",
        );
    }
    if policy.kernel().root == BoxRoot::Allowed {
        return unavailable("it gives a box no root; use --tier jail");
    }
    let found = facts.machines.found();
    if let Some(why) = installed.engine.unfit(found.version) {
        return unavailable(&why);
    }
    let machine = machine(policy, (installed.engine, facts), worksite)?;
    let host = Image::Host(found.view.clone());
    let around = Request { box_id: request.box_id.clone(), image: &host, workspace: None, volumes: &[] };
    let around = jail::lower_around(policy, facts, &around)?;
    let gaps = gaps_of(&around.gaps, machine.processor);
    Ok(Fit { installed, machine, worksite, around, gaps })
}

/// What a machine that sleeps is bound to: its own words, which say what its policy demands of it, and everything that they are
/// about.
fn bound(engine: MachineEngine, machine: &VmSpec, parts: &Parts, found: &Found) -> Hash {
    // Every name has a digest of its content in it: that of the agent, and that of the image.
    let name = |path: &std::path::Path| path.file_name().unwrap_or_default().as_encoded_bytes().to_vec();
    let mut words: Vec<Vec<u8>> =
        [spec::COPIES, env!("CARGO_PKG_VERSION"), engine.name()].map(|word| word.into()).to_vec();
    words.extend([parts.digest.as_bytes().to_vec(), found.build.as_bytes().to_vec()]);
    words.extend([name(&parts.first_files), name(&parts.disk)]);
    // Copies of all boxes have the same words.
    let nobody = BoxId::from_random([0; 20]);
    words.extend(engine.arguments(machine, Form::Template, &nobody).into_iter().map(String::into_bytes));
    Hash::of_command(&words)
}

/// Why nobody has made what a machine of this image starts from.
fn not_made(policy: &SealedPolicy, facts: &Facts, image: &Image, gaps: &[Gap]) -> Refusal {
    let why = |why: String| Refusal::TierUnavailable { tier: Tier::Microvm, why };
    if !image.has_kernel() {
        return why("it has no guest kernel (blastbox kernel get)".to_owned());
    }
    // The one that says most about it, where there are several.
    let open = gaps.iter().filter(|gap| !policy.accepts(**gap)).max_by_key(|gap| **gap == Gap::EmulatedCpu);
    match (open, policy.kernel().tier) {
        (Some(gap), TierChoice::Exactly(_)) => not_accepted(*gap, facts),
        (Some(gap), TierChoice::ByThreat) => {
            let found = found_of(*gap, facts).map(|found| format!(": {found}")).unwrap_or_default();
            why(format!(
                "it would have the gap {gap}, which the policy does not accept (--accept {gap}){found}"
            ))
        }
        (None, _) => why("nobody has made what it starts from".to_owned()),
    }
}

/// A gap that the policy does not accept, with what this host's KVM was found to be like where that is why it is there: how slow it is,
/// where it was timed.
pub(crate) fn not_accepted(gap: Gap, facts: &Facts) -> Refusal {
    Refusal::GapNotAccepted { gap, found: found_of(gap, facts).map(ToOwned::to_owned) }
}

fn found_of(gap: Gap, facts: &Facts) -> Option<&str> {
    match (gap, &facts.machines.found().kvm) {
        (Gap::EmulatedCpu | Gap::SharedKernel, Kvm::Unusable(why)) => Some(why),
        _ => None,
    }
}

fn unavailable<T>(why: &str) -> Result<T, Refusal> {
    Err(Refusal::TierUnavailable { tier: Tier::Microvm, why: why.to_owned() })
}

/// What no machine starts without.
fn have<'a>(facts: &'a Facts, image: &Image) -> Result<&'a Installed, Refusal> {
    let Machines { engine, agent, .. } = &facts.machines;
    let Some(installed) = engine else { return unavailable(&MachineEngine::absent()) };
    if agent.is_none() {
        return unavailable("blastbox-agent is not installed beside blastbox");
    }
    match image {
        Image::Stored(_) => Ok(installed),
        Image::Host(_) | Image::Directory(_) | Image::Module(_) => unavailable(
            "it starts from an image of the store, not from the host or a directory (blastbox image import DIR --name NAME)",
        ),
    }
}

/// The machine that the policy asks for.
fn machine(
    policy: &SealedPolicy,
    (engine, facts): (MachineEngine, &Facts),
    worksite: Worksite,
) -> Result<VmSpec, Refusal> {
    let found = facts.machines.found();
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
    let memory = rules.memory.0.saturating_sub(engine.overhead(processor));
    if memory < LEAST_MEMORY {
        let least = LEAST_MEMORY.saturating_add(engine.overhead(processor)) >> 20;
        return unavailable(&format!(
            "{} of memory is less than a guest's kernel and the machine around it need ({least} MiB); use --memory",
            rules.memory
        ));
    }
    let orders = VmSpec::orders(policy, worksite);
    let workspace = matches!(worksite, Worksite::Directory(_));
    let card = policy.network().mode != NetworkMode::Off;
    Ok(VmSpec { processor, processors, memory, card, workspace, console: facts.hears_console, orders })
}

/// A jail's plan with nothing in it that the engine, its first process to be, does not need.
fn around_engine(
    jail: Plan,
    (engine, found): (MachineEngine, &Found),
    mut slot: Slot,
    machine: &VmSpec,
    worksite: Worksite,
) -> Result<Plan, Refusal> {
    let mut plan = jail;
    // Whom programs of the box believe is the guest's to know.
    plan.template.retain(|step| !matches!(step, Step::File { at, .. } if at.as_str() == BUNDLE));
    plan.template.push(Step::Directory { at: path(spec::HOME)? });
    for at in [spec::KERNEL, spec::FIRST_FILES, spec::DISK] {
        plan.template.push(Step::Show { slot, at: path(at)? });
        slot = Slot(slot.0.saturating_add(1));
    }
    let (bytes, inodes) = SCRATCH;
    plan.own = vec![Step::Scratch { bytes, inodes }];
    if worksite != Worksite::Absent {
        // Where commands begin is read off the plan; in the guest there is one of the policy's size.
        plan.own.push(Step::ScratchDirectory {
            at: path(WORKSPACE)?,
            owner: Owner::Payload,
            exec: Exec::Denied,
        });
    }
    plan.own.push(Step::Processes);
    let mut grants = vec![
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
    let Room { threads, open_files, mapped } = engine.room();
    let pids = threads.saturating_add(machine.processors);
    let memory = match plan.cgroups {
        Cgroups::Enforce { memory: true, .. } => plan.limits.memory,
        // What the guest has is bounded by the machine itself. Without a group, what is left to limit is what it maps,
        // which is more than it uses.
        Cgroups::Enforce { memory: false, .. } | Cgroups::Absent => plan.limits.memory.saturating_add(mapped),
    };
    let Limits { millicpus, .. } = plan.limits;
    plan.limits = Limits { millicpus, memory, pids, open_files, file_size: FILE_SIZE };
    Ok(plan)
}

/// The jail's gaps, but for those of a payload that the host's kernel serves and that sees the host's files.
fn gaps_of(jail: &[Gap], processor: Processor) -> Vec<Gap> {
    let holds = |gap: &Gap| match gap {
        // An emulated processor is no boundary: what is left is the jail around it, on the host's kernel.
        Gap::SharedKernel => processor == Processor::Emulated,
        Gap::HostImage | Gap::OwnerMapMissing | Gap::VolumeSize => false,
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
