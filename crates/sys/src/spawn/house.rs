//! What the first process of a box does besides starting commands: keeping its own descriptors, hearing of ended
//! children, waiting for them, signalling them.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Pid;

use super::last_errno;

/// Takes over descriptors that the program was started with, and closes every other one above 2.
///
/// For the first lines of `main`, and only once: it closes what anything else would have opened. The kept ones are
/// closed on exec from now on. Refuses a descriptor that is not open, that is standard, or that is named twice.
pub fn keep_only<const N: usize>(kept: [RawFd; N]) -> io::Result<[OwnedFd; N]> {
    static DONE: AtomicBool = AtomicBool::new(false);
    let mut sorted = kept;
    sorted.sort_unstable();
    if sorted.iter().zip(sorted.iter().skip(1)).any(|(left, right)| left == right) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for &fd in &sorted {
        if fd <= 2 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: borrowed for one call, which fails without harm when the descriptor is not open.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)?;
    }
    if DONE.swap(true, Ordering::Relaxed) {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let mut first = 3;
    for &fd in &sorted {
        close_between(first, fd.saturating_sub(1))?;
        first = fd.saturating_add(1);
    }
    close_between(first, RawFd::MAX)?;
    // SAFETY: open (checked above), different from each other, and taken over once in the life of the program.
    Ok(kept.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }))
}

fn close_between(first: RawFd, last: RawFd) -> io::Result<()> {
    // A test build closes none, to show what holds then.
    if first > last || cfg!(feature = "keeps-descriptors") {
        return Ok(());
    }
    // SAFETY: no memory is passed. Called at the start of the program, when nothing owns a descriptor above 2.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Lets every signal through again, for a program that this process is about to become: a fault that is blocked kills.
pub fn hear_signals() -> io::Result<()> {
    if block_signals(0) < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Blocks these signals and no others: one call, which a child may make too before it executes anything.
pub(super) fn block_signals(mask: u64) -> libc::c_long {
    let (new, old, size) = (&raw const mask, std::ptr::null::<u64>(), size_of::<u64>());
    // SAFETY: the mask is eight bytes, as the size says, and outlives the call; no old mask is asked for.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, new, old, size) }
}

/// Makes ended children readable, without blocking, on the descriptor that it returns.
///
/// Every signal is back to its default and blocked from now on: what others send cannot disturb the program, and what
/// it starts inherits no disposition. `spawn` unblocks them in the child.
pub fn watch_children() -> io::Result<OwnedFd> {
    if block_signals(u64::MAX) < 0 {
        return Err(io::Error::last_os_error());
    }
    // By the kernel's own call: the C library keeps two signals for itself, and an ignored one would be inherited.
    let default = [0_u64; 4];
    for signal in 1..=64 {
        // SAFETY: all zero is the default disposition, which runs no code; the kernel's structure is four words or
        // less; no old one is asked for. SIGKILL and SIGSTOP are refused, and are what they are.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                std::ptr::null::<u64>(),
                size_of::<u64>(),
            )
        };
    }
    readable(&[libc::SIGCHLD])
}

/// Makes the signals that people and shells send readable on the descriptor that it returns, instead of ending this program.
/// What the kernel says of each is 128 bytes long and begins with its number.
pub fn hold_signals() -> io::Result<OwnedFd> {
    let signals = [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGWINCH,
        libc::SIGCONT,
    ];
    if block_signals(signals.iter().fold(0, |mask, signal| mask | 1 << (signal - 1))) < 0 {
        return Err(io::Error::last_os_error());
    }
    readable(&signals)
}

fn readable(signals: &[libc::c_int]) -> io::Result<OwnedFd> {
    // SAFETY: all zero is an empty signal set.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    for &signal in signals {
        // SAFETY: the set is initialised, and each number is a signal.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    // SAFETY: -1 asks for a new descriptor; the set outlives the call.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A child that has ended and is no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dead {
    /// Its process id, free to be used again.
    pub pid: Pid,
    /// Its exit code, where it exited.
    pub code: Option<u8>,
    /// The signal that ended it; 0 where it exited.
    pub signal: u8,
    /// Microseconds in user mode, with those of its own waited-for children.
    pub user_micros: u64,
    /// Microseconds in the kernel, with those of its own waited-for children.
    pub system_micros: u64,
    /// Largest resident set in bytes.
    pub peak_bytes: u64,
}

/// Whether to wait until a child ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Only look.
    Look,
    /// Sleep until one ends.
    Wait,
}

/// Takes one ended child off the kernel's list, whoever it was. `None`: there is none, or none at all.
pub fn reap(patience: Patience) -> Option<Dead> {
    let mut status = 0;
    // SAFETY: plain numbers: all zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let options = match patience {
        Patience::Look => libc::WNOHANG | libc::__WALL,
        Patience::Wait => libc::__WALL,
    };
    let pid = loop {
        // SAFETY: both pointers are to locals that outlive the call.
        let pid = unsafe { libc::wait4(-1, &raw mut status, options, &raw mut usage) };
        if pid >= 0 || last_errno() != libc::EINTR {
            break pid;
        }
    };
    let pid = Some(pid).filter(|&pid| pid > 0).and_then(Pid::from_raw)?;
    let exited = libc::WIFEXITED(status);
    Some(Dead {
        pid,
        code: exited.then(|| u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX)),
        signal: if exited { 0 } else { u8::try_from(libc::WTERMSIG(status)).unwrap_or(u8::MAX) },
        user_micros: micros(usage.ru_utime),
        system_micros: micros(usage.ru_stime),
        peak_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0).saturating_mul(1024),
    })
}

fn micros(time: libc::timeval) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000).saturating_add(u64::try_from(time.tv_usec).unwrap_or(0))
}

/// Signals the group that this process leads, and the process itself where it is not of that group: it may not lead it
/// yet, or have left it, with somebody else in its place, so that signals would miss it.
///
/// By number, because real-time signals have no name. The caller knows that the process has not been waited for:
/// otherwise the number may be somebody else's.
pub fn signal_group(leader: Pid, signal: u8) -> io::Result<()> {
    let number = leader.as_raw_nonzero().get();
    let all = send(-number, signal);
    // Twice kills no more than once. With any other signal, one that is of its group would hear it twice.
    if signal != 9 && rustix::process::getpgid(Some(leader)) == Ok(leader) {
        return all;
    }
    let itself = send(number, signal);
    if all.is_ok() { all } else { itself }
}

/// Kills every other process of the box. Refused unless the caller is the first process of its namespace: anywhere
/// else "every process" would be far more than a box.
pub fn kill_everything() -> io::Result<()> {
    if rustix::process::getpid() == Pid::INIT {
        send(-1, 9)
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

fn send(target: libc::pid_t, signal: u8) -> io::Result<()> {
    // SAFETY: no memory is passed.
    if unsafe { libc::kill(target, i32::from(signal)) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
