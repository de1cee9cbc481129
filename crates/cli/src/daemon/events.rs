//! `blastbox events`: what happens to boxes.

use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::time::sleep;

use super::Where;
use super::client::Client;
use super::hear::Events;
use super::problem::DaemonProblem;
use super::table::moment;
use crate::output::{self, READER_GONE, Reader, plain};
use crate::problem::Problem;

pub(crate) const HELP: &str = "Examples:\n  blastbox events                   what is still remembered\n  \
blastbox events --alerts --all    what somebody should look at\n  \
blastbox events --follow --json   one JSON document per line, until interrupted";

/// Before the daemon is asked again after it broke off: so long at first, twice as long each time, and never longer than the last.
const BREATH: Duration = Duration::from_millis(100);
const LONGEST_BREATH: Duration = Duration::from_secs(5);
/// What a daemon says that is about to end, or has no room in this moment.
const PASSING: [&str; 2] = ["stopping", "too_many_connections"];
/// The number before the first event of a daemon.
const BEGINNING: &str = "0";

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Go on with what happens from now on, also across a broken connection
    #[arg(long, short)]
    follow: bool,
    /// Only alerts: what a person should hear about
    #[arg(long)]
    alerts: bool,
    /// Of every tenant, not only of this socket's own boxes
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    place: Where,
    /// Print JSON, one document per line
    #[arg(long)]
    json: bool,
}

pub(crate) async fn events(args: EventsArgs) -> Result<u8, Problem> {
    let path = format!("/v1/events?follow={}&all={}&alerts={}", args.follow, args.all, args.alerts);
    tell(&args.place.client()?, &Stream { path, follow: args.follow, json: args.json, head: None }, line)
        .await
}

/// A stream of the daemon's that is printed.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) path: String,
    /// To go on when it is cut off, where it was.
    pub(super) follow: bool,
    pub(super) json: bool,
    /// The names of its columns.
    pub(super) head: Option<String>,
}

/// Prints events as they come, one line each: as they are, or in the words of `line`.
pub(super) async fn tell(
    client: &Client,
    stream: &Stream,
    line: fn(&str, &Value) -> String,
) -> Result<u8, Problem> {
    let mut seen = BEGINNING.to_owned();
    let mut events = Events::open(client, &stream.path, Some(&seen)).await?;
    if let Some(head) = stream.head.as_ref().filter(|_| !stream.json) {
        output::print(&format!("{head}\n"))?;
    }
    loop {
        let broke = loop {
            let event = match events.next().await {
                Ok(Some(event)) => event,
                Ok(None) => break None,
                Err(error) => break Some(error),
            };
            let data: Value = serde_json::from_str(&event.data).map_err(DaemonProblem::Unreadable)?;
            seen = event.id.unwrap_or(seen);
            let line = if stream.json { data.to_string() } else { line(&event.name, &data) };
            if output::print_on(&format!("{line}\n"))? == Reader::Gone {
                return Ok(READER_GONE);
            }
        };
        events = match broke {
            // A stream that is followed ends when its daemon does: another one will come.
            _ if stream.follow => again(client, &stream.path, &mut seen).await?,
            None => return Ok(0),
            Some(error) => return Err(error.into()),
        };
    }
}

/// Listens again, as soon as there is a daemon to listen to. What is wrong with the question itself is not asked again.
async fn again(client: &Client, path: &str, seen: &mut String) -> Result<Events, Problem> {
    let (mut breath, mut said) = (BREATH, false);
    loop {
        sleep(breath).await;
        breath = (breath * 2).min(LONGEST_BREATH);
        let gone = match Events::open(client, path, Some(seen.as_str())).await {
            Ok(events) => {
                if said {
                    output::say("blastbox: the daemon is there again\n");
                }
                return Ok(events);
            }
            Err(error) => error,
        };
        match &gone {
            // The next daemon counts from the beginning.
            DaemonProblem::NoDaemon { .. } => BEGINNING.clone_into(seen),
            DaemonProblem::BrokeOff(_) => {}
            DaemonProblem::No(no) if PASSING.contains(&no.code.as_str()) => {}
            _ => return Err(gone.into()),
        }
        if !std::mem::replace(&mut said, true) {
            output::say(&format!("blastbox: {}; it is waited for until Ctrl-C\n", plain(&gone.to_string())));
        }
    }
}

/// One event for people: when, which box, what, and whatever else is known.
fn line(name: &str, data: &Value) -> String {
    let text = |key: &str| data.get(key).and_then(Value::as_str).map(plain).unwrap_or_default();
    if name == "missed" {
        return format!("… {} events were missed", data.get("events").unwrap_or(&Value::Null));
    }
    let rest: Vec<String> = data
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| !["seq", "at", "box_id", "event", "tenant"].contains(&key.as_str()))
        .map(|(key, value)| match value.get("code").and_then(Value::as_str) {
            Some(code) if key == "alert" => format!("alert={}", plain(code)),
            _ => format!("{}={}", plain(key), plain(&value.to_string())),
        })
        .collect();
    let id = Some(text("box_id")).filter(|id| !id.is_empty()).unwrap_or_else(|| "-".to_owned());
    format!("{} {id} {} {}", moment(&text("at")), text("event"), rest.join(" ")).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        let data = serde_json::json!({
            "seq": 1, "at": "2026-01-31T12:00:00.123Z", "tenant": "local", "box_id": null,
            "event": "box_ended", "reason": "a\n\u{1b}[2Jb",
        });
        let line = line("event", &data);
        assert!(line.starts_with("2026-01-31 12:00:00Z - box_ended reason="), "{line}");
        assert!(!line.contains(['\n', '\u{1b}']), "{line}");
    }
}
