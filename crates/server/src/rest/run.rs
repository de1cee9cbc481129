//! `/v1/run`: one command in a box of its own, everything that it printed, and the receipt. The box is gone before
//! the answer comes, also when the caller went away first.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::http::Response;
use axum::response::IntoResponse;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blastbox_engine::keeper::{ExecEnded, Keeper, TapeEvent, TapeReader, Tenant};
use blastbox_engine::{EXIT_REFUSED, Stream};
use blastbox_policy::SurvivesDaemon;
use blastbox_wire::BoxId;
use blastbox_wire::receipt::{Outcome, Reason, Receipt, echo_command};
use serde::Serialize;
use tokio::time::sleep;

use super::{boxes, execs};
use crate::answer::Answer;
use crate::ask::{Checked, NewExec, Run, StdinFrom};
use crate::caller::Caller;
use crate::room::Room;
use crate::take::Given;
use crate::{Hall, Trouble};

/// Most bytes of each stream that an answer carries, where its tenant has that much room. What is behind them is counted
/// in the receipt, and dropped.
const MOST: usize = 4 * 1024 * 1024;

/// Exit code of a process that a signal ended, less the signal's number.
const SIGNALLED: u8 = 128;
/// The nearest word that signals have for work that is spent.
const SIGXCPU: u8 = 24;
/// How long a box that ends by itself may take, and how often it is looked at.
const SETTLE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(5);

/// What a run came to.
#[derive(Debug, Serialize)]
pub(crate) struct Ran {
    receipt: Receipt,
    ended: ExecEnded,
    stdout: Kept,
    stderr: Kept,
}

/// Output that is kept.
#[derive(Debug, Default, Serialize)]
struct Kept {
    base64: String,
    /// Absent where the bytes are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    truncated: bool,
}

pub(crate) async fn run(
    State(hall): State<Hall>,
    caller: Caller,
    Given(run): Given<Run>,
) -> Result<Response<Body>, Trouble> {
    let Run { new_box: new, command, env, cwd, stdin_base64 } = run;
    let stdin = stdin_base64.map(|text| STANDARD.decode(text)).transpose();
    let stdin = stdin.map_err(|_| Trouble::BadField("`stdin_base64` is not base64".to_owned()))?;
    let from = if stdin.is_some() { StdinFrom::Stream } else { StdinFrom::None };
    let exec = NewExec {
        command,
        env,
        cwd,
        stdin: from,
        terminal: None,
        timeout: None,
        hold: None,
        tools: Vec::new(),
    };
    let words: Vec<Vec<u8>> = exec.command.iter().map(|word| word.as_bytes().to_vec()).collect();
    let echo = echo_command(&words);
    // A command that no box could start is told before there is a box.
    let exec = exec.check()?;
    let asked_life = new.life;
    let (mut wanted, lease) = boxes::check(&hall, &caller, new).await?;
    if asked_life.is_none() {
        wanted.life = Duration::from_secs(wanted.policy.lifetime().timeout.0);
    }
    if wanted.policy.lifetime().survives_daemon == SurvivesDaemon::Yes {
        let why = "a box of one command ends with its caller: it cannot have `lifetime.survives_daemon`";
        return Err(Trouble::BadField(why.to_owned()));
    }
    let keeper = hall.keeper.clone();
    let card = keeper.create(&caller.tenant, wanted).await?;
    drop(lease);
    let mut guard = Guard { keeper: keeper.clone(), tenant: caller.tenant, id: Some(card.id.clone()) };
    let mut room = hall.rooms.open(Some(guard.tenant.clone()));
    let done = carry_out(&keeper, &guard.tenant, &card.id, exec, stdin, &mut room).await;
    let ended = keeper.kill(&guard.tenant, &card.id).await;
    guard.id = None;
    let receipt = match ended {
        Ok(receipt) => receipt,
        // It ended by itself: at its deadline, or by what it did. Or somebody else was faster.
        Err(error) => settled(&keeper, &guard.tenant, &card.id).await.ok_or(error)?,
    };
    let Done { ended, fuel, stdout, stderr } = done?;
    let receipt = of_command(receipt, &ended, fuel, echo);
    let ran = Answer::ok(Ran { receipt, ended, stdout: stdout.into(), stderr: stderr.into() });
    Ok(room.until_sent(ran.into_response()))
}

/// The receipt of a box that ends without us, once nothing is left of it.
async fn settled(keeper: &Keeper, tenant: &Tenant, id: &BoxId) -> Option<Receipt> {
    let begun = Instant::now();
    while begun.elapsed() < SETTLE {
        if let Some(receipt) = keeper.receipt(tenant, id) {
            return Some(Receipt::clone(&receipt));
        }
        sleep(LOOK).await;
    }
    None
}

/// The keeper's receipt is about the box, which we ended. Whoever runs one command wants to know how that one ended.
fn of_command(mut receipt: Receipt, ended: &ExecEnded, fuel: Option<u64>, command: Vec<String>) -> Receipt {
    receipt.command = command;
    receipt.usage.command_fuel = fuel;
    let usage = receipt.usage;
    let (outcome, code, signal, reason) = match ended {
        // What ended the box is on it already.
        ExecEnded::BoxEnded { .. } => return receipt,
        ExecEnded::NotStarted { code, message } => {
            let exit = match code.as_str() {
                "not_found" => 127,
                "not_executable" => 126,
                _ => EXIT_REFUSED,
            };
            let reason = Reason { code: code.clone(), message: message.clone(), fix: None };
            (Outcome::NotStarted, exit, None, Some(reason))
        }
        ExecEnded::Exited { code } => (Outcome::Exited, *code, None, None),
        ExecEnded::FuelSpent { .. } => (Outcome::FuelSpent, SIGNALLED + SIGXCPU, None, None),
        ExecEnded::Signalled { signal } => {
            (Outcome::Signalled, SIGNALLED.saturating_add(*signal), Some(*signal), None)
        }
    };
    // As `blastbox run` judges: what the box met decides between "it exited" and "it met its limit".
    receipt.outcome = match outcome {
        Outcome::Exited | Outcome::Signalled if usage.oom_kills > 0 && code == SIGNALLED + 9 => {
            Outcome::OutOfMemory
        }
        Outcome::Exited | Outcome::Signalled if usage.pids_refused > 0 && code != 0 => Outcome::PidsExhausted,
        outcome => outcome,
    };
    (receipt.exit_code, receipt.signal, receipt.reason) = (code, signal, reason);
    receipt
}

/// Ends the box of a caller that went away.
struct Guard {
    keeper: Keeper,
    tenant: Tenant,
    id: Option<BoxId>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            let (keeper, tenant) = (self.keeper.clone(), self.tenant.clone());
            // Nobody is left to hear how it went.
            tokio::spawn(async move { keeper.kill(&tenant, &id).await.ok() });
        }
    }
}

struct Done {
    ended: ExecEnded,
    /// Its work, where that is counted.
    fuel: Option<u64>,
    stdout: Bounded,
    stderr: Bounded,
}

async fn carry_out(
    keeper: &Keeper,
    tenant: &Tenant,
    id: &BoxId,
    exec: Checked,
    stdin: Option<Vec<u8>>,
    room: &mut Room,
) -> Result<Done, Trouble> {
    let execs::Begun { exec } = execs::begin(keeper, tenant, id, exec).await?;
    let reader = keeper.tape(tenant, id, exec, None)?.hold_back();
    let feed = async {
        if let Some(bytes) = stdin {
            // An error: the command does not read any more, and its end says the rest.
            keeper.write_stdin(tenant, id, exec, &bytes).await.ok();
            keeper.end_stdin(tenant, id, exec).await.ok();
        }
        std::future::pending().await
    };
    let mut done = tokio::select! {
        done = listen(reader, room) => done?,
        never = feed => never,
    };
    // On its card before its end was on the tape.
    let cards = keeper.get(tenant, id).map(|(_, cards)| cards).unwrap_or_default();
    done.fuel = cards.into_iter().find(|card| card.exec == exec).and_then(|card| card.fuel);
    Ok(done)
}

async fn listen(mut reader: TapeReader, room: &mut Room) -> Result<Done, Trouble> {
    let (mut stdout, mut stderr) = (Bounded::default(), Bounded::default());
    while let Some((_, event)) = reader.next().await {
        match event {
            TapeEvent::Output { stream: Stream::Stdout, bytes } => stdout.add(&bytes, room),
            TapeEvent::Output { stream: Stream::Stderr, bytes } => stderr.add(&bytes, room),
            TapeEvent::Ended { ended, .. } => return Ok(Done { ended, fuel: None, stdout, stderr }),
            TapeEvent::Dropped { .. } => stdout.truncated = true,
            TapeEvent::Started { .. } => {}
        }
    }
    Err(Trouble::Defect)
}

#[derive(Debug, Default)]
struct Bounded {
    bytes: Vec<u8>,
    truncated: bool,
}

impl Bounded {
    fn add(&mut self, bytes: &[u8], room: &mut Room) {
        // Once something is left out, nothing that follows it is taken: the answer has no holes.
        let most = if self.truncated { 0 } else { MOST.saturating_sub(self.bytes.len()) };
        let got = room.take(bytes.len().min(most));
        self.truncated |= bytes.len() > got;
        self.bytes.extend_from_slice(bytes.get(..got).unwrap_or(bytes));
    }
}

impl From<Bounded> for Kept {
    fn from(Bounded { bytes, truncated }: Bounded) -> Self {
        Self { base64: STANDARD.encode(&bytes), text: String::from_utf8(bytes).ok(), truncated }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_kept_up_to_its_bound_and_says_when_it_was_cut() {
        let rooms = crate::room::Rooms::of_answers();
        let mut room = rooms.open(Some(Tenant::local()));
        let mut bounded = Bounded::default();
        bounded.add(&vec![b'a'; MOST - 1], &mut room);
        bounded.add(b"b", &mut room);
        assert!(!bounded.truncated);
        bounded.add(b"c", &mut room);
        assert!(bounded.truncated && bounded.bytes.len() == MOST && bounded.bytes.ends_with(b"ab"));
        // Where the tenant's other answers have left no room, it is cut sooner.
        while room.take(MOST) > 0 {}
        let mut late = Bounded::default();
        late.add(b"d", &mut room);
        assert!(late.truncated && late.bytes.is_empty());
        drop(room);
        late.add(b"e", &mut rooms.open(Some(Tenant::local())));
        assert!(late.bytes.is_empty());
    }
}
