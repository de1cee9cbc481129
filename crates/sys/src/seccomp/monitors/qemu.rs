//! QEMU: reads its libraries, its firmware and what the guest is made of at the start, then runs the guest on threads of its
//! own. A closed list: what version 7.2 was seen to call, and what it needs for KVM. No socket is made, no file is written,
//! no program is started.

use super::super::arguments::{ABSENT, ALLOW, DENY, PRCTL, SECCOMP};
use super::super::check::Check;
use super::Line;

/// A thread of the same process: memory, files and signals shared, no namespace.
const THREAD: u32 = 0x0001_0F00;
const THREADS: Check =
    Check::Is { arg: 0, mask: THREAD | 0x7E02_0000, values: &[THREAD], yes: &ALLOW, no: &DENY };
/// Limits are read, not set.
const READ_LIMITS: Check = Check::Null { arg: 2, yes: &ALLOW, no: &DENY };
/// The requests of KVM are those of the type 0xAE.
const MACHINES: Check = Check::Is { arg: 1, mask: 0xFF00, values: &[0xAE00], yes: &ALLOW, no: &DENY };

/// Not: O_CREAT, O_TRUNC, O_TMPFILE. The device of KVM is opened for both ways; Landlock lets it write to nothing else.
const NO_NEW_FILES: Check = Check::Is { arg: 2, mask: 0x0040_0240, values: &[0], yes: &ALLOW, no: &DENY };

#[rustfmt::skip]
pub(super) const TABLE: &[Line] = &[
    ("openat", NO_NEW_FILES, "its libraries, modules and firmware, the kernel, the disk: Landlock says which"),
    ("read readv pread64 close lseek newfstatat access readlink getdents64 fchdir statfs fstatfs", ALLOW, "the same files, the memory and the state of a template"),
    ("preadv fdatasync", ALLOW, "a guest that reads and flushes its disk"),
    // Whose message names its receiver behind a pointer, where no filter sees it: so it inherits connected streams alone.
    ("sendmsg recvmsg shutdown getsockname getpeername getsockopt setsockopt fcntl", ALLOW, "the control channel; frames of the network card, over a wire that it inherits"),
    ("recvfrom", ALLOW, "frames of the network card"),
    ("close_range", ALLOW, "the warden lets go of what is its own"),
    ("ioctl", MACHINES, "KVM"),
    ("mmap mprotect munmap mremap madvise brk", ALLOW, "memory of the guest, and code made of its instructions"),
    ("futex membarrier sched_yield write eventfd2", ALLOW, "locks, waking threads"),
    ("poll ppoll signalfd4 nanosleep clock_nanosleep clock_gettime", ALLOW, "waiting, the guest's clock"),
    ("clone", THREADS, "a thread for each of the guest's processors"),
    ("clone3", ABSENT, "its flags lie behind a pointer; the C library falls back"),
    ("set_robust_list rseq set_tid_address arch_prctl gettid getpid", ALLOW, "the C library, threads"),
    ("prlimit64", READ_LIMITS, "how large a stack is"),
    ("sysinfo sched_getaffinity", ALLOW, "how much memory and how many processors there are"),
    // Without an answer QEMU takes the host's kernel for one of 32 bits, and leaves four of a guest's registers on KVM out of its state:
    // a copy then ends with its first system call.
    ("uname", ALLOW, "whether the host's kernel has 64 bits"),
    ("getrandom", ALLOW, "randomness for the guest"),
    ("prctl", PRCTL, "names of threads, no new privileges"),
    ("seccomp", SECCOMP, "a filter of its own (-sandbox)"),
    ("rt_sigaction rt_sigprocmask rt_sigpending rt_sigtimedwait rt_sigreturn tgkill sigaltstack", ALLOW, "signals between its threads, stacks of its coroutines"),
    ("restart_syscall exit exit_group", ALLOW, "a stop, the end"),
];
