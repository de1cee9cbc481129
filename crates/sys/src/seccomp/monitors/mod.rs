//! The calls of monitors: programs that play a kernel to a payload, and are expected to be taken over by it one day.
//!
//! What is left then is what their table allows, inside the jail that is around them. All but gVisor's start no other program:
//! the one execution that is allowed is that of the descriptor with the number [`MONITOR_PROGRAM`], which is gone when it
//! has happened.

mod gvisor;
mod qemu;
mod wasm;

use super::arguments::{ALLOW, DENY};
use super::check::Check;
use super::table;
use crate::arch;

/// The descriptor from which a monitor is executed.
pub const MONITOR_PROGRAM: i32 = 9;

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

/// Call, rule, reason.
type Line = (&'static str, Check, &'static str);

/// Not more than becoming the monitor.
const BECOME: Check = Check::Is {
    arg: 0,
    mask: u32::MAX,
    values: &[MONITOR_PROGRAM.unsigned_abs()],
    yes: &Check::Is { arg: 4, mask: u32::MAX, values: &[0x1000], yes: &ALLOW, no: &DENY },
    no: &DENY,
};

/// The rule for each native number, ascending. What is in no line of a monitor is denied; QEMU may do what a payload may,
/// but for its own lines.
pub(super) fn rules(monitor: Monitor) -> Vec<(u32, Check)> {
    let (lines, others): (&[Line], &[(u32, Check)]) = match monitor {
        Monitor::Wasm => (wasm::TABLE, &[]),
        Monitor::Gvisor => (gvisor::TABLE, &[]),
        Monitor::Qemu => (qemu::TABLE, table::rules()),
    };
    let other = |number: u32| others.iter().find(|rule| rule.0 == number).map_or(DENY, |rule| rule.1);
    let rule =
        |number, name: &str| lines.iter().find(|line| line.0 == name).map_or(other(number), |line| line.1);
    arch::CALLS.iter().map(|&(number, name)| (number, rule(number, name))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    fn verdict(monitor: Monitor, name: &str, args: [u64; 6]) -> Verdict {
        let number = arch::syscall_number(name).unwrap();
        rules(monitor).iter().find(|rule| rule.0 == number).unwrap().1.decide(&args)
    }

    #[test]
    fn every_line_is_a_call_of_this_architecture_and_stands_once() {
        for table in [wasm::TABLE, gvisor::TABLE, qemu::TABLE] {
            for &(name, _, why) in table {
                assert!(arch::syscall_number(name).is_some() && !why.is_empty(), "{name}");
                assert_eq!(table.iter().filter(|line| line.0 == name).count(), 1, "{name}");
            }
        }
    }

    #[test]
    fn a_monitor_is_executed_from_its_descriptor_and_nothing_else_is() {
        let empty_path = 0x1000;
        for monitor in [Monitor::Wasm, Monitor::Qemu] {
            assert_eq!(verdict(monitor, "execveat", [9, 0, 0, 0, empty_path, 0]), Verdict::Allow);
            for other in [[8, 0, 0, 0, empty_path, 0], [9, 0, 0, 0, 0, 0]] {
                assert_eq!(verdict(monitor, "execveat", other), Verdict::Notify(libc::EPERM));
            }
            assert_eq!(verdict(monitor, "execve", [0; 6]), Verdict::Notify(libc::EPERM));
        }
    }

    #[test]
    fn no_monitor_reaches_the_dangerous_rest_of_the_kernel() {
        for monitor in [Monitor::Wasm, Monitor::Gvisor, Monitor::Qemu] {
            for name in ["bpf", "io_uring_setup", "userfaultfd", "keyctl", "perf_event_open", "kexec_load"] {
                assert_ne!(verdict(monitor, name, [0; 6]), Verdict::Allow, "{monitor:?} {name}");
            }
        }
    }
}
