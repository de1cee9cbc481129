//! What this host can do for boxes and what it lacks, in words, with the command that helps.

mod host;
mod limits;
mod locks;
mod tools;

use blastbox_wire::warden::Powers;

use crate::Facts;

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// Its stable name.
    pub code: &'static str,
    /// What was looked at.
    pub subject: &'static str,
    /// How it stands.
    pub state: State,
    /// What was found.
    pub detail: String,
    /// What would help, where something would.
    pub fix: Option<String>,
}

/// How one thing stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As it should be.
    Good,
    /// There, but not all of it.
    Weaker,
    /// Not there.
    Missing,
}

/// Without these no box starts; without any other a gap is left, or a tier.
const NEEDED: [&str; 5] = ["warden", "kernel_version", "user_namespaces", "seccomp", "fresh_proc"];

impl Finding {
    /// Whether no box can be started here before this is mended.
    #[must_use]
    pub fn stops_boxes(&self) -> bool {
        self.state == State::Missing && NEEDED.contains(&self.code)
    }

    fn good(code: &'static str, subject: &'static str, detail: impl Into<String>) -> Self {
        Self { code, subject, state: State::Good, detail: detail.into(), fix: None }
    }

    fn bad(self, state: State, fix: impl Into<String>) -> Self {
        Self { state, fix: Some(fix.into()), ..self }
    }
}

/// Looks at everything. `powers`: what a warden said about itself, or why none could be started.
///
/// Takes up to two seconds, because KVM is not only looked at but measured.
#[must_use]
pub fn examine(powers: Result<&Powers, &str>) -> Vec<Finding> {
    // Without a warden nobody knows which limits would hold; the rest is worth knowing all the same.
    let guess = Powers {
        own_ranges: rustix::process::geteuid().is_root(),
        cgroups: 0,
        memory: false,
        cpu: false,
        pids: false,
    };
    let facts = Facts::probe(powers.unwrap_or(&guess));
    let mut findings = vec![
        warden(powers),
        host::kernel_version(&facts),
        host::user_namespaces(&facts),
        host::own_ids(&facts),
        host::fresh_proc(&facts, &read("/proc/self/mountinfo")),
        locks::seccomp(&read("/proc/sys/kernel/seccomp/actions_avail")),
        locks::denial_reports(&facts),
        locks::landlock(&facts),
        locks::terminal_input(crate::facts::number("/proc/sys/dev/tty/legacy_tiocsti")),
    ];
    if powers.is_ok() {
        findings.extend(limits::cgroups(&facts, &limits::Manager::look()));
        findings.push(limits::swap(&facts));
    }
    findings.extend([
        host::overlay(&read("/proc/filesystems")),
        tools::wasm(facts.wasm.as_ref()),
        tools::kvm(blastbox_sys::kvm::probe(), crate::facts::open_to_boxes()),
        tools::runsc(&facts.gvisor),
        tools::qemu(&facts.machines),
        tools::gpu(facts.gpu.as_ref()),
    ]);
    if let Some(guests) = &facts.wasm {
        findings.push(tools::wasm_whole(guests, crate::tiers::wasm::flaws(guests)));
    }
    findings
}

fn warden(powers: Result<&Powers, &str>) -> Finding {
    let found = |detail: &str| Finding::good("warden", "privileged helper", detail);
    match powers {
        Ok(_) => found("blastbox-warden starts and answers"),
        Err(why) if why.contains("not installed") => found(why)
            .bad(State::Missing, "install blastbox-warden beside the blastbox program (`make install` does)"),
        Err(why) => found(why).bad(
            State::Missing,
            "see what it says above; it needs root with all of root's capabilities, or an ordinary user who may make user namespaces",
        ),
    }
}

/// A file of /proc, or nothing where it cannot be read.
fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Gvisor;

    #[test]
    fn every_finding_has_its_own_code_and_a_bad_one_says_what_helps() {
        let powers = Powers { own_ranges: false, cgroups: 0, memory: false, cpu: false, pids: false };
        for findings in [examine(Ok(&powers)), examine(Err("it is not installed"))] {
            for (index, finding) in findings.iter().enumerate() {
                println!("{finding:?}");
                assert!(!findings.iter().skip(index + 1).any(|other| other.code == finding.code));
                assert!(!finding.detail.is_empty() && !finding.subject.is_empty());
                assert_eq!(finding.fix.is_none(), finding.state == State::Good, "{finding:?}");
                assert!(finding.code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
            }
            for needed in NEEDED {
                assert!(findings.iter().any(|finding| finding.code == needed), "{needed}");
            }
        }
    }

    #[test]
    fn a_missing_warden_stops_boxes_and_a_missing_tier_does_not() {
        assert!(warden(Err("it is not installed")).stops_boxes());
        assert!(warden(Err("it is not installed")).fix.unwrap().contains("install blastbox-warden"));
        let ended = warden(Err("the warden ended before it was ready (exit status: 1)"));
        assert!(ended.stops_boxes() && !ended.fix.unwrap().contains("install"));
        assert!(!tools::runsc(&Gvisor::default()).stops_boxes());
        assert_eq!(tools::runsc(&Gvisor::default()).state, State::Missing);
    }

    #[test]
    fn the_written_form_has_stable_words() {
        let json = serde_json::to_value(tools::runsc(&Gvisor::default())).unwrap();
        assert_eq!(json["code"], "runsc");
        assert_eq!(json["state"], "missing");
    }
}
