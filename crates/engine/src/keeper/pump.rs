//! One task per command: from the box to the tape, so that the command goes on when nobody listens.

use std::sync::Arc;
use std::time::Duration;

use blastbox_wire::agent::Exit;
use blastbox_wire::event::{Event, Hash, Label, ToolEnd};
use blastbox_wire::receipt::LimitName;
use blastbox_wire::tools::ToolName;
use tokio::time::{Instant, sleep_until};

use super::calls::CallCard;
use super::cards::ExecEnded;
use super::cause::Cause;
use super::commands::{self, KeptExec, Purpose};
use super::events::Happened;
use super::house::House;
use super::kept::Kept;
use super::metrics::Stretch;
use super::tape::Tape;
use crate::failpoint;
use crate::outlet::{ExecEnd, ExecEvent};
use crate::tools::{ToolAnswer, ToolCall};

const SIGKILL: u8 = 9;

/// How long a command waits for its first reader, where nobody says.
const FIRST_READER: Duration = Duration::from_secs(10);

/// How long a command waits for the answer to one call.
const ANSWER: Duration = Duration::from_secs(60);

/// How long a command runs, how long it waits to be read, and what it may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// After so long it is killed.
    pub timeout: Option<Duration>,
    /// For so long its tape is held for the first reader. A command that prints more than the tape holds waits; zero is for
    /// one that is meant to go on by itself.
    pub first_reader: Duration,
    /// Functions of its owner that it may call: tier `wasm`.
    pub tools: Vec<ToolName>,
}

impl Default for Terms {
    fn default() -> Self {
        None.into()
    }
}

impl From<Option<Duration>> for Terms {
    fn from(timeout: Option<Duration>) -> Self {
        Self { timeout, first_reader: FIRST_READER, tools: Vec::new() }
    }
}

impl Terms {
    /// The tape of a command that has only been begun.
    pub(crate) fn tape(&self) -> Tape {
        if self.first_reader.is_zero() { Tape::default() } else { Tape::expectant() }
    }
}

/// Writes the tape of a command until it is over.
pub(crate) async fn pump(house: Arc<House>, kept: Arc<Kept>, exec: Arc<KeptExec>, terms: Terms) {
    let began = Instant::now();
    let mut alarm = Alarm::after(terms.timeout);
    exec.ends_at(alarm.0);
    let mut first_reader = Alarm::after(Some(terms.first_reader));
    let (mut answer, mut waiting) = (Alarm(None), 0);
    let end = loop {
        let event = tokio::select! {
            biased;
            () = alarm.rings() => {
                alarm.silence(&kept, &exec).await;
                continue;
            }
            () = answer.rings() => {
                answer.0 = None;
                // One that was answered meanwhile is not waited for.
                if exec.calls.take(waiting) {
                    let why = format!("nobody answered within {} s", ANSWER.as_secs());
                    answer_call(&house, &kept, &exec, waiting, Err(why), Some(ToolEnd::TimedOut)).await;
                }
                continue;
            }
            event = exec.exec.next() => event,
        };
        match event {
            ExecEvent::Started { pid } => exec.started(pid),
            ExecEvent::Output { stream, bytes } => {
                wait_for_readers(&kept, &exec, bytes.len(), &mut alarm, &mut first_reader).await;
                exec.tape.write(stream, bytes);
            }
            ExecEvent::Called(call) => {
                waiting = call.call;
                answer = Alarm::after(Some(ANSWER));
                called(&house, &kept, &exec, call).await;
            }
            ExecEvent::Ended(end) => break end,
        }
    };
    house.count(|metrics| metrics.took(Stretch::Exec, began.elapsed()));
    over(&house, &kept, &exec, end);
}

/// Readers that hold the tape back are waited for, but not longer than the box lives.
async fn wait_for_readers(
    kept: &Kept,
    exec: &KeptExec,
    bytes: usize,
    alarm: &mut Alarm,
    first_reader: &mut Alarm,
) {
    loop {
        tokio::select! {
            biased;
            () = exec.tape.room(bytes) => return,
            () = kept.live.stopped() => return,
            () = alarm.rings() => alarm.silence(kept, exec).await,
            () = first_reader.rings() => {
                first_reader.0 = None;
                exec.tape.let_go();
            }
        }
    }
}

/// A command calls a function of its owner: into the ledger first, and then to the owner.
async fn called(house: &House, kept: &Kept, exec: &KeptExec, call: ToolCall) {
    let ToolCall { call, tool, input } = call;
    let text = input.to_string();
    let event = Event::ToolCalled {
        exec: exec.exec.number(),
        call,
        tool: Label::new(tool.as_str()),
        bytes: u64::try_from(text.len()).unwrap_or(u64::MAX),
        digest: Hash::of([text.as_bytes()]),
    };
    match house.pen.announce(Some(&kept.about()), &event) {
        Ok(()) => exec.calls.put(CallCard { call, tool: tool.as_str().to_owned(), input }),
        Err(_) => {
            let why = "it cannot be recorded, and so is not done".to_owned();
            answer_call(house, kept, exec, call, Err(why), None).await;
        }
    }
}

/// Answers a call that was taken.
pub(crate) async fn answer_call(
    house: &House,
    kept: &Kept,
    exec: &KeptExec,
    call: u32,
    answer: ToolAnswer,
    how: Option<ToolEnd>,
) {
    let (usual, bytes) = match &answer {
        Ok(value) => (ToolEnd::Answered, value.to_string().len()),
        Err(why) => (ToolEnd::Failed, why.len()),
    };
    let event = Event::ToolAnswered {
        exec: exec.exec.number(),
        call,
        how: how.unwrap_or(usual),
        bytes: u64::try_from(bytes).unwrap_or(u64::MAX),
    };
    house.pen.record(&kept.about(), &event);
    tokio::select! {
        // An error: it ended in this moment.
        sent = exec.exec.answer(call, answer) => { sent.ok(); }
        () = kept.live.stopped() => {}
    }
}

fn over(house: &House, kept: &Kept, exec: &KeptExec, end: ExecEnd) {
    let mut fate = kept.fate();
    fate.clock.running = fate.clock.running.saturating_sub(1);
    fate.ends = fate.ends.wrapping_add(1);
    fate.fuel_spent |= matches!(end, ExecEnd::Exited { exit: Exit::FuelSpent, .. });
    // The end of a command is something that happened: idleness begins here.
    fate.clock.touch(Instant::now());
    let cause = fate.cause;
    drop(fate);
    let fuel = match &end {
        ExecEnd::Exited { usage, .. } => usage.fuel,
        ExecEnd::NotStarted { .. } | ExecEnd::BoxEnded(_) => None,
    };
    exec.counted(fuel);
    let ended = commands::ended(end, cause);
    let timed_out = exec.ended(ended.clone());
    kept.commands.finish(exec);
    kept.bell.notify_one();
    house.pool.quiet.notify_waiters();
    let number = exec.exec.number();
    failpoint::reach("exec-ended");
    // One that ran is not over: it goes on with its box.
    if cause == Some(Cause::OnDisk) && exec.ran() && matches!(ended, ExecEnded::BoxEnded { .. }) {
        return;
    }
    if exec.purpose() == Purpose::Owner {
        house.register.exec_ended(&kept.card.id, number, word(&ended));
    }
    let (code, signal) = match &ended {
        ExecEnded::Exited { code } => (Some(*code), None),
        ExecEnded::Signalled { signal } => (None, Some(*signal)),
        ExecEnded::FuelSpent { .. } | ExecEnded::NotStarted { .. } | ExecEnded::BoxEnded { .. } => {
            (None, None)
        }
    };
    house.pen.record(&kept.about(), &Event::CommandEnded { exec: number, code, signal, fuel });
    // Once for a command, and commands are the owner's: no guest fills the ledger by it.
    if let ExecEnded::FuelSpent { .. } = ended {
        let limit = LimitName::Fuel;
        house.pen.record(&kept.about(), &Event::LimitMet { limit });
        house.hub.tell(Some((&kept.card.tenant, &kept.card.id)), Happened::LimitMet { limit });
    }
    if exec.purpose() == Purpose::Owner {
        let what = Happened::ExecEnded { exec: number, ended, timed_out };
        house.hub.tell(Some((&kept.card.tenant, &kept.card.id)), what);
    }
}

fn word(ended: &ExecEnded) -> &str {
    match ended {
        ExecEnded::Exited { .. } => "exited",
        ExecEnded::Signalled { .. } => "signalled",
        ExecEnded::FuelSpent { .. } => "fuel_spent",
        ExecEnded::NotStarted { code, .. } | ExecEnded::BoxEnded { code, .. } => code,
    }
}

/// When a time is over.
struct Alarm(Option<Instant>);

impl Alarm {
    fn after(time: Option<Duration>) -> Self {
        Self(time.and_then(|time| Instant::now().checked_add(time)))
    }

    async fn rings(&self) {
        match self.0 {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Kills the command, once.
    async fn silence(&mut self, kept: &Kept, exec: &KeptExec) {
        self.0 = None;
        exec.timed_out();
        tokio::select! {
            // An error: it ended in this moment.
            sent = exec.exec.signal(SIGKILL) => { sent.ok(); }
            () = kept.live.stopped() => {}
        }
    }
}
