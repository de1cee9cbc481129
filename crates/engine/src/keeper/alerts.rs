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
            Self::UnexpectedWrite { path, reason, syscall, count } => alert(&Event::UnexpectedWrite {
                path: Label::new(path),
                reason: Label::new(reason),
                syscall: Label::new(syscall),
                count: *count,
            }),
            Self::NetworkDenied { flow, door, target, port, kind_asked, address, reason, count, carried } => {
                alert(&Event::NetworkDenied {
                    flow: *flow,
                    door: *door,
                    target: Label::new(target),
                    port: *port,
                    kind_asked: *kind_asked,
                    address: *address,
                    reason: Label::new(reason),
                    count: *count,
                    carried: *carried,
                })
            }
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
    use blastbox_wire::egress::Carried;
    use blastbox_wire::event::Hash;
    use blastbox_wire::receipt::LimitName;

    use super::*;

    #[test]
    fn each_thing_that_a_person_should_hear_about_raises_its_alert() {
        let of = |happened: Happened| happened.alert().map(|alert| alert.code);
        let denied = |syscall: &str| of(Happened::SyscallDenied { syscall: syscall.to_owned(), count: 1 });
        let kept_from = |target: &str, reason: &str| {
            let (target, reason) = (target.to_owned(), reason.to_owned());
            of(Happened::NetworkDenied {
                flow: 0,
                door: None,
                target,
                port: 80,
                kind_asked: None,
                address: None,
                reason,
                count: 1,
                carried: Carried::default(),
            })
        };
        let (sink, why) = ("siem".to_owned(), String::new());
        let recovered = Event::Recovered {
            file: 0,
            bytes: 3,
            digest: Hash::from_bytes([0; 32]),
            kept_as: Label::new("x"),
        };
        let raised = [
            (denied("mbind"), AlertCode::DeniedSyscall),
            (denied("mount"), AlertCode::MountAttempt),
            (denied("bpf"), AlertCode::EscapeAttempt),
            (denied("9999"), AlertCode::EscapeAttempt),
            (
                of(Happened::UnexpectedWrite {
                    path: "/etc/passwd".to_owned(),
                    reason: "outside".to_owned(),
                    syscall: "openat".to_owned(),
                    count: 1,
                }),
                AlertCode::UnexpectedWrite,
            ),
            (kept_from("example.com", "host-not-allowed"), AlertCode::DeniedNetwork),
            (kept_from("metadata.internal", "metadata-address"), AlertCode::MetadataAttempt),
            (kept_from("169.254.169.254", "address-not-allowed"), AlertCode::MetadataAttempt),
            (
                of(Happened::SecretTrouble { secret: "db".to_owned(), why: why.clone() }),
                AlertCode::SecretTrouble,
            ),
            (of(Happened::LimitMet { limit: LimitName::Memory }), AlertCode::LimitMet),
            (of(Happened::DeadlineNear { seconds_left: 6 }), AlertCode::NearingTimeLimit),
            (of(Happened::PoolPoisoned), AlertCode::PoolPoisoned),
            (of(Happened::SinkUnreachable { sink: sink.clone(), why }), AlertCode::SinkUnreachable),
            (of(Happened::AlertsDropped { alerts: 3 }), AlertCode::AlertsDropped),
            // Told by the ledger itself, before there is a keeper.
            (alert(&recovered).map(|alert| alert.code), AlertCode::LedgerRecovered),
        ];
        for (raised, code) in raised {
            assert_eq!(raised, Some(code));
        }
        for code in AlertCode::ALL {
            assert!(raised.iter().any(|(_, known)| *known == code), "nothing raises {code:?}");
        }
        assert_eq!(of(Happened::BoxPaused), None);
        assert_eq!(of(Happened::SinkReached { sink }), None);
    }
}
