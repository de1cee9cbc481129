//! The first process of a virtual machine: makes of a kernel that has just started what a box is, and then is the agent.
//!
//! ```text
//! kernel ─► begin ─► drivers ─► port to the host ─► root ─► (network) ─► nurse ─► users, limits, filter ─► the agent ─► switch the machine off
//! ```
//!
//! A guest that others begin as copies of sleeps when the agent is about to take its first frame. Its network is brought up in the copy, by
//! the nurse.
//!
//! The walls between payload and host are the machine's. Those that are put up here stand between payload and agent, and
//! keep the guest's own kernel out of reach: the same filter, the same limits and the same read-only root as in a jail.

mod drivers;
mod network;
mod nurse;
mod orders;
mod root;
mod sleep;
mod warm;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use blastbox_agent::Arguments;
use blastbox_sys::identity::{self, Groups, Keep};
use blastbox_sys::mount::{self, Attributes};
use blastbox_sys::seccomp::{Filter, Visibility};
use blastbox_sys::{namespaces, program};
use blastbox_wire::agent::AgentFrame;
use blastbox_wire::plan::Denials;
use rustix::fs::{Mode, OFlags, mkdirat, open};
use rustix::process::Resource;

pub(crate) use orders::{GUEST, Orders};

/// Numbers of what the agent inherits.
const CONTROL: i32 = 3;
const DENIALS: i32 = 4;
const NURSE: i32 = 5;

/// Where the group of the box limits processes, it does so before the limit of their user: the kernel counts what it refuses there alone.
const SLACK: u64 = 16;

/// What could not be done, in words for the host.
struct Failed(&'static str, io::Error);

trait Trying<T> {
    fn tried(self, what: &'static str) -> Result<T, Failed>;
}

impl<T, E: Into<io::Error>> Trying<T> for Result<T, E> {
    fn tried(self, what: &'static str) -> Result<T, Failed> {
        self.map_err(|error| Failed(what, error.into()))
    }
}

/// Is the first process of a guest. Comes back only where that is not so.
pub(crate) fn run(words: impl Iterator<Item = OsString>) -> u8 {
    let Some(orders) = Orders::parse(words) else { return 2 };
    // Anywhere else this would mount over somebody's root and switch their machine off.
    if !rustix::process::getpid().is_init() || std::fs::metadata("/init").is_err() {
        return 2;
    }
    // The end of a kernel's first process is the end of the machine: the kernel gives up, and was told to start again at
    // once when it does, and the machine to end when its kernel wants to start again.
    match start(&orders) {
        // There is no line to the host: it sees that nothing was said. Whoever hears the console is told there.
        Err(Failed(tried, error)) => {
            let text = format!("blastbox: the guest could not {tried}: {error}\n");
            let log = open("/dev/kmsg", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
            log.and_then(|log| rustix::io::write(log, text.as_bytes())).ok();
            1
        }
        Ok(port) => match begin(&orders, &port) {
            Ok(arguments) => {
                // The agent closes whatever it was not handed, and this is among it.
                std::mem::forget(port);
                blastbox_agent::run(&arguments)
            }
            Err(Failed(tried, error)) => {
                let text = format!("the guest could not {tried}: {error}");
                rustix::io::write(&port, &AgentFrame::Fault { text: &text }.encode()).ok();
                1
            }
        },
    }
}

/// Nothing that is opened from now on has a number that the agent's own descriptors will get.
fn reserve_descriptors() -> io::Result<()> {
    loop {
        let next = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        if next.as_raw_fd() > NURSE {
            return Ok(());
        }
        // Held until the agent closes it.
        std::mem::forget(next);
    }
}

/// What is needed to speak with the host at all.
fn start(orders: &Orders) -> Result<OwnedFd, Failed> {
    reserve_descriptors().tried("reserve descriptors")?;
    let before = open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .tried("open its first root")?;
    for (kind, at) in [("proc", "proc"), ("sysfs", "sys"), ("devtmpfs", "dev")] {
        match mkdirat(&before, at, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(errno).tried("make a place for its kernel's files"),
        }
        let made = mount::create(kind, &[], Attributes::DEVICE).tried("show its kernel's files")?;
        mount::attach(made.as_fd(), before.as_fd(), at).tried("show its kernel's files")?;
    }
    drivers::load(orders).tried("load a driver")?;
    drivers::port().tried("find the port to the host")
}

/// Puts on what a box has, layer by layer, in the order of a jail.
fn begin(orders: &Orders, port: &OwnedFd) -> Result<Arguments, Failed> {
    drivers::disk(drivers::DISK).tried("find the disk with the image")?;
    if orders.workspace.has_disk() {
        drivers::disk(drivers::WORKSPACE).tried("find the disk with the workspace")?;
    }
    rustix::system::sethostname(orders.name.as_bytes()).tried("set its host name")?;
    if orders.loopback {
        namespaces::loopback_up().tried("bring its loopback up")?;
    }
    if orders.network {
        drivers::card().tried("find its network card (its kernel needs the driver virtio_net)")?;
    }
    let proc = open("/proc", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .tried("open /proc")?;
    set(&proc, &SETTINGS).tried("harden its kernel")?;
    let sys =
        open("/sys", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).tried("open /sys")?;
    set(&sys, &MEMORY).tried("tell its kernel when memory has run out")?;
    let machine = root::make(orders).tried("make the root of the box")?;
    let root = open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .tried("open the root of the box")?;
    if orders.asleep {
        warm::up(&root);
    } else if orders.authority {
        let authority = network::hear_authority(port).tried("hear whom its programs believe")?;
        blastbox_agent::believe(&root, &authority).tried("have its programs believe the gateway")?;
    }
    if orders.network && !orders.asleep {
        network::bring_up().tried("bring its network card up")?;
    }
    // Here, because it needs the powers that are given up next.
    let (nurse, counted) = nurse::start(nurse::Renewal::of(orders), (proc, machine), orders.pids)
        .tried("start the process that keeps its powers")?;
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).tried("open /dev/null")?;
    rustix::process::setsid().ok();
    identity::no_new_privileges().tried("give up new privileges")?;
    identity::become_user(0, 0, Groups::Clear).tried("become the agent's user")?;
    identity::reduce_capabilities(Keep::ForAgent).tried("drop capabilities")?;
    limit(orders, if counted { SLACK } else { 0 })?;
    for number in 0..=2 {
        program::place(null.as_fd(), number).tried("close the standard streams")?;
    }
    let visibility = match orders.denials {
        Denials::Reported => Visibility::Reported,
        Denials::WithWrites => Visibility::WithWrites,
        Denials::Silent => Visibility::Silent,
    };
    let listener = Filter::compile(visibility).install().tried("install the system-call filter")?;
    if let Some(listener) = &listener {
        program::place(listener.as_fd(), DENIALS).tried("hand over the denials")?;
    }
    program::place(nurse.as_fd(), NURSE).tried("hand over the line to the process that keeps its powers")?;
    program::place(port.as_fd(), CONTROL).tried("hand over the control channel")?;
    identity::limit(Resource::Nofile, orders.files).tried("limit open files")?;
    let writes = (orders.denials == Denials::WithWrites).then(|| orders.workspace.workplace());
    let denials = listener.as_ref().map(|_| DENIALS);
    let nurse =
        Some(blastbox_agent::NurseLine { line: NURSE, authority: orders.authority, asleep: orders.asleep });
    Ok(Arguments { control: CONTROL, denials, writes, lends: false, root: false, nurse })
}

/// What a payload could use against the guest's own kernel; and that memory is refused when it is used, as on the host, not when it is
/// asked for.
const SETTINGS: [(&str, &[u8]); 6] = [
    ("sys/vm/overcommit_memory", b"1"),
    ("sys/user/max_user_namespaces", b"0"),
    ("sys/kernel/unprivileged_bpf_disabled", b"2"),
    ("sys/kernel/kptr_restrict", b"2"),
    ("sys/kernel/dmesg_restrict", b"1"),
    ("sys/kernel/modules_disabled", b"1"),
];

/// Without swap a kernel whose memory is full of a payload's own drops its programs and reads them again, for ever. One that may drop
/// nothing that young kills instead, and whoever waits hears of it. No longer than that, or whoever reads through a mapped file that is
/// larger than the memory would be killed, too.
const MEMORY: [(&str, &[u8]); 2] =
    [("kernel/mm/lru_gen/enabled", b"y"), ("kernel/mm/lru_gen/min_ttl_ms", b"50")];

/// A kernel without one of them has nothing there that could be reached. One that has it and does not take the value would
/// leave the payload what the rules of its box say that it has not.
fn set(place: &OwnedFd, settings: &[(&str, &[u8])]) -> io::Result<()> {
    for (setting, value) in settings {
        match namespaces::write_at(place, setting, value) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io::Error::new(error.kind(), format!("{setting}: {error}")));
            }
            _ => {}
        }
    }
    Ok(())
}

fn limit(orders: &Orders, slack: u64) -> Result<(), Failed> {
    for (resource, most) in [
        (Resource::Core, identity::NO_CORE),
        (Resource::Fsize, orders.size),
        (Resource::Nproc, orders.pids.saturating_add(slack)),
        (Resource::Memlock, 64 * 1024),
        (Resource::Msgqueue, 0),
        (Resource::Nice, 0),
        (Resource::Rtprio, 0),
        (Resource::Stack, 8 * 1024 * 1024),
        (Resource::Sigpending, 1024),
    ] {
        identity::limit(resource, most).tried("limit what a process may use")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_is_not_there_is_excused_and_one_that_is_not_taken_is_not() {
        let place = std::env::temp_dir().join(format!("guest-settings-{}", std::process::id()));
        std::fs::create_dir_all(place.join("sys/kernel")).unwrap();
        let proc = OwnedFd::from(std::fs::File::open(&place).unwrap());
        assert!(set(&proc, &SETTINGS).is_ok());
        std::fs::write(place.join("sys/kernel/kptr_restrict"), "").unwrap();
        assert!(set(&proc, &SETTINGS).is_ok());
        assert_eq!(std::fs::read(place.join("sys/kernel/kptr_restrict")).unwrap(), b"2");
        // Cannot be written to, by nobody.
        std::fs::create_dir(place.join("sys/kernel/modules_disabled")).unwrap();
        let refused = set(&proc, &SETTINGS).unwrap_err().to_string();
        std::fs::remove_dir_all(&place).ok();
        assert!(refused.contains("modules_disabled"), "{refused}");
    }
}
