//! New processes in new namespaces.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::process::Pid;

/// Proof that this process has one thread. Only such a process may go on in Rust after a bare `clone3`.
#[derive(Debug)]
pub struct SingleThreaded(());

impl SingleThreaded {
    /// Looks at the process's threads. Holds as long as the program starts none, which the caller promises.
    pub fn prove() -> io::Result<Self> {
        let threads = std::fs::read_dir("/proc/self/task")?.count();
        if threads == 1 { Ok(Self(())) } else { Err(io::Error::other("this program must have one thread")) }
    }
}

/// Namespaces that a new process gets of its own, as flags of `clone3`.
#[derive(Debug, Clone, Copy)]
pub struct Unshare(u64);

impl Unshare {
    /// Mounts, processes, IPC and host name: what every box has.
    pub const BOX: Self =
        Self::of(libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS);
    /// The same but for processes: it sees, and has, ids of whoever makes it. For builds that show what holds then.
    pub const BOX_AMONG_OTHERS: Self = Self::of(libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS);
    /// None: the same world, another process.
    pub const NOTHING: Self = Self(0);
    /// Only users: for a namespace that serves as a table of owners.
    pub const USERS: Self = Self::of(libc::CLONE_NEWUSER);

    const fn of(flags: libc::c_int) -> Self {
        Self(flags.unsigned_abs() as u64)
    }
}

/// `libc` has this one with a type that is too narrow for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Which side of the fork this is.
#[derive(Debug)]
pub enum Side {
    /// The new process.
    Child,
    /// The old process, with the new one's id. It is the old one's to collect, and stays its own until then.
    Parent(Pid),
}

/// Forks into new namespaces, and into a cgroup of the unified hierarchy where one is given.
pub fn fork(_proof: &SingleThreaded, unshare: Unshare, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Side> {
    let args = libc::clone_args {
        flags: unshare.0 | cgroup.map_or(0, |_| CLONE_INTO_CGROUP),
        pidfd: 0,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: u64::from(libc::SIGCHLD.unsigned_abs()),
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: cgroup.map_or(0, |fd| u64::from(fd.as_raw_fd().unsigned_abs())),
    };
    // SAFETY: the arguments are a valid `clone_args` without pointers. No memory is shared with the child (no CLONE_VM),
    // and the proof says that no other thread can hold a lock that the child would miss.
    let result = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) };
    match result {
        0 => Ok(Side::Child),
        pid => match i32::try_from(pid).ok().filter(|pid| *pid > 0).and_then(Pid::from_raw) {
            Some(pid) => Ok(Side::Parent(pid)),
            None => Err(io::Error::last_os_error()),
        },
    }
}

/// Ends this process at once: no destructors, no buffers. For children that must not return.
pub fn leave(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}
