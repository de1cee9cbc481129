//! The calls of a gateway: a short list, because it is one program of ours that does one thing.
//!
//! It reads bytes of an attacker, so it is expected to be taken over one day. What is left then is what is here: its
//! open descriptors, and new internet sockets. No file, no program, no memory that can be executed, no other process.

use super::arguments::{ALLOW, DENY};
use super::check::Check;
use crate::arch;

const EXECUTABLE: u32 = 4;
/// Memory, as long as it cannot be executed.
const NO_CODE: Check = Check::Is { arg: 2, mask: EXECUTABLE, values: &[0], yes: &ALLOW, no: &DENY };

const KIND: u32 = 0xF;
/// TCP and UDP over IPv4 and IPv6.
const INTERNET: Check = Check::Is {
    arg: 0,
    mask: u32::MAX,
    values: &[2, 10],
    yes: &Check::Is {
        arg: 1,
        mask: KIND,
        values: &[1, 2],
        yes: &Check::Is { arg: 2, mask: u32::MAX, values: &[0, 6, 17], yes: &ALLOW, no: &DENY },
        no: &DENY,
    },
    no: &DENY,
};

/// `TUNSETPERSIST`: the link is left to its namespace. `TIOCOUTQ`: what of a connection was not taken yet.
const LEAVE: Check =
    Check::Is { arg: 1, mask: u32::MAX, values: &[0x4004_54cb, 0x5411], yes: &ALLOW, no: &DENY };

/// Call, rule, reason.
#[rustfmt::skip]
const TABLE: &[(&str, Check, &str)] = &[
    ("read", ALLOW, "packets, targets"),
    ("write", ALLOW, "packets, targets"),
    ("readv", ALLOW, "targets"),
    ("writev", ALLOW, "targets"),
    ("recvfrom", ALLOW, "targets, resolvers"),
    ("sendto", ALLOW, "targets, resolvers"),
    ("recvmsg", ALLOW, "the control channel, the link"),
    ("sendmsg", ALLOW, "the control channel, targets"),
    ("close", ALLOW, "every connection"),
    ("shutdown", ALLOW, "every connection"),
    ("socket", INTERNET, "targets, resolvers"),
    ("splice", ALLOW, "bytes between connections that the kernel carries"),
    ("pipe2", ALLOW, "same"),
    ("connect", ALLOW, "targets, resolvers"),
    ("accept4", ALLOW, "connections of the box that the kernel carries"),
    ("bind", ALLOW, "resolvers: a port of the kernel's choice"),
    ("getsockname", ALLOW, "whether an address is the host's own"),
    ("getpeername", ALLOW, "the runtime"),
    ("getsockopt", ALLOW, "the runtime, whether a connection was made"),
    ("setsockopt", ALLOW, "no delay"),
    ("fcntl", ALLOW, "the runtime"),
    ("ioctl", LEAVE, "the end of the link and of connections"),
    ("epoll_wait", ALLOW, "the runtime"),
    ("epoll_pwait", ALLOW, "the runtime"),
    ("epoll_pwait2", ALLOW, "the runtime"),
    ("epoll_ctl", ALLOW, "the runtime"),
    ("poll", ALLOW, "the standard library"),
    ("ppoll", ALLOW, "the standard library"),
    ("futex", ALLOW, "locks"),
    ("getrandom", ALLOW, "numbers of questions and connections, TLS"),
    ("clock_gettime", ALLOW, "where the fast way is missing"),
    ("clock_nanosleep", ALLOW, "the runtime"),
    ("nanosleep", ALLOW, "the runtime"),
    ("mmap", NO_CODE, "memory"),
    ("mprotect", NO_CODE, "memory"),
    ("munmap", ALLOW, "memory"),
    ("mremap", ALLOW, "memory"),
    ("madvise", ALLOW, "memory"),
    ("brk", ALLOW, "memory"),
    ("sched_yield", ALLOW, "locks"),
    ("rt_sigprocmask", ALLOW, "the C library, when it aborts"),
    ("rt_sigaction", ALLOW, "same"),
    ("rt_sigreturn", ALLOW, "same"),
    ("sigaltstack", ALLOW, "the standard library, at the end"),
    ("gettid", ALLOW, "the C library, when it aborts"),
    ("getpid", ALLOW, "same"),
    ("restart_syscall", ALLOW, "the kernel, after a stop"),
    ("exit", ALLOW, "the end"),
    ("exit_group", ALLOW, "the end"),
];

/// The rule for each native number, ascending. What is in no line is denied.
pub(super) fn rules() -> Vec<(u32, Check)> {
    let rule = |name: &str| TABLE.iter().find(|line| line.0 == name).map_or(DENY, |line| line.1);
    arch::CALLS.iter().map(|&(number, name)| (number, rule(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::live::{End, call, in_child, wait};
    use super::super::{Filter, Verdict};
    use super::*;

    fn verdict(name: &str, args: [u64; 6]) -> Verdict {
        let number = arch::syscall_number(name).unwrap();
        rules().iter().find(|rule| rule.0 == number).unwrap().1.decide(&args)
    }

    #[test]
    fn every_line_is_a_call_of_this_architecture_and_stands_once() {
        for &(name, _, why) in TABLE {
            assert!(arch::syscall_number(name).is_some() && !why.is_empty(), "{name}");
            assert_eq!(TABLE.iter().filter(|line| line.0 == name).count(), 1, "{name}");
        }
    }

    #[test]
    fn a_gateway_opens_no_file_starts_no_program_and_makes_no_code() {
        for name in
            ["openat", "open", "execve", "execveat", "fork", "clone", "clone3", "ptrace", "kill", "tkill"]
        {
            if arch::syscall_number(name).is_some() {
                assert_eq!(verdict(name, [0; 6]), Verdict::Notify(libc::EPERM), "{name}");
            }
        }
        assert_eq!(verdict("mmap", [0, 4096, 3, 0, 0, 0]), Verdict::Allow);
        assert_eq!(verdict("mmap", [0, 4096, 7, 0, 0, 0]), Verdict::Notify(libc::EPERM));
        assert_eq!(verdict("socket", [2, 1, 0, 0, 0, 0]), Verdict::Allow);
        for family in [1, 16, 17, 40] {
            assert_eq!(verdict("socket", [family, 1, 0, 0, 0, 0]), Verdict::Notify(libc::EPERM));
        }
        assert_eq!(verdict("socket", [2, 3, 255, 0, 0, 0]), Verdict::Notify(libc::EPERM));
        assert_eq!(verdict("ioctl", [7, 0x4004_54cb, 1, 0, 0, 0]), Verdict::Allow);
        assert_eq!(verdict("ioctl", [7, 0x4004_54ca, 1, 0, 0, 0]), Verdict::Notify(libc::EPERM));
    }

    #[test]
    fn the_kernel_holds_it() {
        let filter = Filter::for_gateway();
        let number = |name| arch::syscall_number(name).unwrap();
        let (open, socket) = (number("openat"), number("socket"));
        let pid = in_child(|| {
            if rustix::thread::set_no_new_privs(true).is_err() || filter.install().is_err() {
                return 1;
            }
            if call(open, [0, c"/etc/passwd".as_ptr() as u64, 0, 0, 0, 0]) != libc::EPERM {
                return 2;
            }
            if call(socket, [1, 1, 0, 0, 0, 0]) != libc::EPERM {
                return 3;
            }
            call(socket, [2, 1, 0, 0, 0, 0])
        });
        assert_eq!(wait(pid), End::Exit(0));
    }
}
