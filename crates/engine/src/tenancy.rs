//! The secrets of one box for as long as it lives: minted before it, renewed beside it, revoked after it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use blastbox_isolation::gateway::Voice;
use blastbox_policy::{CredentialMode, SealedPolicy};
use blastbox_wire::BoxId;
use blastbox_wire::egress::{LentSecret, Veiled};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::leases::{
    Broker, GivenSecret, Lent, MintError, Renewable, Revocable, SecretValue, Tell, Told, leases,
};

/// The secrets of one box.
#[derive(Debug)]
pub(crate) struct Tenancy {
    /// Who has lent something of the operator's.
    broker: Option<Arc<Broker>>,
    revocable: Mutex<Vec<Revocable>>,
    renewable: Vec<Renewable>,
    keeping: Mutex<Option<AbortHandle>>,
    tell: Tell,
}

impl Tenancy {
    /// Mints what the policy binds, but for what the box's owner has `given`. `None`: it binds nothing.
    pub(crate) async fn begin(
        broker: Option<&Arc<Broker>>,
        given: &[GivenSecret],
        box_id: &BoxId,
        policy: &SealedPolicy,
        tell: Tell,
    ) -> Result<Option<(Self, Vec<LentSecret>)>, MintError> {
        let rules = policy.credentials();
        if rules.mode != CredentialMode::Brokered || rules.bind.is_empty() {
            return Ok(None);
        }
        let (mut secrets, mut named) = (Vec::new(), Vec::new());
        for (place, binding) in (0..).zip(&rules.bind) {
            match given.iter().find(|given| given.is_for(binding)) {
                Some(given) => {
                    // Where nobody listens, nobody wants to know.
                    tell.send(Told::Minted { secret: binding.secret().clone(), ttl: None }).ok();
                    secrets.push(message(place, given.value(), None));
                }
                None => named.push((place, binding.clone())),
            }
        }
        let lent = match (broker, named.first()) {
            (_, None) => Vec::new(),
            (Some(broker), Some(_)) => broker.mint_some(box_id, named, &tell).await?,
            (None, Some((_, first))) => return Err(MintError::Unknown(first.secret().clone())),
        };
        secrets.extend(lent.iter().map(|one| message(one.place, &one.value, one.ttl)));
        secrets.sort_by_key(|secret| secret.binding);
        let tenancy = Self {
            broker: broker.cloned(),
            revocable: Mutex::new(leases(&lent)),
            renewable: lent.iter().filter_map(Lent::renewable).collect(),
            keeping: Mutex::default(),
            tell,
        };
        Ok(Some((tenancy, secrets)))
    }

    /// Renews what can be renewed, and tells the gateway, until the box ends.
    pub(crate) fn keep(&self, voice: Voice) {
        let Some(broker) = self.broker.clone().filter(|_| !self.renewable.is_empty()) else { return };
        let (lent, tell) = (self.renewable.clone(), self.tell.clone());
        let keeping = tokio::spawn(async move {
            let (renewed, mut hear) = mpsc::unbounded_channel();
            let pass_on = async {
                while let Some(word) = hear.recv().await {
                    if let Told::Renewed { binding, ttl, .. } = &word {
                        let seconds = u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX);
                        // A gateway that is gone needs no secrets.
                        voice.renewed(*binding, seconds).ok();
                    }
                    tell.send(word).ok();
                }
            };
            tokio::join!(broker.keep_alive(lent, renewed), pass_on);
        });
        *self.keeping.lock().unwrap_or_else(PoisonError::into_inner) = Some(keeping.abort_handle());
    }

    /// Revokes what can be revoked. Waits for it a little; what is not done then is done meanwhile or by the next daemon.
    pub(crate) async fn end(&self) {
        let leases = self.stop();
        if let Some(broker) = &self.broker {
            broker.give_back(leases, &self.tell).await;
        }
    }

    /// Renews nothing any more, and says what is to be revoked. Once.
    fn stop(&self) -> Vec<Revocable> {
        if let Some(keeping) = self.keeping.lock().unwrap_or_else(PoisonError::into_inner).take() {
            keeping.abort();
        }
        std::mem::take(&mut *self.revocable.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Tenancy {
    fn drop(&mut self) {
        let leases = self.stop();
        let Some(broker) = self.broker.clone().filter(|_| !leases.is_empty()) else { return };
        // Where no runtime is left, the register is.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let tell = self.tell.clone();
            runtime.spawn(async move { broker.revoke(leases, &tell).await });
        }
    }
}

fn message(place: u16, value: &SecretValue, ttl: Option<Duration>) -> LentSecret {
    LentSecret {
        binding: place,
        value: Veiled::new(value.expose_to_gateway().to_vec()),
        seconds: ttl.map(|ttl| u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX).max(1)),
    }
}
