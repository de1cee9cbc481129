//! The tier `wasm`: guests without a system call of their own, run by a worker that is jailed around them.
//!
//! Must not: do I/O. Everything that it knows is in its arguments.

mod compile;
mod compilers;
mod found;
mod report;
#[cfg(test)]
mod tests;
mod whole;

pub use compile::{CompileError, Compiling, Effort, Kept, compile, look};
pub use compilers::Compilers;
pub use found::{Guests, Metering, WORKER};
pub(crate) use whole::{Flaw, flaws};

use blastbox_images::{Image, Language};
use blastbox_policy::{
    BoxRoot, CredentialMode, CredentialRules, FileRules, Gap, Gpu, GuestName, KernelRules, LifetimeRules,
    NetworkMode, NetworkRules, OnDenied, Refusal, SealedPolicy, Tier,
};
use blastbox_wire::plan::{
    Denials, DeviceName, Exec, First, Grant, GrantAccess, GuestPath, Ids, Landlock, Limits, Monitor,
    MonitorKind, Network, Owner, Plan, Slot, Step, WorkspaceAccess,
};

use super::NoInterpreter;
use super::jail::{self, WANTED_LANDLOCK_ABI};
use crate::request::Worksite;
use crate::{Facts, Lowered, Request, Swap};

/// Where worker and guests lie in the box.
const PLACE: &str = "/wasm";
/// Where a module of the caller lies.
const OWN_PLACE: &str = "/module";
/// What the root has beside them. `/proc` is there to be empty: without root it covers the host's.
const DIRECTORIES: [&str; 4] = ["/dev", "/proc", "/run", "/workspace"];
/// Where the payload works.
const WORKSPACE: &str = "/workspace";
/// The scratch space that every plan has. Nothing is granted in it: files of guests lie in the worker's memory.
const SCRATCH: (u64, u64) = (64 * 1024, 16);
/// Threads of the worker besides those that run guests, and some to spare.
const OWN_THREADS: u32 = 4;
/// Guests that run at the same time at most.
const MOST_THREADS: u32 = 4;
/// Open files of the worker itself.
const OWN_FILES: u32 = 256;

/// What the tier makes of the policy. Its gaps are reported, not judged.
pub fn lower(policy: &SealedPolicy, facts: &Facts, request: &Request<'_>) -> Result<Lowered, Refusal> {
    // No `..` in any of these: a rule that is added does not compile until this tier says what it does with it.
    let KernelRules {
        tier: _,
        cpus,
        memory,
        pids,
        on_denied_syscall,
        root,
        gpu,
        deterministic,
        fuel,
        guest,
        gvisor_platform: _,
    } = policy.kernel();
    // Whether programs may be started from scratch space does not arise: a guest starts none.
    let FileRules { workspace: _, disk, inodes, file_size, open_files, exec: _, report_writes: _ } =
        policy.files();
    let NetworkRules { mode, loopback: _, allow: _, dangerously_allow_private: _, limits: _ } =
        policy.network();
    let CredentialRules { mode: CredentialMode::None | CredentialMode::Brokered, bind: _ } =
        policy.credentials();
    let LifetimeRules { timeout: _, output: _, survives_daemon: _ } = policy.lifetime();
    jail::ends_with_daemon(policy, Tier::Wasm)?;
    jail::reports_no_writes(policy, Tier::Wasm)?;

    jail::fit(facts)?;
    let unavailable = |why: &str| Refusal::TierUnavailable { tier: Tier::Wasm, why: why.to_owned() };
    let Some(guests) = &facts.wasm else {
        return Err(unavailable(
            "blastbox-wasm and its guests are not installed beside blastbox (`make wasm`)",
        ));
    };
    let brought = match request.image {
        Image::Module(own) => Some(guests.clone().with_own(own)),
        Image::Host(_) | Image::Directory(_) | Image::Stored(_) => None,
    };
    let guests = brought.as_ref().unwrap_or(guests);
    let alone = guest.as_ref().map(|name| alone(guests, name)).transpose()?;
    let guests = alone.as_ref().unwrap_or(guests);
    if !guests.runs(guests.form()) {
        return Err(unavailable(
            "wasm_no_component_worker: its guest is a component, and blastbox-wasm-component is not installed beside blastbox-wasm \
             (`make wasm`)",
        ));
    }
    let metering = if fuel.is_some() { Metering::Fuel } else { Metering::None };
    if metering == Metering::Fuel && guests.code(metering) == 0 {
        return Err(unavailable(
            "the policy meters the work of commands (kernel.fuel), and no guest here counts its own (`make wasm`)",
        ));
    }
    if *mode == NetworkMode::Open {
        return Err(unavailable(
            "its guests have no sockets: they have HTTP requests made by the box's gateway, to hosts that rules name (network.allow)",
        ));
    }
    if *deterministic && *mode != NetworkMode::Off {
        return Err(unavailable(
            "the policy asks for runs that can be repeated to the last byte (kernel.deterministic), and lets them ask hosts (network.allow) that \
             answer as they like: leave one of the two out",
        ));
    }
    if *on_denied_syscall == OnDenied::Kill {
        return Err(unavailable(
            "the policy ends the box at a denied system call, and nobody is told of those of the worker",
        ));
    }
    if *root == BoxRoot::Allowed {
        return Err(unavailable("its guests have no users, so that none is root"));
    }
    if *gpu != Gpu::None {
        return Err(Refusal::GpuUnavailable { why: "guests of the tier wasm have no devices".to_owned() });
    }
    let worksite = request.worksite(policy)?;
    match request.image {
        Image::Host(_) | Image::Module(_) => {}
        Image::Directory(_) | Image::Stored(_) => {
            return Err(Refusal::ImageUnusable {
                why: "a Wasm box has no root file system; leave --image away".to_owned(),
            });
        }
    }

    // The line to a gateway stays with the engine, which brings it the requests of guests: nothing of it travels.
    let http = *mode != NetworkMode::Off;
    let slot = request.gateway_slot();
    let cgroups = jail::cgroups(facts);
    let limits = Limits {
        millicpus: cpus.millis(),
        // Without a group that counts pages, what is limited is what the worker maps, and code counts there. Guests
        // and files are held to the policy's number by the worker itself.
        memory: if jail::held(cgroups).0 { memory.0 } else { memory.0.saturating_add(guests.code(metering)) },
        pids: *pids,
        // The worker's own; those of guests are counted by the worker.
        open_files: OWN_FILES,
        file_size: file_size.0,
    };
    let worker = Worker {
        guests,
        memory: memory.0,
        disk: disk.0,
        inodes: *inodes,
        file_size: file_size.0,
        open_files: *open_files,
        threads: pids.saturating_sub(OWN_THREADS).clamp(1, MOST_THREADS),
        deterministic: *deterministic,
        fuel: *fuel,
        http,
        worksite,
    };
    let plan = Plan {
        box_id: request.box_id.clone(),
        template: template(guests, slot),
        own: own(worksite, request.workspace_slot()),
        ids: if facts.privileged { Ids::OwnRange } else { Ids::CallerOnly },
        network: Network::Empty,
        cgroups,
        limits,
        landlock: Landlock {
            least_abi: facts.landlock_abi.min(WANTED_LANDLOCK_ABI),
            grants: grants(guests, worksite),
        },
        denials: Denials::Silent,
        first: First::Monitor(Monitor {
            kind: MonitorKind::Wasm,
            program: worker_path(guests)?,
            arguments: worker.arguments(),
            environment: Vec::new(),
            inherits: Vec::new(),
        }),
    };
    let shows = guests.shown();
    if let Err(wrong) = plan.clone().check(usize::from(slot.0) + shows.len()) {
        return Err(unavailable(&format!("its plan does not hold: {wrong}")));
    }
    let gaps = gaps(facts, &plan, worksite);
    let report = report::write(policy, facts, &plan, (guests, worksite), &gaps);
    Ok(Lowered { fuel: *fuel, http, ..Lowered::new(Tier::Wasm, plan, shows, report, gaps) })
}

/// What a box has whose policy names its one guest.
fn alone(guests: &Guests, name: &GuestName) -> Result<Guests, Refusal> {
    let unavailable = |why: String| Refusal::TierUnavailable { tier: Tier::Wasm, why };
    if let Some(own) = guests.own() {
        let (own, name) = (&own.name, name.as_str());
        return Err(unavailable(format!(
            "the policy says that a box has the guest {name} alone (kernel.guest), and {own}.wasm is another"
        )));
    }
    let Some(alone) = guests.alone(name.as_str()) else {
        return Err(unavailable(format!(
            "the policy says that a box has the guest {name} alone (kernel.guest), and none of that name lies on the shelf of this host"
        )));
    };
    Ok(alone)
}

/// The guest that reads a program in this language.
pub(super) fn interpreter(language: Language) -> Result<Vec<String>, NoInterpreter> {
    let guest = match language {
        Language::Python => "python",
        Language::PythonData => "python-data",
        Language::Node => "js",
        Language::Shell => return Err(NoInterpreter::NoShellGuest),
    };
    Ok(vec![guest.to_owned(), "-".to_owned()])
}

/// What the worker is told.
struct Worker<'a> {
    guests: &'a Guests,
    memory: u64,
    disk: u64,
    inodes: u64,
    file_size: u64,
    open_files: u32,
    threads: u32,
    deterministic: bool,
    fuel: Option<u64>,
    http: bool,
    worksite: Worksite,
}

impl Worker<'_> {
    fn arguments(&self) -> Vec<String> {
        let mut words = vec![self.guests.worker().to_owned()];
        let mut say = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        say("memory", self.memory.to_string());
        say("disk", self.disk.to_string());
        say("inodes", self.inodes.to_string());
        say("file-size", self.file_size.to_string());
        say("open-files", self.open_files.to_string());
        say("threads", self.threads.to_string());
        if self.deterministic {
            say("deterministic", "true".to_owned());
        }
        if let Some(fuel) = self.fuel {
            say("fuel", fuel.to_string());
        }
        if self.http {
            say("http", "true".to_owned());
        }
        match self.worksite {
            Worksite::Absent | Worksite::Scratch => {}
            Worksite::Directory(WorkspaceAccess::ReadOnly) => say("workspace", "ro".to_owned()),
            Worksite::Directory(WorkspaceAccess::CopyOnWrite) => say("workspace", "cow".to_owned()),
        }
        say("shelf", PLACE.to_owned());
        // Who asks the worker of modules for a component is told how to have it.
        for name in self.guests.names().iter().chain(self.guests.components()) {
            say("guest", name.clone());
        }
        if let Some(own) = self.guests.own() {
            say("shelf", OWN_PLACE.to_owned());
            say("own", own.name.clone());
        }
        words
    }
}

fn worker_path(guests: &Guests) -> Result<GuestPath, Refusal> {
    format!("{PLACE}/{}", guests.worker())
        .parse()
        .map_err(|_| Refusal::TierUnavailable { tier: Tier::Wasm, why: "the worker has no place".to_owned() })
}

fn template(guests: &Guests, slot: Slot) -> Vec<Step> {
    let mut steps: Vec<Step> =
        DIRECTORIES.iter().filter_map(|at| at.parse().ok()).map(|at| Step::Directory { at }).collect();
    steps.extend([DeviceName::Null, DeviceName::Urandom].map(|name| Step::Device { name }));
    steps.extend(path(PLACE).map(|at| Step::Show { slot, at }));
    if guests.own().is_some() {
        let slot = Slot(slot.0.saturating_add(1));
        steps.extend(path(OWN_PLACE).map(|at| Step::Show { slot, at }));
    }
    steps
}

fn own(worksite: Worksite, slot: Slot) -> Vec<Step> {
    let (bytes, inodes) = SCRATCH;
    let exec = Exec::Denied;
    let mut steps = vec![Step::Scratch { bytes, inodes }];
    // For whoever asks the plan where the payload works; the place itself is in the worker's memory.
    steps.extend(path(WORKSPACE).and_then(|at| match worksite {
        Worksite::Absent => None,
        Worksite::Scratch => Some(Step::ScratchDirectory { at, owner: Owner::Payload, exec }),
        // The worker reads it once and never writes to it, whatever guests may do with their copy.
        Worksite::Directory(_) => Some(Step::Workspace { slot, at, access: WorkspaceAccess::ReadOnly, exec }),
    }));
    steps.push(Step::Processes);
    steps
}

fn grants(guests: &Guests, worksite: Worksite) -> Vec<Grant> {
    let own = guests.own().map(|_| (OWN_PLACE, GrantAccess::Read));
    let workspace = matches!(worksite, Worksite::Directory(_)).then_some((WORKSPACE, GrantAccess::Read));
    let all = [(PLACE, GrantAccess::ReadExecute), ("/dev", GrantAccess::Devices)].into_iter();
    let all = all.chain(own).chain(workspace);
    all.filter_map(|(at, access)| path(at).map(|at| Grant { at, access })).collect()
}

/// Every gap of this plan on this host, in the order of [`Gap::ALL`].
fn gaps(facts: &Facts, plan: &Plan, worksite: Worksite) -> Vec<Gap> {
    let (memory, cpu, pids) = jail::held(plan.cgroups);
    let holds = |gap: &Gap| match gap {
        // A guest makes no system call: no kernel is shared with it until it has broken the worker.
        Gap::SharedKernel => false,
        // Nothing of the host is shown but the worker and its guests.
        Gap::HostImage => false,
        Gap::SharedUid => plan.ids == Ids::CallerOnly,
        Gap::NoMemoryLimit => !memory,
        Gap::NoCpuLimit => !cpu,
        Gap::NoPidsLimit => !pids,
        Gap::WeakLandlock => plan.landlock.least_abi < WANTED_LANDLOCK_ABI,
        // A guest has no system call that could be denied.
        Gap::SilentDenials => false,
        Gap::SwapUnlimited => match facts.swap {
            Swap::Uncounted => true,
            Swap::Counted => !memory,
            Swap::Absent => false,
        },
        Gap::OwnerMapMissing => jail::owner_map_missing(facts, plan, worksite),
        Gap::EmulatedCpu | Gap::GpuDriverSurface | Gap::VolumeSize => false,
    };
    Gap::ALL.iter().copied().filter(holds).collect()
}

/// Every path here is written by us and plain; a test counts what comes out.
fn path(text: &str) -> Option<GuestPath> {
    text.parse().ok()
}
