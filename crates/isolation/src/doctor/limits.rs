//! Limits for a whole box: cgroups and swap.

use std::path::Path;

use super::{Finding, State};
use crate::{CgroupKind, Facts, Swap};

/// Who looks after cgroups on this host.
pub(super) struct Manager {
    /// systemd runs.
    pub(super) systemd: bool,
    /// The host has the unified interface, whether or not we may use it.
    pub(super) unified: bool,
    /// It has the unified interface beside the old one.
    pub(super) hybrid: bool,
}

impl Manager {
    pub(super) fn look() -> Self {
        Self {
            systemd: Path::new("/run/systemd/system").is_dir(),
            unified: Path::new("/sys/fs/cgroup/cgroup.controllers").is_file(),
            hybrid: Path::new("/sys/fs/cgroup/unified/cgroup.controllers").is_file(),
        }
    }

    /// What gives a warden a controller.
    fn fix(&self, facts: &Facts, name: &str) -> String {
        match (facts.privileged, self.systemd && self.unified) {
            (false, true) => "systemd-run --user --scope -p Delegate=yes blastbox run …".to_owned(),
            (false, false) => "run blastbox as root".to_owned(),
            (true, true) => {
                format!(
                    "let systemd delegate it (systemd-run --scope -p Delegate=yes …) and check that `{name}` is \
                         in /sys/fs/cgroup/cgroup.controllers"
                )
            }
            (true, false) => {
                format!(
                    "mount the {name} controller under /sys/fs/cgroup, writable; it must not be switched off on \
                         the kernel's command line (cgroup_disable=)"
                )
            }
        }
    }
}

pub(super) fn cgroups(facts: &Facts, manager: &Manager) -> Vec<Finding> {
    let kind = |detail: &str| Finding::good("cgroups", "limits for a whole box", detail);
    let mut findings = vec![match facts.cgroups {
        CgroupKind::None => kind("no cgroup that the warden may use; limits hold for each process alone")
            .bad(State::Missing, manager.fix(facts, "memory")),
        CgroupKind::V1 if manager.hybrid => kind("cgroup v1, on a host that has mounted v2 as well (hybrid)"),
        CgroupKind::Hybrid => kind("cgroup v1 and v2, each with some of the controllers (hybrid)"),
        used => kind(used.as_str()),
    }];
    for (code, subject, name, works, gap) in [
        ("memory_limit", "memory limit", "memory", facts.memory, "no-memory-limit"),
        ("cpu_limit", "processor limit", "cpu", facts.cpu, "no-cpu-limit"),
        ("pids_limit", "process limit", "pids", facts.pids, "no-pids-limit"),
    ] {
        findings.push(if works {
            Finding::good(code, subject, format!("the {name} controller works"))
        } else {
            Finding::good(code, subject, format!("no {name} controller (gap {gap})"))
                .bad(State::Weaker, manager.fix(facts, name))
        });
    }
    findings
}

pub(super) fn swap(facts: &Facts) -> Finding {
    let found = |detail: &str| Finding::good("swap", "swap space", detail);
    match facts.swap {
        Swap::Absent => found("there is none"),
        Swap::Counted => found("counts against the memory limit"),
        Swap::Uncounted => found("does not count against the memory limit (gap swap-unlimited)")
            .bad(State::Weaker, "sudo swapoff -a, or boot with swapaccount=1 (cgroup v1)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::{good_host, rootless_host};

    const SYSTEMD: Manager = Manager { systemd: true, unified: true, hybrid: false };
    const OTHER: Manager = Manager { systemd: false, unified: false, hybrid: false };

    #[test]
    fn everything_there_is_good() {
        assert!(cgroups(&good_host(), &SYSTEMD).iter().all(|finding| finding.state == State::Good));
        assert_eq!(swap(&good_host()).state, State::Good);
    }

    #[test]
    fn an_ordinary_user_is_told_to_let_systemd_delegate() {
        let findings = cgroups(&rootless_host(), &SYSTEMD);
        assert_eq!(findings.len(), 4);
        for finding in findings {
            assert!(finding.fix.unwrap().contains("systemd-run --user --scope -p Delegate=yes"));
            assert_ne!(finding.state, State::Good);
        }
        let without = cgroups(&rootless_host(), &OTHER);
        assert!(without.iter().all(|finding| finding.fix.as_deref() == Some("run blastbox as root")));
    }

    #[test]
    fn one_missing_controller_is_named_and_the_others_stay_good() {
        let findings = cgroups(&Facts { cpu: false, ..good_host() }, &SYSTEMD);
        let bad: Vec<_> = findings.iter().filter(|finding| finding.state != State::Good).collect();
        assert_eq!(bad.len(), 1);
        assert_eq!(bad[0].code, "cpu_limit");
        assert!(bad[0].detail.contains("no-cpu-limit"));
    }

    #[test]
    fn a_hybrid_host_is_called_one() {
        let said = |kind, hybrid| {
            let manager = Manager { hybrid, ..OTHER };
            cgroups(&Facts { cgroups: kind, ..good_host() }, &manager)[0].detail.clone()
        };
        assert!(
            said(CgroupKind::V1, true).contains("hybrid")
                && said(CgroupKind::Hybrid, true).contains("hybrid")
        );
        assert_eq!([said(CgroupKind::V1, false), said(CgroupKind::V2, false)], ["cgroup v1", "cgroup v2"]);
    }

    #[test]
    fn swap_that_nobody_counts_is_weaker() {
        let at = |swap_state| swap(&Facts { swap: swap_state, ..good_host() }).state;
        assert_eq!([at(Swap::Uncounted), at(Swap::Counted)], [State::Weaker, State::Good]);
    }
}
