//! Follows a command: what it prints and how it ends, also across a broken connection.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blastbox_engine::{EXIT_REFUSED, Stream};
use blastbox_wire::BoxId;
use serde::Deserialize;
use serde_json::json;
use tokio::time::sleep;

use super::client::Client;
use super::hear::{Event, Events};
use super::problem::DaemonProblem;
use super::table::{EndView, EndedView};
use crate::output::plain;

/// How often a broken connection is made again without anything new heard, and after which pause.
const TRIES: u32 = 5;
const BREATH: Duration = Duration::from_millis(200);
const SIGNALLED: u8 = 128;
const TIMED_OUT: u8 = 124;
/// The nearest word that signals have for work that is spent.
const SIGXCPU: u8 = 24;

/// Something that was heard of a command.
#[derive(Debug)]
pub(crate) enum Heard {
    Started,
    Output(Stream, Vec<u8>),
    Dropped(u64),
    Ended(EndView),
}

impl Heard {
    /// The same as one line of JSON, in the words of the API.
    pub(crate) fn json(&self) -> Result<Vec<u8>, serde_json::Error> {
        let line = match self {
            Self::Started => json!({ "event": "started" }),
            Self::Output(stream, bytes) => {
                let stream = match stream {
                    Stream::Stdout => "stdout",
                    Stream::Stderr => "stderr",
                };
                json!({ "event": "output", "stream": stream, "base64": STANDARD.encode(bytes) })
            }
            Self::Dropped(bytes) => json!({ "event": "dropped", "bytes": bytes }),
            Self::Ended(ended) => {
                let mut line = serde_json::to_value(ended)?;
                if let Some(fields) = line.as_object_mut() {
                    fields.insert("event".to_owned(), "ended".into());
                }
                line
            }
        };
        Ok(format!("{line}\n").into_bytes())
    }
}

/// How far a command is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// To what it has printed by now.
    Now,
    /// To its end.
    Ended,
}

/// Follows one command.
#[derive(Debug)]
pub(crate) struct Follow {
    client: Client,
    path: String,
    until: Until,
    events: Option<Events>,
    seen: Option<String>,
    tries: u32,
}

impl Follow {
    pub(crate) fn new(client: Client, id: &BoxId, exec: u32, until: Until) -> Self {
        let follow = until == Until::Ended;
        let path = format!("/v1/boxes/{}/execs/{exec}/events?follow={follow}", id.as_str());
        Self { client, path, until, events: None, seen: None, tries: 0 }
    }

    /// The next thing; `None` where nothing more was printed by now. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Heard>, DaemonProblem> {
        loop {
            let events = match &mut self.events {
                Some(events) => events,
                none => none.insert(Events::open(&self.client, &self.path, self.seen.as_deref()).await?),
            };
            match events.next().await {
                Ok(Some(event)) => {
                    self.tries = 0;
                    let heard = read(&event)?;
                    self.seen = event.id.or(self.seen.take());
                    if let Some(heard) = heard {
                        return Ok(Some(heard));
                    }
                }
                Ok(None) if self.until == Until::Now => return Ok(None),
                Ok(None) | Err(DaemonProblem::BrokeOff(_)) => {
                    self.events = None;
                    self.tries += 1;
                    if self.tries > TRIES {
                        return Err(DaemonProblem::LostTrack);
                    }
                    sleep(BREATH).await;
                }
                Err(other) => return Err(other),
            }
        }
    }
}

#[derive(Debug, Deserialize)]
struct Output<'a> {
    stream: &'a str,
    base64: &'a str,
}

#[derive(Debug, Deserialize)]
struct Dropped {
    bytes: u64,
}

/// An event of a kind that this version does not know is passed over.
fn read(event: &Event) -> Result<Option<Heard>, DaemonProblem> {
    let bad = DaemonProblem::Unreadable;
    Ok(Some(match event.name.as_str() {
        "started" => Heard::Started,
        "output" => {
            let Output { stream, base64 } = serde_json::from_str(&event.data).map_err(bad)?;
            let stream = if stream == "stderr" { Stream::Stderr } else { Stream::Stdout };
            Heard::Output(stream, STANDARD.decode(base64).map_err(|_| DaemonProblem::BadEvent)?)
        }
        "dropped" => Heard::Dropped(serde_json::from_str::<Dropped>(&event.data).map_err(bad)?.bytes),
        "ended" => Heard::Ended(serde_json::from_str(&event.data).map_err(bad)?),
        _ => return Ok(None),
    }))
}

/// The exit code of a command that ended so: as `blastbox run` gives it.
pub(crate) fn code(ended: &EndView) -> u8 {
    match &ended.how {
        // Killed: with the number that `run` gives a box whose time is over.
        EndedView::Signalled { .. } if ended.timed_out => TIMED_OUT,
        EndedView::Exited { code } => *code,
        EndedView::Signalled { signal } => SIGNALLED.saturating_add(*signal),
        EndedView::FuelSpent { .. } => SIGNALLED + SIGXCPU,
        EndedView::NotStarted { code, .. } | EndedView::BoxEnded { code, .. } => match code.as_str() {
            "not_found" => 127,
            "not_executable" => 126,
            "timed_out" => TIMED_OUT,
            "out_of_memory" | "killed" => 137,
            "output_limit" => 153,
            _ => EXIT_REFUSED,
        },
    }
}

/// A word about an end that was not the command's own doing.
pub(crate) fn complaint(ended: &EndView) -> Option<String> {
    match &ended.how {
        EndedView::Signalled { .. } if ended.timed_out => {
            Some("error: timed_out: the time of the command was over, and it was killed\n".to_owned())
        }
        EndedView::Exited { .. } | EndedView::Signalled { .. } => None,
        EndedView::FuelSpent { fuel } => {
            Some(format!("error: fuel_spent: the command did all its work ({fuel} units)\n"))
        }
        EndedView::NotStarted { code, message } | EndedView::BoxEnded { code, message } => {
            Some(format!("error: {}: {}\n", plain(code), plain(message)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, data: &str) -> Event {
        Event { id: None, name: name.into(), data: data.into() }
    }

    #[test]
    fn output_is_read_and_what_is_unknown_is_passed_over() {
        let heard = read(&event("output", r#"{"stream":"stderr","base64":"aGk="}"#)).unwrap();
        assert!(matches!(heard, Some(Heard::Output(Stream::Stderr, bytes)) if bytes == b"hi"));
        assert!(read(&event("teleported", "{}")).unwrap().is_none());
        assert!(read(&event("output", r#"{"stream":"stdout","base64":"?"}"#)).is_err());
    }

    #[test]
    fn what_was_heard_is_said_again_in_the_same_words() {
        for (name, data) in [
            ("output", r#"{"base64":"aGk=","stream":"stderr"}"#),
            ("dropped", r#"{"bytes":7}"#),
            ("ended", r#"{"code":3,"how":"exited","timed_out":false}"#),
        ] {
            let line = read(&event(name, data)).unwrap().unwrap().json().unwrap();
            let mut said: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&line).unwrap();
            assert_eq!(said.remove("event"), Some(name.into()));
            assert_eq!(
                serde_json::Value::Object(said),
                serde_json::from_str::<serde_json::Value>(data).unwrap()
            );
            assert!(line.ends_with(b"\n"));
        }
    }

    #[test]
    fn each_ending_has_the_exit_code_that_run_gives_it() {
        for (data, expected) in [
            (r#"{"how":"exited","code":3}"#, 3),
            (r#"{"how":"signalled","signal":9}"#, 137),
            (r#"{"how":"signalled","signal":9,"timed_out":false}"#, 137),
            (r#"{"how":"signalled","signal":9,"timed_out":true}"#, 124),
            // It was faster than its time.
            (r#"{"how":"exited","code":0,"timed_out":true}"#, 0),
            (r#"{"how":"fuel-spent","fuel":7}"#, 152),
            (r#"{"how":"not-started","code":"not_found","message":""}"#, 127),
            (r#"{"how":"not-started","code":"not_executable","message":""}"#, 126),
            (r#"{"how":"not-started","code":"bad_directory","message":""}"#, 125),
            (r#"{"how":"box-ended","code":"timed_out","message":""}"#, 124),
            (r#"{"how":"box-ended","code":"output_limit","message":""}"#, 153),
            (r#"{"how":"box-ended","code":"lost","message":""}"#, 125),
        ] {
            let Some(Heard::Ended(ended)) = read(&event("ended", data)).unwrap() else { panic!("{data}") };
            assert_eq!(code(&ended), expected, "{data}");
            let said = complaint(&ended).unwrap_or_default();
            assert_eq!(said.contains("timed_out"), expected == 124, "{data}: {said}");
        }
    }
}
