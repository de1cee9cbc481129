//! From how a command ended and what its box met to one word, one exit code and one reason. Pure.

use std::time::Duration;

use blastbox_policy::Refusal;
use blastbox_wire::agent::{Exit, Stage};
use blastbox_wire::receipt::{LimitName, Outcome, Reason};
use blastbox_wire::warden::Spent;

use crate::error::{because, errno_text};

/// Exit code for everything that blastbox itself has to say no to, or failed at.
pub const EXIT_REFUSED: u8 = 125;
const EXIT_TIMED_OUT: u8 = 124;
const EXIT_NOT_EXECUTABLE: u8 = 126;
const EXIT_NOT_FOUND: u8 = 127;
const EXIT_SIGNAL: u8 = 128;
const SIGKILL: u8 = 9;
const SIGPIPE: u8 = 13;
/// "CPU time limit exceeded": the nearest word that signals have for work that is spent.
const SIGXCPU: u8 = 24;
/// "File size limit exceeded": the nearest word that signals have for too much output.
const SIGXFSZ: u8 = 25;
/// The code of a reason: whoever a box belongs to ended it.
pub const DISMISSED: &str = "dismissed";
const ENOENT: i32 = 2;
const E2BIG: i32 = 7;
const ENOEXEC: i32 = 8;

/// How a command ended, before it is known what its box as a whole met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// By itself.
    Exited(Exit),
    /// It never ran, though its box was there.
    NotStarted {
        /// What failed.
        stage: Stage,
        /// Why, as an errno.
        errno: i32,
    },
    /// Its time was over.
    TimedOut,
    /// It printed more than it may.
    OutputSpent,
    /// Somebody signalled blastbox, which ended the box.
    Interrupted {
        /// The signal that blastbox got.
        signal: u8,
    },
    /// The box's owner ended it before the command was over.
    Dismissed,
    /// Whoever read its output went away.
    ReaderGone,
    /// blastbox worked, and the answer was no.
    Refused(Refusal),
    /// The box could not be made.
    LaunchFailed {
        /// What was tried last.
        tried: String,
        /// Why, as an errno; 0 where the message says it all.
        errno: i32,
    },
    /// The box was there and then was not.
    Lost(Loss),
}

/// How a box was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// It broke the protocol; blame lies with what runs in it.
    GuestLied(String),
    /// Its agent ended without a word.
    AgentGone,
    /// Its agent gave up, in these words (a guest's words).
    AgentGaveUp(String),
    /// Its agent was waited for so long, and has said nothing.
    NeverSpoke(Duration),
    /// The warden died; blame lies with the host.
    WardenGone,
    /// The warden did not confirm that the box is gone.
    NotReleased,
    /// A pause, or its end, came after it was given up, and could not be undone: what the warden tried, and why it did not work.
    NotUndone(String),
}

/// One word, one exit code, one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The word.
    pub outcome: Outcome,
    /// What a command line returns.
    pub exit_code: u8,
    /// The signal, where one ended it.
    pub signal: Option<u8>,
    /// Why, where the outcome alone does not say it.
    pub reason: Option<Reason>,
    /// Which limits were met, whatever the outcome.
    pub limits_hit: Vec<LimitName>,
}

/// Judges. What a box used decides between "it exited" and "it met its limit".
#[must_use]
pub fn outcome(ending: &Ending, spent: &Spent) -> Verdict {
    let (outcome, exit_code, signal, reason) = match ending {
        Ending::Exited(exit) => exited(*exit, spent),
        Ending::NotStarted { stage, errno } => not_started(*stage, *errno),
        Ending::TimedOut => (Outcome::TimedOut, EXIT_TIMED_OUT, None, None),
        Ending::OutputSpent => (Outcome::OutputLimit, EXIT_SIGNAL + SIGXFSZ, None, None),
        Ending::Interrupted { signal } => {
            let message = "blastbox got the signal and ended the box".to_owned();
            let reason = Reason { code: "interrupted".to_owned(), message, fix: None };
            (Outcome::Signalled, EXIT_SIGNAL.saturating_add(*signal), Some(*signal), Some(reason))
        }
        Ending::Dismissed => {
            let message = "the owner of the box ended it before the command was over".to_owned();
            let reason = Reason { code: DISMISSED.to_owned(), message, fix: None };
            (Outcome::Signalled, EXIT_SIGNAL + SIGKILL, Some(SIGKILL), Some(reason))
        }
        Ending::ReaderGone => {
            let message = "whoever read the output went away, so the box was ended".to_owned();
            let reason = Reason { code: "output_closed".to_owned(), message, fix: None };
            (Outcome::Signalled, EXIT_SIGNAL + SIGPIPE, Some(SIGPIPE), Some(reason))
        }
        Ending::Refused(refusal) => (Outcome::Refused, EXIT_REFUSED, None, Some(refused(refusal))),
        Ending::LaunchFailed { tried, errno } => {
            let message = format!("the box could not be made: {tried}{}", because(*errno));
            let fix = Some("see what the host lacks with `blastbox doctor`".to_owned());
            let reason = Reason { code: "launch_failed".to_owned(), message, fix };
            (Outcome::Failed, EXIT_REFUSED, None, Some(reason))
        }
        Ending::Lost(Loss::AgentGone | Loss::AgentGaveUp(_) | Loss::NeverSpoke(_)) if spent.oom_kills > 0 => {
            out_of_memory()
        }
        Ending::Lost(loss) => (Outcome::Lost, EXIT_REFUSED, None, Some(lost(loss, spent))),
    };
    Verdict { outcome, exit_code, signal, reason, limits_hit: limits_hit(ending, spent) }
}

type Parts = (Outcome, u8, Option<u8>, Option<Reason>);

fn exited(exit: Exit, spent: &Spent) -> Parts {
    let (outcome, code, signal) = match exit {
        Exit::Code(code) => (Outcome::Exited, code, None),
        Exit::Signal(signal) => (Outcome::Signalled, EXIT_SIGNAL.saturating_add(signal), Some(signal)),
        Exit::FuelSpent => return (Outcome::FuelSpent, EXIT_SIGNAL + SIGXCPU, None, None),
    };
    if spent.oom_kills > 0 && code == EXIT_SIGNAL + SIGKILL {
        return out_of_memory();
    }
    if spent.pids_refused > 0 && code != 0 {
        return (Outcome::PidsExhausted, code, signal, None);
    }
    (outcome, code, signal, None)
}

fn out_of_memory() -> Parts {
    (Outcome::OutOfMemory, EXIT_SIGNAL + SIGKILL, Some(SIGKILL), None)
}

fn not_started(stage: Stage, errno: i32) -> Parts {
    let why = errno_text(errno);
    let (exit_code, code, message, fix) = match (stage, errno) {
        (Stage::Find, ENOENT) => (
            EXIT_NOT_FOUND,
            "not_found",
            "the command was not found in the box".to_owned(),
            Some("name a program of the image, or use --image with one that has it"),
        ),
        (Stage::Execute, ENOENT) => (
            EXIT_NOT_EXECUTABLE,
            "not_executable",
            "the interpreter or loader that the program names is not in the box".to_owned(),
            Some("use an image that has it: --image DIR"),
        ),
        (Stage::Find | Stage::Execute, ENOEXEC) => (
            EXIT_NOT_EXECUTABLE,
            "not_executable",
            "the program is not one that this machine can run (other architecture, or no program at all)"
                .to_owned(),
            None,
        ),
        (Stage::Execute, E2BIG) => (
            EXIT_REFUSED,
            "arguments_too_long",
            "the kernel refuses so many bytes of arguments and environment".to_owned(),
            Some("pass the data through standard input (-i) or a file of the workspace"),
        ),
        (Stage::Find | Stage::Execute, _) => {
            (EXIT_NOT_EXECUTABLE, "not_executable", format!("the command cannot be executed: {why}"), None)
        }
        (Stage::Directory, _) => {
            (EXIT_REFUSED, "bad_directory", format!("the working directory cannot be entered: {why}"), None)
        }
        (Stage::Streams, _) => {
            (EXIT_REFUSED, "start_failed", format!("no pipes or terminal could be made: {why}"), None)
        }
        (Stage::Fork, _) => (
            EXIT_REFUSED,
            "start_failed",
            format!("no process could be made: {why}"),
            Some("raise the limits: --pids, --memory"),
        ),
        (Stage::Identity, _) => {
            (EXIT_REFUSED, "start_failed", format!("the box's user could not be taken on: {why}"), None)
        }
        (Stage::Admission, _) => {
            (EXIT_REFUSED, "too_many_commands", "too many commands run in this box".to_owned(), None)
        }
    };
    let reason = Reason { code: code.to_owned(), message, fix: fix.map(ToOwned::to_owned) };
    (Outcome::NotStarted, exit_code, None, Some(reason))
}

/// A refusal as a reason.
#[must_use]
pub fn refused(refusal: &Refusal) -> Reason {
    Reason { code: refusal.code().to_owned(), message: refusal.to_string(), fix: Some(refusal.fix()) }
}

fn lost(loss: &Loss, spent: &Spent) -> Reason {
    let (code, message) = match loss {
        Loss::GuestLied(how) => {
            ("guest_broke_protocol", format!("the box broke the agent's protocol: {how}"))
        }
        Loss::AgentGone if spent.agent_signal != 0 => {
            ("agent_gone", format!("the agent of the box was ended by signal {}", spent.agent_signal))
        }
        Loss::AgentGone => ("agent_gone", "the agent of the box ended without a word".to_owned()),
        // The words come from inside the box: escaped, and the frame has bounded them.
        Loss::AgentGaveUp(text) => {
            ("agent_gave_up", format!("the agent of the box gave up: {}", text.escape_debug()))
        }
        Loss::NeverSpoke(waited) => (
            "agent_silent",
            format!(
                "the agent of the box has not said a word in {} s, in which any box begins; it was ended",
                waited.as_secs()
            ),
        ),
        Loss::NotReleased => (
            "not_released",
            "the warden did not confirm that the box is gone; the next one releases what is left".to_owned(),
        ),
        Loss::NotUndone(tried) => (
            "pause_not_undone",
            format!(
                "a pause or its end that was given up could not be undone (cannot {tried}), so it was ended"
            ),
        ),
        Loss::WardenGone => ("warden_gone", "the warden ended; what it left was released".to_owned()),
    };
    Reason { code: code.to_owned(), message, fix: None }
}

fn limits_hit(ending: &Ending, spent: &Spent) -> Vec<LimitName> {
    let all = [
        (spent.oom_kills > 0, LimitName::Memory),
        (spent.pids_refused > 0, LimitName::Pids),
        (*ending == Ending::OutputSpent, LimitName::Output),
        (*ending == Ending::TimedOut, LimitName::Timeout),
        (*ending == Ending::Exited(Exit::FuelSpent), LimitName::Fuel),
    ];
    all.into_iter().filter_map(|(hit, name)| hit.then_some(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(oom_kills: u64, pids_refused: u64) -> Spent {
        Spent { oom_kills, pids_refused, ..Spent::default() }
    }

    #[test]
    fn each_ending_has_its_word_and_its_exit_code() {
        let quiet = spent(0, 0);
        let table = [
            (Ending::Exited(Exit::Code(0)), quiet, "exited", 0),
            (Ending::Exited(Exit::Code(3)), quiet, "exited", 3),
            (Ending::Exited(Exit::Signal(11)), quiet, "signalled", 139),
            (Ending::Exited(Exit::Signal(9)), quiet, "signalled", 137),
            (Ending::Exited(Exit::Signal(9)), spent(1, 0), "out_of_memory", 137),
            (Ending::Exited(Exit::Code(137)), spent(2, 0), "out_of_memory", 137),
            (Ending::Exited(Exit::Code(0)), spent(1, 0), "exited", 0),
            (Ending::Exited(Exit::Code(2)), spent(0, 5), "pids_exhausted", 2),
            (Ending::Exited(Exit::Code(0)), spent(0, 5), "exited", 0),
            (Ending::Exited(Exit::FuelSpent), quiet, "fuel_spent", 152),
            (Ending::TimedOut, quiet, "timed_out", 124),
            (Ending::OutputSpent, quiet, "output_limit", 153),
            (Ending::Interrupted { signal: 2 }, quiet, "signalled", 130),
            (Ending::Interrupted { signal: 15 }, quiet, "signalled", 143),
            (Ending::Interrupted { signal: 1 }, quiet, "signalled", 129),
            (Ending::ReaderGone, quiet, "signalled", 141),
            (Ending::Refused(Refusal::TooFewBoundaries { effective: 2 }), quiet, "refused", 125),
            (Ending::LaunchFailed { tried: "clone3".into(), errno: 1 }, quiet, "failed", 125),
            (Ending::Lost(Loss::AgentGone), quiet, "lost", 125),
            (Ending::Lost(Loss::NeverSpoke(Duration::from_secs(9))), quiet, "lost", 125),
            (Ending::Lost(Loss::AgentGone), spent(1, 0), "out_of_memory", 137),
            (Ending::Lost(Loss::WardenGone), spent(1, 0), "lost", 125),
            (Ending::Lost(Loss::GuestLied("x".into())), quiet, "lost", 125),
            (Ending::NotStarted { stage: Stage::Find, errno: 2 }, quiet, "not_started", 127),
            (Ending::NotStarted { stage: Stage::Find, errno: 13 }, quiet, "not_started", 126),
            (Ending::NotStarted { stage: Stage::Execute, errno: 8 }, quiet, "not_started", 126),
            (Ending::NotStarted { stage: Stage::Execute, errno: 2 }, quiet, "not_started", 126),
            (Ending::NotStarted { stage: Stage::Execute, errno: 7 }, quiet, "not_started", 125),
            (Ending::NotStarted { stage: Stage::Directory, errno: 2 }, quiet, "not_started", 125),
        ];
        for (ending, spent, word, code) in table {
            let verdict = outcome(&ending, &spent);
            assert_eq!((verdict.outcome.as_str(), verdict.exit_code), (word, code), "{ending:?} {spent:?}");
        }
    }

    #[test]
    fn a_limit_that_was_met_is_named_even_when_the_command_succeeded() {
        let verdict = outcome(&Ending::Exited(Exit::Code(0)), &spent(1, 4));
        assert_eq!(verdict.limits_hit, [LimitName::Memory, LimitName::Pids]);
        assert!(outcome(&Ending::Exited(Exit::Code(0)), &spent(0, 0)).limits_hit.is_empty());
        assert_eq!(outcome(&Ending::TimedOut, &spent(0, 0)).limits_hit, [LimitName::Timeout]);
    }

    #[test]
    fn words_of_a_guest_are_escaped() {
        let verdict = outcome(&Ending::Lost(Loss::AgentGaveUp("\u{1b}[2J".into())), &spent(0, 0));
        assert!(!verdict.reason.unwrap().message.contains('\u{1b}'));
    }
}
