//! The secrets of one box for as long as it lives: minted before it, renewed beside it, revoked after it.

use std::sync::{Arc, Mutex, PoisonError};

use blastbox_isolation::gateway::Voice;
use blastbox_policy::{CredentialMode, SealedPolicy};
use blastbox_wire::BoxId;
use blastbox_wire::egress::{LentSecret, Veiled};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::leases::{Broker, Lent, MintError, Renewable, Revocable, Tell, Told, leases};

/// The secrets of one box.
#[derive(Debug)]
pub(crate) struct Tenancy {
    broker: Arc<Broker>,
    revocable: Mutex<Vec<Revocable>>,
    renewable: Vec<Renewable>,
    keeping: Mutex<Option<AbortHandle>>,
    tell: Tell,
}

impl Tenancy {
    /// Mints what the policy binds. `None`: it binds nothing.
    pub(crate) async fn begin(
        broker: Option<&Arc<Broker>>,
        box_id: &BoxId,
        policy: &SealedPolicy,
        tell: Tell,
    ) -> Result<Option<(Self, Vec<LentSecret>)>, MintError> {
        let rules = policy.credentials();
        let (CredentialMode::Brokered, Some(first)) = (rules.mode, rules.bind.first()) else {
            return Ok(None);
        };
        let broker = broker.ok_or_else(|| MintError::Unknown(first.secret().clone()))?;
        let lent = broker.mint(box_id, &rules.bind, &tell).await?;
        let secrets = (0..).zip(&lent).map(|(place, one)| message(place, one)).collect();
        let tenancy = Self {
            broker: Arc::clone(broker),
            revocable: Mutex::new(leases(&lent)),
            renewable: lent.iter().filter_map(Lent::renewable).collect(),
            keeping: Mutex::default(),
            tell,
        };
        Ok(Some((tenancy, secrets)))
    }

    /// Renews what can be renewed, and tells the gateway, until the box ends.
    pub(crate) fn keep(&self, voice: Voice) {
        if self.renewable.is_empty() {
            return;
        }
        let (broker, lent, tell) = (Arc::clone(&self.broker), self.renewable.clone(), self.tell.clone());
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
        self.broker.give_back(leases, &self.tell).await;
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
        if leases.is_empty() {
            return;
        }
        // Where no runtime is left, the register is.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (broker, tell) = (Arc::clone(&self.broker), self.tell.clone());
            runtime.spawn(async move { broker.revoke(leases, &tell).await });
        }
    }
}

fn message(place: u16, one: &Lent) -> LentSecret {
    LentSecret {
        binding: place,
        value: Veiled::new(one.value.expose_to_gateway().to_vec()),
        seconds: one.ttl.map(|ttl| u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX).max(1)),
    }
}
