//! Leases of boxes: minted when a box is made, kept alive while it lives, revoked when it ends.

use std::sync::Arc;
use std::time::Duration;

use blastbox_policy::{Binding, SecretName};
use blastbox_wire::BoxId;
use blastbox_wire::event::{Event, Label};
use tokio::sync::mpsc;

use super::error::MintError;
use super::register::{Register, Revocable};
use super::sources::{PATIENCE, Sources};
use super::value::{Minted, SecretValue};

/// How often an end is tried at once; what is left then stays in the register.
const TRIES: u32 = 4;
/// How long the first wait between two tries is.
const BACKOFF: Duration = Duration::from_millis(250);
/// A lease is renewed when this much of its life is over, in tenths.
const RENEW_AT: u32 = 7;

/// What happened to a lease, for the ledger. Told before its effect where there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// It was minted and is about to be sent to the gateway.
    Minted {
        /// The secret.
        secret: SecretName,
        /// How long it lives, where its source says so.
        ttl: Option<Duration>,
    },
    /// It lives longer now.
    Renewed {
        /// The secret.
        secret: SecretName,
        /// How long.
        ttl: Duration,
    },
    /// It could not be renewed; when its time is over, requests fail.
    NotRenewed {
        /// The secret.
        secret: SecretName,
        /// Why.
        why: String,
    },
    /// It was revoked.
    Revoked {
        /// The secret.
        secret: SecretName,
    },
    /// It could not be revoked; it stays in the register, and the next daemon tries again.
    NotRevoked {
        /// The secret.
        secret: SecretName,
        /// Why.
        why: String,
    },
}

impl Told {
    /// What the ledger says of it.
    #[must_use]
    pub fn event(&self) -> Event {
        let label = |secret: &SecretName| Label::new(secret.as_str());
        match self {
            Self::Minted { secret, ttl } => {
                Event::SecretMinted { secret: label(secret), seconds: ttl.map(|ttl| ttl.as_secs()) }
            }
            Self::Renewed { secret, ttl } => {
                Event::SecretMinted { secret: label(secret), seconds: Some(ttl.as_secs()) }
            }
            Self::Revoked { secret } => Event::SecretRevoked { secret: label(secret) },
            Self::NotRenewed { secret, why } => Event::SecretTrouble {
                secret: label(secret),
                why: Label::new(&format!("not renewed: {why}")),
            },
            Self::NotRevoked { secret, why } => Event::SecretTrouble {
                secret: label(secret),
                why: Label::new(&format!("not revoked: {why}")),
            },
        }
    }
}

/// Lends secrets to boxes.
#[derive(Debug)]
pub struct Broker {
    sources: Sources,
    register: Option<Register>,
}

/// One secret of one box.
#[expect(missing_debug_implementations, reason = "it holds a secret")]
pub struct Lent {
    /// The binding that it is for.
    pub binding: Binding,
    /// Its value.
    pub value: SecretValue,
    /// How long it lives, where its source says so.
    pub ttl: Option<Duration>,
    lease: Option<Revocable>,
    renewable: bool,
}

impl Broker {
    /// Lends what the operator's file names. Without a register (a run without a daemon) leases are revoked at the end of
    /// the box and nobody is left who would do it after a crash.
    #[must_use]
    pub fn new(sources: Sources, register: Option<Register>) -> Arc<Self> {
        Arc::new(Self { sources, register })
    }

    /// Whether every secret of a policy is known and may go where it is bound. Reads nothing.
    pub fn permit(&self, bindings: &[Binding]) -> Result<(), MintError> {
        self.sources.permit(bindings)
    }

    /// Mints every secret of a box. Each is read anew: no box inherits another's. On an error what was minted is revoked.
    pub async fn mint(&self, box_id: &BoxId, bindings: &[Binding]) -> Result<Vec<Lent>, MintError> {
        self.permit(bindings)?;
        let mut lent = Vec::with_capacity(bindings.len());
        for binding in bindings {
            match self.mint_one(box_id, binding).await {
                Ok(one) => lent.push(one),
                Err(error) => {
                    let (told, _) = mpsc::unbounded_channel();
                    self.revoke(leases(&lent), &told).await;
                    return Err(error);
                }
            }
        }
        Ok(lent)
    }

    async fn mint_one(&self, box_id: &BoxId, binding: &Binding) -> Result<Lent, MintError> {
        let Minted { value, ttl, lease, renewable } = self.sources.fetch(binding).await?;
        let secret = binding.secret().clone();
        let lease = lease.map(|lease| Revocable { box_id: box_id.clone(), secret: secret.clone(), lease });
        if let (Some(lease), Some(register)) = (&lease, &self.register)
            && let Err(source) = register.add(lease)
        {
            self.revoke_once(lease).await.ok();
            return Err(MintError::Register { secret, path: register.folder().to_owned(), source });
        }
        Ok(Lent { binding: binding.clone(), value, ttl, lease, renewable })
    }

    /// Keeps the leases of a box alive until it is told to stop by being dropped. `renewed` gets the new life of each.
    pub async fn keep_alive(self: Arc<Self>, lent: Vec<Renewable>, told: mpsc::UnboundedSender<Told>) {
        let mut waiting = tokio::task::JoinSet::new();
        for one in lent {
            waiting.spawn(Arc::clone(&self).keep_one(one, told.clone()));
        }
        while waiting.join_next().await.is_some() {}
    }

    async fn keep_one(self: Arc<Self>, one: Renewable, told: mpsc::UnboundedSender<Told>) {
        let Renewable { lease, mut ttl } = one;
        loop {
            tokio::time::sleep(ttl * RENEW_AT / 10).await;
            let Some(vault) = &self.sources.vault else { return };
            let secret = lease.secret.clone();
            match tokio::time::timeout(PATIENCE, vault.renew(&secret, &lease.lease)).await {
                Ok(Ok(longer)) if !longer.is_zero() => {
                    ttl = longer;
                    // Nobody listens any more when the box has ended.
                    told.send(Told::Renewed { secret, ttl }).ok();
                }
                Ok(Ok(_)) => {
                    told.send(Told::NotRenewed { secret, why: "its life cannot be made longer".into() }).ok();
                    return;
                }
                Ok(Err(error)) => {
                    told.send(Told::NotRenewed { secret, why: chain(&error) }).ok();
                    return;
                }
                Err(_) => {
                    told.send(Told::NotRenewed { secret, why: "Vault did not answer in time".into() }).ok();
                    return;
                }
            }
        }
    }

    /// Revokes leases of a box that has ended. What cannot be revoked stays in the register.
    pub async fn revoke(&self, leases: Vec<Revocable>, told: &mpsc::UnboundedSender<Told>) {
        for lease in leases {
            let mut tried = 0;
            let outcome = loop {
                tried += 1;
                match self.revoke_once(&lease).await {
                    Err(_) if tried < TRIES => tokio::time::sleep(BACKOFF * 2_u32.pow(tried)).await,
                    outcome => break outcome,
                }
            };
            let secret = lease.secret.clone();
            let word = match outcome {
                Ok(()) => Told::Revoked { secret },
                Err(why) => Told::NotRevoked { secret, why },
            };
            told.send(word).ok();
        }
    }

    async fn revoke_once(&self, lease: &Revocable) -> Result<(), String> {
        let Some(vault) = &self.sources.vault else {
            return Err("there is no [vault] section any more".into());
        };
        match tokio::time::timeout(PATIENCE, vault.revoke(&lease.secret, &lease.lease)).await {
            Err(_) => return Err("Vault did not answer in time".into()),
            Ok(Err(error)) => return Err(chain(&error)),
            Ok(Ok(())) => {}
        }
        match &self.register {
            Some(register) => register.remove(lease).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }

    /// Revokes what a daemon that was killed has left, and tells what became of each. Its boxes are gone. To be called
    /// before the first box is made.
    pub async fn revoke_leftovers(&self) -> Vec<Told> {
        let leases = self.register.as_ref().and_then(|register| register.all().ok()).unwrap_or_default();
        let (tell, mut told) = mpsc::unbounded_channel();
        self.revoke(leases, &tell).await;
        std::iter::from_fn(|| told.try_recv().ok()).collect()
    }
}

/// A lease whose life can be made longer.
#[derive(Debug, Clone)]
pub struct Renewable {
    lease: Revocable,
    ttl: Duration,
}

impl Lent {
    /// The lease, where it can be revoked.
    #[must_use]
    pub fn lease(&self) -> Option<&Revocable> {
        self.lease.as_ref()
    }

    /// The lease, where its life can be made longer.
    #[must_use]
    pub fn renewable(&self) -> Option<Renewable> {
        match (&self.lease, self.ttl) {
            (Some(lease), Some(ttl)) if self.renewable => Some(Renewable { lease: lease.clone(), ttl }),
            _ => None,
        }
    }
}

/// The leases of these secrets that can be revoked.
#[must_use]
pub fn leases(lent: &[Lent]) -> Vec<Revocable> {
    lent.iter().filter_map(|one| one.lease.clone()).collect()
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
}
