//! What every plan must hold to, whoever wrote it. The warden trusts nothing else.

use std::path::Path;

use super::{
    Denials, DeviceName, First, GrantAccess, GuestPath, Ids, Landlock, Limits, MonitorKind, Network, Plan,
    Slot, Step, VOLUMES_AT,
};
use crate::egress::MAX_AUTHORITY;
use crate::limits::{
    MAX_FILE_TEXT, MAX_GRANTS, MAX_MONITOR_INHERITS, MAX_MONITOR_TEXT, MAX_MONITOR_TEXTS, MAX_PIDS,
    MAX_STEPS, MAX_WARDEN_FDS,
};

/// All that a box may ever see of the host's own files, read-only. A privileged warden binds nothing else by name:
/// other directories come as descriptors, which their caller had to be allowed to open.
pub const HOST_VIEW: [&str; 19] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/alternatives",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
    "/etc/ca-certificates",
    "/etc/ld.so.cache",
    // Debian's Javas do not start most programs without. Not what lies beside it: that may name an operator's passwords.
    "/etc/java-8-openjdk/security",
    "/etc/java-11-openjdk/security",
    "/etc/java-17-openjdk/security",
    "/etc/java-21-openjdk/security",
    "/etc/java-25-openjdk/security",
];

/// Why a plan is not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnsafePlan {
    /// A list is longer than anyone needs.
    #[error("the plan has too many {0}")]
    TooMany(&'static str),
    /// A file of the host that no box may see.
    #[error("{0} is not among the files of the host that a box may see")]
    NotInHostView(GuestPath),
    /// A step that belongs to the other list.
    #[error("step {index} of the {list} list belongs to the other list")]
    WrongList {
        /// Which list.
        list: &'static str,
        /// Which step.
        index: usize,
    },
    /// A directory of the scratch space without a scratch space before it, or two scratch spaces.
    #[error("the plan needs exactly one scratch space, before everything that lies in it")]
    Scratch,
    /// A descriptor that does not travel with the plan, or the control channel used as a directory.
    #[error("descriptor slot {0} is not a directory that was sent along")]
    BadSlot(u8),
    /// A limit that limits nothing or lets nothing live.
    #[error("the limit on {0} is out of range")]
    BadLimit(&'static str),
    /// No second file boundary at all.
    #[error("the plan grants no place to read programs from")]
    NoGrants,
    /// No certificate is that long.
    #[error("the box's authority is too long")]
    LongAuthority,
    /// A device that only the monitor of a virtual machine may have.
    #[error("/dev/{0} is for the monitor of a virtual machine alone")]
    DeviceOfMonitor(&'static str),
    /// A device for the programs of a box, which no monitor may have but gVisor's.
    #[error("/dev/{0} is for the programs of a jail or of gVisor, and not for another monitor")]
    DeviceOfAgent(&'static str),
    /// Only a virtual machine has a network card.
    #[error("a network card is for a virtual machine alone")]
    CardOfNobody,
    /// Whoever has the line to the gateway could be a gateway's warden.
    #[error("the monitor would inherit the line to its gateway")]
    MonitorHasLine,
    /// Nobody outside a monitor could answer for its denied calls.
    #[error("denied calls of a monitor cannot be reported")]
    MonitorReports,
    /// A monitor starts nobody as somebody else.
    #[error("a monitor's box has no root")]
    MonitorRoot,
    /// Whoever takes a monitor over would write to the host's directory past the kernel that it is.
    #[error("a monitor's box has no volume")]
    MonitorVolume,
    /// What is made anywhere but in an empty directory of the box's own could be made in somebody else's.
    #[error(
        "{0} is no place for a volume: those are {VOLUMES_AT}/NAME, right after the scratch directory there"
    )]
    VolumePlace(GuestPath),
    /// Two boxes that have one volume would make a socket in it, and hand each other what each was given.
    #[error("nothing keeps sockets and pipes out of the volume {0}: Landlock has no grant for it alone")]
    OpenVolume(GuestPath),
    /// Only the root of a box could change the image's files.
    #[error("{0} would be writable in a box that has no root")]
    WritableWithoutRoot(GuestPath),
    /// A text that no program could be given, or a monitor without a name.
    #[error("the monitor's arguments or variables cannot be handed over")]
    MonitorTexts,
    /// Synthetic text over the limit.
    #[error("the text of {0} is too long")]
    LongText(GuestPath),
}

/// A plan that holds to every rule: the only kind that can be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedPlan(Plan);

impl CheckedPlan {
    /// What is to be done.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.0
    }
}

impl Plan {
    /// Holds the plan against every rule. `descriptors` is how many travel with it, the control channel included.
    pub fn check(self, descriptors: usize) -> Result<CheckedPlan, UnsafePlan> {
        if self.template.len() > MAX_STEPS || self.own.len() > MAX_STEPS {
            return Err(UnsafePlan::TooMany("steps"));
        }
        if self.landlock.grants.len() > MAX_GRANTS {
            return Err(UnsafePlan::TooMany("grants"));
        }
        if descriptors > MAX_WARDEN_FDS {
            return Err(UnsafePlan::TooMany("descriptors"));
        }
        if self.landlock.grants.is_empty() {
            return Err(UnsafePlan::NoGrants);
        }
        for (index, step) in self.template.iter().enumerate() {
            check_template(index, step, descriptors)?;
        }
        check_first(&self, descriptors)?;
        check_own(&self, descriptors)?;
        if let Network::Gateway { slot, .. } | Network::Card { slot } = self.network {
            check_slot(slot, descriptors)?;
        }
        check_limits(&self.limits)?;
        Ok(CheckedPlan(self))
    }
}

fn check_template(index: usize, step: &Step, descriptors: usize) -> Result<(), UnsafePlan> {
    match step {
        Step::File { at, text } | Step::Cover { at, text } if text.len() > MAX_FILE_TEXT => {
            Err(UnsafePlan::LongText(at.clone()))
        }
        Step::HostView { path } if !HOST_VIEW.contains(&path.as_str()) => {
            Err(UnsafePlan::NotInHostView(path.clone()))
        }
        Step::Directory { .. } | Step::Link { .. } | Step::Device { .. } => Ok(()),
        Step::File { .. } | Step::Cover { .. } | Step::HostView { .. } => Ok(()),
        Step::Image { slot } | Step::Show { slot, .. } => check_slot(*slot, descriptors),
        Step::Scratch { .. }
        | Step::ScratchDirectory { .. }
        | Step::Processes
        | Step::ProcessesAt { .. }
        | Step::Terminals
        | Step::Trust { .. }
        | Step::Writable { .. }
        | Step::Volume { .. }
        | Step::Workspace { .. } => Err(UnsafePlan::WrongList { list: "template", index }),
    }
}

/// What a monitor may have, and nobody else.
fn check_first(plan: &Plan, descriptors: usize) -> Result<(), UnsafePlan> {
    let kind = match &plan.first {
        First::Agent => None,
        First::Monitor(monitor) => {
            let texts = [&monitor.arguments, &monitor.environment];
            let bad = |text: &String| text.len() > MAX_MONITOR_TEXT || text.contains('\0');
            if monitor.arguments.is_empty()
                || texts.iter().any(|texts| texts.len() > MAX_MONITOR_TEXTS || texts.iter().any(bad))
            {
                return Err(UnsafePlan::MonitorTexts);
            }
            if plan.denials != Denials::Silent {
                return Err(UnsafePlan::MonitorReports);
            }
            if plan.ids == Ids::OwnBlock {
                return Err(UnsafePlan::MonitorRoot);
            }
            if plan.own.iter().any(|step| matches!(step, Step::Volume { .. })) {
                return Err(UnsafePlan::MonitorVolume);
            }
            let most = if monitor.kind == MonitorKind::Qemu { MAX_MONITOR_INHERITS } else { 0 };
            if monitor.inherits.len() > most {
                return Err(UnsafePlan::TooMany("descriptors of the monitor"));
            }
            // Not the control channel, which it has already.
            monitor.inherits.iter().try_for_each(|slot| check_slot(*slot, descriptors))?;
            if let Network::Gateway { slot, .. } | Network::Card { slot } = plan.network
                && monitor.inherits.contains(&slot)
            {
                return Err(UnsafePlan::MonitorHasLine);
            }
            Some(monitor.kind)
        }
    };
    let machines = plan.template.contains(&Step::Device { name: DeviceName::Kvm });
    if machines && !matches!(kind, Some(MonitorKind::Qemu | MonitorKind::Gvisor)) {
        return Err(UnsafePlan::DeviceOfMonitor(DeviceName::Kvm.as_str()));
    }
    // A monitor's devices are its own; a GPU is for programs, whose calls gVisor hands on.
    let gpu = DeviceName::GPU.into_iter().find(|name| plan.template.contains(&Step::Device { name: *name }));
    if let (Some(name), Some(MonitorKind::Qemu | MonitorKind::Wasm)) = (gpu, kind) {
        return Err(UnsafePlan::DeviceOfAgent(name.as_str()));
    }
    if matches!(plan.network, Network::Card { .. }) && kind != Some(MonitorKind::Qemu) {
        return Err(UnsafePlan::CardOfNobody);
    }
    Ok(())
}

fn check_own(plan: &Plan, descriptors: usize) -> Result<(), UnsafePlan> {
    let (mut scratch, mut for_volumes) = (false, false);
    for (index, step) in plan.own.iter().enumerate() {
        // Whatever came between could lie over the directory by then.
        for_volumes = match step {
            Step::ScratchDirectory { at, .. } => at.as_str() == VOLUMES_AT,
            Step::Volume { .. } => for_volumes,
            _ => false,
        };
        match step {
            Step::ScratchDirectory { .. } | Step::Writable { .. } | Step::Workspace { .. } if !scratch => {
                return Err(UnsafePlan::Scratch);
            }
            Step::Scratch { bytes, inodes } => {
                if scratch {
                    return Err(UnsafePlan::Scratch);
                }
                // Size 0 means "no limit" to tmpfs: the worst possible reading of a bad number.
                if *bytes == 0 || *inodes < 16 {
                    return Err(UnsafePlan::BadLimit("scratch space"));
                }
                scratch = true;
            }
            Step::Writable { at } if plan.ids != Ids::OwnBlock => {
                return Err(UnsafePlan::WritableWithoutRoot(at.clone()));
            }
            Step::Workspace { slot, .. } => check_slot(*slot, descriptors)?,
            Step::Volume { slot, at, .. } => {
                let name = at.as_str().strip_prefix(VOLUMES_AT).and_then(|rest| rest.strip_prefix('/'));
                if !for_volumes || name.is_none_or(|name| name.contains('/')) {
                    return Err(UnsafePlan::VolumePlace(at.clone()));
                }
                if !is_closed(at, &plan.landlock) {
                    return Err(UnsafePlan::OpenVolume(at.clone()));
                }
                check_slot(*slot, descriptors)?;
            }
            Step::Trust { authority } if authority.len() > MAX_AUTHORITY => {
                return Err(UnsafePlan::LongAuthority);
            }
            Step::ScratchDirectory { .. }
            | Step::Writable { .. }
            | Step::Processes
            | Step::ProcessesAt { .. }
            | Step::Terminals
            | Step::Trust { .. } => {}
            Step::Directory { .. }
            | Step::File { .. }
            | Step::Cover { .. }
            | Step::Link { .. }
            | Step::HostView { .. }
            | Step::Image { .. }
            | Step::Show { .. }
            | Step::Device { .. } => return Err(UnsafePlan::WrongList { list: "own", index }),
        }
    }
    if scratch { Ok(()) } else { Err(UnsafePlan::Scratch) }
}

/// Whether Landlock keeps sockets and pipes out of a volume, by the words of the plan. What it grants above a directory holds in it too.
/// It says nothing about a directory that the same plan shows a second time elsewhere, or leads a link to: only who writes plans keeps from that.
fn is_closed(volume: &GuestPath, landlock: &Landlock) -> bool {
    let mut there =
        landlock.grants.iter().filter(|grant| Path::new(grant.at.as_str()).starts_with(VOLUMES_AT));
    let granted = there.clone().any(|grant| grant.at == *volume);
    granted && landlock.least_abi > 0 && there.all(|grant| grant.access == GrantAccess::Shared)
}

fn check_slot(slot: Slot, descriptors: usize) -> Result<(), UnsafePlan> {
    if slot.0 == 0 || usize::from(slot.0) >= descriptors { Err(UnsafePlan::BadSlot(slot.0)) } else { Ok(()) }
}

fn check_limits(limits: &Limits) -> Result<(), UnsafePlan> {
    let Limits { millicpus, memory, pids, open_files, file_size } = *limits;
    within((1..=1_024_000).contains(&millicpus), "processors")?;
    within((4 << 20..=1 << 40).contains(&memory), "memory")?;
    within((2..=MAX_PIDS).contains(&pids), "processes")?;
    within((16..=1_048_576).contains(&open_files), "open files")?;
    within(file_size != 0, "file size")
}

fn within(holds: bool, what: &'static str) -> Result<(), UnsafePlan> {
    if holds { Ok(()) } else { Err(UnsafePlan::BadLimit(what)) }
}

#[cfg(test)]
mod tests;
