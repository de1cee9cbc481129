//! What happened to one command in one box, for people and for machines.
//!
//! A receipt is written after the box is gone, also where nothing was started, and it never holds what the command
//! printed. Version 1; fields are only ever added. Text that a box had a hand in (the agent's last words) is bounded
//! and, like every string here, must be escaped before it meets a terminal.

use std::time::Duration;

use blastbox_policy::{Boundary, Gap, PolicyDigest, ThreatLevel, Tier};
use serde::{Deserialize, Serialize};

use crate::BoxId;

/// Version of this form.
pub const VERSION: u32 = 1;
/// Most bytes of one argument that a receipt repeats.
pub const MAX_ECHOED_ARGUMENT: usize = 256;
/// Most arguments that a receipt repeats.
pub const MAX_ECHOED_ARGUMENTS: usize = 64;

/// How it ended. Closed and append-only: SDKs and alerts key on the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The command returned a code, which is also blastbox's own exit code.
    Exited,
    /// A signal ended the command, or ended blastbox and the box with it; exit code 128 + its number.
    Signalled,
    /// The box was ended when its time was over; exit code 124.
    TimedOut,
    /// The kernel killed something in the box because memory ran out; exit code 137.
    OutOfMemory,
    /// The command failed after the box met its limit on processes; its own exit code.
    PidsExhausted,
    /// The box was ended because it printed more than it may; exit code 153 (128 + SIGXFSZ).
    OutputLimit,
    /// The command did all the work that its policy gives it (`kernel.fuel`); exit code 152 (128 + SIGXCPU).
    FuelSpent,
    /// blastbox worked and the answer is no; `reason` says why. Exit code 125.
    Refused,
    /// The box was there, but the command could not be started. `reason.code` is `not_found` (exit code 127),
    /// `not_executable` (126), or names what else failed (125).
    NotStarted,
    /// blastbox or the host failed: before anything ran, or because the output could not be written; exit code 125.
    Failed,
    /// The box was there and then was not: its agent or the warden died, or it broke the protocol; exit code 125.
    Lost,
}

impl Outcome {
    /// The word that stands in receipts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Signalled => "signalled",
            Self::TimedOut => "timed_out",
            Self::OutOfMemory => "out_of_memory",
            Self::PidsExhausted => "pids_exhausted",
            Self::OutputLimit => "output_limit",
            Self::FuelSpent => "fuel_spent",
            Self::Refused => "refused",
            Self::NotStarted => "not_started",
            Self::Failed => "failed",
            Self::Lost => "lost",
        }
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why it ended that way, where the outcome alone does not say it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The stable code.
    pub code: String,
    /// One sentence for people.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// What a box did with its network, as its gateway told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkUse {
    /// What it reached.
    pub allowed: Vec<AllowedTarget>,
    /// What it was kept from.
    pub denied: Vec<DeniedTarget>,
    /// Records that are not in these lists, because there were too many.
    pub untold: u64,
    /// The gateway died before the box did: from then on there was no network.
    #[serde(default)]
    pub gateway_lost: bool,
    /// The gateway carried packets itself, slower than a kernel with nf_tables and tproxy carries connections for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_packets: bool,
}

impl NetworkUse {
    /// Whether there is nothing to tell.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Something that a box reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowedTarget {
    /// The name, or the address where there was none.
    pub target: String,
    /// The port.
    pub port: u16,
    /// The rule that allowed it, by its host as written; empty where no connection to it was made.
    pub rule: String,
    /// How many connections were made.
    pub connections: u64,
    /// Bytes from the box.
    pub sent_bytes: u64,
    /// Bytes to the box.
    pub received_bytes: u64,
}

/// Something that a box was kept from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeniedTarget {
    /// The name, or the address where there was none; empty for what was no packet.
    pub target: String,
    /// The port; 53 for a question about the name.
    pub port: u16,
    /// The stable word for why.
    pub reason: String,
    /// How often.
    pub count: u64,
}

/// What happened to one command in one box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Always [`VERSION`].
    pub version: u32,
    /// The box; absent where none was made.
    pub box_id: Option<BoxId>,
    /// How it ended.
    pub outcome: Outcome,
    /// What `blastbox run` returned.
    pub exit_code: u8,
    /// The signal, where one ended it.
    pub signal: Option<u8>,
    /// Why, where the outcome alone does not say it.
    pub reason: Option<Reason>,
    /// Program and arguments, as text and cut to [`MAX_ECHOED_ARGUMENTS`] of [`MAX_ECHOED_ARGUMENT`] bytes.
    pub command: Vec<String>,
    /// The image, such as `host`.
    pub image: String,
    /// What stood between the command and the host's kernel; absent where no tier was good enough.
    pub tier: Option<Tier>,
    /// The threat level of the policy; absent where no policy could be sealed.
    pub threat: Option<ThreatLevel>,
    /// The name of the sealed policy; absent where none could be sealed.
    pub policy: Option<PolicyDigest>,
    /// When the box was asked for: RFC 3339, UTC.
    pub started_at: String,
    /// How long each part took.
    pub durations: Durations,
    /// The five boundaries as they held on this host.
    pub boundaries: Vec<BoundaryLine>,
    /// What was weaker than it could be, each accepted by name.
    pub gaps: Vec<GapLine>,
    /// System calls that the box tried and was denied.
    pub denied: Vec<DeniedCall>,
    /// What it wrote or tried to write at unexpected paths, where its policy has that reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unexpected_writes: Vec<UnexpectedWrite>,
    /// What it reached, and what it was kept from, where it had network.
    #[serde(default, skip_serializing_if = "NetworkUse::is_nothing")]
    pub network: NetworkUse,
    /// Functions of the caller that it called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolUse>,
    /// Calls that were not passed on: of what was not offered, or with what cannot be.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tools_refused: u64,
    /// What the box was limited to; absent where no policy could be sealed.
    pub limits: Option<Limits>,
    /// Which of the limits it met, whatever the outcome.
    pub limits_hit: Vec<LimitName>,
    /// What it used.
    pub usage: Usage,
    /// How much it printed.
    pub output: Output,
    /// What it ran on.
    pub host: Host,
}

/// How long each part took, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durations {
    /// From the question to the box until its agent answered.
    pub setup_micros: u64,
    /// From there until the command had ended and its output was taken.
    pub run_micros: u64,
    /// From there until nothing was left.
    pub teardown_micros: u64,
}

/// One of the five boundaries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundaryLine {
    /// Which.
    pub boundary: Boundary,
    /// Whether it counts among the effective ones.
    pub effective: bool,
    /// By what it holds.
    pub how: Vec<String>,
    /// What weakens it.
    pub gaps: Vec<Gap>,
}

/// A gap that the policy accepts by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapLine {
    /// Its stable code.
    pub code: Gap,
    /// The boundary that is weaker for it.
    pub boundary: Boundary,
    /// What is weaker.
    pub explain: String,
}

impl From<Gap> for GapLine {
    fn from(gap: Gap) -> Self {
        Self { code: gap, boundary: gap.boundary(), explain: gap.explain().to_owned() }
    }
}

/// A system call that the box tried and was denied. The boundary that denied it is always the kernel's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeniedCall {
    /// Its number in the box's architecture.
    pub number: u32,
    /// Its name, where it has one.
    pub name: Option<String>,
    /// How often.
    pub count: u64,
    /// The process that tried it first, by its id inside the box.
    pub first_pid: u32,
    /// The first three arguments of that first time.
    pub first_arguments: [u64; 3],
}

/// A file or a name that the box changed or tried to change where nobody expects it. The kernel decided whether it could.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnexpectedWrite {
    /// The path in the box, cut and escaped; empty for those whose path is not known or not told apart.
    pub path: String,
    /// The stable word for why it is unexpected.
    pub reason: String,
    /// The call that was used first.
    pub syscall: String,
    /// How often.
    pub count: u64,
    /// The process that tried it first, by its id inside the box.
    pub first_pid: u32,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A function of the caller that was called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolUse {
    /// Its name.
    pub tool: String,
    /// How often.
    pub calls: u64,
    /// How often it gave nothing: it failed, or not in time.
    pub failed: u64,
}

/// What a box was limited to, in base units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Thousandths of one processor.
    pub millicpus: u32,
    /// Memory of all processes together.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub pids: u32,
    /// Writable space.
    pub disk_bytes: u64,
    /// Files and directories in the writable space.
    pub inodes: u64,
    /// Largest file.
    pub file_size_bytes: u64,
    /// Open files of one process.
    pub open_files: u32,
    /// Standard output and error together.
    pub output_bytes: u64,
    /// Wall clock.
    pub timeout_seconds: u64,
    /// Work of one command, where it is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
}

/// A limit that was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitName {
    /// Memory: something was killed for it, or was refused more.
    Memory,
    /// Processes: one could not be made.
    Pids,
    /// Output: the box was ended.
    Output,
    /// Wall clock: the box was ended.
    Timeout,
    /// Writable space: it was full when the agent of the box looked, after a command or while it ran.
    Disk,
    /// Files and directories in it: no other could be made.
    Inodes,
    /// Work: a command was ended.
    Fuel,
}

impl LimitName {
    /// The word that stands in receipts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Output => "output",
            Self::Timeout => "timeout",
            Self::Disk => "disk",
            Self::Inodes => "inodes",
            Self::Fuel => "fuel",
        }
    }
}

/// What was used; absent where nobody counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Processor time of the whole box, in microseconds. Where its group does not count it (cgroup v1 with `cpuacct` mounted apart,
    /// or no group at all), what was ended together with the box is missing.
    pub cpu_micros: Option<u64>,
    /// Largest memory of the whole box, in bytes.
    pub memory_peak_bytes: Option<u64>,
    /// Processor time of the command in user mode, in microseconds.
    pub command_user_micros: Option<u64>,
    /// Processor time of the command in the kernel, in microseconds.
    pub command_system_micros: Option<u64>,
    /// Largest resident set of the command, in bytes.
    pub command_peak_bytes: Option<u64>,
    /// Work of the command, where the policy has it counted (`kernel.fuel`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_fuel: Option<u64>,
    /// Processes that the kernel killed because memory ran out.
    pub oom_kills: u64,
    /// Times that a process could not be made because of the limit.
    pub pids_refused: u64,
}

/// How much was printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Standard output (and a terminal).
    pub stdout_bytes: u64,
    /// Standard error.
    pub stderr_bytes: u64,
    /// Whether the command printed more than is counted here.
    pub truncated: bool,
}

/// What the box ran on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Release of the host's kernel.
    pub kernel: String,
    /// Which cgroup interface held the limits; none where nobody asked the warden, because the run never began.
    pub cgroups: CgroupFlavour,
    /// Version of Landlock; 0 where there is none.
    pub landlock_abi: u32,
    /// Whether the warden had user ids to give away (root); no where nobody asked it.
    pub privileged: bool,
}

/// The cgroup interface of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupFlavour {
    /// None that could be used.
    None,
    /// The old one.
    V1,
    /// The unified one.
    V2,
    /// Both: each has some of the controllers.
    Hybrid,
}

impl Receipt {
    /// How many of the five boundaries are effective.
    #[must_use]
    pub fn effective(&self) -> usize {
        self.boundaries.iter().filter(|line| line.effective).count()
    }
}

/// A command line as a receipt repeats it: as text, and cut.
#[must_use]
pub fn echo_command(arguments: &[Vec<u8>]) -> Vec<String> {
    let shown = arguments.iter().take(MAX_ECHOED_ARGUMENTS).map(|argument| {
        let head = argument.get(..MAX_ECHOED_ARGUMENT).unwrap_or(argument);
        let mut text = String::from_utf8_lossy(head).into_owned();
        if head.len() < argument.len() {
            text.push('…');
        }
        text
    });
    let mut shown: Vec<String> = shown.collect();
    if arguments.len() > MAX_ECHOED_ARGUMENTS {
        shown.push(format!("… {} more", arguments.len() - MAX_ECHOED_ARGUMENTS));
    }
    shown
}

/// A moment since 1970 as RFC 3339 in UTC, with milliseconds. Pure: whoever has the clock passes the time in.
#[must_use]
pub fn rfc3339(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days to a date of the proleptic Gregorian calendar, in eras of 400 years that begin on 1 March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest % 3_600 / 60, rest % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
        since_1970.subsec_millis()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_printed_as_the_calendar_says() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.007Z"),
            (951_782_400, "2000-02-29T00:00:00.007Z"),
            (951_868_800, "2000-03-01T00:00:00.007Z"),
            (1_709_251_199, "2024-02-29T23:59:59.007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.007Z"),
            (253_402_300_799, "9999-12-31T23:59:59.007Z"),
        ] {
            assert_eq!(rfc3339(Duration::new(seconds, 7_900_000)), text);
        }
    }

    #[test]
    fn a_long_command_line_is_cut_and_says_so() {
        let shown = echo_command(&vec![vec![b'a'; MAX_ECHOED_ARGUMENT + 1]; MAX_ECHOED_ARGUMENTS + 2]);
        assert_eq!(shown.len(), MAX_ECHOED_ARGUMENTS + 1);
        assert!(shown[0].ends_with("a…"));
        assert_eq!(shown[MAX_ECHOED_ARGUMENTS], "… 2 more");
        assert_eq!(echo_command(&[b"echo".to_vec(), vec![0xff]]), ["echo", "\u{fffd}"]);
    }

    #[test]
    fn the_word_of_an_outcome_is_the_word_that_reads_back() {
        use serde::de::{IntoDeserializer, value};
        for outcome in [
            Outcome::Exited,
            Outcome::Signalled,
            Outcome::TimedOut,
            Outcome::OutOfMemory,
            Outcome::PidsExhausted,
            Outcome::FuelSpent,
            Outcome::OutputLimit,
            Outcome::Refused,
            Outcome::NotStarted,
            Outcome::Failed,
            Outcome::Lost,
        ] {
            let from = IntoDeserializer::<value::Error>::into_deserializer(outcome.as_str());
            assert_eq!(Outcome::deserialize(from), Ok(outcome));
        }
    }
}
