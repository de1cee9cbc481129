//! Which of the things that happen a person should hear about. Pure: the words are those of the ledger.

use blastbox_wire::event::{Event, Label};

use super::events::Happened;
use super::face::Keeper;
use crate::ledger::{Alert, AlertCode, Severity, alert};

impl Happened {
    /// The alert that this raises, if it raises one.
    #[must_use]
    pub fn alert(&self) -> Option<Alert> {
        match self {
            Self::SyscallDenied { syscall, count } => {
                // A call without a name is told by its number.
                let number = syscall.parse().ok();
                let name = number.is_none().then(|| Label::new(syscall));
                alert(&Event::SyscallDenied { number: number.unwrap_or(0), name, count: *count })
            }
            Self::NetworkDenied { target, port, reason, count } => alert(&Event::NetworkDenied {
                target: Label::new(target),
                port: *port,
                reason: Label::new(reason),
                count: *count,
            }),
            Self::LimitMet { limit } => alert(&Event::LimitMet { limit: *limit }),
            Self::DeadlineNear { seconds_left } => {
                alert(&Event::TimeNearlyOver { left_seconds: *seconds_left })
            }
            Self::SecretTrouble { secret, why } => {
                alert(&Event::SecretTrouble { secret: Label::new(secret), why: Label::new(why) })
            }
            Self::PoolPoisoned => alert(&Event::PoolPoisoned { why: Label::new(POISONED) }),
            Self::SinkUnreachable { sink, why } => {
                alert(&Event::SinkUnreachable { sink: Label::new(sink), why: Label::new(why) })
            }
            Self::AlertsDropped { alerts } => Some(Alert {
                severity: Severity::High,
                code: AlertCode::AlertsDropped,
                text: format!("{alerts} alerts did not reach the webhook, and are not sent again"),
            }),
            Self::BoxCreated { .. }
            | Self::BoxReady { .. }
            | Self::ExecStarted { .. }
            | Self::ExecEnded { .. }
            | Self::BoxPaused
            | Self::BoxResumed
            | Self::BoxAdopted
            | Self::BoxEnded { .. }
            | Self::NameAsked { .. }
            | Self::SecretLent { .. }
            | Self::NetworkUntold { .. }
            | Self::RulesChanged { .. }
            | Self::NetworkOpened { .. }
            | Self::NetworkClosed { .. }
            | Self::SinkReached { .. } => None,
        }
    }
}

/// What is told of a member of a pool that is not handed out; the ledger says more.
const POISONED: &str = "it died while it waited, or does not answer";

impl Keeper {
    /// A lease that an earlier daemon left could not be revoked. The ledger has it already.
    pub fn secret_trouble(&self, secret: String, why: String) {
        self.0.hub.tell(None, Happened::SecretTrouble { secret, why });
    }

    /// Alerts reached a webhook.
    pub fn alerts_sent(&self, alerts: u64) {
        self.0.count(|metrics| metrics.alerts_sent += alerts);
    }

    /// Alerts did not reach a webhook: counted, and told to whoever still listens.
    pub fn alerts_dropped(&self, alerts: u64) {
        self.0.count(|metrics| metrics.alerts_dropped += alerts);
        self.0.hub.tell(None, Happened::AlertsDropped { alerts });
    }
}

#[cfg(test)]
mod tests {
    use blastbox_wire::receipt::LimitName;

    use super::*;

    #[test]
    fn each_thing_that_a_person_should_hear_about_raises_its_alert() {
        let of = |happened: Happened| happened.alert().map(|alert| alert.code);
        let denied = |syscall: &str| of(Happened::SyscallDenied { syscall: syscall.to_owned(), count: 1 });
        let sink = "siem".to_owned();
        for (raised, code) in [
            (denied("mbind"), AlertCode::DeniedSyscall),
            (denied("mount"), AlertCode::MountAttempt),
            (denied("bpf"), AlertCode::EscapeAttempt),
            (denied("9999"), AlertCode::EscapeAttempt),
            (of(Happened::LimitMet { limit: LimitName::Memory }), AlertCode::LimitMet),
            (of(Happened::DeadlineNear { seconds_left: 6 }), AlertCode::NearingTimeLimit),
            (of(Happened::PoolPoisoned), AlertCode::PoolPoisoned),
            (
                of(Happened::SinkUnreachable { sink: sink.clone(), why: String::new() }),
                AlertCode::SinkUnreachable,
            ),
            (of(Happened::AlertsDropped { alerts: 3 }), AlertCode::AlertsDropped),
        ] {
            assert_eq!(raised, Some(code));
        }
        assert_eq!(of(Happened::BoxPaused), None);
        assert_eq!(of(Happened::SinkReached { sink }), None);
    }
}
