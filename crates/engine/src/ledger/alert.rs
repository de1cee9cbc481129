//! Which events a person should hear about. Pure: the same event is the same alert wherever it is asked.

use blastbox_wire::event::Event;
use blastbox_wire::receipt::LimitName;
use serde::Serialize;

/// How soon a person should look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// When there is time: a program that met its bounds.
    Low,
    /// Today: somebody tried something, or evidence is at risk.
    High,
    /// Now.
    Critical,
}

/// What an alert is about. Closed and append-only: webhooks key on the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertCode {
    /// A system call that the profile does not hold.
    DeniedSyscall,
    /// One that programs have no use for, and escapes do.
    EscapeAttempt,
    /// An attempt to change what is mounted.
    MountAttempt,
    /// A file or a name was changed where nobody expects it, or that was tried.
    UnexpectedWrite,
    /// A host, an address or a way of speaking that the policy does not allow.
    DeniedNetwork,
    /// An attempt to reach a cloud's metadata service.
    MetadataAttempt,
    /// A secret's lease could not be renewed or revoked.
    SecretTrouble,
    /// A limit was met.
    LimitMet,
    /// Little time is left.
    NearingTimeLimit,
    /// A pool held a box that was not sound.
    PoolPoisoned,
    /// A sink does not take records.
    SinkUnreachable,
    /// The ledger ended in half a record.
    LedgerRecovered,
    /// Alerts did not reach whoever should hear of them.
    AlertsDropped,
}

impl Severity {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

impl AlertCode {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::DeniedSyscall,
        Self::EscapeAttempt,
        Self::MountAttempt,
        Self::UnexpectedWrite,
        Self::DeniedNetwork,
        Self::MetadataAttempt,
        Self::SecretTrouble,
        Self::LimitMet,
        Self::NearingTimeLimit,
        Self::PoolPoisoned,
        Self::SinkUnreachable,
        Self::LedgerRecovered,
        Self::AlertsDropped,
    ];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DeniedSyscall => "denied_syscall",
            Self::EscapeAttempt => "escape_attempt",
            Self::MountAttempt => "mount_attempt",
            Self::UnexpectedWrite => "unexpected_write",
            Self::DeniedNetwork => "denied_network",
            Self::MetadataAttempt => "metadata_attempt",
            Self::SecretTrouble => "secret_trouble",
            Self::LimitMet => "limit_met",
            Self::NearingTimeLimit => "nearing_time_limit",
            Self::PoolPoisoned => "pool_poisoned",
            Self::SinkUnreachable => "sink_unreachable",
            Self::LedgerRecovered => "ledger_recovered",
            Self::AlertsDropped => "alerts_dropped",
        }
    }
}

/// Something that a person should hear about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Alert {
    /// How soon.
    pub severity: Severity,
    /// What.
    pub code: AlertCode,
    /// In a sentence. Holds text from elsewhere: escape it before it meets a terminal.
    pub text: String,
}

const MOUNTS: &[&str] = &[
    "mount",
    "umount2",
    "umount",
    "move_mount",
    "open_tree",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "pivot_root",
    "chroot",
];

/// Calls that open kernel surface or another namespace. Not the filter (that is an allowlist): only its loudness.
const ESCAPES: &[&str] = &[
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "io_uring_setup",
    "io_uring_register",
    "keyctl",
    "add_key",
    "request_key",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "kcmp",
    "pidfd_getfd",
    "setns",
    "unshare",
    "init_module",
    "finit_module",
    "delete_module",
    "kexec_load",
    "kexec_file_load",
    "open_by_handle_at",
    "name_to_handle_at",
    "iopl",
    "ioperm",
    "modify_ldt",
    "quotactl",
    "swapon",
    "swapoff",
    "reboot",
    "acct",
    "settimeofday",
    "clock_settime",
    "fanotify_init",
    "lookup_dcookie",
    "vmsplice",
];

/// The alert that an event raises, if it raises one.
#[must_use]
pub fn alert(event: &Event) -> Option<Alert> {
    let (severity, code, text) = match event {
        Event::SyscallDenied { number, name, count } => {
            denied(*number, name.as_ref().map(|name| name.as_str()), *count)
        }
        Event::UnexpectedWrite { path, reason, syscall, count } => {
            wrote(path.as_str(), reason.as_str(), syscall.as_str(), *count)
        }
        Event::NetworkDenied { target, port, address, reason, count, .. } => {
            let (severity, code) = match reason.as_str() {
                "metadata-address" => (Severity::High, AlertCode::MetadataAttempt),
                _ if target.as_str().starts_with("169.254.") => (Severity::High, AlertCode::MetadataAttempt),
                _ => (Severity::Low, AlertCode::DeniedNetwork),
            };
            let found = address.map(|address| address.to_string()).filter(|found| found != target.as_str());
            let text = format!(
                "the box was kept from {}:{port}{} ({}), {count}×",
                target.as_str(),
                found.map(|found| format!(" at {found}")).unwrap_or_default(),
                reason.as_str()
            );
            (severity, code, text)
        }
        Event::SecretTrouble { secret, why } => {
            let text = format!("secret {}: {}", secret.as_str(), why.as_str());
            (Severity::High, AlertCode::SecretTrouble, text)
        }
        Event::LimitMet { limit } => {
            let what = match limit {
                LimitName::Memory => "the box used up its memory",
                LimitName::Pids => "the box used up its processes",
                LimitName::Output => "the box printed more than it may",
                LimitName::Timeout => "the box used up its time",
                LimitName::Disk => "the scratch space of the box is full",
                LimitName::Inodes => "the scratch space of the box holds no more files",
                LimitName::Fuel => "a command in the box used up its work",
            };
            (Severity::Low, AlertCode::LimitMet, what.to_owned())
        }
        Event::TimeNearlyOver { left_seconds } => {
            let text = format!("the box has {left_seconds} s left");
            (Severity::Low, AlertCode::NearingTimeLimit, text)
        }
        Event::PoolPoisoned { why } => {
            let text = format!("a box in the pool was not sound and was destroyed: {}", why.as_str());
            (Severity::High, AlertCode::PoolPoisoned, text)
        }
        Event::SinkUnreachable { sink, why } => {
            let text = format!("the ledger's sink {} takes no records: {}", sink.as_str(), why.as_str());
            (Severity::Critical, AlertCode::SinkUnreachable, text)
        }
        Event::Recovered { bytes, kept_as, .. } => {
            let text = format!(
                "the ledger ended in half a record ({bytes} bytes), kept as {}: a daemon died, or somebody cut it",
                kept_as.as_str()
            );
            (Severity::High, AlertCode::LedgerRecovered, text)
        }
        Event::Header { .. }
        | Event::KeyCreated { .. }
        | Event::Checkpoint { .. }
        | Event::Rotated { .. }
        | Event::Closed
        | Event::DaemonStarted { .. }
        | Event::DaemonStopped
        | Event::SinkReached { .. }
        | Event::BoxAsked { .. }
        | Event::BoxRefused { .. }
        | Event::BoxLaunched
        | Event::BoxReady { .. }
        | Event::CommandAsked { .. }
        | Event::CommandStarted { .. }
        | Event::CommandEnded { .. }
        | Event::ToolCalled { .. }
        | Event::ToolAnswered { .. }
        | Event::NetworkOpened { .. }
        | Event::NetworkClosed { .. }
        | Event::NameAsked { .. }
        | Event::SecretLent { .. }
        | Event::SecretMinted { .. }
        | Event::SecretRevoked { .. }
        | Event::RulesChanged { .. }
        | Event::NetworkUntold { .. }
        | Event::BoxPaused
        | Event::BoxResumed
        | Event::BoxAdopted
        | Event::BoxCopied { .. }
        | Event::BoxOnDisk { .. }
        | Event::BoxBegunFrom { .. }
        | Event::SnapshotRemoved { .. }
        | Event::ModuleBrought { .. }
        | Event::ModuleRemoved { .. }
        | Event::KillAsked { .. }
        | Event::BoxEnded { .. }
        | Event::EscapeReported { .. }
        | Event::Unrecognized => return None,
    };
    Some(Alert { severity, code, text })
}

fn denied(number: u32, name: Option<&str>, count: u64) -> (Severity, AlertCode, String) {
    let (severity, code) = match name {
        Some(name) if MOUNTS.contains(&name) => (Severity::High, AlertCode::MountAttempt),
        Some(name) if ESCAPES.contains(&name) => (Severity::High, AlertCode::EscapeAttempt),
        Some(_) => (Severity::Low, AlertCode::DeniedSyscall),
        // A number without a name is no call that a compiler emits.
        None => (Severity::High, AlertCode::EscapeAttempt),
    };
    let name = name.map_or_else(|| format!("system call {number}"), str::to_owned);
    (severity, code, format!("the box tried {name} and was denied, {count} times"))
}

fn wrote(path: &str, reason: &str, syscall: &str, count: u64) -> (Severity, AlertCode, String) {
    let (severity, what) = match reason {
        // What others run, load or obey: that is how a box reaches whoever takes its changes.
        "poisons-tools" => (Severity::High, "a file that tools of its owner trust"),
        // Programs that keep a cache beside their code try this, and are refused.
        "outside" => (Severity::Low, "a path where it has no place to write"),
        _ => (Severity::Low, "a path that its process hides"),
    };
    let named = if path.is_empty() { String::new() } else { format!(", {path}") };
    (severity, AlertCode::UnexpectedWrite, format!("the box used {syscall} on {what}{named}, {count} times"))
}

#[cfg(test)]
mod tests {
    use blastbox_wire::event::Label;

    use super::*;

    fn of_call(name: Option<&str>) -> (Severity, AlertCode) {
        let name = name.map(Label::new);
        let alert = alert(&Event::SyscallDenied { number: 1, name, count: 2 }).unwrap();
        (alert.severity, alert.code)
    }

    #[test]
    fn every_code_has_one_word_and_stands_in_the_description_of_the_api() {
        let api = include_str!("../../../../docs/api.md");
        for code in AlertCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
            assert!(api.contains(&format!("`{}`", code.as_str())), "docs/api.md lacks {}", code.as_str());
        }
        let severity = [Severity::Low, Severity::High, Severity::Critical];
        assert!(severity.iter().all(|one| serde_json::to_value(one).unwrap() == one.as_str()));
    }

    #[test]
    fn a_mount_is_louder_than_a_call_that_libraries_try() {
        assert_eq!(of_call(Some("mount")), (Severity::High, AlertCode::MountAttempt));
        assert_eq!(of_call(Some("bpf")), (Severity::High, AlertCode::EscapeAttempt));
        assert_eq!(of_call(None), (Severity::High, AlertCode::EscapeAttempt));
        assert_eq!(of_call(Some("mbind")), (Severity::Low, AlertCode::DeniedSyscall));
    }

    #[test]
    fn the_ordinary_life_of_a_box_raises_nothing() {
        for event in [
            Event::BoxLaunched,
            Event::BoxReady { kernel: None, engine: None },
            Event::BoxPaused,
            Event::Closed,
        ] {
            assert_eq!(alert(&event), None);
        }
    }

    #[test]
    fn a_sink_that_takes_nothing_is_for_now() {
        let event = Event::SinkUnreachable { sink: "siem".into(), why: "refused".into() };
        let alert = alert(&event).unwrap();
        assert_eq!((alert.severity, alert.code), (Severity::Critical, AlertCode::SinkUnreachable));
    }
}
