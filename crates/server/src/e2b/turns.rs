//! Whoever writes for a tenant does so alone. Neither other tenants nor readers wait for its turn; the threads that may wait for disks
//! are everybody's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use blastbox_engine::keeper::Tenant;

/// One turn for each tenant that somebody writes for.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<BTreeMap<Tenant, Arc<Mutex<()>>>>);

impl Turns {
    /// Does it when nobody else writes for this tenant. Waits, and is not for a thread that others wait for.
    pub(super) fn alone<T>(&self, tenant: &Tenant, work: impl FnOnce() -> T) -> T {
        let turn = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Those that nobody has or waits for: there are no more than writers.
            all.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(all.entry(tenant.clone()).or_default())
        };
        // It guards no data: who panicked has left none half.
        let _mine = turn.lock().unwrap_or_else(PoisonError::into_inner);
        work()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_tenant_waits_for_itself_and_for_nobody_else() {
        let (ann, bob): (Tenant, Tenant) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        let turns = Turns::default();
        let (begun, has_begun) = mpsc::channel();
        let (end, may_end) = mpsc::channel::<()>();
        let (done, is_done) = mpsc::channel();
        std::thread::scope(|scope| {
            let (turns, ann) = (&turns, &ann);
            scope.spawn(move || {
                turns.alone(ann, || {
                    begun.send(()).unwrap();
                    may_end.recv().unwrap();
                });
            });
            has_begun.recv().unwrap();
            scope.spawn(move || turns.alone(ann, || done.send(()).unwrap()));
            assert_eq!(turns.alone(&bob, || 7), 7);
            assert!(is_done.recv_timeout(Duration::from_millis(100)).is_err());
            end.send(()).unwrap();
            is_done.recv().unwrap();
        });
        turns.alone(&bob, || {});
        assert_eq!(turns.0.lock().unwrap().len(), 1);
    }
}
