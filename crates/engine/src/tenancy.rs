//! The secrets of one box for as long as it lives: minted before it, renewed beside it, revoked after it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use blastbox_isolation::gateway::Voice;
use blastbox_policy::{CredentialMode, SealedPolicy};
use blastbox_wire::BoxId;
use blastbox_wire::egress::{LentSecret, Veiled};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::leases::{Broker, Lent, MintError, Renewable, Revocable, Told, leases};

/// How long the end of a box waits for its leases to be revoked; what takes longer goes on without it.
const FAREWELL: Duration = Duration::from_secs(3);

/// The secrets of one box.
#[derive(Debug)]
pub(crate) struct Tenancy {
    broker: Arc<Broker>,
    revocable: Mutex<Vec<Revocable>>,
    renewable: Vec<Renewable>,
    keeping: Mutex<Option<AbortHandle>>,
    tell: mpsc::UnboundedSender<Told>,
    told: Mutex<mpsc::UnboundedReceiver<Told>>,
}

impl Tenancy {
    /// Mints what the policy binds. `None`: it binds nothing.
    pub(crate) async fn begin(
        broker: Option<&Arc<Broker>>,
        box_id: &BoxId,
        policy: &SealedPolicy,
    ) -> Result<Option<(Self, Vec<LentSecret>)>, MintError> {
        let rules = policy.credentials();
        let (CredentialMode::Brokered, Some(first)) = (rules.mode, rules.bind.first()) else {
            return Ok(None);
        };
        let broker = broker.ok_or_else(|| MintError::Unknown(first.secret().clone()))?;
        let lent = broker.mint(box_id, &rules.bind).await?;
        let (tell, told) = mpsc::unbounded_channel();
        for one in &lent {
            // The receiver is in our hand.
            tell.send(Told::Minted { secret: one.binding.secret().clone(), ttl: one.ttl }).ok();
        }
        let secrets = (0..).zip(&lent).map(|(place, one)| message(place, one)).collect();
        let tenancy = Self {
            broker: Arc::clone(broker),
            revocable: Mutex::new(leases(&lent)),
            renewable: lent.iter().filter_map(Lent::renewable).collect(),
            keeping: Mutex::default(),
            tell,
            told: Mutex::new(told),
        };
        Ok(Some((tenancy, secrets)))
    }

    /// Renews what can be renewed, and tells the gateway, until the box ends.
    pub(crate) fn keep(&self, voice: Voice, policy: &SealedPolicy) {
        if self.renewable.is_empty() {
            return;
        }
        let names: Vec<_> =
            policy.credentials().bind.iter().map(|binding| binding.secret().clone()).collect();
        let (broker, lent, tell) = (Arc::clone(&self.broker), self.renewable.clone(), self.tell.clone());
        let keeping = tokio::spawn(async move {
            let (renewed, mut hear) = mpsc::unbounded_channel();
            let pass_on = async {
                while let Some(word) = hear.recv().await {
                    if let Told::Renewed { secret, ttl } = &word {
                        let seconds = u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX);
                        for (place, _) in (0..).zip(&names).filter(|(_, name)| *name == secret) {
                            // A gateway that is gone needs no secrets.
                            voice.renewed(place, seconds).ok();
                        }
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
        if let Some(revoking) = self.revoke() {
            tokio::time::timeout(FAREWELL, revoking).await.ok();
        }
    }

    fn revoke(&self) -> Option<tokio::task::JoinHandle<()>> {
        if let Some(keeping) = self.keeping.lock().unwrap_or_else(PoisonError::into_inner).take() {
            keeping.abort();
        }
        let leases = std::mem::take(&mut *self.revocable.lock().unwrap_or_else(PoisonError::into_inner));
        if leases.is_empty() {
            return None;
        }
        let (broker, tell) = (Arc::clone(&self.broker), self.tell.clone());
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        Some(runtime.spawn(async move { broker.revoke(leases, &tell).await }))
    }

    /// What happened to its leases and nobody was told yet.
    pub(crate) fn take_news(&self) -> Vec<Told> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::from_fn(|| told.try_recv().ok()).collect()
    }
}

impl Drop for Tenancy {
    fn drop(&mut self) {
        // Where no runtime is left, the register is.
        self.revoke();
    }
}

fn message(place: u16, one: &Lent) -> LentSecret {
    LentSecret {
        binding: place,
        value: Veiled::new(one.value.expose_to_gateway().to_vec()),
        seconds: one.ttl.map(|ttl| u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX).max(1)),
    }
}
