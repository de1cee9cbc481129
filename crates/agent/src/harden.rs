//! What the agent does before it speaks: gives up what it does not need, and hides from the payload.
//!
//! The confinement itself (namespaces, filter, Landlock, limits) is there already when the agent starts; this is what
//! only the program itself can do, because an exec undoes it or because only it knows what it needs.

use std::io;
use std::os::fd::OwnedFd;

use blastbox_sys::identity::{ROOT, secure_bits};
use blastbox_sys::spawn::{Identity, keep_only};
use rustix::process::{DumpableBehavior, Resource};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::arguments::Arguments;
use crate::execs::Lending;
use crate::nurse::Nurse;
use crate::writes::Workplace;

/// The box's ordinary user and group.
const PAYLOAD: Identity = Identity { uid: 1000, gid: 1000, keeps: 0 };

/// Used after the start: becoming the payload, and signalling it.
const NEEDED: CapabilitySet = CapabilitySet::SETUID.union(CapabilitySet::SETGID).union(CapabilitySet::KILL);

/// What the agent holds and is, once it is safe.
#[derive(Debug)]
pub(crate) struct House {
    /// The stream to the host.
    pub(crate) control: OwnedFd,
    /// The listener for denied system calls.
    pub(crate) denials: Option<OwnedFd>,
    /// Who commands run as; `None`: as the agent itself, because the box has only one user.
    pub(crate) payload: Option<Identity>,
    /// The capabilities that the agent has kept.
    pub(crate) capabilities: CapabilitySet,
    /// Who commands of the box's root run as; `None`: the box has none.
    pub(crate) root: Option<Identity>,
    /// Where commands work, if somebody wants to hear of writes elsewhere.
    pub(crate) writes: Option<Workplace>,
    /// Which commands get ready on its own memory.
    pub(crate) lending: Lending,
    /// The line to whoever keeps the powers of a guest.
    pub(crate) nurse: Option<Nurse>,
}

/// Takes over the descriptors and gives up everything else.
pub(crate) fn harden(arguments: &Arguments) -> io::Result<House> {
    rustix::thread::set_name(c"blastbox-agent")?;
    // First of all: until now the payload could have looked into this memory.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    blastbox_sys::identity::limit(Resource::Core, blastbox_sys::identity::NO_CORE)?;
    std::panic::set_hook(Box::new(|_| std::process::abort()));
    rustix::process::umask(rustix::fs::Mode::WGRP | rustix::fs::Mode::WOTH);
    let (control, denials, nurse) = match (arguments.denials, arguments.nurse.map(|nurse| nurse.line)) {
        (None, None) => {
            let [control] = keep_only([arguments.control])?;
            (control, None, None)
        }
        (Some(denials), None) => {
            let [control, denials] = keep_only([arguments.control, denials])?;
            (control, Some(denials), None)
        }
        (None, Some(nurse)) => {
            let [control, nurse] = keep_only([arguments.control, nurse])?;
            (control, None, Some(nurse))
        }
        (Some(denials), Some(nurse)) => {
            let [control, denials, nurse] = keep_only([arguments.control, denials, nurse])?;
            (control, Some(denials), Some(nurse))
        }
    };
    rustix::io::ioctl_fionbio(&control, true)?;
    rustix::thread::set_no_new_privs(true)?;
    if !is_first() {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    }
    let keeps = cfg!(feature = "keeps-capabilities");
    let payload = (rustix::process::getuid().is_root() && !keeps).then_some(PAYLOAD);
    let capabilities = match keeps {
        true => pass_on_capabilities()?,
        false => give_up_capabilities(payload, arguments.root)?,
    };
    let root = arguments.root.then(root_of_box).transpose()?;
    let nurse = nurse.zip(arguments.nurse).map(|(line, told)| Nurse::new(line, told));
    // A call that this process answers waits for it, while it waits for its memory. Before its program runs a command makes none that
    // the filter refuses; where writes are watched, it makes some that are.
    let lending = match (arguments.lends, &denials, &arguments.writes) {
        (true, None, _) => Lending::Always,
        (_, _, None) => Lending::ToTheFirst,
        (_, _, Some(_)) => Lending::Never,
    };
    Ok(House { control, denials, payload, capabilities, root, writes: arguments.writes, lending, nurse })
}

/// The root of the box, with all that it may ever have.
fn root_of_box() -> io::Result<Identity> {
    let keeps = u32::try_from(ROOT.bits()).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok(Identity { uid: 0, gid: 0, keeps })
}

/// Whether the agent is the first process of its namespace, so that all others live and die with it.
pub(crate) fn is_first() -> bool {
    rustix::process::getpid().is_init()
}

/// Empties every set that a command could inherit from, once, so that starting a command has nothing left to empty
/// but what the agent itself needs. Fails where an agent that is root cannot: its commands might become it again.
fn give_up_capabilities(payload: Option<Identity>, root: bool) -> io::Result<CapabilitySet> {
    let had = rustix::thread::capabilities(None)?;
    if had.effective.contains(CapabilitySet::SETPCAP) {
        known(rustix::thread::set_capabilities_secure_bits(secure_bits(root)))?;
    }
    known(rustix::thread::clear_ambient_capability_set())?;
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        // Where the box has a root, its programs keep these when they start others.
        if root && ROOT.contains(capability) {
            continue;
        }
        match rustix::thread::capability_is_in_bounding_set(capability) {
            Ok(false) => {}
            Ok(true) => match rustix::thread::remove_capability_from_bounding_set(capability) {
                // An ordinary user has nothing that the bounding set bounds, and can never have: no new privileges.
                Err(rustix::io::Errno::PERM) if payload.is_none() => break,
                done => done?,
            },
            // The kernel has no more.
            Err(_) => break,
        }
    }
    let wanted = if root { NEEDED | ROOT } else { NEEDED };
    let kept = if payload.is_some() { had.permitted & wanted } else { CapabilitySet::empty() };
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets)?;
    Ok(kept)
}

/// In a test build: this process and all that it starts keep what it may do in its user namespace, whoever it is there.
fn pass_on_capabilities() -> io::Result<CapabilitySet> {
    let had = rustix::thread::capabilities(None)?;
    rustix::thread::set_capabilities(None, CapabilitySets { inheritable: had.permitted, ..had })?;
    for bit in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        if had.permitted.contains(one) {
            rustix::thread::configure_capability_in_ambient_set(one, true)?;
        }
    }
    Ok(had.permitted)
}

/// gVisor's kernel has neither of these, and nothing that they would take away: no program gains anything by being
/// executed there, and there is no ambient set.
fn known(done: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match done {
        Err(rustix::io::Errno::INVAL) => Ok(()),
        done => done,
    }
}
