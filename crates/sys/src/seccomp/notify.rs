//! The supervisor's side: which call was denied or is watched, and the answer.
//!
//! Trust: the kernel fills in every field; the values of number and arguments are chosen by an attacker, and pointers
//! among them mean nothing here.
//!
//! Must not: let a denied call continue. [`let_pass`] does so only for what the table carries out anyway.

use super::check::Verdict;
use super::table::verdict;
use crate::arch;
use libc::{seccomp_notif, seccomp_notif_resp};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A denied or watched call that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The kernel's name for this call, good for one answer.
    pub id: u64,
    /// The thread that called, as seen from the reader's pid namespace; 0 when it cannot be seen from there.
    pub pid: u32,
    /// The system call number.
    pub nr: u32,
    /// The audit architecture it came in through; the filter lets only the native one get here.
    pub arch: u32,
    /// The argument registers.
    pub args: [u64; 6],
}

impl Denied {
    /// The name of the call.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        arch::syscall_name(self.nr)
    }

    /// Whether it is carried out, and only told. Decided on numbers that the kernel holds, which nobody can change meanwhile.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        verdict(self.nr, &self.args) == Verdict::Watch
    }
}

/// Room for what a later kernel may add: it writes as much as its own structure has.
#[repr(C)]
struct Roomy<T> {
    known: T,
    spare: [u64; 32],
}

/// Takes the next denied call, and waits for one if there is none: poll the listener first to avoid that, and stop on
/// a hang-up, which says that nobody lives under the filter any more (kernels before 6.11 wait for ever then).
///
/// `None`: the caller died first, or a signal came in.
///
/// # Errors
/// What the kernel said.
pub fn receive(listener: BorrowedFd<'_>) -> io::Result<Option<Denied>> {
    // SAFETY: plain integers throughout; all zero is a valid value, and what the kernel demands.
    let mut call: Roomy<seccomp_notif> = unsafe { std::mem::zeroed() };
    let target = &raw mut call;
    // SAFETY: `listener` is open for the duration of the borrow; the kernel writes one `seccomp_notif` into `call`,
    // which is larger than any that exists.
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, target) };
    if done != 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ENOENT | libc::EINTR) => Ok(None),
            _ => Err(error),
        };
    }
    let seccomp_notif { id, pid, data, .. } = call.known;
    let nr = u32::from_ne_bytes(data.nr.to_ne_bytes());
    Ok(Some(Denied { id, pid, nr, arch: data.arch, args: data.args }))
}

/// Answers a denied call with an errno, as from [`super::errno_for`]. A caller that has died meanwhile is no error.
///
/// # Errors
/// What the kernel said; `EINVAL` here for an errno that is none, so that no answer can pass for success.
pub fn refuse(listener: BorrowedFd<'_>, id: u64, errno: i32) -> io::Result<()> {
    if !(1..4096).contains(&errno) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    answer(listener, seccomp_notif_resp { id, val: 0, error: -errno, flags: 0 }).map(drop)
}

/// Lets a watched call go on. What it then does is for the kernel to decide, as if nobody had looked. Whether its caller was
/// still there.
///
/// # Errors
/// What the kernel said; `EINVAL` here for a call that is not watched, so that nothing denied can be let through.
pub fn let_pass(listener: BorrowedFd<'_>, call: &Denied) -> io::Result<bool> {
    if !call.is_watched() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    answer(listener, seccomp_notif_resp { id: call.id, val: 0, error: 0, flags: CONTINUE })
}

/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`, as wide as the field that it goes into.
const CONTINUE: u32 = 1;

/// Whether the caller was still there.
fn answer(listener: BorrowedFd<'_>, known: seccomp_notif_resp) -> io::Result<bool> {
    let mut answer = Roomy { known, spare: [0; 32] };
    let source = &raw mut answer;
    // SAFETY: `listener` is open for the duration of the borrow; the kernel reads one `seccomp_notif_resp` from
    // `answer`, which is larger than any that exists.
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, source) };
    if done == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        error => Err(error),
    }
}
