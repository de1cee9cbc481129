//! Leases that their source did not end when their box ended: tried again for as long as the daemon lives.
//!
//! The register remembers them for the next daemon. That alone would leave a secret usable for days because its source
//! was sealed for a moment.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::broker::Broker;
use super::register::Revocable;
use super::told::{Tell, Told};

/// How long the first pause before they are tried again is, and the longest: each is twice the last.
const PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// How many are tried at the same time.
const AT_ONCE: usize = 16;
/// How many are known here. A source that makes leases and ends none must not fill the memory: what is more than these is
/// left to the next daemon.
const MOST: usize = 4096;

/// Leases that are to be revoked and are not.
#[derive(Debug, Default)]
pub(super) struct Overdue {
    /// Those that were not tried for the longest time first, and who wants to know of each.
    waiting: Mutex<VecDeque<(Revocable, Tell)>>,
    added: Notify,
}

impl Overdue {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<(Revocable, Tell)>> {
        // Nobody panics while holding it.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, lease: Revocable, tell: Tell) {
        let mut waiting = self.waiting();
        if waiting.len() < MOST && waiting.iter().all(|(known, _)| *known != lease) {
            waiting.push_back((lease, tell));
            self.added.notify_one();
        }
    }

    fn remove(&self, lease: &Revocable) {
        self.waiting().retain(|(known, _)| known != lease);
    }

    /// Those whose turn it is. They stay, at the end: whoever tries them may be stopped.
    fn turn(&self, most: usize) -> Vec<(Revocable, Tell)> {
        let mut waiting = self.waiting();
        let most = most.min(waiting.len());
        let turn = waiting.iter().take(most).cloned().collect();
        waiting.rotate_left(most);
        turn
    }

    /// Waits until there are any.
    async fn any(&self) {
        while self.waiting().is_empty() {
            self.added.notified().await;
        }
    }
}

impl Broker {
    /// Tries what could not be revoked again and again, with pauses. Never ends; to be dropped with the daemon, which
    /// loses nothing. What becomes of a lease is told where its minting was told, or else to `tell`: nobody listens any
    /// more for the boxes of an earlier daemon.
    pub async fn work_off(self: Arc<Self>, tell: Tell) {
        let mut pause = PAUSE;
        loop {
            self.overdue.any().await;
            tokio::time::sleep(pause).await;
            pause = match self.try_again(&tell).await {
                0 => (pause * 2).min(LONGEST_PAUSE),
                _ => PAUSE,
            };
        }
    }

    /// Tries each of them once, and says how many are revoked now. Where none of a turn is, their source has other
    /// troubles, and the rest is left for later.
    async fn try_again(self: &Arc<Self>, tell: &Tell) -> usize {
        let (mut left, mut revoked) = (self.overdue.waiting().len(), 0);
        while left > 0 {
            let turn = self.overdue.turn(AT_ONCE.min(left));
            left = left.saturating_sub(turn.len().max(1));
            let mut trying = JoinSet::new();
            for (lease, own) in turn {
                let tell = if own.is_closed() { tell.clone() } else { own };
                trying.spawn(Arc::clone(self).try_one(lease, tell));
            }
            let before = revoked;
            while let Some(tried) = trying.join_next().await {
                revoked += usize::from(tried.is_ok_and(|revoked| revoked));
            }
            if revoked == before {
                break;
            }
        }
        revoked
    }

    /// That it could not be revoked was told; only that it could is news.
    async fn try_one(self: Arc<Self>, lease: Revocable, tell: Tell) -> bool {
        let revoked = self.revoke_once(&lease).await.is_ok();
        if revoked {
            self.overdue.remove(&lease);
            tell.send(Told::Revoked { secret: lease.secret }).ok();
        }
        revoked
    }
}
