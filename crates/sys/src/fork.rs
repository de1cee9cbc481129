//! New processes in new namespaces.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

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
    /// The same, and a network of its own.
    pub const BOX_AND_NETWORK: Self = Self::of(
        libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWNET,
    );
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
    /// The old process, with the new one's id and descriptor.
    Parent {
        /// The new process's id.
        pid: u32,
        /// A descriptor that stands for it, whatever becomes of the id.
        pidfd: OwnedFd,
    },
}

/// Forks into new namespaces, and into a cgroup of the unified hierarchy where one is given.
pub fn fork(_proof: &SingleThreaded, unshare: Unshare, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Side> {
    let mut pidfd: libc::c_int = -1;
    let mut flags = unshare.0 | u64::from(libc::CLONE_PIDFD.unsigned_abs());
    if cgroup.is_some() {
        flags |= CLONE_INTO_CGROUP;
    }
    let args = libc::clone_args {
        flags,
        pidfd: (&raw mut pidfd).addr() as u64,
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
    // SAFETY: the arguments are a valid `clone_args` whose pidfd pointer outlives the call. No memory is shared with
    // the child (no CLONE_VM), and the proof says that no other thread can hold a lock that the child would miss.
    let result = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) };
    match result {
        0 => Ok(Side::Child),
        pid if pid > 0 => {
            // SAFETY: the kernel has just put a descriptor there that nobody else owns.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Side::Parent { pid: u32::try_from(pid).unwrap_or(0), pidfd })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends this process at once: no destructors, no buffers. For children that must not return.
pub fn leave(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}

/// How a child ended and what it used.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ended {
    /// The signal that ended it, or 0.
    pub signal: u8,
    /// Processor time of it and everything beneath it that was waited for, in microseconds.
    pub cpu_micros: u64,
}

/// Collects a child that has ended. `None`: it has not.
pub fn collect(pid: u32) -> io::Result<Option<Ended>> {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return Err(io::ErrorKind::InvalidInput.into()) };
    let mut status: libc::c_int = 0;
    // SAFETY: `rusage` is plain data for which all zeros is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live locals of the right types.
    let result = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage) };
    match result {
        0 => Ok(None),
        done if done > 0 => {
            let micros = |time: libc::timeval| {
                u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0)
            };
            Ok(Some(Ended {
                signal: u8::try_from(status & 0x7f).unwrap_or(0),
                cpu_micros: micros(usage.ru_utime) + micros(usage.ru_stime),
            }))
        }
        _ => Err(io::Error::last_os_error()),
    }
}
