//! Alerts for whoever should hear of them: one POST each, signed, in order, tried again for a while.
//!
//! The queue is the keeper's own ring of events (4,096 of all kinds): a webhook that is down costs no memory. What it
//! loses is counted in `blastbox_alerts_dropped_total`, and told as an alert of its own.

use std::time::Duration;

use blastbox_engine::keeper::{EventItem, Happened, Keeper, KeeperEvent};
use blastbox_engine::ledger::{Alert, Severity};
use serde::Serialize;
use tokio::time::sleep;

use super::hmac;
use super::target::{BadTarget, SendError, Target, read_secret};

/// How often one alert is tried, and the pauses between: so long at first, then twice as long each time.
const TRIES: u32 = 7;
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Where alerts go.
#[derive(Debug)]
pub struct Webhook {
    target: Target,
    secret: Secret,
    least: Severity,
}

struct Secret(Vec<u8>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[derive(Debug, Serialize)]
struct Paper<'a> {
    version: u8,
    alert: &'a Alert,
    event: &'a KeeperEvent,
}

impl Webhook {
    /// Alerts of at least this severity, signed with what this file holds.
    pub fn new(target: Target, secret: &std::path::Path, least: Severity) -> Result<Self, BadTarget> {
        Ok(Self { target, secret: Secret(read_secret(secret)?), least })
    }

    /// Sends alerts until the keeper stops.
    pub async fn run(self, keeper: Keeper) {
        let mut reader = keeper.subscribe(None);
        while let Some(item) = reader.next().await {
            match item {
                EventItem::Event(event) => {
                    let Some(alert) = event.alert.as_ref().filter(|alert| alert.severity >= self.least)
                    else {
                        continue;
                    };
                    match self.send(&event, alert).await {
                        Ok(()) => keeper.alerts_sent(1),
                        // Of this one nobody is told through the same door: it would come back for ever.
                        Err(_) if matches!(event.what, Happened::AlertsDropped { .. }) => {}
                        Err(_) => keeper.alerts_dropped(1),
                    }
                }
                // Events of every kind: how many of them were alerts is not known any more.
                EventItem::Missed { events } => keeper.alerts_dropped(events),
            }
        }
    }

    async fn send(&self, event: &KeeperEvent, alert: &Alert) -> Result<(), SendError> {
        let paper = Paper { version: 1, alert, event };
        // Numbers and strings always become JSON.
        let body = serde_json::to_vec(&paper).unwrap_or_default();
        let mut pause = PAUSE;
        for attempt in 1.. {
            match self.target.post("application/json", &self.headers(event, &body), body.clone()).await {
                Ok(_) => return Ok(()),
                Err(error) if attempt >= TRIES || !worth_another_try(&error) => return Err(error),
                Err(_) => sleep(pause).await,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        Ok(())
    }

    /// The moment is signed too: who gets it can refuse what is old.
    fn headers(&self, event: &KeeperEvent, body: &[u8]) -> [(&'static str, String); 3] {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let moment = now.as_secs().to_string();
        let code = hmac::hex(&self.secret.0, &[moment.as_bytes(), b".", body]);
        [
            ("x-blastbox-delivery", event.seq.to_string()),
            ("x-blastbox-timestamp", moment),
            ("x-blastbox-signature", format!("sha256={code}")),
        ]
    }
}

/// Whoever understands the question and says no says so again.
fn worth_another_try(error: &SendError) -> bool {
    match error {
        SendError::Status(status) => status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429),
        SendError::Build(_) => false,
        SendError::Connect(_) | SendError::Talk(_) | SendError::Answer | SendError::TooSlow => true,
    }
}
