//! Handing the compiled filter to the kernel.

use super::check::Check;
use super::monitors::{self, Monitor};
use super::{daemon, tree};
use libc::{sock_filter, sock_fprog};
use std::fmt;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Whether denied calls are reported to a supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// A denied call waits until the holder of the listener has answered it.
    Reported,
    /// So does a call that writes, makes, moves or removes a file, which the holder then lets go on.
    WithWrites,
    /// A denied call fails at once, unseen.
    Silent,
}

/// A compiled filter: compile once, install in every box.
pub struct Filter {
    program: Vec<sock_filter>,
    visibility: Visibility,
}

impl Filter {
    /// Compiles the table.
    #[must_use]
    pub fn compile(visibility: Visibility) -> Self {
        Self { program: tree::compile(visibility), visibility }
    }

    /// Compiles the short table of a gateway.
    #[must_use]
    pub fn for_gateway() -> Self {
        Self::silent(&super::gateway::rules())
    }

    /// Compiles the table of a monitor that is executed from the descriptor `program`. Refused calls fail at once: nobody outside it could answer for them.
    #[must_use]
    pub fn for_monitor(monitor: Monitor, program: u16) -> Self {
        Self::silent(&monitors::rules(monitor, program))
    }

    /// Compiles the table of the daemon itself. Refused calls fail at once.
    #[must_use]
    pub fn for_daemon() -> Self {
        Self::silent(daemon::rules())
    }

    /// Compiles what a Wasm worker may do from before its first guest runs.
    #[must_use]
    pub fn for_wasm_locked() -> Self {
        Self::silent(&monitors::short(monitors::KEPT))
    }

    /// Compiles what the compiler of guests may do once it has read a module.
    #[must_use]
    pub fn for_wasm_compiling() -> Self {
        Self::silent(&monitors::short(monitors::COMPILING))
    }

    /// Refused calls fail at once.
    fn silent(rules: &[(u32, Check)]) -> Self {
        let visibility = Visibility::Silent;
        Self { program: tree::compile_rules(rules, visibility), visibility }
    }

    /// How many BPF instructions the filter has.
    #[must_use]
    pub fn instructions(&self) -> usize {
        self.program.len()
    }

    /// Puts the calling thread, and whatever it starts, under the filter for good.
    ///
    /// The thread must have no_new_privs set (or `CAP_SYS_ADMIN`): the kernel says `EACCES` otherwise. Unless it is
    /// [`Visibility::Silent`] the listener comes back, close-on-exec; install nothing reported twice, the kernel
    /// allows one listener per process (`EBUSY`). Allocates nothing, so a freshly cloned child may call it.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn install(&self) -> io::Result<Option<OwnedFd>> {
        match self.visibility {
            Visibility::Silent => self.set(0).map(|_| None),
            Visibility::Reported | Visibility::WithWrites => {
                // Since 5.19 a call that is being judged can only be interrupted by a fatal signal: Go's preemption
                // signals would otherwise restart it for ever, and the supervisor would see it again and again.
                let listening = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
                let fd = match self.set(listening | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV) {
                    Err(error) if error.raw_os_error() == Some(libc::EINVAL) => self.set(listening)?,
                    other => other?,
                };
                // SAFETY: the kernel has just made this descriptor for us and nobody else knows its number.
                Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }))
            }
        }
    }

    fn set(&self, flags: libc::c_ulong) -> io::Result<i32> {
        let len = u16::try_from(self.program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let program = sock_fprog { len, filter: self.program.as_ptr().cast_mut() };
        let operation = libc::SECCOMP_SET_MODE_FILTER;
        // SAFETY: `program` and the `len` instructions it points to live until the call returns; the kernel copies
        // them and writes to neither.
        let done = unsafe { libc::syscall(libc::SYS_seccomp, operation, flags, &raw const program) };
        match i32::try_from(done) {
            Ok(fd) if fd >= 0 => Ok(fd),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Filter({:?}, {} instructions)", self.visibility, self.program.len())
    }
}
