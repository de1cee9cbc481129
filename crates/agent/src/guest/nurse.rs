//! The process of a guest that keeps its powers, for three errands of the agent: to stop everything before the machine is copied, to
//! make a copy another machine, and to say what the kernel has counted.
//!
//! It is started before the agent gives its powers up, and hears from nobody else. Processes are stopped by the kernel's freezer,
//! which they do not notice: no signal, no parent that is told. The groups for that are made before it, and are mounted nowhere that
//! a path leads to: one for the agent and all that it runs, in which processes are counted, and one beneath it for what is stopped.

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
use super::{network, root, sleep};

/// Where the agent and everything that it runs are.
const BOX: &str = "box";
/// Where what runs in the box is put when it is stopped.
const GROUP: &str = "box/payload";
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

/// Starts it, and puts the agent, which this process becomes, into its group. The agent's end of the line, and whether processes are
/// limited and counted there. `kernel` is all of /proc, `machine` the file with the machine's number.
pub(super) fn start(
    renewal: Renewal,
    (kernel, machine): (OwnedFd, OwnedFd),
    pids: u64,
) -> io::Result<(OwnedFd, bool)> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // A kernel without groups has no freezer either: such a guest is not copied, and nothing is counted.
    let groups = open_groups().ok();
    match fork::fork(&SingleThreaded::prove()?, Unshare::NOTHING, None)? {
        Side::Parent(_) => {
            let Some(groups) = groups else { return Ok((ours, false)) };
            // What is not there would not be stopped when the machine is copied.
            namespaces::write_at(&groups, &format!("{BOX}/cgroup.procs"), b"0")?;
            Ok((ours, limit(&groups, pids).is_ok()))
        }
        Side::Child => {
            drop(ours);
            // Nothing of the agent's, above all not its line to the host.
            let own = [&theirs, &kernel, &machine].map(AsRawFd::as_raw_fd);
            let [line, proc, id] = own;
            let kept = match groups.as_ref().map(AsRawFd::as_raw_fd) {
                Some(ward) => {
                    spawn::keep_only([line, proc, id, ward]).map(|[line, kernel, machine, groups]| {
                        (line, Ward { groups: Some(groups), kernel, machine, seen: [0; 2] })
                    })
                }
                None => spawn::keep_only(own).map(|[line, kernel, machine]| {
                    (line, Ward { groups: None, kernel, machine, seen: [0; 2] })
                }),
            };
            if let Ok((line, ward)) = kept {
                std::mem::forget((theirs, kernel, machine, groups));
                serve(&line, renewal, ward).ok();
            }
            fork::leave(0)
        }
    }
}

/// What it looks at: the kernel's groups and its numbers, and those that it has seen; and the file with the machine's own.
struct Ward {
    groups: Option<OwnedFd>,
    kernel: OwnedFd,
    machine: OwnedFd,
    seen: [u64; 2],
}

impl Ward {
    fn groups(&self) -> io::Result<&OwnedFd> {
        self.groups.as_ref().ok_or_else(|| Errno::OPNOTSUPP.into())
    }

    /// What the kernel has counted since the last look, as [`Errand::Count`] says it.
    fn count(&mut self) -> i32 {
        let killed = read_at(&self.kernel, "vmstat").ok();
        let refused = self.groups().and_then(|groups| read_at(groups, &format!("{BOX}/pids.events"))).ok();
        let killed = killed.and_then(|text| number(&text, "oom_kill ")).unwrap_or(0);
        let refused = refused.and_then(|text| number(&text, "max ")).unwrap_or(0);
        let [killed_before, refused_before] = std::mem::replace(&mut self.seen, [killed, refused]);
        i32::from(killed > killed_before) | i32::from(refused > refused_before) << 1
    }
}

/// The number behind a word, in a list of such lines.
fn number(text: &str, word: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(word)?.parse().ok())
}

fn serve(line: &OwnedFd, mut renewal: Renewal, mut ward: Ward) -> io::Result<()> {
    rustix::thread::set_name(c"blastbox-nurse").ok();
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    // Whoever runs out of memory is a command: without this process the guest could never be copied again.
    namespaces::write_at(&ward.kernel, "self/oom_score_adj", b"-1000")?;
    // Where nothing was ever stopped nothing waits to go on.
    let mut stopped = false;
    loop {
        let mut bytes = [0; ERRAND];
        sleep::read_whole(line, &mut bytes)?;
        let done = match Errand::parse(&bytes) {
            Some(Errand::Rise(wake)) => {
                let risen = rise(line, &wake, renewal)
                    .and_then(|()| root::renew_machine_id(&ward.machine, &wake.name));
                renewal.had = true;
                if stopped { risen.and_then(|()| thaw(ward.groups()?)) } else { risen }
            }
            Some(Errand::Thaw) => ward.groups().and_then(thaw),
            Some(Errand::Freeze) => {
                stopped = true;
                ward.groups().and_then(|groups| {
                    freeze(groups).inspect_err(|_| {
                        thaw(groups).ok();
                    })
                })
            }
            Some(Errand::Count) => {
                rustix::io::write(line, &ward.count().to_be_bytes())?;
                continue;
            }
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

/// The kernel's groups, with those of the box.
fn open_groups() -> io::Result<OwnedFd> {
    let root = mount::create("cgroup2", &[], Attributes::DEVICE)?;
    for group in [BOX, GROUP] {
        mkdirat(&root, group, Mode::from_raw_mode(0o700))?;
    }
    Ok(root)
}

/// Has the kernel limit and count processes in the group of the box.
fn limit(root: &OwnedFd, pids: u64) -> io::Result<()> {
    namespaces::write_at(root, "cgroup.subtree_control", b"+pids")?;
    // The agent is one of them.
    let most = pids.saturating_add(1).to_string();
    namespaces::write_at(root, &format!("{BOX}/pids.max"), most.as_bytes())
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
    for pid in
        read_at(root, &format!("{BOX}/cgroup.procs"))?.lines().filter_map(|line| line.parse::<i32>().ok())
    {
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
    fn a_number_is_found_by_its_whole_word() {
        let text = "oom_kill_disable 7\noom_kill 3\nmax 4\n";
        assert_eq!(
            (number(text, "oom_kill "), number(text, "max "), number(text, "min ")),
            (Some(3), Some(4), None)
        );
    }

    #[test]
    fn a_name_that_looks_like_the_rest_of_the_line_does_not_hide_what_a_process_is() {
        let line = |name: &str, flags: u32| format!("7 ({name}) S 1 7 7 0 -1 {flags} 100 0 0 0").into_bytes();
        assert_eq!(flags(&line("kworker/0:1", KERNEL | 64)), Some(KERNEL | 64));
        assert_eq!(flags(&line(") S 2 0 0 0 -1 2097152 (", 4_194_304)), Some(4_194_304));
        assert_eq!(flags(b"7 (x"), None);
    }
}
