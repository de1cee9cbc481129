//! The worker that runs WebAssembly: a program of ours that reads artefacts at its start and then computes.
//!
//! It installs a second, shorter list itself before the first guest runs: an engine that was tricked once is expected to be
//! tricked again. What is left then is [`KEPT`]: the stream to the host, and memory that cannot be executed.

use super::super::arguments::{ALLOW, DENY};
use super::super::check::Check;
use super::Line;

/// Files are opened for reading: neither for writing nor to be made.
const READ_ONLY: Check = Check::Is { arg: 2, mask: 0o1_003 | 0o100, values: &[0], yes: &ALLOW, no: &DENY };
/// Limits are read, not set.
const READ_LIMITS: Check = Check::Null { arg: 2, yes: &ALLOW, no: &DENY };
/// A thread of the same process: memory, files and signals shared.
const THREAD: u32 = 0x0001_0F00;
const THREADS: Check =
    Check::Is { arg: 0, mask: THREAD | 0x7E02_0000, values: &[THREAD], yes: &ALLOW, no: &DENY };

#[rustfmt::skip]
pub(super) const TABLE: &[Line] = &[
    ("read", ALLOW, "frames, artefacts"),
    ("write", ALLOW, "frames, artefacts"),
    ("close", ALLOW, "files that were read"),
    ("fcntl", ALLOW, "the runtime"),
    ("poll", ALLOW, "waiting"),
    ("ppoll", ALLOW, "waiting"),
    ("epoll_create1", ALLOW, "waiting"),
    ("epoll_ctl", ALLOW, "waiting"),
    ("epoll_wait", ALLOW, "waiting"),
    ("epoll_pwait", ALLOW, "waiting"),
    ("eventfd2", ALLOW, "waking threads"),
    ("futex", ALLOW, "locks"),
    ("getrandom", ALLOW, "randomness"),
    ("clock_gettime", ALLOW, "where the fast way is missing"),
    ("munmap", ALLOW, "memory"),
    ("mremap", ALLOW, "memory"),
    ("madvise", ALLOW, "memory"),
    ("brk", ALLOW, "memory"),
    ("sched_yield", ALLOW, "locks"),
    ("rt_sigprocmask", ALLOW, "the C library"),
    ("rt_sigaction", ALLOW, "traps, the C library"),
    ("rt_sigreturn", ALLOW, "traps, the C library"),
    ("sigaltstack", ALLOW, "traps, the standard library"),
    ("gettid", ALLOW, "the C library"),
    ("getpid", ALLOW, "the C library"),
    ("set_robust_list", ALLOW, "threads"),
    ("rseq", ALLOW, "threads"),
    ("set_tid_address", ALLOW, "the C library, at the start"),
    ("arch_prctl", ALLOW, "the C library, at the start"),
    ("prlimit64", READ_LIMITS, "the C library, at the start"),
    ("restart_syscall", ALLOW, "the kernel, after a stop"),
    ("exit", ALLOW, "the end of a thread"),
    ("exit_group", ALLOW, "the end"),
    ("openat", READ_ONLY, "artefacts, at the start"),
    ("getdents64", ALLOW, "the caller's directory, at the start"),
    ("fstat", ALLOW, "artefacts"),
    ("newfstatat", ALLOW, "artefacts"),
    ("statx", ALLOW, "artefacts"),
    ("lseek", ALLOW, "artefacts"),
    ("pread64", ALLOW, "artefacts"),
    ("mmap", ALLOW, "memory of guests, code of artefacts"),
    ("mprotect", ALLOW, "code of artefacts becomes executable"),
    ("ioctl", ALLOW, "which pages a guest has written (PAGEMAP_SCAN)"),
    ("clone", THREADS, "the clock of limits"),
    ("clone3", super::super::arguments::ABSENT, "its flags lie behind a pointer; the C library falls back"),
    ("sched_getaffinity", ALLOW, "the standard library"),
    ("close_range", ALLOW, "nothing is kept that was inherited"),
    ("getuid", ALLOW, "the hello"),
    ("epoll_pwait2", ALLOW, "waiting"),
    ("prctl", ALLOW, "not dumpable, a filter of its own"),
    ("seccomp", ALLOW, "a filter of its own"),
];

const EXECUTABLE: u32 = 4;
/// Memory, as long as it cannot be executed.
const NO_CODE: Check = Check::Is { arg: 2, mask: EXECUTABLE, values: &[0], yes: &ALLOW, no: &DENY };

/// What a worker still does once its guests are loaded: calls, rule, reason.
#[rustfmt::skip]
pub(in super::super) const KEPT: &[(&[&str], Check, &str)] = &[
    (&["read", "write", "close"], ALLOW, "frames, the bell"),
    (&["pread64"], ALLOW, "Python's library, opened before"),
    (&["epoll_wait", "epoll_pwait", "epoll_pwait2", "epoll_ctl", "futex", "sched_yield"], ALLOW, "waiting, locks, sleeping guests"),
    (&["getrandom", "clock_gettime"], ALLOW, "randomness of guests; processor time, and clocks where the fast way is missing"),
    (&["mmap", "mprotect"], NO_CODE, "memory of guests, and its growth"),
    (&["munmap", "mremap", "madvise", "brk"], ALLOW, "a guest has the pages that it writes to before it runs, and gives its memory back when it has ended"),
    (&["sigaltstack", "rt_sigreturn", "rt_sigprocmask"], ALLOW, "traps of guests"),
    (&["rt_sigaction", "gettid", "getpid"], ALLOW, "the C library when it aborts"),
    (&["restart_syscall", "exit", "exit_group"], ALLOW, "the kernel, after a stop; the end"),
];

/// What the compiler of guests still does once it has read a stranger's module: it computes, on several threads, and writes the
/// result to a stream that is open already. Memory may become executable: Wasmtime has no other way to look at what it made.
#[rustfmt::skip]
pub(in super::super) const COMPILING: &[(&[&str], Check, &str)] = &[
    (&["write", "close", "exit", "exit_group", "restart_syscall"], ALLOW, "the result, or why there is none, and the end"),
    (&["futex", "sched_yield", "sched_getaffinity", "set_robust_list", "rseq"], ALLOW, "threads, and their number"),
    (&["prctl"], super::super::arguments::PRCTL_HIDDEN, "names of threads"),
    (&["clone"], THREADS, "threads"),
    (&["clone3"], super::super::arguments::ABSENT, "its flags lie behind a pointer; the C library falls back"),
    (&["mmap", "mprotect", "munmap", "mremap", "madvise", "brk"], ALLOW, "memory"),
    (&["prlimit64"], READ_LIMITS, "the C library: how large a stack is"),
    (&["rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack"], ALLOW, "the engine's traps, threads"),
    (&["gettid", "getpid", "getrandom", "clock_gettime"], ALLOW, "the C library and the standard library"),
];
