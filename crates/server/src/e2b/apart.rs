//! Work that waits for the disk, on threads apart from those that answer. All tenants share these threads, so that none may have more
//! than a few of them: a tenant that asks for much at once waits for itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use blastbox_engine::keeper::Tenant;
use tokio::sync::Semaphore;

use super::no::No;

/// Threads of one tenant at once. The runtime has 512.
pub(super) const MOST: usize = 8;

/// The threads that each tenant has.
#[derive(Debug, Default)]
pub(super) struct Apart(Mutex<BTreeMap<Tenant, Threads>>);

/// Those of one tenant.
#[derive(Debug, Clone)]
pub(super) struct Threads(Arc<Semaphore>);

impl Default for Threads {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST)))
    }
}

impl Apart {
    pub(super) fn of(&self, tenant: &Tenant) -> Threads {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that nobody has or waits for: there are no more than requests.
        all.retain(|_, threads| Arc::strong_count(&threads.0) > 1);
        all.entry(tenant.clone()).or_default().clone()
    }
}

impl Threads {
    /// Does it when one is free. An error: it panicked.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, No> {
        let mine = Arc::clone(&self.0).acquire_owned().await.map_err(|_| No::defect())?;
        let done = tokio::task::spawn_blocking(move || {
            // Until it is done, and not until whoever asked for it has gone away.
            let _mine = mine;
            work()
        });
        done.await.map_err(|_| No::defect())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_tenant_waits_for_itself_and_no_other_does_even_where_callers_have_gone_away() {
        let (ann, bob): (Tenant, Tenant) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.max_blocking_threads(MOST + 1).build().unwrap();
        let apart = Apart::default();
        let (begun, has_begun) = mpsc::channel();
        let (end, may_end) = mpsc::channel::<()>();
        let may_end = Arc::new(Mutex::new(may_end));
        runtime.block_on(async {
            let asked: Vec<_> = (0..3 * MOST)
                .map(|_| {
                    let (threads, begun, may_end) = (apart.of(&ann), begun.clone(), Arc::clone(&may_end));
                    tokio::spawn(async move {
                        let wait = move || {
                            begun.send(()).unwrap();
                            // Whoever holds it waits for the test; the others wait for that one.
                            may_end.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
                        };
                        threads.run(wait).await.ok();
                    })
                })
                .collect();
            // All that may have begun.
            for _ in 0..MOST {
                while has_begun.try_recv().is_err() {
                    tokio::task::yield_now().await;
                }
            }
            for one in &asked {
                one.abort();
            }
            for one in asked {
                one.await.unwrap_err();
            }
            // They are gone, and their threads are not: there is none for the next, and one for somebody else.
            assert_eq!(apart.of(&ann).0.available_permits(), 0);
            assert_eq!(apart.of(&bob).run(|| 7).await.unwrap(), 7);
            assert!(has_begun.try_recv().is_err());
            drop(end);
            assert_eq!(apart.of(&ann).run(|| 8).await.unwrap(), 8);
        });
    }
}
