//! The other table: what the daemon itself may ask of the kernel. Everything else is refused with `EPERM`.
//!
//! The daemon serves sockets, keeps files in its own directory and speaks with its warden. It starts no program, mounts
//! nothing, looks into nobody, and makes no namespace: whoever finds a way to make it try is refused here.

use super::arguments::{ALLOW, IOCTL, PRCTL_HIDDEN, SETSOCKOPT, SOCKET, THREADS_ONLY};
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
    ("trees of templates that root of a box has changed, in the state directory", &["linkat", "symlinkat", "syncfs"]),
    ("sockets", &[
        "socketpair", "bind", "listen", "accept", "accept4", "connect", "shutdown", "sendto", "recvfrom", "sendmsg", "recvmsg",
        "sendmmsg", "recvmmsg", "getsockopt", "getsockname", "getpeername",
    ]),
    ("waiting", &[
        "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6",
        "eventfd2", "timerfd_create", "timerfd_settime", "futex", "nanosleep", "clock_nanosleep", "restart_syscall",
        "sched_yield",
    ]),
    ("memory, and templates of machines, which lie there", &[
        "mmap", "munmap", "mremap", "mprotect", "madvise", "brk", "membarrier", "msync", "memfd_create",
    ]),
    ("threads and their end", &[
        "set_robust_list", "rseq", "set_tid_address", "gettid", "exit", "exit_group", "sched_getaffinity", "arch_prctl",
        "sched_setaffinity", "sched_getparam", "sched_getscheduler",
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
                "clone" => THREADS_ONLY,
                // Its flags lie in memory, where no filter looks.
                "clone3" => MISSING,
                "socket" => SOCKET,
                "setsockopt" => SETSOCKOPT,
                "prctl" => PRCTL_HIDDEN,
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
        ] {
            assert_eq!(decide(name, [0; 6]), Verdict::Errno(libc::EPERM), "{name}");
        }
        for name in ["read", "accept4", "epoll_wait", "futex", "openat", "fdatasync"] {
            assert_eq!(decide(name, [0; 6]), Verdict::Allow, "{name}");
        }
        let thread = u64::try_from(libc::CLONE_VM | libc::CLONE_THREAD).unwrap();
        assert_eq!(decide("clone", [thread, 0, 0, 0, 0, 0]), Verdict::Allow);
        assert_eq!(decide("clone3", [0; 6]), Verdict::Errno(libc::ENOSYS));
        // A fork, in each of its spellings, and a thread with a namespace of its own.
        let vm = u64::try_from(libc::CLONE_VM).unwrap();
        let namespace = u64::try_from(libc::CLONE_NEWUSER).unwrap();
        for flags in
            [0, u64::try_from(libc::SIGCHLD).unwrap(), vm, thread - vm, namespace, thread | namespace]
        {
            assert_ne!(decide("clone", [flags, 0, 0, 0, 0, 0]), Verdict::Allow, "{flags:#x}");
        }
        let packets = u64::try_from(libc::AF_PACKET).unwrap();
        assert_ne!(decide("socket", [packets, 3, 0, 0, 0, 0]), Verdict::Allow);
    }

    #[test]
    fn sockets_get_no_programs_and_memory_stays_hidden() {
        let option = |level: i32, name: i32| {
            let [level, name] = [level, name].map(|word| u64::try_from(word).unwrap());
            decide("setsockopt", [3, level, name, 0, 0, 0])
        };
        for name in [libc::SO_ATTACH_FILTER, libc::SO_ATTACH_BPF] {
            assert_ne!(option(libc::SOL_SOCKET, name), Verdict::Allow);
        }
        assert_ne!(option(libc::IPPROTO_TCP, libc::TCP_ULP), Verdict::Allow);
        assert_eq!(option(libc::SOL_SOCKET, libc::SO_REUSEADDR), Verdict::Allow);
        assert_eq!(option(libc::IPPROTO_TCP, libc::TCP_NODELAY), Verdict::Allow);
        let of_itself = |option: i32| decide("prctl", [u64::try_from(option).unwrap(), 1, 0, 0, 0, 0]);
        for option in [libc::PR_SET_DUMPABLE, libc::PR_SET_PTRACER, libc::PR_SET_MM, libc::PR_SET_SECCOMP] {
            assert_ne!(of_itself(option), Verdict::Allow, "{option}");
        }
        for option in [libc::PR_SET_NAME, libc::PR_GET_DUMPABLE, libc::PR_CAPBSET_READ] {
            assert_eq!(of_itself(option), Verdict::Allow, "{option}");
        }
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

    #[test]
    fn a_confined_process_cannot_fork_nor_show_its_memory_and_still_starts_threads() {
        let number = |name: &str| syscall_number(name).unwrap();
        let (clone, clone3, prctl) = (number("clone"), number("clone3"), number("prctl"));
        let (signal, option) =
            (u64::try_from(libc::SIGCHLD).unwrap(), u64::try_from(libc::PR_SET_DUMPABLE).unwrap());
        let filter = Filter::for_daemon();
        let child = in_child(|| {
            rustix::thread::set_no_new_privs(true).ok();
            if filter.install().is_err() {
                return 1;
            }
            // Where this is not refused, both halves go on from here: the new one must not be taken for the old.
            let parent = rustix::process::getpid();
            let forked = call(clone, [signal, 0, 0, 0, 0, 0]);
            if rustix::process::getpid() != parent {
                return 0;
            }
            if forked != libc::EPERM {
                return 2;
            }
            if call(clone3, [0; 6]) != libc::ENOSYS {
                return 3;
            }
            if call(prctl, [option, 1, 0, 0, 0, 0]) != libc::EPERM {
                return 4;
            }
            let thread = std::thread::Builder::new().spawn(|| 7);
            i32::from(!thread.is_ok_and(|thread| matches!(thread.join(), Ok(7)))) * 5
        });
        assert_eq!(wait(child), End::Exit(0));
    }
}
