//! Minting the secrets of one box, so that no lease is lost: not by an error in between, not by a source that answers too
//! late, and not by a caller who goes away.

use std::sync::Arc;
use std::time::Duration;

use blastbox_policy::Binding;
use blastbox_wire::BoxId;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::broker::{Broker, Lent, leases};
use super::error::MintError;
use super::register::Revocable;
use super::sources::PATIENCE;
use super::told::{Tell, Told};
use super::value::{Minted, NotMinted};

/// How long an answer that came too late is still waited for, only to revoke what it brings.
const LATE: Duration = Duration::from_secs(300);

type Fetching = JoinHandle<Result<Minted, NotMinted>>;

/// Secrets that nobody has yet. What is in it when it is dropped is revoked.
pub(super) struct Minting {
    broker: Arc<Broker>,
    box_id: BoxId,
    tell: Tell,
    lent: Vec<Lent>,
}

impl Minting {
    pub(super) fn new(broker: &Arc<Broker>, box_id: &BoxId, tell: &Tell) -> Self {
        Self { broker: Arc::clone(broker), box_id: box_id.clone(), tell: tell.clone(), lent: Vec::new() }
    }

    /// Mints one after the other, all of them in the time that a box may wait.
    pub(super) async fn all(mut self, bindings: Vec<(u16, Binding)>) -> Result<Self, MintError> {
        let deadline = Instant::now() + PATIENCE;
        for (place, binding) in &bindings {
            match self.one(*place, binding, deadline).await {
                Ok(one) => {
                    let secret = binding.secret().clone();
                    // Where nobody listens, nobody wants to know.
                    self.tell.send(Told::Minted { secret, ttl: one.ttl }).ok();
                    self.lent.push(one);
                }
                Err(error) => {
                    let lent = std::mem::take(&mut self.lent);
                    self.broker.give_back(leases(&lent), &self.tell).await;
                    return Err(error);
                }
            }
        }
        Ok(self)
    }

    /// Whoever takes them takes the duty to revoke them.
    pub(super) fn take(mut self) -> Vec<Lent> {
        std::mem::take(&mut self.lent)
    }

    async fn one(&self, place: u16, bound: &Binding, deadline: Instant) -> Result<Lent, MintError> {
        let secret = bound.secret().clone();
        let named =
            |lease| Revocable { box_id: self.box_id.clone(), secret: secret.clone(), binding: place, lease };
        let (broker, wanted) = (Arc::clone(&self.broker), bound.clone());
        let mut fetching = tokio::spawn(async move { broker.sources.fetch(&wanted).await });
        let Ok(fetched) = timeout_at(deadline, &mut fetching).await else {
            if self.broker.sources.makes_leases(bound) {
                tokio::spawn(too_late(
                    Arc::clone(&self.broker),
                    fetching,
                    named(String::new()),
                    self.tell.clone(),
                ));
            } else {
                fetching.abort();
            }
            return Err(MintError::TooSlow { secret, limit: PATIENCE });
        };
        let Minted { value, ttl, lease, renewable } = match fetched {
            Ok(Ok(minted)) => minted,
            Ok(Err(NotMinted { error, lease })) => {
                if let Some(lease) = lease.map(named) {
                    // The list is for a crash in between; what matters is the attempt that follows.
                    self.broker.remember(&lease).ok();
                    self.broker.give_back(vec![lease], &self.tell).await;
                }
                return Err(error);
            }
            Err(_) => return Err(MintError::Interrupted(secret)),
        };
        let lease = lease.map(named);
        if let Some(lease) = &lease
            && let Err(error) = self.broker.remember(lease)
        {
            self.broker.give_back(vec![lease.clone()], &self.tell).await;
            return Err(error);
        }
        Ok(Lent { binding: bound.clone(), place, value, ttl, lease, renewable })
    }
}

impl Drop for Minting {
    fn drop(&mut self) {
        let leases = leases(&self.lent);
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

/// The box is not made any more, but the source may have made a secret for it.
async fn too_late(broker: Arc<Broker>, fetching: Fetching, named: Revocable, tell: Tell) {
    let ending = fetching.abort_handle();
    let lease = match timeout(LATE, fetching).await {
        Ok(Ok(Ok(Minted { lease, .. }) | Err(NotMinted { lease, .. }))) => lease,
        Ok(Err(_)) => None,
        Err(_) => {
            ending.abort();
            None
        }
    };
    if let Some(lease) = lease {
        let lease = Revocable { lease, ..named };
        broker.remember(&lease).ok();
        broker.revoke(vec![lease], &tell).await;
    }
}
