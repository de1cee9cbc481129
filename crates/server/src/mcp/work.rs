//! A command from its start to what the model reads, its end or a call: bounded output, progress on the way, an end when it is cancelled.

use std::time::Duration;

use blastbox_engine::Stream;
use blastbox_engine::keeper::{CallCard, ExecEnded, TapeEvent, TapeReader};
use blastbox_policy::Seconds;
use blastbox_wire::BoxId;
use rmcp::model::{CallToolResult, ContentBlock, ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext, RoleServer};
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::calls;
use super::desk::{Desk, Refused};
use crate::ask::NewExec;
use crate::rest::execs;

/// Most bytes of each stream that an answer carries: the beginning and the end, because errors stand at the end.
pub(crate) const MOST: usize = 48 * 1024;
const HEAD: usize = 16 * 1024;
/// How often a client that wants to know is told how far it is.
const PROGRESS: Duration = Duration::from_secs(1);
/// How long a command may take where the model does not say.
const DEFAULT_TIMEOUT: u64 = 60;
const LONGEST_TIMEOUT: u64 = 3_600;
const SIGKILL: u8 = 9;

/// Whoever asked: may want progress, may change its mind.
pub(crate) struct Asker {
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
    context: RequestContext<RoleServer>,
}

impl Asker {
    pub(crate) fn of(context: RequestContext<RoleServer>) -> Self {
        Self { peer: context.peer.clone(), token: context.meta.get_progress_token(), context }
    }

    pub(crate) async fn gave_up(&self) {
        self.context.ct.cancelled().await;
    }

    pub(crate) async fn progress(&self, begun: Instant, bytes: usize) {
        if let Some(token) = &self.token {
            let seconds = begun.elapsed().as_secs();
            let note = ProgressNotificationParam::new(token.clone(), begun.elapsed().as_secs_f64())
                .with_message(format!("running for {seconds} s, {bytes} bytes of output"));
            // A client that is gone cancels the whole call soon.
            self.peer.notify_progress(note).await.ok();
        }
    }
}

/// What a command came to.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Came {
    #[serde(rename = "box")]
    pub(crate) of: String,
    /// Its number in the box.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exec: Option<u32>,
    pub(crate) how: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exit_code: Option<u8>,
    pub(crate) timed_out: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Bytes that were printed and are not in this answer.
    pub(crate) left_out: usize,
    /// The call that it waits for, where it has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waits: Option<CallCard>,
}

impl Came {
    /// For the model as text, for programs as JSON. Code that fails is an error of the tool: models act on that.
    pub(crate) fn answer(self) -> CallToolResult {
        let mut text = String::new();
        for (name, printed) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !printed.is_empty() {
                text.push_str(&format!("{name}:\n{}\n", printed.trim_end_matches('\n')));
            }
        }
        if self.left_out > 0 {
            text.push_str(&format!("({} bytes of output left out in the middle)\n", self.left_out));
        }
        let failed = self.exit_code != Some(0) && self.waits.is_none();
        if failed || self.waits.is_some() || text.is_empty() {
            text.push_str(&self.how);
        }
        let mut result = CallToolResult::success(vec![ContentBlock::text(text.trim_end_matches('\n'))]);
        result.structured_content = serde_json::to_value(&self).ok();
        result.is_error = Some(failed);
        result
    }
}

/// Output up to a bound: its beginning and its end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bounded {
    head: Vec<u8>,
    tail: Vec<u8>,
    left_out: usize,
}

impl Bounded {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let room = HEAD.saturating_sub(self.head.len()).min(bytes.len());
        let (head, rest) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
        self.head.extend_from_slice(head);
        self.tail.extend_from_slice(rest);
        let most = MOST - HEAD;
        if self.tail.len() > 2 * most {
            self.cut(most);
        }
    }

    fn cut(&mut self, most: usize) {
        let over = self.tail.len().saturating_sub(most);
        self.tail.drain(..over);
        self.left_out += over;
    }

    /// The text, and how many bytes are not in it.
    pub(crate) fn finish(mut self) -> (String, usize) {
        self.cut(MOST - HEAD);
        let gap = if self.left_out > 0 {
            format!("\n… {} bytes left out …\n", self.left_out)
        } else {
            String::new()
        };
        let text =
            format!("{}{gap}{}", String::from_utf8_lossy(&self.head), String::from_utf8_lossy(&self.tail));
        (text, self.left_out)
    }
}

/// A time that was asked for, within bounds.
pub(crate) fn timeout(asked: Option<u64>) -> Result<u64, Refused> {
    match asked.unwrap_or(DEFAULT_TIMEOUT) {
        seconds @ 1..=LONGEST_TIMEOUT => Ok(seconds),
        seconds => {
            Err(Refused(format!("timeout_seconds = {seconds} is out of range: 1 to {LONGEST_TIMEOUT}")))
        }
    }
}

/// Starts a command, feeds it, waits for its end or its first call.
pub(crate) async fn run(
    desk: &Desk,
    id: &BoxId,
    mut new: NewExec,
    stdin: Option<Vec<u8>>,
    asked: Option<u64>,
    asker: &Asker,
) -> Result<Came, Refused> {
    new.timeout = Some(Seconds(timeout(asked)?));
    let execs::Begun { exec } = execs::begin(&desk.keeper, &desk.tenant, id, new.check()?).await?;
    if let Some(bytes) = stdin {
        // On its own: a command may call before it has read everything. It ends with the command.
        let (keeper, tenant, id) = (desk.keeper.clone(), desk.tenant.clone(), id.clone());
        tokio::spawn(async move {
            // An error: it does not read any more, and its end says the rest.
            keeper.write_stdin(&tenant, &id, exec, &bytes).await.ok();
            keeper.end_stdin(&tenant, &id, exec).await.ok();
        });
    }
    attend(desk, id, exec, asker).await
}

/// Waits until a command has ended or calls a function that it was offered. What it printed is told from its beginning.
pub(crate) async fn attend(desk: &Desk, id: &BoxId, exec: u32, asker: &Asker) -> Result<Came, Refused> {
    let reader = desk.keeper.tape(&desk.tenant, id, exec, None)?.hold_back();
    let came = tokio::select! {
        came = listen(reader, calls::next(desk, id, exec), asker) => came,
        () = asker.gave_up() => {
            desk.keeper.signal(&desk.tenant, id, exec, SIGKILL).await.ok();
            return Err(Refused("cancelled; the command was killed".to_owned()));
        }
    };
    let timed_out = desk
        .keeper
        .get(&desk.tenant, id)
        .is_ok_and(|(_, execs)| execs.iter().any(|card| card.exec == exec && card.timed_out));
    let how = if timed_out { "killed: its time was over".to_owned() } else { came.how };
    Ok(Came { of: id.to_string(), exec: Some(exec), how, timed_out, ..came })
}

async fn listen(mut reader: TapeReader, call: impl Future<Output = CallCard>, asker: &Asker) -> Came {
    let (mut out, mut err) = (Bounded::default(), Bounded::default());
    let begun = Instant::now();
    let (mut bytes, mut gone) = (0, 0_u64);
    let mut ticks = interval_at(begun + PROGRESS, PROGRESS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut call = std::pin::pin!(call);
    let ended = loop {
        let event = tokio::select! {
            // What was printed before a call is told with it.
            biased;
            _ = ticks.tick() => {
                asker.progress(begun, bytes).await;
                continue;
            }
            event = reader.next() => event,
            card = &mut call => break Over::Calls(card),
        };
        match event {
            Some((_, TapeEvent::Output { stream, bytes: piece })) => {
                bytes += piece.len();
                match stream {
                    Stream::Stdout => out.add(&piece),
                    Stream::Stderr => err.add(&piece),
                }
            }
            Some((_, TapeEvent::Ended { ended, .. })) => break Over::Ended(Some(ended)),
            // Whoever listens anew after a call hears only what is still kept.
            Some((_, TapeEvent::Dropped { bytes })) => gone = gone.saturating_add(bytes),
            Some((_, TapeEvent::Started { .. })) => {}
            None => break Over::Ended(None),
        }
    };
    let ((stdout, one), (stderr, two)) = (out.finish(), err.finish());
    let (how, exit_code, waits) = match ended {
        Over::Ended(ended) => {
            let (how, exit_code) = words(ended);
            (how, exit_code, None)
        }
        Over::Calls(card) => (calls::words(&card), None, Some(card)),
    };
    let left_out = one.saturating_add(two).saturating_add(usize::try_from(gone).unwrap_or(usize::MAX));
    Came { how, exit_code, waits, stdout, stderr, left_out, ..Came::default() }
}

/// Why nobody listens to a command any more.
enum Over {
    Ended(Option<ExecEnded>),
    Calls(CallCard),
}

fn words(ended: Option<ExecEnded>) -> (String, Option<u8>) {
    match ended {
        Some(ExecEnded::Exited { code }) => (format!("exit code {code}"), Some(code)),
        Some(ExecEnded::Signalled { signal }) => (format!("killed by signal {signal}"), None),
        Some(ExecEnded::FuelSpent { fuel }) => {
            (format!("ended after all its work: {fuel} units (fuel_spent)"), None)
        }
        Some(ExecEnded::NotStarted { code, message }) => (format!("not started: {message} ({code})"), None),
        Some(ExecEnded::BoxEnded { code, message }) => (format!("its box ended: {message} ({code})"), None),
        None => ("its box is gone".to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_output_keeps_its_beginning_and_its_end() {
        let mut bounded = Bounded::default();
        for number in 0..100_000 {
            bounded.add(format!("{number}\n").as_bytes());
            assert!(bounded.tail.len() <= 2 * MOST);
        }
        let (text, left_out) = bounded.finish();
        assert!(text.starts_with("0\n1\n") && text.ends_with("99998\n99999\n"));
        assert!(
            left_out > 0 && text.contains(&format!("{left_out} bytes left out")) && text.len() < MOST + 100
        );
    }

    #[test]
    fn short_output_is_whole() {
        let mut bounded = Bounded::default();
        bounded.add(&vec![b'a'; MOST]);
        assert_eq!(bounded.finish(), ("a".repeat(MOST), 0));
    }

    #[test]
    fn code_that_fails_is_an_error_of_the_tool_and_says_how() {
        let came =
            Came { how: "exit code 3".into(), exit_code: Some(3), stderr: "no\n".into(), ..Came::default() };
        let answer = came.answer();
        assert_eq!(answer.is_error, Some(true));
        assert_eq!(answer.content[0].as_text().unwrap().text, "stderr:\nno\nexit code 3");
        assert!(timeout(Some(0)).is_err() && timeout(Some(3_601)).is_err());
        assert_eq!(timeout(None).unwrap(), 60);
    }
}
