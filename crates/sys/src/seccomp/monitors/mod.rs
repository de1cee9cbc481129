//! The calls of monitors: programs that play a kernel to a payload, and are expected to be taken over by it one day.
//!
//! What is left then is what their table allows, inside the jail that is around them. All but gVisor's start no other program:
//! the one execution that is allowed is that of the descriptor [`monitor_program`], which is out of reach when it has happened.

mod gvisor;
mod qemu;
mod wasm;

pub(super) use wasm::{COMPILING, KEPT};

use super::arguments::{ALLOW, DENY};
use super::check::Check;
use crate::arch;

/// From which descriptor a monitor is executed, where a process may have this many; `None`: too few for any monitor.
///
/// A filter knows numbers, not what they stand for. So this one is above all that the monitor may ever have open: whoever takes
/// it over can put nothing there again. Every way to a descriptor fails at the limit on open files, and without
/// capabilities that only sinks. One less than a power of two: the kernel's table has as many places.
#[must_use]
pub fn monitor_program(most: Option<u64>) -> Option<u16> {
    let fits = |number: &u16| most.is_none_or(|most| u64::from(*number) < most);
    [65_535, 16_383, 4_095, 1_023, 255].into_iter().find(fits)
}

const EMPTY_PATH: Check = Check::Is { arg: 4, mask: u32::MAX, values: &[0x1000], yes: &ALLOW, no: &DENY };

/// Which monitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Monitor {
    /// A runtime for WebAssembly.
    Wasm,
    /// gVisor's kernel in user space.
    Gvisor,
    /// A virtual machine in QEMU.
    Qemu,
}

/// Calls (one, or several with a space between them), rule, reason.
type Line = (&'static str, Check, &'static str);

/// The rule for each native number, ascending. What is in no line of a monitor is denied.
pub(super) fn rules(monitor: Monitor, program: u16) -> Vec<(u32, Check)> {
    let lines: &[Line] = match monitor {
        Monitor::Wasm => wasm::TABLE,
        Monitor::Gvisor => gvisor::TABLE,
        Monitor::Qemu => qemu::TABLE,
    };
    // Kept for good: there is one for each kind of monitor.
    let values: &'static [u32] = Vec::leak(vec![program.into()]);
    let becoming = Check::Is { arg: 0, mask: u32::MAX, values, yes: &EMPTY_PATH, no: &DENY };
    let rule = |name: &str| match name {
        "execveat" => becoming,
        name => {
            lines.iter().find(|line| line.0.split(' ').any(|one| one == name)).map_or(DENY, |line| line.1)
        }
    };
    arch::CALLS.iter().map(|&(number, name)| (number, rule(name))).collect()
}

/// The same for a list that names all that is left: of a worker that has loaded its guests, or of their compiler.
pub(super) fn short(lines: &[(&[&str], Check, &str)]) -> Vec<(u32, Check)> {
    let rule = |name: &str| lines.iter().find(|line| line.0.contains(&name)).map_or(DENY, |line| line.1);
    arch::CALLS.iter().map(|&(number, name)| (number, rule(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::live::{End, call, in_child, wait};
    use super::super::{Filter, Verdict};
    use super::*;

    fn verdict(monitor: Monitor, name: &str, args: [u64; 6]) -> Verdict {
        let number = arch::syscall_number(name).unwrap();
        rules(monitor, 4_095).iter().find(|rule| rule.0 == number).unwrap().1.decide(&args)
    }

    #[test]
    fn every_line_is_a_call_of_this_architecture_and_stands_once() {
        for table in [wasm::TABLE, gvisor::TABLE, qemu::TABLE] {
            let names = || table.iter().flat_map(|line| line.0.split(' '));
            assert!(table.iter().all(|line| !line.2.is_empty()));
            for name in names() {
                assert!(arch::syscall_number(name).is_some(), "{name}");
                assert_eq!(names().filter(|other| *other == name).count(), 1, "{name}");
            }
        }
    }

    #[test]
    fn a_monitor_is_executed_from_its_descriptor_and_nothing_else_is() {
        let empty_path = 0x1000;
        for monitor in [Monitor::Wasm, Monitor::Gvisor, Monitor::Qemu] {
            assert_eq!(verdict(monitor, "execveat", [4_095, 0, 0, 0, empty_path, 0]), Verdict::Allow);
            for other in [9, 255, 4_094, 4_096].map(|number| [number, 0, 0, 0, empty_path, 0]) {
                assert_eq!(verdict(monitor, "execveat", other), Verdict::Notify(libc::EPERM));
            }
            assert_eq!(verdict(monitor, "execveat", [4_095, 0, 0, 0, 0, 0]), Verdict::Notify(libc::EPERM));
        }
        for monitor in [Monitor::Wasm, Monitor::Qemu] {
            assert_eq!(verdict(monitor, "execve", [0; 6]), Verdict::Notify(libc::EPERM));
        }
    }

    #[test]
    fn the_program_is_at_a_number_that_the_host_allows() {
        let number = monitor_program;
        assert_eq!(number(None), Some(65_535));
        assert_eq!(number(Some(1 << 20)), Some(65_535));
        assert_eq!(number(Some(65_536)), Some(65_535));
        assert_eq!(number(Some(65_535)), Some(16_383));
        assert_eq!(number(Some(1_024)), Some(1_023));
        assert_eq!((number(Some(256)), number(Some(255))), (Some(255), None));
    }

    #[test]
    fn a_machine_makes_no_socket_no_process_and_no_request_but_those_of_kvm() {
        let qemu = |name, args| verdict(Monitor::Qemu, name, args);
        for name in [
            "socket",
            "socketpair",
            "connect",
            "bind",
            "listen",
            "sendto",
            "sendmmsg",
            "fork",
            "vfork",
            "unlink",
            "rename",
            "ptrace",
            "kill",
        ] {
            assert_eq!(qemu(name, [0; 6]), Verdict::Notify(libc::EPERM), "{name}");
        }
        let threads = 0x3D_0F00;
        assert_eq!(qemu("clone", [threads, 0, 0, 0, 0, 0]), Verdict::Allow);
        assert_eq!(qemu("clone", [17, 0, 0, 0, 0, 0]), Verdict::Notify(libc::EPERM));
        assert_eq!(qemu("clone", [threads | 0x1000_0000, 0, 0, 0, 0, 0]), Verdict::Notify(libc::EPERM));
        assert_eq!(qemu("ioctl", [9, 0xAE80, 0, 0, 0, 0]), Verdict::Allow);
        // By which it learns that a guest on KVM has registers of 64 bits, all of which a copy needs.
        assert_eq!(qemu("uname", [0; 6]), Verdict::Allow);
        assert_eq!(qemu("ioctl", [9, 0x5412, 0, 0, 0, 0]), Verdict::Notify(libc::EPERM));
        // No file is made or cut short, and the process sets nothing but what a payload may.
        for flag in [0o100, 0o1000, 0o20_200_000] {
            assert_eq!(qemu("openat", [0, 0, flag, 0, 0, 0]), Verdict::Notify(libc::EPERM), "{flag:o}");
        }
        for read in [0o2_000_000, 0o2_000_002] {
            assert_eq!(qemu("openat", [0, 0, read, 0, 0, 0]), Verdict::Allow, "{read:o}");
        }
        assert_eq!(qemu("prctl", [15, 0, 0, 0, 0, 0]), Verdict::Allow);
        assert_eq!(qemu("prctl", [35, 0, 0, 0, 0, 0]), Verdict::Notify(libc::EINVAL));
    }

    #[test]
    fn no_monitor_reaches_the_dangerous_rest_of_the_kernel() {
        for monitor in [Monitor::Wasm, Monitor::Gvisor, Monitor::Qemu] {
            for name in ["bpf", "io_uring_setup", "userfaultfd", "keyctl", "perf_event_open", "kexec_load"] {
                assert_ne!(verdict(monitor, name, [0; 6]), Verdict::Allow, "{monitor:?} {name}");
            }
        }
    }

    #[test]
    fn a_worker_that_runs_guests_opens_nothing_starts_nothing_and_makes_no_code() {
        let decide = |name: &str, args: [u64; 6]| {
            let number = arch::syscall_number(name).unwrap();
            short(KEPT).iter().find(|rule| rule.0 == number).unwrap().1.decide(&args)
        };
        for &(_, name) in arch::CALLS {
            let kept = KEPT.iter().filter(|line| line.0.contains(&name)).count();
            assert_eq!(usize::from(decide(name, [0; 6]) == Verdict::Allow), kept, "{name}");
        }
        for name in KEPT.iter().flat_map(|line| line.0) {
            assert!(arch::syscall_number(name).is_some(), "{name}");
        }
        assert_ne!(decide("mmap", [0, 4096, 7, 0, 0, 0]), Verdict::Allow);
        assert_ne!(decide("mprotect", [0, 4096, 5, 0, 0, 0]), Verdict::Allow);
    }

    #[test]
    fn a_compiler_at_work_reaches_no_file_no_socket_no_program_and_no_process() {
        let decide = |name: &str, args: [u64; 6]| {
            let number = arch::syscall_number(name).unwrap();
            short(COMPILING).iter().find(|rule| rule.0 == number).unwrap().1.decide(&args)
        };
        for name in [
            "open",
            "openat",
            "openat2",
            "creat",
            "socket",
            "socketpair",
            "connect",
            "bind",
            "sendto",
            "sendmsg",
            "execve",
            "execveat",
            "fork",
            "vfork",
            "kill",
            "tkill",
            "tgkill",
            "ptrace",
            "process_vm_writev",
            "rename",
            "unlink",
            "mkdir",
            "symlink",
            "memfd_create",
            "read",
            "ioctl",
            "dup2",
        ] {
            assert_ne!(decide(name, [0; 6]), Verdict::Allow, "{name}");
        }
        // SIGCHLD: a process, not a thread.
        assert_ne!(decide("clone", [17, 0, 0, 0, 0, 0]), Verdict::Allow);
        for name in COMPILING.iter().flat_map(|line| line.0) {
            assert!(arch::syscall_number(name).is_some(), "{name}");
        }
    }

    #[test]
    fn the_kernel_holds_what_a_worker_has_given_up() {
        let (start, locked) = (Filter::for_monitor(Monitor::Wasm, 255), Filter::for_wasm_locked());
        let number = |name| arch::syscall_number(name).unwrap();
        let (open, socket, pid) = (number("openat"), number("socket"), number("getpid"));
        let read = [u64::MAX, c"/dev/null".as_ptr() as u64, 0, 0, 0, 0];
        let write = [u64::MAX, c"/dev/null".as_ptr() as u64, 1, 0, 0, 0];
        let pid = in_child(|| {
            if rustix::thread::set_no_new_privs(true).is_err() || start.install().is_err() {
                return 1;
            }
            if call(open, read) != 0 || call(open, write) != libc::EPERM {
                return 2;
            }
            if call(socket, [2, 1, 0, 0, 0, 0]) != libc::EPERM || locked.install().is_err() {
                return 3;
            }
            if call(open, read) != libc::EPERM {
                return 4;
            }
            call(pid, [0; 6])
        });
        assert_eq!(wait(pid), End::Exit(0));
    }
}
