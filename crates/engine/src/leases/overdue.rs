//! Leases that their source did not end when their box ended: tried again for as long as the daemon lives.
//!
//! The register remembers them for the next daemon. That alone would leave a secret usable for days because its source
//! was sealed for a moment.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::broker::Broker;
use super::register::Revocable;
use super::told::{Tell, Told};

/// How long the first pause is before one is tried again, and the longest: each is twice the last. Each has pauses of its own, so that
/// one that can never be revoked delays no other.
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
    waiting: Mutex<Vec<Waiting>>,
    added: Notify,
}

/// One of them.
#[derive(Debug)]
struct Waiting {
    lease: Revocable,
    /// Who wants to know what becomes of it.
    tell: Tell,
    tried: u32,
    due: Instant,
}

impl Overdue {
    fn waiting(&self) -> MutexGuard<'_, Vec<Waiting>> {
        // Nobody panics while holding it.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, lease: Revocable, tell: Tell) {
        let mut waiting = self.waiting();
        if waiting.len() < MOST && waiting.iter().all(|known| known.lease != lease) {
            waiting.push(Waiting { lease, tell, tried: 0, due: Instant::now() + PAUSE });
            self.added.notify_one();
        }
    }

    /// Whether it was still there.
    fn remove(&self, lease: &Revocable) -> bool {
        let mut waiting = self.waiting();
        let before = waiting.len();
        waiting.retain(|known| known.lease != *lease);
        waiting.len() < before
    }

    /// Those whose turn it is, at most so many, the least tried first: what its source has refused for hours waits for what it may take at once. They
    /// stay: whoever tries them may be stopped.
    fn turn(&self, most: usize) -> Vec<(Revocable, Tell)> {
        let now = Instant::now();
        let mut waiting = self.waiting();
        waiting.sort_by_key(|one| (one.tried, one.due));
        let due = waiting.iter_mut().filter(|one| one.due <= now).take(most);
        due.map(|one| {
            one.tried = one.tried.saturating_add(1);
            let pause = PAUSE.saturating_mul(2_u32.saturating_pow(one.tried));
            one.due = now + pause.min(LONGEST_PAUSE);
            (one.lease.clone(), one.tell.clone())
        })
        .collect()
    }

    /// Waits until it is anybody's turn.
    async fn due(&self) {
        loop {
            let first = self.waiting().iter().map(|one| one.due).min();
            match first {
                Some(due) if due <= Instant::now() => return,
                Some(due) => tokio::select! {
                    () = sleep_until(due) => {}
                    () = self.added.notified() => {}
                },
                None => self.added.notified().await,
            }
        }
    }
}

impl Broker {
    /// Tries what could not be revoked again and again, with pauses. Never ends; to be dropped with the daemon, which
    /// loses nothing. What becomes of a lease is told where its minting was told, or else to `tell`: nobody listens any
    /// more for the boxes of an earlier daemon.
    pub async fn work_off(self: Arc<Self>, tell: Tell) {
        let mut trying = JoinSet::new();
        loop {
            let free = AT_ONCE.saturating_sub(trying.len());
            // A store that does not answer holds up its own lease, and not those that are due meanwhile.
            tokio::select! {
                () = self.overdue.due(), if free > 0 => {
                    for (lease, own) in self.overdue.turn(free) {
                        let tell = if own.is_closed() { tell.clone() } else { own };
                        trying.spawn(Arc::clone(&self).try_one(lease, tell));
                    }
                }
                Some(_) = trying.join_next(), if !trying.is_empty() => {}
            }
        }
    }

    /// That it could not be revoked was told; only that it could is news.
    async fn try_one(self: Arc<Self>, lease: Revocable, tell: Tell) {
        // Two tries of one lease may be under way where its store is slow.
        if self.revoke_once(&lease).await.is_ok() && self.overdue.remove(&lease) {
            tell.send(Told::Revoked { secret: lease.secret }).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use blastbox_wire::BoxId;

    use super::*;

    fn lease(number: usize) -> Revocable {
        Revocable {
            box_id: BoxId::from_random([1; 20]),
            secret: "db".parse().unwrap(),
            binding: 0,
            lease: format!("database/creds/app/{number}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_new_waits_for_none_that_can_never_be_revoked() {
        let overdue = Overdue::default();
        let (tell, _told) = tokio::sync::mpsc::unbounded_channel();
        for number in 0..1000 {
            overdue.add(lease(number), tell.clone());
        }
        // All of them are refused, again and again.
        for _ in 0..600 {
            overdue.due().await;
            assert!(!overdue.turn(AT_ONCE).is_empty());
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        overdue.add(lease(1000), tell.clone());
        let begun = Instant::now();
        let tried = async {
            loop {
                overdue.due().await;
                if overdue.turn(AT_ONCE).iter().any(|(one, _)| *one == lease(1000)) {
                    return;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tried.await;
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
        assert!(overdue.remove(&lease(1000)), "it was there");
        assert!(!overdue.remove(&lease(1000)), "and is not any more");
        assert_eq!(overdue.waiting().len(), 1000);
    }
}
