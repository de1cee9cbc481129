//! The reviewed text: every system call, what happens to it, and who needs it or why it is refused.
//!
//! A call that is in no line does not exist for this kernel table: it is absent (`ENOSYS`), so that libraries newer than
//! the table fall back. `same` refers to the line above.

use super::arguments::{
    ABSENT, ALLOW, CLONE, DENY, IOCTL, MKNOD, MKNODAT, OPEN, OPENAT, PERSONALITY, PRCTL, PRLIMIT_IN_BOX,
    SECCOMP, SETRLIMIT, SETSOCKOPT, SOCKET, WATCH,
};
use super::check::{Check, Verdict};
use crate::arch;

/// Call, rule, reason.
#[rustfmt::skip]
pub(super) const TABLE: &[(&str, Check, &str)] = &[
    // Reading and writing.
    ("read", ALLOW, "every program"),
    ("write", ALLOW, "every program"),
    ("close", ALLOW, "every program"),
    ("lseek", ALLOW, "every program"),
    ("readv", ALLOW, "shells, Node, Rust"),
    ("writev", ALLOW, "every C library"),
    ("pread64", ALLOW, "dynamic linker, databases"),
    ("pwrite64", ALLOW, "databases, linkers"),
    ("preadv", ALLOW, "databases, Java"),
    ("pwritev", ALLOW, "databases, Java"),
    ("preadv2", ALLOW, "databases"),
    ("pwritev2", ALLOW, "databases"),
    ("sendfile", ALLOW, "Python shutil, web servers"),
    ("splice", ALLOW, "coreutils cat, Go io.Copy"),
    ("tee", ALLOW, "coreutils, shells"),
    ("copy_file_range", ALLOW, "coreutils cp, Python, Go"),
    ("dup", ALLOW, "shells"),
    ("dup2", ALLOW, "shells"),
    ("dup3", ALLOW, "Python subprocess, Go"),
    ("pipe", ALLOW, "shells"),
    ("pipe2", ALLOW, "every spawn"),
    ("fcntl", ALLOW, "every program"),
    ("flock", ALLOW, "git, package managers"),
    ("fsync", ALLOW, "editors, databases"),
    ("fdatasync", ALLOW, "databases"),
    ("sync", ALLOW, "package managers"),
    ("syncfs", ALLOW, "dpkg, coreutils sync"),
    ("sync_file_range", ALLOW, "dpkg, databases"),
    ("fadvise64", ALLOW, "coreutils, tar"),
    ("readahead", ALLOW, "browsers, databases"),
    ("fallocate", ALLOW, "databases, linkers"),
    ("truncate", WATCH, "Python, coreutils"),
    ("ftruncate", ALLOW, "linkers, shared memory"),
    ("close_range", ALLOW, "Python subprocess, pid 1"),
    // Files and directories.
    ("open", OPEN, "older C libraries, Go"),
    ("openat", OPENAT, "every program"),
    ("openat2", WATCH, "coreutils, pid 1 (RESOLVE_BENEATH); its flags lie behind a pointer"),
    ("creat", WATCH, "older programs"),
    ("stat", ALLOW, "every program"),
    ("fstat", ALLOW, "every program"),
    ("lstat", ALLOW, "every program"),
    ("newfstatat", ALLOW, "every program"),
    ("statx", ALLOW, "coreutils, Node, Rust"),
    ("access", ALLOW, "shells, make"),
    ("faccessat", ALLOW, "shells"),
    ("faccessat2", ALLOW, "bash test, coreutils"),
    ("statfs", ALLOW, "coreutils df, Java"),
    ("fstatfs", ALLOW, "Python, package managers"),
    ("getdents", ALLOW, "older programs"),
    ("getdents64", ALLOW, "ls, find, every runtime"),
    ("getcwd", ALLOW, "shells"),
    ("chdir", ALLOW, "shells"),
    ("fchdir", ALLOW, "coreutils, find, git"),
    ("mkdir", WATCH, "every program"),
    ("mkdirat", WATCH, "coreutils, tar"),
    ("rmdir", WATCH, "every program"),
    ("rename", WATCH, "every program"),
    ("renameat", WATCH, "coreutils"),
    ("renameat2", WATCH, "coreutils mv, git"),
    ("link", WATCH, "git, package managers"),
    ("linkat", WATCH, "coreutils ln"),
    ("symlink", WATCH, "tar, npm"),
    ("symlinkat", WATCH, "coreutils ln, tar"),
    ("unlink", WATCH, "every program"),
    ("unlinkat", WATCH, "coreutils rm, Python"),
    ("readlink", ALLOW, "every runtime"),
    ("readlinkat", ALLOW, "coreutils, Go"),
    ("chmod", ALLOW, "tar, git"),
    ("fchmod", ALLOW, "tar, git"),
    ("fchmodat", ALLOW, "coreutils chmod"),
    ("fchmodat2", ALLOW, "glibc 2.39 and newer"),
    ("chown", ALLOW, "tar, cp -p"),
    ("fchown", ALLOW, "tar, cp -p"),
    ("lchown", ALLOW, "tar, cp -p"),
    ("fchownat", ALLOW, "coreutils chown"),
    ("umask", ALLOW, "shells"),
    ("utime", ALLOW, "older programs"),
    ("utimes", ALLOW, "older programs"),
    ("futimesat", ALLOW, "older programs"),
    ("utimensat", ALLOW, "touch, tar, make"),
    ("setxattr", ALLOW, "cp -a, tar"),
    ("lsetxattr", ALLOW, "cp -a, tar"),
    ("fsetxattr", ALLOW, "cp -a, tar"),
    ("getxattr", ALLOW, "ls, cp"),
    ("lgetxattr", ALLOW, "ls, cp"),
    ("fgetxattr", ALLOW, "ls, cp"),
    ("listxattr", ALLOW, "cp -a"),
    ("llistxattr", ALLOW, "cp -a, ls"),
    ("flistxattr", ALLOW, "cp -a"),
    ("removexattr", ALLOW, "setfattr"),
    ("lremovexattr", ALLOW, "setfattr"),
    ("fremovexattr", ALLOW, "setfattr"),
    ("inotify_init", ALLOW, "file watchers"),
    ("inotify_init1", ALLOW, "file watchers, Node, pid 1"),
    ("inotify_add_watch", ALLOW, "file watchers"),
    ("inotify_rm_watch", ALLOW, "file watchers"),
    ("mknod", MKNOD, "mkfifo; devices denied"),
    ("mknodat", MKNODAT, "mkfifo, Python multiprocessing; devices denied"),
    // Memory.
    ("mmap", ALLOW, "every program"),
    ("munmap", ALLOW, "every program"),
    ("mprotect", ALLOW, "every program"),
    ("brk", ALLOW, "every program"),
    ("mremap", ALLOW, "realloc of big blocks"),
    ("msync", ALLOW, "databases, Java"),
    ("madvise", ALLOW, "malloc, Go, V8"),
    ("mincore", ALLOW, "libunwind, Java"),
    ("mlock", ALLOW, "gpg, OpenSSL secure heap; RLIMIT_MEMLOCK holds"),
    ("mlock2", ALLOW, "same"),
    ("munlock", ALLOW, "same"),
    ("mlockall", ALLOW, "same"),
    ("munlockall", ALLOW, "same"),
    ("memfd_create", ALLOW, "JITs, Wayland, Python multiprocessing"),
    ("membarrier", ALLOW, ".NET, liburcu, V8"),
    ("mseal", ALLOW, "glibc 2.42, browsers"),
    ("pkey_alloc", ALLOW, "V8 code protection"),
    ("pkey_free", ALLOW, "V8"),
    ("pkey_mprotect", ALLOW, "V8"),
    ("map_shadow_stack", ALLOW, "glibc with user shadow stacks"),
    ("shmget", ALLOW, "PostgreSQL, X11; own IPC namespace"),
    ("shmat", ALLOW, "same"),
    ("shmctl", ALLOW, "same"),
    ("shmdt", ALLOW, "same"),
    ("semget", ALLOW, "PostgreSQL, Apache; own IPC namespace"),
    ("semop", ALLOW, "same"),
    ("semctl", ALLOW, "same"),
    ("semtimedop", ALLOW, "same"),
    // Processes and threads.
    ("clone", CLONE, "every fork and thread; new namespaces denied"),
    ("clone3", ABSENT, "its flags lie behind a pointer; glibc and Go fall back to clone"),
    ("fork", ALLOW, "older programs"),
    ("vfork", ALLOW, "shells, posix_spawn"),
    ("execve", ALLOW, "every spawn"),
    ("execveat", ALLOW, "fexecve, pid 1"),
    ("exit", ALLOW, "every thread"),
    ("exit_group", ALLOW, "every program"),
    ("wait4", ALLOW, "every shell"),
    ("waitid", ALLOW, "Python, Go, Rust"),
    ("pidfd_open", ALLOW, "Python asyncio, Go, Rust"),
    ("pidfd_send_signal", ALLOW, "Python, Go, Rust"),
    ("kill", ALLOW, "shells; Landlock scopes it"),
    ("tkill", ALLOW, "older thread libraries"),
    ("tgkill", ALLOW, "raise, Go preemption"),
    ("arch_prctl", ALLOW, "thread start"),
    ("set_tid_address", ALLOW, "thread start"),
    ("set_robust_list", ALLOW, "thread start"),
    ("get_robust_list", ALLOW, "thread libraries"),
    ("rseq", ALLOW, "glibc thread start"),
    ("futex", ALLOW, "every lock"),
    ("futex_waitv", ALLOW, "Wine, game runtimes"),
    ("getpid", ALLOW, "every program"),
    ("gettid", ALLOW, "every thread library"),
    ("getppid", ALLOW, "shells"),
    ("getpgrp", ALLOW, "shells"),
    ("getpgid", ALLOW, "shells"),
    ("setpgid", ALLOW, "job control"),
    ("getsid", ALLOW, "terminals"),
    ("setsid", ALLOW, "daemons, pid 1"),
    ("getpriority", ALLOW, "nice"),
    ("setpriority", ALLOW, "nice"),
    ("ioprio_get", ALLOW, "ionice"),
    ("ioprio_set", ALLOW, "ionice, package managers"),
    ("sched_yield", ALLOW, "spin locks"),
    ("sched_getaffinity", ALLOW, "nproc, Go, OpenBLAS"),
    ("sched_setaffinity", ALLOW, "OpenMP, taskset"),
    ("sched_getparam", ALLOW, "Python, Java"),
    ("sched_setparam", ALLOW, "thread libraries; RLIMIT_RTPRIO 0 holds"),
    ("sched_getscheduler", ALLOW, "Python, Java"),
    ("sched_setscheduler", ALLOW, "thread libraries; RLIMIT_RTPRIO 0 holds"),
    ("sched_get_priority_max", ALLOW, "thread libraries"),
    ("sched_get_priority_min", ALLOW, "thread libraries"),
    ("sched_rr_get_interval", ALLOW, "Python os"),
    ("sched_setattr", ALLOW, "chrt"),
    ("sched_getattr", ALLOW, "chrt"),
    ("getrlimit", ALLOW, "older programs"),
    ("setrlimit", SETRLIMIT, "shells ulimit"),
    ("prlimit64", PRLIMIT_IN_BOX, "every runtime, pid 1 for itself"),
    ("getrusage", ALLOW, "time, Python"),
    ("times", ALLOW, "shells"),
    ("getcpu", ALLOW, "malloc arenas"),
    ("uname", ALLOW, "every configure script"),
    ("sysinfo", ALLOW, "free, Node os"),
    ("getrandom", ALLOW, "every runtime"),
    ("restart_syscall", ALLOW, "the kernel itself, after a stop"),
    ("uretprobe", ALLOW, "host tracing tools plant it; any other caller gets a signal"),
    ("uprobe", ALLOW, "host tracing tools plant it; any other caller gets an error"),
    ("prctl", PRCTL, "thread names, pid 1; listed options only"),
    ("personality", PERSONALITY, "configure scripts; plain Linux only"),
    // Signals.
    ("rt_sigaction", ALLOW, "every program"),
    ("rt_sigprocmask", ALLOW, "every program"),
    ("rt_sigreturn", ALLOW, "every program"),
    ("rt_sigpending", ALLOW, "shells"),
    ("rt_sigtimedwait", ALLOW, "Python, Java"),
    ("rt_sigqueueinfo", ALLOW, "sigqueue"),
    ("rt_tgsigqueueinfo", ALLOW, "pthread_sigqueue"),
    ("rt_sigsuspend", ALLOW, "shells, git"),
    ("sigaltstack", ALLOW, "Go, Rust, Java"),
    ("pause", ALLOW, "shells"),
    ("signalfd", ALLOW, "older programs"),
    ("signalfd4", ALLOW, "pid 1, libuv users"),
    // Identity: harmless without capabilities, and pid 1 gives up its own with these.
    ("getuid", ALLOW, "every program"),
    ("geteuid", ALLOW, "every program"),
    ("getgid", ALLOW, "every program"),
    ("getegid", ALLOW, "every program"),
    ("getresuid", ALLOW, "sudo-like tools, libcap"),
    ("getresgid", ALLOW, "same"),
    ("getgroups", ALLOW, "id, git"),
    ("setuid", ALLOW, "pid 1, su"),
    ("setgid", ALLOW, "pid 1, su"),
    ("setreuid", ALLOW, "older programs"),
    ("setregid", ALLOW, "older programs"),
    ("setresuid", ALLOW, "pid 1"),
    ("setresgid", ALLOW, "pid 1"),
    ("setgroups", ALLOW, "pid 1"),
    ("setfsuid", ALLOW, "pid 1, for file operations as the payload; file servers"),
    ("setfsgid", ALLOW, "same"),
    ("capget", ALLOW, "libcap, pid 1"),
    ("capset", ALLOW, "pid 1"),
    // Waiting and clocks.
    ("poll", ALLOW, "every program"),
    ("ppoll", ALLOW, "Rust, glib"),
    ("select", ALLOW, "Python, shells"),
    ("pselect6", ALLOW, "GNU make, git"),
    ("epoll_create", ALLOW, "older event loops"),
    ("epoll_create1", ALLOW, "event loops"),
    ("epoll_ctl", ALLOW, "event loops"),
    ("epoll_wait", ALLOW, "event loops"),
    ("epoll_pwait", ALLOW, "Go, Node"),
    ("epoll_pwait2", ALLOW, "newer event loops"),
    ("eventfd", ALLOW, "older event loops"),
    ("eventfd2", ALLOW, "Go, Node, Rust"),
    ("timerfd_create", ALLOW, "event loops"),
    ("timerfd_settime", ALLOW, "event loops"),
    ("timerfd_gettime", ALLOW, "event loops"),
    ("timer_create", ALLOW, "Go profiler, Java"),
    ("timer_settime", ALLOW, "same"),
    ("timer_gettime", ALLOW, "same"),
    ("timer_getoverrun", ALLOW, "same"),
    ("timer_delete", ALLOW, "same"),
    ("alarm", ALLOW, "shells, Perl"),
    ("getitimer", ALLOW, "Python signal"),
    ("setitimer", ALLOW, "Python signal"),
    ("nanosleep", ALLOW, "every program"),
    ("clock_nanosleep", ALLOW, "every program"),
    ("clock_gettime", ALLOW, "every program"),
    ("clock_getres", ALLOW, "Python, Java"),
    ("gettimeofday", ALLOW, "every program"),
    ("time", ALLOW, "older programs"),
    // Sockets: reach is the business of the network namespace, Landlock and the gateway.
    ("socket", SOCKET, "network clients; Unix, TCP and UDP only"),
    ("socketpair", SOCKET, "Node, Python multiprocessing, pid 1"),
    ("setsockopt", SETSOCKOPT, "network programs; not BPF, not kernel TLS"),
    ("getsockopt", ALLOW, "network programs"),
    ("connect", ALLOW, "network clients"),
    ("bind", ALLOW, "servers"),
    ("listen", ALLOW, "servers"),
    ("accept", ALLOW, "servers"),
    ("accept4", ALLOW, "servers"),
    ("getsockname", ALLOW, "network programs"),
    ("getpeername", ALLOW, "network programs"),
    ("sendto", ALLOW, "network programs"),
    ("recvfrom", ALLOW, "network programs"),
    ("sendmsg", ALLOW, "fd passing, DNS"),
    ("recvmsg", ALLOW, "fd passing, DNS"),
    ("sendmmsg", ALLOW, "glibc resolver"),
    ("recvmmsg", ALLOW, "DNS and QUIC"),
    ("shutdown", ALLOW, "network programs"),
    // Terminals and devices.
    ("ioctl", IOCTL, "terminals; injection denied"),
    // A program may lock itself in further.
    ("landlock_create_ruleset", ALLOW, "programs that sandbox themselves, xz"),
    ("landlock_add_rule", ALLOW, "programs that sandbox themselves, xz"),
    ("landlock_restrict_self", ALLOW, "programs that sandbox themselves, xz"),
    ("seccomp", SECCOMP, "programs that sandbox themselves, man; no listener, no log"),
    // Absent: libraries ask and fall back, as on a kernel built without them.
    ("get_mempolicy", ABSENT, "OpenBLAS and Java then take the box for one NUMA node"),
    ("set_mempolicy", ABSENT, "same"),
    ("mbind", ABSENT, "same"),
    ("set_mempolicy_home_node", ABSENT, "same"),
    ("io_setup", ABSENT, "old asynchronous I/O: databases fall back to threads"),
    ("io_destroy", ABSENT, "same"),
    ("io_submit", ABSENT, "same"),
    ("io_cancel", ABSENT, "same"),
    ("io_getevents", ABSENT, "same"),
    ("io_pgetevents", ABSENT, "same"),
    ("statmount", ABSENT, "libmount falls back to /proc"),
    ("listmount", ABSENT, "libmount falls back to /proc"),
    ("listns", ABSENT, "newer than anything that needs it"),
    ("cachestat", ABSENT, "tells what others have cached"),
    ("lsm_get_self_attr", ABSENT, "libraries fall back to /proc"),
    ("lsm_list_modules", ABSENT, "nobody yet"),
    ("futex_wake", ABSENT, "no library needs it yet"),
    ("futex_wait", ABSENT, "same"),
    ("futex_requeue", ABSENT, "same"),
    ("setxattrat", ABSENT, "libraries fall back to the f- and l-calls"),
    ("getxattrat", ABSENT, "same"),
    ("listxattrat", ABSENT, "same"),
    ("removexattrat", ABSENT, "same"),
    ("file_getattr", ABSENT, "falls back to ioctl"),
    ("file_setattr", ABSENT, "falls back to ioctl"),
    // Denied: namespaces and mounts.
    ("unshare", DENY, "leaves or reshapes the box"),
    ("setns", DENY, "leaves or reshapes the box"),
    ("mount", DENY, "leaves or reshapes the box"),
    ("umount2", DENY, "leaves or reshapes the box"),
    ("pivot_root", DENY, "leaves or reshapes the box"),
    ("chroot", DENY, "leaves or reshapes the box"),
    ("open_tree", DENY, "leaves or reshapes the box"),
    ("open_tree_attr", DENY, "leaves or reshapes the box"),
    ("move_mount", DENY, "leaves or reshapes the box"),
    ("fsopen", DENY, "leaves or reshapes the box"),
    ("fsconfig", DENY, "leaves or reshapes the box"),
    ("fsmount", DENY, "leaves or reshapes the box"),
    ("fspick", DENY, "leaves or reshapes the box"),
    ("mount_setattr", DENY, "leaves or reshapes the box"),
    // Denied: other processes and their memory.
    ("ptrace", DENY, "reads or steers another process"),
    ("process_vm_readv", DENY, "reads or steers another process"),
    ("process_vm_writev", DENY, "reads or steers another process"),
    ("process_madvise", DENY, "reads or steers another process"),
    ("process_mrelease", DENY, "reads or steers another process"),
    ("pidfd_getfd", DENY, "reads or steers another process"),
    ("kcmp", DENY, "reads or steers another process"),
    ("move_pages", DENY, "reads or steers another process"),
    ("migrate_pages", DENY, "reads or steers another process"),
    // Denied: large kernel interfaces that escape the filter or carry most bugs.
    ("io_uring_setup", DENY, "does the work of other calls unseen"),
    ("io_uring_enter", DENY, "same"),
    ("io_uring_register", DENY, "same"),
    ("bpf", DENY, "code in the kernel"),
    ("perf_event_open", DENY, "side channels, many bugs"),
    ("userfaultfd", DENY, "stretches kernel races"),
    ("vmsplice", DENY, "pages shared between user and kernel; nobody needs it"),
    ("memfd_secret", DENY, "memory that cannot be inspected"),
    ("add_key", DENY, "keyrings are not namespaced"),
    ("request_key", DENY, "same"),
    ("keyctl", DENY, "same"),
    ("fanotify_init", DENY, "watches whole file systems"),
    ("fanotify_mark", DENY, "same"),
    ("name_to_handle_at", DENY, "opens files around the mount tree"),
    ("open_by_handle_at", DENY, "same"),
    ("msgget", DENY, "message queues: the favourite tool to shape kernel memory"),
    ("msgsnd", DENY, "same"),
    ("msgrcv", DENY, "same"),
    ("msgctl", DENY, "same"),
    ("mq_open", DENY, "RLIMIT_MSGQUEUE is 0"),
    ("mq_unlink", DENY, "same"),
    ("mq_timedsend", DENY, "same"),
    ("mq_timedreceive", DENY, "same"),
    ("mq_notify", DENY, "same"),
    ("mq_getsetattr", DENY, "same"),
    ("modify_ldt", DENY, "16-bit segments, many bugs"),
    ("remap_file_pages", DENY, "long obsolete"),
    ("lsm_set_self_attr", DENY, "changes labels"),
    // Denied: the machine.
    ("reboot", DENY, "belongs to the host"),
    ("kexec_load", DENY, "belongs to the host"),
    ("kexec_file_load", DENY, "belongs to the host"),
    ("init_module", DENY, "belongs to the host"),
    ("finit_module", DENY, "belongs to the host"),
    ("delete_module", DENY, "belongs to the host"),
    ("swapon", DENY, "belongs to the host"),
    ("swapoff", DENY, "belongs to the host"),
    ("acct", DENY, "belongs to the host"),
    ("syslog", DENY, "belongs to the host"),
    ("quotactl", DENY, "belongs to the host"),
    ("quotactl_fd", DENY, "belongs to the host"),
    ("iopl", DENY, "belongs to the host"),
    ("ioperm", DENY, "belongs to the host"),
    ("sethostname", DENY, "belongs to the host"),
    ("setdomainname", DENY, "belongs to the host"),
    ("settimeofday", DENY, "belongs to the host"),
    ("clock_settime", DENY, "belongs to the host"),
    ("adjtimex", DENY, "belongs to the host"),
    ("clock_adjtime", DENY, "belongs to the host"),
    ("vhangup", DENY, "belongs to the host"),
    // Denied: gone from the kernel or never there.
    ("_sysctl", DENY, "obsolete"),
    ("afs_syscall", DENY, "obsolete"),
    ("create_module", DENY, "obsolete"),
    ("epoll_ctl_old", DENY, "obsolete"),
    ("epoll_wait_old", DENY, "obsolete"),
    ("get_kernel_syms", DENY, "obsolete"),
    ("get_thread_area", DENY, "obsolete"),
    ("getpmsg", DENY, "obsolete"),
    ("lookup_dcookie", DENY, "obsolete"),
    ("nfsservctl", DENY, "obsolete"),
    ("putpmsg", DENY, "obsolete"),
    ("query_module", DENY, "obsolete"),
    ("security", DENY, "obsolete"),
    ("set_thread_area", DENY, "obsolete"),
    ("sysfs", DENY, "obsolete"),
    ("tuxcall", DENY, "obsolete"),
    ("uselib", DENY, "obsolete"),
    ("ustat", DENY, "obsolete"),
    ("vserver", DENY, "obsolete"),
];

/// The rule for each native number, in the order of [`arch::CALLS`]. Looked up by the compiler: at every start it would
/// take longer than most layers of a box.
static RULES: [(u32, Check); arch::CALLS.len()] = look_up();

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, where it cannot be out of bounds")]
const fn look_up() -> [(u32, Check); arch::CALLS.len()] {
    let mut rules = [(0, DENY); arch::CALLS.len()];
    let mut call = 0;
    while call < rules.len() {
        let (number, name) = arch::CALLS[call];
        rules[call].0 = number;
        let mut line = 0;
        while line < TABLE.len() {
            if is_same(TABLE[line].0.as_bytes(), name.as_bytes()) {
                rules[call].1 = TABLE[line].1;
                break;
            }
            line += 1;
        }
        call += 1;
    }
    rules
}

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, where it cannot be out of bounds")]
const fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// The rules of all native calls, ascending by number.
pub(super) fn rules() -> &'static [(u32, Check)] {
    &RULES
}

/// What the filter does with this call when it comes in through the native interface.
///
/// Pure: the same text that the filter was compiled from, evaluated here.
pub fn verdict(nr: u32, args: &[u64; 6]) -> Verdict {
    if arch::FOREIGN_BIT.is_some_and(|bit| nr & bit != 0) {
        return Verdict::Kill;
    }
    if arch::FOREIGN_NUMBERS.is_some_and(|(first, last)| (first..=last).contains(&nr)) {
        return DENY.decide(args);
    }
    let at = RULES.binary_search_by_key(&nr, |&(number, _)| number).ok();
    at.and_then(|at| RULES.get(at)).map_or(ABSENT, |&(_, rule)| rule).decide(args)
}

/// The errno that the supervisor answers a reported call with.
#[must_use]
pub fn errno_for(nr: u32, args: &[u64; 6]) -> i32 {
    match verdict(nr, args) {
        Verdict::Errno(errno) | Verdict::Notify(errno) => errno,
        // Reported although it needed no report: another table is in the kernel than in this program.
        Verdict::Allow | Verdict::Watch | Verdict::Kill => libc::EPERM,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_of_this_architecture_is_decided_exactly_once() {
        for &(_, name) in arch::CALLS {
            assert_eq!(TABLE.iter().filter(|line| line.0 == name).count(), 1, "{name}");
        }
        for &(name, _, why) in TABLE {
            assert!(arch::syscall_number(name).is_some(), "{name} is not a call of this architecture");
            assert!(!why.is_empty(), "{name} has no reason");
        }
    }

    /// `prlimit(1, …)` of a command that is the agent's own user would leave the agent without descriptors.
    #[test]
    fn limits_of_pid_1_can_be_read_and_are_set_by_nobody() {
        let decide = |pid, new| PRLIMIT_IN_BOX.decide(&[pid, 7, new, 0, 0, 0]);
        assert_eq!(decide(1, 0), Verdict::Allow, "read");
        assert_eq!(decide(1, 0x1000), Verdict::Notify(libc::EPERM));
        assert_eq!(
            decide(1 << 32 | 1, 0x1000),
            Verdict::Notify(libc::EPERM),
            "the kernel takes the low half"
        );
        assert_eq!(decide(0, 0x1000), Verdict::Allow, "one's own");
        for pid in [2, 1000] {
            assert_eq!(decide(pid, 0), Verdict::Allow, "read {pid}");
            assert_eq!(
                decide(pid, 0x1000),
                Verdict::Notify(libc::EPERM),
                "{pid} may be a thread of the agent"
            );
        }
        let core = PRLIMIT_IN_BOX.decide(&[0, 4, 0x1000, 0, 0, 0]);
        assert_eq!(core, Verdict::Errno(0), "and cores stay as they are");
    }
}
