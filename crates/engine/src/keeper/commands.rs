//! The commands of one box: those that run, and the last of those that have ended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use blastbox_wire::agent::{Exit, Io};
use blastbox_wire::receipt::echo_command;
use blastbox_wire::warden::Spent;
use tokio::time::Instant;

use super::begin::Inherited;
use super::calls::Calls;
use super::cards::{ExecCard, ExecEnded};
use super::cause::Cause;
use super::error::KeepError;
use super::events::wall_clock;
use super::tape::Tape;
use crate::live::{Command, Exec, Stdin};
use crate::outcome::{Ending, outcome};
use crate::outlet::ExecEnd;
use crate::store::ExecRow;

/// Commands that have ended and are remembered.
const FINISHED: usize = 64;
/// Bytes that their tapes may keep together.
const FINISHED_BYTES: usize = 4 * 1024 * 1024;

/// The commands of one box.
#[derive(Debug, Default)]
pub(crate) struct Commands(Mutex<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    all: BTreeMap<u32, Arc<KeptExec>>,
    /// Those that have ended, in that order, with what their tapes cost.
    finished: VecDeque<(u32, usize)>,
    cost: usize,
}

/// For whom a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// For the owner of the box, who sees it in the list for as long as there is room.
    Owner,
    /// To carry bytes between the box and somebody who need not have a key. Strangers must not push the owner's commands
    /// off the list: it is never on it, and forgotten when it ends. The ledger has it.
    Carrier,
}

/// What a command was, before it is given to the box.
#[derive(Debug)]
pub(crate) struct Title {
    shown: Vec<String>,
    io: Io,
    started: SystemTime,
    purpose: Purpose,
}

impl Title {
    pub(crate) fn of(command: &Command, purpose: Purpose) -> Self {
        Self::begun_at(command, purpose, SystemTime::now())
    }

    /// Of one that runs already.
    pub(crate) fn begun_at(command: &Command, purpose: Purpose, started: SystemTime) -> Self {
        Self { shown: echo_command(&command.arguments), io: command.io, started, purpose }
    }

    /// Of a command that an earlier daemon was given: what was written down of it, where anything was.
    pub(crate) fn found(row: Option<&ExecRow>, purpose: Purpose) -> Self {
        let (program, arguments) = row.map_or(("?", 0), |row| (row.program.as_str(), row.arguments));
        let more = (arguments > 0).then(|| format!("… ({arguments} arguments)"));
        Self {
            shown: std::iter::once(program.to_owned()).chain(more).collect(),
            io: match row {
                Some(row) if row.terminal => Io::Terminal { rows: 0, columns: 0 },
                Some(_) | None => Io::PipesWithStdin,
            },
            started: row.map_or_else(SystemTime::now, |row| row.started_at),
            purpose,
        }
    }
}

/// One command.
#[derive(Debug)]
pub(crate) struct KeptExec {
    title: Title,
    pub(crate) exec: Exec,
    /// Held while somebody writes, so that the bytes of two writers do not mix.
    stdin: tokio::sync::Mutex<Option<Stdin>>,
    pub(crate) tape: Arc<Tape>,
    story: Mutex<Story>,
    pub(crate) calls: Calls,
}

#[derive(Debug, Default)]
struct Story {
    pid: Option<u32>,
    ended: Option<ExecEnded>,
    timed_out: bool,
    fuel: Option<u64>,
    /// When its own time is over.
    deadline: Option<Instant>,
}

impl KeptExec {
    fn story(&self) -> MutexGuard<'_, Story> {
        self.story.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn purpose(&self) -> Purpose {
        self.title.purpose
    }

    pub(crate) fn started(&self, pid: u32) {
        self.story().pid = Some(pid);
        self.tape.started(pid);
    }

    /// Whether it ever ran.
    pub(crate) fn ran(&self) -> bool {
        self.story().pid.is_some()
    }

    /// It is killed then.
    pub(crate) fn ends_at(&self, deadline: Option<Instant>) {
        self.story().deadline = deadline;
    }

    pub(crate) fn timed_out(&self) {
        self.story().timed_out = true;
    }

    /// Its work was counted.
    pub(crate) fn counted(&self, fuel: Option<u64>) {
        self.story().fuel = fuel;
    }

    /// Says how it ended; tells whether it was because its own time was over.
    pub(crate) fn ended(&self, ended: ExecEnded) -> bool {
        let mut story = self.story();
        story.ended = Some(ended.clone());
        let timed_out = story.timed_out;
        drop(story);
        self.tape.end(ended, timed_out);
        self.calls.end();
        timed_out
    }

    fn card(&self) -> ExecCard {
        let story = self.story();
        ExecCard {
            exec: self.exec.number(),
            command: self.title.shown.clone(),
            started_at: wall_clock(self.title.started),
            pid: story.pid,
            terminal: matches!(self.title.io, Io::Terminal { .. }),
            ended: story.ended.clone(),
            timed_out: story.timed_out,
            fuel: story.fuel,
        }
    }

    pub(crate) async fn write(&self, bytes: &[u8]) -> Result<(), KeepError> {
        let stdin = self.stdin.lock().await;
        let stdin = stdin.as_ref().ok_or(KeepError::CommandOver)?;
        stdin.write(bytes).await.map_err(|_| KeepError::CommandOver)
    }

    pub(crate) async fn end_input(&self) -> Result<(), KeepError> {
        let stdin = self.stdin.lock().await.take().ok_or(KeepError::CommandOver)?;
        stdin.end().await.map_err(|_| KeepError::CommandOver)
    }

    /// Something is to be told to a command that still runs.
    pub(crate) fn running(&self) -> Result<&Exec, KeepError> {
        if self.story().ended.is_some() { Err(KeepError::CommandOver) } else { Ok(&self.exec) }
    }
}

impl Commands {
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // Nobody panics while holding it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, title: Title, mut exec: Exec, tape: Tape) -> Arc<KeptExec> {
        let stdin = exec.stdin().filter(|_| title.io != Io::Pipes);
        let number = exec.number();
        let kept = Arc::new(KeptExec {
            title,
            exec,
            stdin: tokio::sync::Mutex::new(stdin),
            tape: Arc::new(tape),
            story: Mutex::default(),
            calls: Calls::default(),
        });
        self.shelf().all.insert(number, Arc::clone(&kept));
        kept
    }

    pub(crate) fn find(&self, number: u32) -> Result<Arc<KeptExec>, KeepError> {
        self.shelf().all.get(&number).cloned().ok_or(KeepError::NotFound)
    }

    /// The owner's commands.
    pub(crate) fn cards(&self) -> Vec<ExecCard> {
        let owners = |exec: &&Arc<KeptExec>| exec.purpose() == Purpose::Owner;
        self.shelf().all.values().filter(owners).map(|exec| exec.card()).collect()
    }

    /// What a copy of the box has to know of those that run.
    pub(crate) fn inherited(&self) -> Vec<Inherited> {
        let now = Instant::now();
        let shelf = self.shelf();
        let running = shelf.all.values().filter(|exec| exec.running().is_ok());
        let known = running.map(|exec| {
            let left = exec.story().deadline.map(|at| at.saturating_duration_since(now));
            Inherited::new(exec.exec.number(), left, exec.purpose() == Purpose::Carrier)
        });
        known.collect()
    }

    /// One has ended: of those, only the last are remembered.
    pub(crate) fn finish(&self, exec: &KeptExec) {
        let cost = exec.tape.cost();
        let mut shelf = self.shelf();
        if exec.purpose() == Purpose::Carrier {
            shelf.all.remove(&exec.exec.number());
            return;
        }
        shelf.finished.push_back((exec.exec.number(), cost));
        shelf.cost += cost;
        while shelf.finished.len() > FINISHED || (shelf.cost > FINISHED_BYTES && shelf.finished.len() > 1) {
            let Some((oldest, cost)) = shelf.finished.pop_front() else { break };
            shelf.cost -= cost;
            shelf.all.remove(&oldest);
        }
    }
}

/// How a command ended, in the words of a card. `cause` is why the keeper ended the box, where it did.
pub(crate) fn ended(end: ExecEnd, cause: Option<Cause>) -> ExecEnded {
    let ending = match end {
        ExecEnd::Exited { exit: Exit::Code(code), .. } => return ExecEnded::Exited { code },
        ExecEnd::Exited { exit: Exit::Signal(signal), .. } => return ExecEnded::Signalled { signal },
        ExecEnd::Exited { exit: Exit::FuelSpent, usage } => {
            return ExecEnded::FuelSpent { fuel: usage.fuel.unwrap_or(0) };
        }
        ExecEnd::NotStarted { stage, errno } => {
            let (code, message) = words(&Ending::NotStarted { stage, errno });
            return ExecEnded::NotStarted { code, message };
        }
        ExecEnd::BoxEnded(ending) => ending,
    };
    let (code, message) = match ending {
        // The driver only knows that it was told to.
        Ending::Dismissed => {
            let cause = cause.unwrap_or(Cause::Killed);
            (cause.code().to_owned(), cause.message().to_owned())
        }
        Ending::TimedOut => (Cause::TimedOut.code().to_owned(), Cause::TimedOut.message().to_owned()),
        Ending::OutputSpent => ("output_limit".to_owned(), "the box printed more than it may".to_owned()),
        Ending::Exited(_)
        | Ending::NotStarted { .. }
        | Ending::Interrupted { .. }
        | Ending::ReaderGone
        | Ending::Refused(_)
        | Ending::LaunchFailed { .. }
        | Ending::Lost(_) => ("lost".to_owned(), words(&ending).1),
    };
    ExecEnded::BoxEnded { code, message }
}

fn words(ending: &Ending) -> (String, String) {
    let verdict = outcome(ending, &Spent::default());
    match verdict.reason {
        Some(reason) => (reason.code, reason.message),
        None => (verdict.outcome.as_str().to_owned(), verdict.outcome.as_str().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use blastbox_wire::agent::Stage;

    use super::*;
    use crate::outcome::Loss;

    #[test]
    fn a_command_whose_box_was_ended_says_why_it_was() {
        let code = |end, cause| match ended(end, cause) {
            ExecEnded::BoxEnded { code, .. } | ExecEnded::NotStarted { code, .. } => code,
            other => panic!("{other:?}"),
        };
        assert_eq!(code(ExecEnd::BoxEnded(Ending::Dismissed), Some(Cause::TimedOut)), "timed_out");
        assert_eq!(code(ExecEnd::BoxEnded(Ending::Dismissed), Some(Cause::Killed)), "killed");
        assert_eq!(code(ExecEnd::BoxEnded(Ending::OutputSpent), None), "output_limit");
        assert_eq!(code(ExecEnd::BoxEnded(Ending::Lost(Loss::AgentGone)), None), "lost");
        assert_eq!(code(ExecEnd::NotStarted { stage: Stage::Find, errno: 2 }, None), "not_found");
    }
}
