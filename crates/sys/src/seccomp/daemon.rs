//! The other table: what the daemon itself may ask of the kernel. Everything else is refused with `EPERM`.
//!
//! The daemon serves sockets, keeps files in its own directory and speaks with its warden. It starts no program, mounts
//! nothing, looks into nobody, and makes no namespace: whoever finds a way to make it try is refused here.

use super::arguments::{ALLOW, CLONE, IOCTL, SOCKET};
use super::check::{Check, Verdict};
use crate::arch;
use std::sync::LazyLock;

const REFUSED: Check = Check::Then(Verdict::Errno(libc::EPERM));
/// What the C library then does without.
const MISSING: Check = Check::Then(Verdict::Errno(libc::ENOSYS));

/// Calls, and who needs them.
#[rustfmt::skip]
const ALLOWED: &[(&str, &[&str])] = &[
    ("reading and writing", &[
        "read", "write", "readv", "writev", "pread64", "pwrite64", "lseek", "close", "close_range", "dup", "dup2", "dup3",
        "fcntl", "flock", "fsync", "fdatasync", "ftruncate", "fallocate", "fadvise64", "pipe2", "sendfile", "splice",
    ]),
    ("the state directory, and looking at what a caller names", &[
        "open", "openat", "openat2", "stat", "fstat", "lstat", "newfstatat", "statx", "statfs", "fstatfs", "getdents64",
        "access", "faccessat", "faccessat2", "readlink", "readlinkat", "getcwd", "mkdir", "mkdirat", "rename", "renameat",
        "renameat2", "unlink", "unlinkat", "rmdir", "chmod", "fchmod", "fchmodat", "fchown", "umask", "utimensat",
    ]),
    ("sockets", &[
        "socketpair", "bind", "listen", "accept", "accept4", "connect", "shutdown", "sendto", "recvfrom", "sendmsg", "recvmsg",
        "sendmmsg", "recvmmsg", "getsockopt", "setsockopt", "getsockname", "getpeername",
    ]),
    ("waiting", &[
        "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6",
        "eventfd2", "timerfd_create", "timerfd_settime", "futex", "nanosleep", "clock_nanosleep", "restart_syscall",
        "sched_yield",
    ]),
    ("memory", &["mmap", "munmap", "mremap", "mprotect", "madvise", "brk", "membarrier", "msync"]),
    ("threads and their end", &[
        "set_robust_list", "rseq", "set_tid_address", "gettid", "exit", "exit_group", "sched_getaffinity", "arch_prctl",
        "sched_setaffinity", "sched_getparam", "sched_getscheduler", "prctl",
    ]),
    ("signals, and ending a warden that hangs", &[
        "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigpending", "rt_sigtimedwait", "sigaltstack", "kill",
        "tgkill", "tkill", "pidfd_open", "pidfd_send_signal", "wait4", "waitid", "signalfd4",
    ]),
    ("looking at the clock and at itself", &[
        "clock_gettime", "clock_getres", "gettimeofday", "time", "getrandom", "getpid", "getppid", "getuid", "geteuid",
        "getgid", "getegid", "getresuid", "getresgid", "getpgrp", "getpgid", "getsid", "getgroups", "capget", "uname",
        "sysinfo", "getrusage", "times", "getrlimit", "prlimit64", "getpriority",
    ]),
];

static RULES: LazyLock<Vec<(u32, Check)>> = LazyLock::new(|| {
    arch::CALLS
        .iter()
        .map(|&(number, name)| {
            let rule = match name {
                "clone" => CLONE,
                // Its flags lie in memory, where no filter looks.
                "clone3" => MISSING,
                "socket" => SOCKET,
                "ioctl" => IOCTL,
                name if ALLOWED.iter().any(|(_, names)| names.contains(&name)) => ALLOW,
                _ => REFUSED,
            };
            (number, rule)
        })
        .collect()
});

/// The rules of all native calls, ascending by number.
pub(super) fn rules() -> &'static [(u32, Check)] {
    &RULES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::syscall_number;
    use crate::seccomp::Filter;
    use crate::seccomp::live::{End, call, in_child, wait};

    fn decide(name: &str, args: [u64; 6]) -> Verdict {
        let number = syscall_number(name).unwrap();
        rules().iter().find(|rule| rule.0 == number).unwrap().1.decide(&args)
    }

    #[test]
    fn every_name_is_a_call_and_comes_once() {
        let mut names: Vec<_> = ALLOWED.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        for name in &names {
            assert!(syscall_number(name).is_some(), "{name}");
        }
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn what_a_daemon_never_does_is_refused_and_what_it_does_is_not() {
        for name in [
            "execve",
            "execveat",
            "fork",
            "vfork",
            "mount",
            "umount2",
            "unshare",
            "setns",
            "pivot_root",
            "chroot",
            "ptrace",
            "process_vm_readv",
            "bpf",
            "keyctl",
            "io_uring_setup",
            "userfaultfd",
            "init_module",
            "setuid",
            "setresuid",
            "capset",
            "perf_event_open",
            "mknodat",
            "open_by_handle_at",
            "reboot",
            "memfd_create",
        ] {
            assert_eq!(decide(name, [0; 6]), Verdict::Errno(libc::EPERM), "{name}");
        }
        for name in ["read", "accept4", "epoll_wait", "futex", "openat", "fdatasync"] {
            assert_eq!(decide(name, [0; 6]), Verdict::Allow, "{name}");
        }
        let thread = u64::try_from(libc::CLONE_VM | libc::CLONE_THREAD).unwrap();
        assert_eq!(decide("clone", [thread, 0, 0, 0, 0, 0]), Verdict::Allow);
        let namespace = u64::try_from(libc::CLONE_NEWUSER).unwrap();
        assert_ne!(decide("clone", [namespace, 0, 0, 0, 0, 0]), Verdict::Allow);
        let packets = u64::try_from(libc::AF_PACKET).unwrap();
        assert_ne!(decide("socket", [packets, 3, 0, 0, 0, 0]), Verdict::Allow);
    }

    #[test]
    fn the_running_kernel_refuses_what_the_table_refuses() {
        let number = |name: &str| syscall_number(name).unwrap();
        let (exec, unshare, mount, pid) =
            (number("execve"), number("unshare"), number("mount"), number("getpid"));
        let filter = Filter::for_daemon();
        let child = in_child(|| {
            rustix::thread::set_no_new_privs(true).ok();
            if filter.install().is_err() {
                return 1;
            }
            let user = u64::try_from(libc::CLONE_NEWUSER).unwrap_or(0);
            let refused = [call(exec, [0; 6]), call(unshare, [user, 0, 0, 0, 0, 0]), call(mount, [0; 6])];
            if refused != [libc::EPERM; 3] { 2 } else { call(pid, [0; 6]) }
        });
        assert_eq!(wait(child), End::Exit(0));
    }
}
