//! The locks inside the kernel: seccomp, Landlock, terminals.

use super::{Finding, State};
use crate::{Facts, WANTED_LANDLOCK_ABI};

pub(super) fn seccomp(actions: &str) -> Finding {
    let found = |detail: &str| Finding::good("seccomp", "system call filter", detail);
    if actions.split_whitespace().any(|action| action == "errno") {
        found("seccomp is there")
    } else {
        found("the kernel has no seccomp").bad(State::Missing, "boot a kernel with CONFIG_SECCOMP_FILTER")
    }
}

pub(super) fn denial_reports(facts: &Facts) -> Finding {
    let found = |detail: &str| Finding::good("denial_reports", "reports of denied system calls", detail);
    if facts.seccomp_user_notif {
        found("seccomp can report what it denies")
    } else {
        found("seccomp cannot report what it denies (gap silent-denials)")
            .bad(State::Weaker, "boot a kernel with seccomp user notification (5.0 or newer)")
    }
}

pub(super) fn landlock(facts: &Facts) -> Finding {
    let found = |detail: String| Finding::good("landlock", "second lock on files", detail);
    match facts.landlock_abi {
        0 => found("the kernel has no Landlock, or it is switched off (gap weak-landlock)".to_owned()).bad(
            State::Missing,
            "boot with landlock at the front of the lsm= list (lsm=landlock,…), on Linux 5.13 or newer",
        ),
        abi if abi < WANTED_LANDLOCK_ABI => {
            found(format!("version {abi}; wanted is {WANTED_LANDLOCK_ABI} (gap weak-landlock)"))
                .bad(State::Weaker, "boot Linux 6.12 or newer")
        }
        abi => found(format!("version {abi}")),
    }
}

/// TIOCSTI. The filter refuses it in any case; this is about everything else on the host.
pub(super) fn terminal_input(legacy: Option<u64>) -> Finding {
    let found = |detail: &str| Finding::good("terminal_input", "input into other terminals", detail);
    match legacy {
        Some(0) => found("the kernel refuses it"),
        Some(_) | None => {
            found("the kernel allows it (TIOCSTI); boxes are kept from it by the system call filter")
                .bad(State::Weaker, "sudo sysctl -w dev.tty.legacy_tiocsti=0 (Linux 6.2 or newer)")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::good_host;

    #[test]
    fn landlock_is_judged_by_its_version() {
        let at = |landlock_abi| landlock(&Facts { landlock_abi, ..good_host() }).state;
        assert_eq!([at(0), at(5), at(6), at(7)], [State::Missing, State::Weaker, State::Good, State::Good]);
    }

    #[test]
    fn a_kernel_without_seccomp_stops_boxes_and_one_without_reports_does_not() {
        assert!(seccomp("").stops_boxes());
        assert_eq!(seccomp("kill_process errno allow").state, State::Good);
        let silent = denial_reports(&Facts { seccomp_user_notif: false, ..good_host() });
        assert_eq!(silent.state, State::Weaker);
    }

    #[test]
    fn only_a_switch_that_is_off_is_good() {
        assert_eq!(terminal_input(Some(0)).state, State::Good);
        assert_eq!(terminal_input(Some(1)).state, State::Weaker);
        assert_eq!(terminal_input(None).state, State::Weaker);
    }
}
