//! The tier `gvisor`: gVisor's kernel in user space, inside the same jail that the tier `jail` makes.
//!
//! The plan is the jail's with another first process: `blastbox-gvisor`, which starts gVisor's two, each without any power.
//! The payload's system calls are answered by gVisor; whoever breaks out of it is where a payload of the jail begins.
//!
//! Must not: do I/O. Everything that it knows is in its arguments.

mod report;
#[cfg(test)]
mod tests;

use blastbox_policy::{BoxRoot, Gap, Gpu, GvisorPlatform, OnDenied, Refusal, SealedPolicy, Tier};
use blastbox_wire::plan::{
    Denials, DeviceName, Exec, First, Grant, GrantAccess, GuestPath, Limits, Monitor, MonitorKind, Network,
    Plan, Slot, Step,
};

use super::jail;
use crate::facts::{Kvm, Version};
use crate::{Facts, Lowered, Request};

/// The oldest release that this was built against: older ones cannot hand a descriptor to their guest, or know neither
/// `systrap` nor a file server beside it.
pub const OLDEST_RUNSC: u32 = 20_240_729;

/// gVisor itself takes some of the box's memory.
const LEAST_MEMORY: u64 = 64 << 20;

/// Where the three programs lie in the box's root.
const HOME: &str = "/.blastbox";
const RUNSC: &str = "/.blastbox/runsc";
const KEEPER: &str = "/.blastbox/gvisor";
const AGENT: &str = "/.blastbox/agent";

/// gVisor's kernel asks for this at its start. Nothing below may be mapped; no host says more.
const LEAST_ADDRESS: (&str, &str) = ("/proc/sys/vm/mmap_min_addr", "65536\n");
/// Where its processes find themselves. Beneath /proc, because gVisor's own lies over that, whoever looks from inside.
const PROCESSES: &str = "/proc/box";

/// What gVisor's own processes and threads count, whatever the box does.
const OWN_TASKS: u32 = 96;
/// How many of the host's tasks stand behind one process of the box at most: its memory's, and one for each processor seen.
const TASKS_FOR_ONE: u32 = 4;
/// What gVisor's own processes may have open: several files of the host stand behind one of the box.
const OPEN_FILES: u32 = 65_536;
/// The box's memory is a file to gVisor's kernel, and a sparse one. How long the box's own files may be is held inside.
const FILE_SIZE: u64 = 1 << 46;
/// gVisor's kernel lengthens that file by so much at a time.
const MEMORY_CHUNK: u64 = 1 << 30;

/// The driver's version, where this gVisor takes calls for it (nvproxy): it has to know them to the last digit, or it would hand
/// on what it misreads. Where there is no GPU, the jail says so.
fn driver_for<'a>(policy: &SealedPolicy, facts: &'a Facts) -> Result<Option<&'a str>, Refusal> {
    let (Gpu::One, Some(gpu)) = (policy.kernel().gpu, &facts.gpu) else { return Ok(None) };
    let known = facts.gvisor.drivers();
    if known.contains(&gpu.driver) {
        return Ok(Some(&gpu.driver));
    }
    let runsc = match facts.gvisor.version() {
        Version::Of(day) => format!("of {day}"),
        Version::Unclear(_) => "of an unclear version".to_owned(),
    };
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    let why = format!(
        "gVisor's runsc {runsc} does not know the calls of the NVIDIA driver {} (it knows those of: {known}); take a runsc that does \
         (runsc nvproxy list-supported-drivers), or the jail, if the driver's whole surface is accepted by name (--tier jail \
         --accept shared-kernel --accept gpu-driver-surface)",
        gpu.driver
    );
    Err(Refusal::GpuUnavailable { why })
}

/// What gVisor makes of the policy. Its gaps are reported, not judged.
pub fn lower(policy: &SealedPolicy, facts: &Facts, request: &Request<'_>) -> Result<Lowered, Refusal> {
    jail::ends_with_daemon(policy, Tier::Gvisor)?;
    jail::reports_no_writes(policy, Tier::Gvisor)?;
    if policy.kernel().on_denied_syscall == OnDenied::Kill {
        return unavailable(
            "the policy ends the box at a denied system call, and gVisor answers them without a word",
        );
    }
    if policy.kernel().root == BoxRoot::Allowed {
        return unavailable("it gives a box no root; the jail does");
    }
    let driver = driver_for(policy, facts)?;
    if facts.landlock_abi == 0 {
        return unavailable(
            "without Landlock nothing keeps its file server from the memory of its own processes",
        );
    }
    let platform = policy.kernel().gvisor_platform;
    // Asked only where it decides: the answer is measured.
    if platform == GvisorPlatform::Kvm
        && let Kvm::Unusable(why) = &facts.machines.found().kvm
    {
        return unavailable(&format!(
            "the policy asks for its platform kvm (kernel.gvisor_platform), and {why}"
        ));
    }
    let programs = programs(policy, facts)?;
    let Lowered {
        tier: _,
        engine: _,
        mut plan,
        mut shows,
        report,
        gaps,
        copies: _,
        workspace_disk: _,
        fuel: _,
        http: _,
        rehearses: _,
        kernel: _,
    } = jail::lower(policy, facts, request)?;
    if policy.kernel().memory.0 < LEAST_MEMORY {
        return unavailable(&format!(
            "{} of memory is less than gVisor itself and a program need (64 MiB)",
            policy.kernel().memory
        ));
    }
    let first = first(policy, &plan, driver)?;
    plan.template.push(Step::Directory { at: path(HOME)? });
    // After what the jail shows: the libraries of a driver.
    let shown = u8::try_from(shows.len()).unwrap_or(u8::MAX);
    let mut slot = Slot(request.first_show(policy).0.saturating_add(shown));
    shows.extend(programs);
    for at in [RUNSC, KEEPER, AGENT] {
        plan.template.push(Step::Show { slot, at: path(at)? });
        slot = Slot(slot.0.saturating_add(1));
    }
    own_processes(&mut plan)?;
    // Each by itself: what else lies there is nobody's to read.
    for at in [RUNSC, KEEPER, AGENT] {
        plan.landlock.grants.push(Grant { at: path(at)?, access: GrantAccess::ReadExecute });
    }
    if platform == GvisorPlatform::Kvm {
        plan.template.push(Step::Device { name: DeviceName::Kvm });
        // With its ioctls, without which it is nothing.
        plan.landlock.grants.push(Grant { at: path("/dev/kvm")?, access: GrantAccess::Terminals });
    }
    plan.first = first;
    plan.denials = Denials::Silent;
    let Limits { millicpus, memory, pids, open_files: _, file_size } = plan.limits;
    let pids = pids.saturating_mul(TASKS_FOR_ONE).saturating_add(OWN_TASKS);
    // Where no group counts the box's memory, the length of that file is what bounds it.
    let file_size = match gaps.contains(&Gap::NoMemoryLimit) {
        true => memory.max(file_size).next_multiple_of(MEMORY_CHUNK),
        false => FILE_SIZE,
    };
    plan.limits = Limits { millicpus, memory, pids, open_files: OPEN_FILES, file_size };
    let descriptors = request.descriptors(policy).saturating_add(shows.len());
    if let Err(wrong) = plan.clone().check(descriptors) {
        return unavailable(&format!("its plan does not hold: {wrong}"));
    }
    let gaps = gaps_of(&gaps);
    let report = report::write(policy, facts, &plan, report, &gaps);
    Ok(Lowered { rehearses: true, ..Lowered::new(Tier::Gvisor, plan, shows, report, gaps) })
}

/// A /proc of our making. Its processes may find themselves by name; to open what is in there, their memory above all, is
/// granted to nobody: whoever makes gVisor's file server open a file there is refused by Landlock.
fn own_processes(plan: &mut Plan) -> Result<(), Refusal> {
    let (at, text) = LEAST_ADDRESS;
    for folder in ["/proc/sys", "/proc/sys/vm", PROCESSES] {
        plan.template.push(Step::Directory { at: path(folder)? });
    }
    plan.template.push(Step::File { at: path(at)?, text: text.to_owned() });
    for name in ["self", "thread-self"] {
        plan.template.push(Step::Link { at: path(&format!("/proc/{name}"))?, to: format!("box/{name}") });
    }
    for step in &mut plan.own {
        if *step == Step::Processes {
            *step = Step::ProcessesAt { at: path(PROCESSES)? };
        }
    }
    plan.landlock.grants.retain(|grant| grant.at.as_str() != "/proc");
    plan.landlock.grants.push(Grant { at: path("/proc/sys")?, access: GrantAccess::Read });
    Ok(())
}

fn unavailable<T>(why: &str) -> Result<T, Refusal> {
    Err(Refusal::TierUnavailable { tier: Tier::Gvisor, why: why.to_owned() })
}

/// The jail's gaps, but for the kernel that is not shared; and nobody learns what a payload tried in vain, nor counts the
/// threads inside: tasks of the host are counted, which is something else.
fn gaps_of(jail: &[Gap]) -> Vec<Gap> {
    let holds = |gap: &Gap| match gap {
        Gap::SharedKernel => false,
        Gap::SilentDenials | Gap::NoPidsLimit => true,
        other => jail.contains(other),
    };
    Gap::ALL.iter().copied().filter(holds).collect()
}

/// gVisor's program and ours, in the order in which they are shown.
fn programs(policy: &SealedPolicy, facts: &Facts) -> Result<Vec<std::path::PathBuf>, Refusal> {
    let found = &facts.gvisor;
    let Some(runsc) = &found.runsc else {
        return unavailable("gVisor's runsc is not installed");
    };
    let (Some(keeper), Some(agent)) = (&found.keeper, &found.agent) else {
        return unavailable("blastbox-gvisor or blastbox-agent is not installed beside blastbox");
    };
    // Asking means starting the program: only where the answer decides something.
    if policy.accepts(Gap::SilentDenials) {
        match found.version() {
            Version::Of(day) if *day >= OLDEST_RUNSC => {}
            Version::Of(day) => {
                return unavailable(&format!(
                    "{} is of {day}, and {OLDEST_RUNSC} is the oldest that can hand its guest a line to the host",
                    runsc.display()
                ));
            }
            Version::Unclear(why) => {
                return unavailable(&format!("the version of {} is unclear: {why}", runsc.display()));
            }
        }
    }
    Ok(vec![runsc.clone(), keeper.clone(), agent.clone()])
}

fn first(policy: &SealedPolicy, plan: &Plan, driver: Option<&str>) -> Result<First, Refusal> {
    let network = match plan.network {
        // gVisor's own network, in which nothing is but a loopback that is its own too.
        Network::Empty | Network::Loopback | Network::Card { .. } => "none",
        // Sockets of the box's network namespace, whose one interface ends in the gateway.
        Network::Gateway { .. } => "host",
    };
    let Limits { millicpus, memory, pids: _, open_files, file_size } = plan.limits;
    // One processor would make programs believe that nothing ever runs beside them.
    let cpus = millicpus.div_ceil(1000).max(2);
    let pairs = [
        ("--runsc", RUNSC.to_owned()),
        ("--agent", AGENT.to_owned()),
        ("--platform", policy.kernel().gvisor_platform.to_string()),
        ("--network", network.to_owned()),
        ("--cpus", cpus.to_string()),
        ("--memory", memory.to_string()),
        ("--open-files", open_files.to_string()),
        ("--file-size", file_size.to_string()),
    ];
    let mut arguments = vec!["blastbox-gvisor".to_owned()];
    arguments.extend(pairs.into_iter().flat_map(|(option, value)| [option.to_owned(), value]));
    arguments.extend(driver.iter().flat_map(|driver| ["--gpu".to_owned(), (*driver).to_owned()]));
    for step in &plan.own {
        let (at, exec) = match step {
            Step::ScratchDirectory { at, exec, .. } | Step::Workspace { at, exec, .. } => (at, *exec),
            _ => continue,
        };
        // Each a mount of its own there too: gVisor would put a /tmp without a limit over an empty one, and what must not
        // start programs says so to its kernel.
        let exec = if exec == Exec::Denied { "noexec" } else { "exec" };
        arguments.extend(["--place".to_owned(), format!("{at}={exec}")]);
    }
    debug_assert_eq!(policy.kernel().memory.0, memory, "the plan's limits are the policy's");
    let program = path(KEEPER)?;
    Ok(First::Monitor(Monitor {
        kind: MonitorKind::Gvisor,
        program,
        arguments,
        environment: Vec::new(),
        inherits: Vec::new(),
    }))
}

/// Every path here is written by us and plain.
fn path(text: &str) -> Result<GuestPath, Refusal> {
    text.parse().or_else(|_| unavailable("a path of its own is no path"))
}
