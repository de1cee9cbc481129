//! The calls of gVisor's two processes and of their keeper: what is between the payload and the host's kernel.
//!
//! gVisor puts filters of its own on, and they are shorter; this one holds from the first instruction, holds should those
//! ever be left out, and holds what they cannot: nobody here makes a namespace, mounts, loads, or reaches a kernel
//! interface that is in no line. The payload's own calls never arrive: gVisor stops each of them first, by a trap that is
//! stronger than any answer of this filter.
//!
//! Who: `keeper` = blastbox-gvisor, `kernel` = runsc boot, `files` = runsc gofer, `payload's process` = where the
//! payload's instructions run, which makes only the calls that gVisor puts into it.

use super::super::arguments::{
    ABSENT, ALLOW, CLONE, IOCTL, MKNODAT, PRCTL, PRLIMIT, SETRLIMIT, SETSOCKOPT, SOCKET,
};
use super::super::check::{Check, Verdict};
use super::Line;

/// The file server goes into a root of its own. The box's root is that already, and nothing else is to be seen from it.
const THERE_ALREADY: Check = Check::Then(Verdict::Errno(0));

/// As on a file system without extended attributes.
const NO_ATTRIBUTES: Check = Check::Then(Verdict::Errno(libc::EOPNOTSUPP));

/// Filters, with a listener too: so the kernel hears of its payload's processes. Left: TSYNC 1, `SPEC_ALLOW` 4, `NEW_LISTENER`
/// 8, `TSYNC_ESRCH` 16. Not `LOG` 2, which nobody here needs; that does not keep a filter whose own answer is "log" from
/// writing into the host's audit log.
const FILTERS: Check = Check::Is {
    arg: 0,
    mask: u32::MAX,
    values: &[1],
    yes: &Check::Is {
        arg: 1,
        mask: !(1 | 4 | 8 | 16),
        values: &[0],
        yes: &ALLOW,
        no: &Check::Then(Verdict::Errno(libc::EINVAL)),
    },
    no: &ALLOW,
};

/// Call, rule, reason.
#[rustfmt::skip]
pub(super) const TABLE: &[Line] = &[
    // Reading and writing.
    ("read", ALLOW, "all"),
    ("write", ALLOW, "all"),
    ("readv", ALLOW, "kernel: sockets"),
    ("writev", ALLOW, "kernel: sockets"),
    ("pread64", ALLOW, "kernel, files"),
    ("pwrite64", ALLOW, "kernel, files"),
    ("preadv", ALLOW, "kernel: files that it was handed"),
    ("pwritev", ALLOW, "same"),
    ("preadv2", ALLOW, "same"),
    ("pwritev2", ALLOW, "same"),
    ("lseek", ALLOW, "kernel, files"),
    ("tee", ALLOW, "kernel: standard streams"),
    ("close", ALLOW, "all"),
    ("close_range", ALLOW, "keeper"),
    ("dup", ALLOW, "kernel, files"),
    ("dup2", ALLOW, "keeper"),
    ("dup3", ALLOW, "kernel"),
    ("pipe2", ALLOW, "keeper, Go's runtime"),
    ("fcntl", ALLOW, "all"),
    ("ioctl", IOCTL, "kernel: sockets, its payload's processes"),
    ("fsync", ALLOW, "kernel, files"),
    ("sync_file_range", ALLOW, "kernel"),
    ("fallocate", ALLOW, "kernel: memory of the box; files"),
    ("ftruncate", ALLOW, "kernel: memory of the box; files"),
    // Files.
    ("open", ALLOW, "keeper"),
    ("openat", ALLOW, "files; kernel while it starts"),
    ("fstat", ALLOW, "all"),
    ("newfstatat", ALLOW, "files"),
    ("statx", ALLOW, "kernel, keeper"),
    ("access", ALLOW, "keeper's C library"),
    ("faccessat2", ALLOW, "kernel while it starts"),
    ("statfs", ALLOW, "files while it starts"),
    ("fstatfs", ALLOW, "files"),
    ("getdents64", ALLOW, "files"),
    ("readlink", ALLOW, "kernel while it starts"),
    ("readlinkat", ALLOW, "files"),
    ("getcwd", ALLOW, "kernel and files while they start"),
    ("chdir", ALLOW, "files: goes to the root"),
    ("chroot", THERE_ALREADY, "files: told that it was done"),
    ("umask", ALLOW, "files"),
    ("mkdirat", ALLOW, "files"),
    ("mknodat", MKNODAT, "files: named pipes; devices denied"),
    ("linkat", ALLOW, "files"),
    ("symlinkat", ALLOW, "files"),
    ("unlinkat", ALLOW, "files"),
    ("renameat", ALLOW, "files"),
    ("renameat2", ALLOW, "files, newer versions"),
    ("fchmod", ALLOW, "files"),
    ("fchmodat", ALLOW, "files"),
    ("fchown", ALLOW, "files"),
    ("fchownat", ALLOW, "files"),
    ("utimensat", ALLOW, "files"),
    ("fgetxattr", NO_ATTRIBUTES, "files: asks with descriptors that cannot be read, and passes the error on"),
    ("fsetxattr", NO_ATTRIBUTES, "same"),
    ("memfd_create", ALLOW, "keeper; kernel: memory of the box; files: shared rings"),
    // Memory.
    ("mmap", ALLOW, "all; executable for the payload's instructions"),
    ("munmap", ALLOW, "all"),
    ("mprotect", ALLOW, "all"),
    ("mremap", ALLOW, "keeper's allocator"),
    ("madvise", ALLOW, "Go's runtime"),
    ("mincore", ALLOW, "kernel: how much memory is in use"),
    ("mlock", ALLOW, "kernel: asks for many pages at once"),
    ("munlock", ALLOW, "same"),
    ("brk", ALLOW, "keeper's C library"),
    ("membarrier", ALLOW, "kernel"),
    // Processes.
    ("clone", CLONE, "threads, the two processes, the payload's processes; namespaces denied"),
    ("clone3", ABSENT, "keeper's C library asks, and takes clone: this one's flags cannot be looked at"),
    ("vfork", ALLOW, "keeper"),
    ("execve", ALLOW, "keeper starts the two; Landlock says from where"),
    ("exit", ALLOW, "all"),
    ("exit_group", ALLOW, "all"),
    ("wait4", ALLOW, "keeper, kernel"),
    ("waitid", ALLOW, "same"),
    ("ptrace", ALLOW, "kernel: begins every process of the payload this way; only processes of this box are in reach"),
    ("seccomp", FILTERS, "kernel, files, payload's processes: filters of their own"),
    ("prctl", PRCTL, "all"),
    ("arch_prctl", ALLOW, "C library, payload's processes"),
    ("kill", ALLOW, "keeper, kernel; only processes of this box are in reach"),
    ("tkill", ALLOW, "Go's runtime"),
    ("tgkill", ALLOW, "Go's runtime, kernel"),
    ("setsid", ALLOW, "payload's processes"),
    ("getpriority", ALLOW, "kernel while it starts"),
    ("setpriority", ALLOW, "payload's processes: less than usual"),
    ("getpid", ALLOW, "all"),
    ("getppid", ALLOW, "payload's processes"),
    ("gettid", ALLOW, "Go's runtime"),
    ("getpgrp", ALLOW, "Go's runtime"),
    ("getuid", ALLOW, "Go's runtime"),
    ("geteuid", ALLOW, "same"),
    ("getgid", ALLOW, "same"),
    ("getegid", ALLOW, "same"),
    ("capget", ALLOW, "kernel and files while they start"),
    ("getrlimit", ALLOW, "Go's runtime"),
    ("setrlimit", SETRLIMIT, "Go's runtime: open files, up to the limit that is set"),
    ("prlimit64", PRLIMIT, "same"),
    ("sched_getaffinity", ALLOW, "Go's runtime"),
    ("sched_yield", ALLOW, "Go's runtime"),
    ("getcpu", ALLOW, "kernel"),
    ("rseq", ALLOW, "keeper's C library"),
    ("set_robust_list", ALLOW, "same"),
    ("set_tid_address", ALLOW, "same"),
    ("futex", ALLOW, "all"),
    ("uname", ALLOW, "keeper; kernel while it starts"),
    ("sysinfo", ALLOW, "kernel while it starts"),
    ("getrandom", ALLOW, "all"),
    // Signals and time.
    ("rt_sigaction", ALLOW, "Go's runtime"),
    ("rt_sigprocmask", ALLOW, "same"),
    ("rt_sigreturn", ALLOW, "same"),
    ("sigaltstack", ALLOW, "same"),
    ("rt_sigsuspend rt_sigtimedwait", ALLOW, "kernel on the platform kvm"),
    ("restart_syscall", ALLOW, "the kernel of the host, after a stop"),
    ("clock_gettime", ALLOW, "where the fast way is missing"),
    ("gettimeofday", ALLOW, "same"),
    ("time", ALLOW, "same"),
    ("nanosleep", ALLOW, "Go's runtime"),
    ("setitimer", ALLOW, "Go's runtime"),
    ("timer_create", ALLOW, "kernel: processor time of the payload"),
    ("timer_settime", ALLOW, "same"),
    ("timer_delete", ALLOW, "same"),
    // Waiting.
    ("poll", ALLOW, "keeper's standard library"),
    ("ppoll", ALLOW, "kernel, files"),
    ("epoll_create1", ALLOW, "Go's runtime, kernel"),
    ("epoll_ctl", ALLOW, "same"),
    ("epoll_wait", ALLOW, "same"),
    ("epoll_pwait", ALLOW, "same"),
    ("eventfd2", ALLOW, "Go's runtime, kernel"),
    // Sockets.
    ("socket", SOCKET, "kernel: the box's connections, in its own network; lines between the two"),
    ("socketpair", SOCKET, "keeper, files"),
    ("bind", ALLOW, "same as socket"),
    ("listen", ALLOW, "same as socket"),
    ("accept", ALLOW, "files"),
    ("accept4", ALLOW, "same as socket"),
    ("connect", ALLOW, "same as socket"),
    ("shutdown", ALLOW, "same as socket"),
    ("getsockname", ALLOW, "same as socket"),
    ("getpeername", ALLOW, "same as socket"),
    ("getsockopt", ALLOW, "same as socket"),
    ("setsockopt", SETSOCKOPT, "same as socket"),
    ("sendto", ALLOW, "same as socket"),
    ("recvfrom", ALLOW, "same as socket"),
    ("sendmsg", ALLOW, "same as socket"),
    ("recvmsg", ALLOW, "same as socket"),
    ("sendmmsg", ALLOW, "kernel: packets"),
    ("recvmmsg", ALLOW, "same"),
];

#[cfg(test)]
mod tests {
    use super::super::{Monitor, rules};
    use super::*;
    use crate::arch;

    fn verdict(name: &str, args: [u64; 6]) -> Verdict {
        let number = arch::syscall_number(name).unwrap();
        rules(Monitor::Gvisor, 255).iter().find(|rule| rule.0 == number).unwrap().1.decide(&args)
    }

    #[test]
    fn nothing_that_makes_a_namespace_a_mount_or_kernel_code_is_allowed() {
        for name in [
            "unshare",
            "setns",
            "mount",
            "umount2",
            "pivot_root",
            "move_mount",
            "open_tree",
            "fsopen",
            "bpf",
            "perf_event_open",
            "io_uring_setup",
            "keyctl",
            "add_key",
            "userfaultfd",
            "init_module",
            "kexec_load",
            "open_by_handle_at",
            "process_vm_readv",
            "process_vm_writev",
            "pidfd_getfd",
            "setuid",
            "setgid",
            "setresuid",
            "capset",
            "mknod",
            "personality",
            "swapon",
            "reboot",
            "quotactl",
        ] {
            let denied = arch::syscall_number(name)
                .is_none_or(|_| verdict(name, [0; 6]) == Verdict::Notify(libc::EPERM));
            assert!(denied, "{name}");
        }
        let user_namespace = 0x1000_0000;
        assert_eq!(verdict("clone", [user_namespace, 0, 0, 0, 0, 0]), Verdict::Notify(libc::EPERM));
        assert_eq!(verdict("clone", [0x11, 0, 0, 0, 0, 0]), Verdict::Allow);
        assert_eq!(verdict("chroot", [0; 6]), Verdict::Errno(0));
        // Nobody needs the flag that has every refusal logged.
        assert_eq!(verdict("seccomp", [1, 2, 0, 0, 0, 0]), Verdict::Errno(libc::EINVAL));
        assert_eq!(verdict("seccomp", [1, 8, 0, 0, 0, 0]), Verdict::Allow);
        for family in [16, 17, 40] {
            assert_ne!(verdict("socket", [family, 3, 0, 0, 0, 0]), Verdict::Allow);
        }
    }
}
