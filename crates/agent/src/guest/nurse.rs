//! The process of a guest that keeps its powers, for two errands of the agent: to stop everything before the machine is copied, and
//! to make a copy another machine.
//!
//! It is started before the agent gives its powers up, and hears from nobody else. Processes are stopped by the kernel's freezer,
//! which they do not notice: no signal, no parent that is told. The group for that is made with the first errand, and is mounted
//! nowhere that a path leads to.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use blastbox_agent::{ANSWER, ERRAND, Errand};
use blastbox_sys::fork::{self, Side, SingleThreaded, Unshare};
use blastbox_sys::mount::{self, Attributes};
use blastbox_sys::{namespaces, spawn};
use blastbox_wire::agent::Wake;
use rustix::fs::{Mode, OFlags, mkdirat, open, openat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::orders::Orders;
use super::{network, sleep};

/// Where what runs in the box is put when it is stopped.
const GROUP: &str = "payload";
/// How long processes may take to stop. Under emulation a call into the kernel may take long.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(5);
/// Rounds of looking for processes that were made while the others were stopped.
const ROUNDS: usize = 256;
/// The kernel's own threads, among the flags of a process.
const KERNEL: u32 = 0x0020_0000;

/// What a copy of this guest has to have anew besides.
#[derive(Debug, Clone, Copy)]
pub(super) struct Renewal {
    /// Its network card.
    card: bool,
    /// Whom its programs believe.
    authority: bool,
    /// Whether it had them before: a template has neither.
    had: bool,
}

impl Renewal {
    pub(super) fn of(orders: &Orders) -> Self {
        Self { card: orders.network, authority: orders.authority, had: !orders.asleep }
    }
}

/// Starts it. The agent's end of the line.
pub(super) fn start(renewal: Renewal) -> io::Result<OwnedFd> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    match fork::fork(&SingleThreaded::prove()?, Unshare::NOTHING, None)? {
        Side::Parent(_) => Ok(ours),
        Side::Child => {
            drop(ours);
            // Nothing of the agent's, above all not its line to the host.
            if let Ok([line]) = spawn::keep_only([theirs.as_raw_fd()]) {
                std::mem::forget(theirs);
                serve(&line, renewal).ok();
            }
            fork::leave(0)
        }
    }
}

fn serve(line: &OwnedFd, mut renewal: Renewal) -> io::Result<()> {
    rustix::thread::set_name(c"blastbox-nurse").ok();
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    let mut ward = None;
    loop {
        let mut bytes = [0; ERRAND];
        sleep::read_whole(line, &mut bytes)?;
        let done = match Errand::parse(&bytes) {
            Some(Errand::Rise(wake)) => {
                let risen = rise(line, &wake, renewal);
                renewal.had = true;
                // Where nothing was ever stopped nothing waits to go on.
                match ward {
                    Some(_) => risen.and_then(|()| carry_out(&mut ward, Deed::Thaw)),
                    None => risen,
                }
            }
            Some(Errand::Thaw) => carry_out(&mut ward, Deed::Thaw),
            Some(Errand::Freeze) => carry_out(&mut ward, Deed::Freeze),
            None => Err(io::ErrorKind::InvalidData.into()),
        };
        let errno = done.err().map_or(0, |error| error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()));
        let answer: [u8; ANSWER] = errno.to_be_bytes();
        rustix::io::write(line, &answer)?;
    }
}

/// Makes a copy another machine, before anything in it goes on.
fn rise(line: &OwnedFd, wake: &Wake, renewal: Renewal) -> io::Result<()> {
    sleep::rise(wake)?;
    let Renewal { card, authority, had } = renewal;
    if authority {
        let authority = network::hear_authority(line)?;
        let root = open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let believe = if had { blastbox_agent::believe_another } else { blastbox_agent::believe };
        believe(&root, &authority)?;
    }
    match (card, had) {
        (false, _) => Ok(()),
        (true, false) => network::bring_up(),
        (true, true) => network::renew(),
    }
}

/// What is done to everything that runs in the box.
enum Deed {
    Freeze,
    Thaw,
}

fn carry_out(ward: &mut Option<OwnedFd>, deed: Deed) -> io::Result<()> {
    let root = match ward {
        Some(root) => root,
        None => ward.insert(open_ward()?),
    };
    match deed {
        Deed::Freeze => freeze(root).inspect_err(|_| {
            thaw(root).ok();
        }),
        Deed::Thaw => thaw(root),
    }
}

/// The kernel's groups, with one for what runs in the box.
fn open_ward() -> io::Result<OwnedFd> {
    let root = mount::create("cgroup2", &[], Attributes::DEVICE)?;
    match mkdirat(&root, GROUP, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => Ok(root),
        Err(errno) => Err(errno.into()),
    }
}

fn thaw(root: &OwnedFd) -> io::Result<()> {
    namespaces::write_at(root, &format!("{GROUP}/cgroup.freeze"), b"0")
}

/// Stops everything but the agent and this process.
fn freeze(root: &OwnedFd) -> io::Result<()> {
    // First, so that whoever is put there stops, and makes no others.
    namespaces::write_at(root, &format!("{GROUP}/cgroup.freeze"), b"1")?;
    let (begun, mut rounds) = (Instant::now(), 0);
    // A process that sleeps in the kernel stops when that comes back: it costs time, and no round.
    while rounds < ROUNDS && begun.elapsed() <= PATIENCE {
        let moved = gather(root)?;
        if moved == 0 && is_frozen(root)? {
            return Ok(());
        }
        if moved == 0 {
            std::thread::sleep(PAUSE);
        } else {
            rounds += 1;
        }
    }
    Err(Errno::TIMEDOUT.into())
}

/// Puts what runs elsewhere into the group. How many that were.
fn gather(root: &OwnedFd) -> io::Result<usize> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let group =
        openat(root, format!("{GROUP}/cgroup.procs"), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut moved = 0;
    for pid in read_at(root, "cgroup.procs")?.lines().filter_map(|line| line.parse::<i32>().ok()) {
        if pid == 1 || pid == own || is_kernels(pid) {
            continue;
        }
        match rustix::io::write(&group, pid.to_string().as_bytes()) {
            Ok(_) => moved += 1,
            // Gone meanwhile.
            Err(Errno::SRCH) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(moved)
}

/// Whether this is a thread of the kernel, or gone: neither is the box's.
fn is_kernels(pid: i32) -> bool {
    let Ok(bytes) = fs::read(format!("/proc/{pid}/stat")) else { return true };
    flags(&bytes).is_none_or(|flags| flags & KERNEL != 0)
}

/// The flags of a process. Its name, which it chooses itself, ends with the last parenthesis.
fn flags(stat: &[u8]) -> Option<u32> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end.checked_add(1)?..)?).ok()?;
    rest.split_whitespace().nth(6)?.parse().ok()
}

fn is_frozen(root: &OwnedFd) -> io::Result<bool> {
    Ok(read_at(root, &format!("{GROUP}/cgroup.events"))?.lines().any(|line| line == "frozen 1"))
}

fn read_at(root: &OwnedFd, path: &str) -> io::Result<String> {
    let file = openat(root.as_fd(), path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    io::read_to_string(fs::File::from(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_looks_like_the_rest_of_the_line_does_not_hide_what_a_process_is() {
        let line = |name: &str, flags: u32| format!("7 ({name}) S 1 7 7 0 -1 {flags} 100 0 0 0").into_bytes();
        assert_eq!(flags(&line("kworker/0:1", KERNEL | 64)), Some(KERNEL | 64));
        assert_eq!(flags(&line(") S 2 0 0 0 -1 2097152 (", 4_194_304)), Some(4_194_304));
        assert_eq!(flags(b"7 (x"), None);
    }
}
