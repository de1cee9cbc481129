//! The calls that are allowed for some arguments only.
//!
//! Everything here is decided on values in registers; what lies behind a pointer cannot be judged by a filter, which
//! is why `clone3` is absent and its ancestor `clone` is checked.

use super::check::{Check, Verdict};

pub(super) const ALLOW: Check = Check::Then(Verdict::Allow);
pub(super) const DENY: Check = Check::Then(Verdict::Notify(libc::EPERM));
/// It changes a name or what lies behind one.
pub(super) const WATCH: Check = Check::Then(Verdict::Watch);
/// As if the kernel were built without it: libraries ask, and fall back.
pub(super) const ABSENT: Check = Check::Then(Verdict::Errno(libc::ENOSYS));

const WHOLE: u32 = u32::MAX;

/// Every `CLONE_NEW*` bit. A new user namespace is the door to most kernel bugs of the last ten years. The time
/// namespace's bit lies inside the exit signal, where no valid signal has it.
const NAMESPACES: u32 = 0x7E02_0080;
pub(super) const CLONE: Check = Check::Is { arg: 0, mask: NAMESPACES, values: &[0], yes: &ALLOW, no: &DENY };

/// A thread and nothing else: without `CLONE_VM` and `CLONE_THREAD` it would be a fork, and a process that has copied
/// everything and is nobody's thread is where an intruder goes on after the program has ended.
const THREAD: u32 = 0x0001_0100;
pub(super) const THREADS_ONLY: Check =
    Check::Is { arg: 0, mask: NAMESPACES | THREAD, values: &[THREAD], yes: &ALLOW, no: &DENY };

/// TIOCSTI types into the terminal of whoever started us; TIOCLINUX does the same on a console (paste); TIOCCONS
/// takes the host's console messages; TIOCSETD loads line disciplines, a row of old kernel modules.
const TERMINAL_INJECTION: &[u32] = &[0x5412, 0x541C, 0x541D, 0x5423];
pub(super) const IOCTL: Check =
    Check::Is { arg: 1, mask: WHOLE, values: TERMINAL_INJECTION, yes: &DENY, no: &ALLOW };

const UNIX: u32 = 1;
const INET: u32 = 2;
const INET6: u32 = 10;
const NETLINK: u32 = 16;
const TYPE_MASK: u32 = 0xF;
const STREAM: u32 = 1;
const DATAGRAM: u32 = 2;
const SEQPACKET: u32 = 5;
const MPTCP: u32 = 262;

/// Unix sockets of every sensible type; internet sockets only as TCP, UDP or ping. Other protocols are refused by
/// number as well as by type: MPTCP, SCTP and SMC would all pass by Landlock's TCP rules, and a sequenced-packet
/// internet socket is SCTP even with protocol 0.
pub(super) const SOCKET: Check = Check::Is {
    arg: 0,
    mask: WHOLE,
    values: &[UNIX],
    yes: &Check::Is {
        arg: 1,
        mask: TYPE_MASK,
        values: &[STREAM, DATAGRAM, SEQPACKET],
        yes: &ALLOW,
        no: &DENY,
    },
    no: &Check::Is { arg: 0, mask: WHOLE, values: &[INET, INET6], yes: &INTERNET, no: &OTHER_FAMILY },
};

const INTERNET: Check =
    Check::Is { arg: 1, mask: TYPE_MASK, values: &[STREAM, DATAGRAM], yes: &PROTOCOL, no: &DENY };

/// 0 = default, 1 and 58 = ping (gated by the kernel's `ping_group_range`), 6 = TCP, 17 = UDP. Go asks for MPTCP
/// at every start and takes TCP instead: not worth a report.
const PROTOCOL: Check = Check::Is {
    arg: 2,
    mask: WHOLE,
    values: &[0, 1, 6, 17, 58],
    yes: &ALLOW,
    no: &Check::Is {
        arg: 2,
        mask: WHOLE,
        values: &[MPTCP],
        yes: &Check::Then(Verdict::Errno(libc::EPROTONOSUPPORT)),
        no: &Check::Then(Verdict::Notify(libc::EPROTONOSUPPORT)),
    },
};

/// The C library opens a netlink socket in every `getaddrinfo` and copes without: refused unseen. Any other family
/// is kernel code that no ordinary program asks for.
const OTHER_FAMILY: Check = Check::Is {
    arg: 0,
    mask: WHOLE,
    values: &[NETLINK],
    yes: &Check::Then(Verdict::Errno(libc::EAFNOSUPPORT)),
    no: &Check::Then(Verdict::Notify(libc::EAFNOSUPPORT)),
};

/// Not: BPF programs on sockets (code in the kernel's JIT; level 1), protocols stacked on TCP (kernel TLS; level 6).
pub(super) const SETSOCKOPT: Check = Check::Is {
    arg: 1,
    mask: WHOLE,
    values: &[1],
    yes: &Check::Is { arg: 2, mask: WHOLE, values: &[26, 50, 51, 52], yes: &DENY, no: &ALLOW },
    no: &Check::Is {
        arg: 1,
        mask: WHOLE,
        values: &[6],
        yes: &Check::Is { arg: 2, mask: WHOLE, values: &[31], yes: &DENY, no: &ALLOW },
        no: &ALLOW,
    },
};

/// What a process may ask about and set on itself. Absent on purpose: `PR_SET_MM` (35), `PR_SET_SECCOMP` (22, the old
/// spelling of `seccomp`), `PR_SET_SPECULATION_CTRL` (53), `PR_SET_SYSCALL_USER_DISPATCH` (59), `PR_SCHED_CORE` (62),
/// `PR_SET_MEMORY_MERGE` (67, a side channel between boxes).
const PRCTL_OPTIONS: &[u32] = &[
    1,           // PR_SET_PDEATHSIG
    2,           // PR_GET_PDEATHSIG
    3,           // PR_GET_DUMPABLE
    4,           // PR_SET_DUMPABLE
    7,           // PR_GET_KEEPCAPS
    8,           // PR_SET_KEEPCAPS
    15,          // PR_SET_NAME
    16,          // PR_GET_NAME
    21,          // PR_GET_SECCOMP
    23,          // PR_CAPBSET_READ
    24,          // PR_CAPBSET_DROP
    27,          // PR_GET_SECUREBITS
    28,          // PR_SET_SECUREBITS: pid 1 locks them; needs a capability
    29,          // PR_SET_TIMERSLACK
    30,          // PR_GET_TIMERSLACK
    33,          // PR_MCE_KILL
    34,          // PR_MCE_KILL_GET
    36,          // PR_SET_CHILD_SUBREAPER
    37,          // PR_GET_CHILD_SUBREAPER
    38,          // PR_SET_NO_NEW_PRIVS
    39,          // PR_GET_NO_NEW_PRIVS
    40,          // PR_GET_TID_ADDRESS
    41,          // PR_SET_THP_DISABLE
    42,          // PR_GET_THP_DISABLE
    47,          // PR_CAP_AMBIENT
    52,          // PR_GET_SPECULATION_CTRL
    65,          // PR_SET_MDWE
    66,          // PR_GET_MDWE
    0x5356_4D41, // PR_SET_VMA: names for memory, by glibc, Go and Android's allocators
    0x5961_6D61, // PR_SET_PTRACER: crash handlers; ptrace itself is denied
];
pub(super) const PRCTL: Check = Check::Is {
    arg: 0,
    mask: WHOLE,
    values: PRCTL_OPTIONS,
    yes: &ALLOW,
    // What a kernel without that option says.
    no: &Check::Then(Verdict::Notify(libc::EINVAL)),
};

/// The same for a program that has made itself undumpable: making it dumpable again would open its memory to everybody
/// of its user, as would naming somebody who may trace it.
pub(super) const PRCTL_HIDDEN: Check = Check::Is {
    arg: 0,
    mask: WHOLE,
    values: &[4, 0x5961_6D61],
    yes: &Check::Then(Verdict::Errno(libc::EPERM)),
    no: &PRCTL,
};

/// Plain Linux, or "which one am I?". Not: switching off address randomisation, execute-what-you-read.
pub(super) const PERSONALITY: Check =
    Check::Is { arg: 0, mask: WHOLE, values: &[0, u32::MAX], yes: &ALLOW, no: &DENY };

/// A filter of one's own only takes away. Not with a listener (there can be one per process, and it is ours) nor with the
/// flag that has every refusal logged: `EINVAL`, as from a kernel that does not know it. This does not close the host's audit
/// log: a filter's own answer "log" is written there without the flag, if the host's `actions_logged` has it.
/// Left: TSYNC 1, `SPEC_ALLOW` 4, `TSYNC_ESRCH` 16.
pub(super) const SECCOMP: Check = Check::Is {
    arg: 0,
    mask: WHOLE,
    values: &[1],
    yes: &Check::Is {
        arg: 1,
        mask: !(1 | 4 | 16),
        values: &[0],
        yes: &ALLOW,
        no: &Check::Then(Verdict::Errno(libc::EINVAL)),
    },
    no: &ALLOW,
};

/// Flags of an open file that can change something: to write (1), both (2), make it (0x40), empty it (0x200).
const OPENED_TO_CHANGE: u32 = 0x243;
pub(super) const OPEN: Check =
    Check::Is { arg: 1, mask: OPENED_TO_CHANGE, values: &[0], yes: &ALLOW, no: &WATCH };
pub(super) const OPENAT: Check =
    Check::Is { arg: 2, mask: OPENED_TO_CHANGE, values: &[0], yes: &ALLOW, no: &WATCH };

const FILE_TYPE: u32 = 0xF000;
/// None given, regular, named pipe, socket. Character and block devices stay out, and with them overlay whiteouts.
const NODES: &[u32] = &[0, 0x8000, 0x1000, 0xC000];
pub(super) const MKNOD: Check = Check::Is { arg: 1, mask: FILE_TYPE, values: NODES, yes: &WATCH, no: &DENY };
pub(super) const MKNODAT: Check =
    Check::Is { arg: 2, mask: FILE_TYPE, values: NODES, yes: &WATCH, no: &DENY };

/// A piped `core_pattern` hands the memory of a crashing process to a program of the host that runs as root, and the
/// kernel does so even where the limit on core files is 0. Only a limit of exactly 1 stops it, which is what a box
/// has; whoever sets another one (gpg and ssh set 0) is told that it was done.
const CORE: u32 = 4;
const UNDONE: Check = Check::Then(Verdict::Errno(0));
pub(super) const SETRLIMIT: Check =
    Check::Is { arg: 0, mask: WHOLE, values: &[CORE], yes: &UNDONE, no: &ALLOW };
/// The same, and nobody sets a limit of another process: where commands are the agent's own user, or the box's root, the kernel would let
/// them set those of pid 1. By 0 alone everybody means themselves: the agent is also met by the number of any of its threads.
pub(super) const PRLIMIT_IN_BOX: Check = Check::Is {
    arg: 0,
    mask: WHOLE,
    values: &[0],
    yes: &PRLIMIT,
    no: &Check::Null { arg: 2, yes: &ALLOW, no: &DENY },
};
pub(super) const PRLIMIT: Check = Check::Is {
    arg: 1,
    mask: WHOLE,
    values: &[CORE],
    yes: &Check::Null { arg: 2, yes: &ALLOW, no: &UNDONE },
    no: &ALLOW,
};
