//! Sandboxes that are being ended for their volumes: each by one alone, and nobody waits for it.
//!
//! A kill waits for whoever acknowledges the ledger, 30 seconds at most. Whoever waited with it would look away for so long.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blastbox_engine::keeper::Keeper;
use blastbox_wire::BoxId;
use serde_json::json;

use super::Why;
use crate::e2b::sandbox::Sandbox;

#[derive(Debug, Clone, Default)]
pub(super) struct Endings(Arc<Mutex<BTreeSet<BoxId>>>);

/// One that is being ended, until this is dropped.
struct Underway {
    endings: Endings,
    id: BoxId,
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.endings.all().remove(&self.id);
    }
}

impl Endings {
    fn all(&self) -> MutexGuard<'_, BTreeSet<BoxId>> {
        // Nobody panics while holding it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a sandbox for one of its volumes, unless it is being ended, and tells its log why.
    pub(super) fn end(&self, keeper: &Keeper, sandbox: &Sandbox, volume: &str, why: &Why) {
        let (keeper, tenant, id) = (keeper.clone(), sandbox.tenant.clone(), sandbox.box_id.clone());
        let begun = self.begin(&sandbox.box_id, async move {
            // An error: it is gone already, or ends without anybody's word.
            keeper.kill(&tenant, &id).await.ok();
        });
        if begun {
            let message = format!("sandbox ended: a volume of it {}", why.message());
            sandbox.note("error", &message, json!({ "volume": volume, "reason": why.reason() }));
        }
    }

    fn begin(&self, id: &BoxId, kill: impl Future<Output = ()> + Send + 'static) -> bool {
        if !self.all().insert(id.clone()) {
            return false;
        }
        let underway = Underway { endings: self.clone(), id: id.clone() };
        drop(tokio::spawn(async move {
            let _underway = underway;
            kill.await;
        }));
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn a_slow_end_keeps_nobody_waiting_and_comes_once() {
        let endings = Endings::default();
        let (acknowledged, killed) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
        let kill = || {
            let (acknowledged, killed) = (Arc::clone(&acknowledged), Arc::clone(&killed));
            async move {
                killed.fetch_add(1, Ordering::Relaxed);
                acknowledged.notified().await;
            }
        };
        let [slow, other] =
            ["bx_aaaaaaaaaaaaaaaaaaaa", "bx_bbbbbbbbbbbbbbbbbbbb"].map(|id| id.parse::<BoxId>().unwrap());
        assert!(endings.begin(&slow, kill()));
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(!endings.clone().begin(&slow, kill()));
        }
        assert!(endings.begin(&other, async {}));
        assert_eq!(killed.load(Ordering::Relaxed), 1);
        acknowledged.notify_one();
        while !endings.all().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // It is there all the same: whoever looks again may try again.
        assert!(endings.begin(&slow, async {}));
    }
}
