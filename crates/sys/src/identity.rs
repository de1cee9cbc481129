//! Who a process is: ids, capabilities, keys, limits of single processes.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

/// What the agent keeps where it has users to switch between: to become the payload's user, to signal it, and to
/// take away even the possibility of more. All of it only within the box's own user namespace.
const AGENT: [CapabilitySet; 4] =
    [CapabilitySet::SETUID, CapabilitySet::SETGID, CapabilitySet::KILL, CapabilitySet::SETPCAP];

/// What commands of the root of a box have besides: over files and processes of users of the box, and nothing that mounts,
/// configures or loads. The kernel asks for each of them in the box's own user namespace, which owns no other namespace.
pub const ROOT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::KILL);

/// Highest capability number that a kernel could know; unknown ones are refused and passed over.
const LAST_CAPABILITY: u32 = 63;

/// Which capabilities the next program keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Those that the agent needs to switch users.
    ForAgent,
    /// The same, and those that it passes on to commands of the box's root.
    ForAgentOfRoot,
    /// None.
    Nothing,
    /// Those that a daemon of root needs: to look where a caller points, to listen on a low port.
    ForDaemon,
}

/// Takes on a user and group of the current user namespace, with no further groups.
pub fn become_user(uid: u32, gid: u32, groups: Groups) -> io::Result<()> {
    use rustix::process::{Gid, Uid};
    if groups == Groups::Clear {
        rustix::thread::set_thread_groups(&[])?;
    }
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    Ok(rustix::thread::set_thread_res_uid(uid, uid, uid)?)
}

/// Whether further groups are cleared. Without privilege the kernel forbids even that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Groups {
    /// They are.
    Clear,
    /// They cannot be.
    Leave,
}

/// Reduces every capability set to what is kept, and locks the rules by which more could be had.
pub fn reduce_capabilities(keep: Keep) -> io::Result<()> {
    let kept = match keep {
        Keep::ForAgent => AGENT.iter().copied().collect::<CapabilitySet>(),
        Keep::ForAgentOfRoot => ROOT | CapabilitySet::SETPCAP,
        Keep::Nothing => CapabilitySet::empty(),
        Keep::ForDaemon => CapabilitySet::DAC_READ_SEARCH | CapabilitySet::NET_BIND_SERVICE,
    };
    for number in 0..=LAST_CAPABILITY {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(one) {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // The first number that the kernel does not know.
            Err(rustix::io::Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let sets = |effective, inheritable| CapabilitySets {
        effective,
        permitted: kept | CapabilitySet::SETPCAP,
        inheritable,
    };
    rustix::thread::set_capabilities(None, sets(kept | CapabilitySet::SETPCAP, kept))?;
    if keep == Keep::ForAgent {
        for one in AGENT {
            rustix::thread::configure_capability_in_ambient_set(one, true)?;
        }
    }
    rustix::thread::set_capabilities_secure_bits(secure_bits(keep == Keep::ForAgentOfRoot))?;
    let last = CapabilitySets { effective: kept, permitted: kept, inheritable: kept };
    Ok(rustix::thread::set_capabilities(None, last)?)
}

/// A program of uid 0 gets nothing for that number alone, and nobody can change these rules back. In a box that has a root
/// it keeps what whoever started it had (no new privileges: never more), and loses it with that number.
#[must_use]
pub fn secure_bits(has_root: bool) -> CapabilitiesSecureBits {
    let locked = CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    match has_root {
        true => locked,
        false => locked | CapabilitiesSecureBits::NO_ROOT | CapabilitiesSecureBits::NO_SETUID_FIXUP,
    }
}

/// No program that this process or its children start can gain anything by being started.
pub fn no_new_privileges() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// A session keyring of its own, so that no key of the caller is in reach.
pub fn own_keyring() -> io::Result<()> {
    const KEYCTL_JOIN_SESSION_KEYRING: libc::c_ulong = 1;
    // SAFETY: a null name asks for a new anonymous keyring; no memory is passed.
    let result = unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0) };
    if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// This process dies when its parent does, and cannot be looked into. To be asked after the last change of ids, which
/// resets the first.
pub fn die_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// The limit on core files that stops all of them: the kernel hands a core to a piped `core_pattern`, a program of
/// the host that runs as root, even where the limit is 0. Of all numbers only 1 stops it there as well.
pub const NO_CORE: u64 = 1;

/// No core dump, no looking into memory or /proc by others of the same user.
pub fn hide() -> io::Result<()> {
    limit(Resource::Core, NO_CORE)?;
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Lowers a limit of single processes. A limit that is already lower stays.
pub fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let most = rustix::process::getrlimit(resource).maximum.map_or(most, |hard| hard.min(most));
    Ok(rustix::process::setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}

/// The ordinary scheduler, whatever the caller had: a real-time box could take the machine.
pub fn ordinary_scheduling() -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter lives until after the call; 0 is this process.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const parameter) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
