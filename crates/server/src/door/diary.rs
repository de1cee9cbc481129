//! One line for each thing that happens to a box, in the words of every other line: `box`, `exec`, `tier`, `boundary`,
//! `verdict`, `reason`, `took_ms`. The ledger is the evidence; this is for whoever reads along.
//!
//! The names that a box asks for are a guest's text: they stand between quotes, escaped and cut.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use blastbox_engine::keeper::{EventItem, EventReader, ExecEnded, Happened, KeeperEvent};
use blastbox_engine::ledger::Severity;
use blastbox_wire::receipt::LimitName;
use tokio::time::timeout;

use super::log::Log;

/// Lines about what guests do, in one [`SPAN`], of all boxes together; as many again for what somebody should look at today, so that a
/// flood of little things hides none of them. More are counted; each is an event nevertheless, and what counts is in the ledger.
const MOST: u32 = 200;
const SPAN: Duration = Duration::from_secs(1);
/// Most characters of a text from elsewhere.
const LONGEST: usize = 200;

/// Writes until there is no keeper any more.
pub(super) async fn keep(mut events: EventReader, log: Log) {
    let mut budget = Budgets::default();
    loop {
        let next = match budget.left_out() {
            0 => Ok(events.next().await),
            // A flood and then silence is told too.
            _ => timeout(SPAN, events.next()).await,
        };
        let item = match next {
            Ok(Some(item)) => item,
            Ok(None) => break,
            Err(_) => {
                tell_left_out(&mut budget, &log);
                continue;
            }
        };
        match item {
            EventItem::Missed { events } => log.line(&format!("event=events_missed count={events}")),
            EventItem::Event(event) => {
                let Some(line) = line(&event) else { continue };
                if is_of_guest(&event.what) && !budget.allows(severity(&event), Instant::now()) {
                    continue;
                }
                tell_left_out(&mut budget, &log);
                log.line(&line);
            }
        }
    }
    tell_left_out(&mut budget, &log);
}

fn tell_left_out(budget: &mut Budgets, log: &Log) {
    if let Some(left_out) = budget.told() {
        log.line(&format!("event=lines_left_out count={left_out}"));
    }
}

fn severity(event: &KeeperEvent) -> Severity {
    event.alert.as_ref().map_or(Severity::Low, |alert| alert.severity)
}

/// What a guest may do as often as it likes.
fn is_of_guest(what: &Happened) -> bool {
    matches!(
        what,
        Happened::SyscallDenied { .. }
            | Happened::UnexpectedWrite { .. }
            | Happened::NetworkDenied { .. }
            | Happened::LimitMet { .. }
    )
}

/// What is said of one event; `None` for what is in the ring of the network, where it can be followed.
fn line(event: &KeeperEvent) -> Option<String> {
    let said = match &event.what {
        Happened::BoxCreated { warm, tier } => format!("event=box_created tier={tier} warm={warm}"),
        Happened::BoxReady { took_ms } => format!("event=box_ready took_ms={took_ms}"),
        Happened::ExecStarted { exec } => format!("event=exec_started exec={exec}"),
        Happened::ExecEnded { exec, ended, timed_out } => {
            let reason = if *timed_out { "timed_out".to_owned() } else { end(ended) };
            format!("event=exec_ended exec={exec} reason={reason}")
        }
        Happened::BoxPaused => "event=box_paused".to_owned(),
        Happened::BoxResumed => "event=box_resumed".to_owned(),
        Happened::BoxAdopted => "event=box_adopted".to_owned(),
        Happened::DeadlineNear { seconds_left } => {
            format!("event=deadline_near boundary=lifecycle seconds_left={seconds_left}")
        }
        Happened::LimitMet { limit } => {
            let boundary = match limit {
                LimitName::Memory | LimitName::Pids | LimitName::Fuel => "kernel",
                LimitName::Disk | LimitName::Inodes => "files",
                LimitName::Output | LimitName::Timeout => "lifecycle",
            };
            format!("event=limit_met boundary={boundary} verdict=deny reason={}", limit.as_str())
        }
        Happened::SyscallDenied { syscall, count } => {
            format!("event=syscall_denied boundary=kernel verdict=deny reason={syscall} count={count}")
        }
        // No verdict: whether it could is for the kernel, which does not say.
        Happened::UnexpectedWrite { path, reason, syscall, count } => format!(
            "event=unexpected_write boundary=files reason={reason} syscall={syscall} path={} count={count}",
            quoted(path)
        ),
        Happened::NetworkDenied { target, port, reason, count, .. } => format!(
            "event=network_denied boundary=network verdict=deny reason={reason} target={} port={port} count={count}",
            quoted(target)
        ),
        Happened::RulesChanged { allowed, denied, .. } => {
            let (came, went) = (allowed.len(), denied.len());
            format!("event=rules_changed boundary=network allowed={came} denied={went}")
        }
        Happened::SecretTrouble { secret, why } => format!(
            "event=secret_trouble boundary=credentials secret={} reason={}",
            quoted(secret),
            quoted(why)
        ),
        Happened::BoxEnded { outcome, reason } => {
            format!("event=box_ended outcome={} reason={reason}", outcome.as_str())
        }
        Happened::PoolPoisoned => "event=pool_poisoned".to_owned(),
        Happened::SinkUnreachable { sink, why } => {
            format!("event=sink_unreachable sink={} reason={}", quoted(sink), quoted(why))
        }
        Happened::SinkReached { sink } => format!("event=sink_reached sink={}", quoted(sink)),
        Happened::AlertsDropped { alerts } => format!("event=alerts_dropped count={alerts}"),
        Happened::NameAsked { .. }
        | Happened::SecretLent { .. }
        | Happened::NetworkUntold { .. }
        | Happened::NetworkOpened { .. }
        | Happened::NetworkClosed { .. } => return None,
    };
    let mut line = said;
    // Writing to a string cannot fail.
    if let Some(id) = &event.box_id {
        write!(line, " box={}", id.as_str()).ok();
    }
    if let Some(tenant) = &event.tenant {
        write!(line, " tenant={tenant}").ok();
    }
    if let Some(alert) = &event.alert {
        write!(line, " alert={} severity={}", alert.code.as_str(), alert.severity.as_str()).ok();
    }
    Some(line)
}

fn end(ended: &ExecEnded) -> String {
    match ended {
        ExecEnded::Exited { code } => format!("exited_{code}"),
        ExecEnded::Signalled { signal } => format!("signal_{signal}"),
        ExecEnded::FuelSpent { .. } => "fuel_spent".to_owned(),
        ExecEnded::NotStarted { code, .. } | ExecEnded::BoxEnded { code, .. } => code.clone(),
    }
}

/// Text from elsewhere.
fn quoted(text: &str) -> String {
    let cut: String = text.chars().take(LONGEST).collect();
    format!("{cut:?}")
}

/// How many lines may still be written about guests, for little things and for others.
#[derive(Debug, Default)]
struct Budgets {
    little: Budget,
    grave: Budget,
}

impl Budgets {
    fn allows(&mut self, severity: Severity, now: Instant) -> bool {
        let budget = if severity == Severity::Low { &mut self.little } else { &mut self.grave };
        budget.allows(now)
    }

    fn left_out(&self) -> u64 {
        self.little.left_out + self.grave.left_out
    }

    /// How many were left out since it was told the last time.
    fn told(&mut self) -> Option<u64> {
        let left_out = std::mem::take(&mut self.little.left_out) + std::mem::take(&mut self.grave.left_out);
        (left_out > 0).then_some(left_out)
    }
}

#[derive(Debug, Default)]
struct Budget {
    since: Option<Instant>,
    written: u32,
    left_out: u64,
}

impl Budget {
    fn allows(&mut self, now: Instant) -> bool {
        if self.since.is_none_or(|since| now.duration_since(since) >= SPAN) {
            (self.since, self.written) = (Some(now), 0);
        }
        let allowed = self.written < MOST;
        if allowed {
            self.written += 1;
        } else {
            self.left_out += 1;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use blastbox_policy::Tier;
    use blastbox_wire::BoxId;
    use blastbox_wire::egress::Carried;
    use blastbox_wire::receipt::Outcome;

    use super::*;

    fn said(what: Happened) -> Option<String> {
        let alert = what.alert();
        line(&KeeperEvent {
            seq: 1,
            at: String::new(),
            tenant: Some("team".parse().unwrap()),
            box_id: Some(BoxId::from_random([7; 20])),
            what,
            alert,
        })
    }

    #[test]
    fn a_life_and_what_was_denied_in_it_are_told_in_the_same_words() {
        let id = BoxId::from_random([7; 20]);
        let whose = format!("box={} tenant=team", id.as_str());
        for (what, line) in [
            (
                Happened::BoxCreated { warm: false, tier: Tier::Jail },
                "event=box_created tier=jail warm=false ",
            ),
            (Happened::BoxReady { took_ms: 3 }, "event=box_ready took_ms=3 "),
            (
                Happened::ExecEnded { exec: 2, ended: ExecEnded::Exited { code: 7 }, timed_out: false },
                "event=exec_ended exec=2 reason=exited_7 ",
            ),
            (
                Happened::BoxEnded { outcome: Outcome::TimedOut, reason: "idle".to_owned() },
                "event=box_ended outcome=timed_out reason=idle ",
            ),
        ] {
            assert_eq!(said(what).unwrap(), format!("{line}{whose}"));
        }
        let mount = said(Happened::SyscallDenied { syscall: "mount".to_owned(), count: 2 }).unwrap();
        let denied = "event=syscall_denied boundary=kernel verdict=deny reason=mount count=2 ";
        assert_eq!(mount, format!("{denied}{whose} alert=mount_attempt severity=high"));
        assert_eq!(said(Happened::NetworkUntold { count: 1 }), None);
    }

    #[test]
    fn a_name_that_a_guest_invents_makes_neither_a_line_nor_a_word() {
        let target = format!("a\nevent=box_ended box=bx_x {}", "y".repeat(1_000));
        let reason = "host-not-allowed".to_owned();
        let line = said(Happened::NetworkDenied {
            flow: 0,
            door: None,
            target,
            port: 443,
            kind_asked: None,
            address: None,
            reason,
            count: 1,
            carried: Carried::default(),
        });
        let line = line.unwrap();
        assert!(line.contains("reason=host-not-allowed target=\"a\\nevent=box_ended"), "{line}");
        assert!(line.lines().count() == 1 && line.len() < 500, "{line}");
    }

    #[test]
    fn a_guest_that_tries_for_ever_is_counted_and_not_written_for_ever() {
        let (mut budget, now) = (Budgets::default(), Instant::now());
        let written = (0..1_000).filter(|_| budget.allows(Severity::Low, now)).count();
        assert!(budget.allows(Severity::High, now), "what somebody should look at is not hidden by a flood");
        assert_eq!(u32::try_from(written).unwrap(), MOST);
        assert!(budget.allows(Severity::Low, now + SPAN));
        assert_eq!((budget.told(), budget.told()), (Some(1_000 - u64::from(MOST)), None));
    }
}
