//! One after the other, and tenants in turn: whoever was served longest ago is next, so that one who comes again and again waits
//! behind everybody else each time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::cards::Tenant;

/// Tenants whose last turn is remembered. One that is forgotten counts as never served.
const REMEMBERED: usize = 64;

/// A queue of tenants.
#[derive(Debug, Clone, Default)]
pub(super) struct InTurn(Arc<Mutex<Line>>);

#[derive(Debug, Default)]
struct Line {
    taken: bool,
    /// In the order in which they came.
    waiting: Vec<(Tenant, oneshot::Sender<Taken>)>,
    /// Those that were served, the last one at the end.
    served: Vec<Tenant>,
}

/// It is somebody's turn until this is dropped.
#[derive(Debug)]
pub(super) struct Taken(InTurn);

impl Drop for Taken {
    fn drop(&mut self) {
        let next = self.0.line().next();
        if let Some(next) = next {
            // One that went away meanwhile drops it, and that passes it on.
            next.send(Self(self.0.clone())).ok();
        }
    }
}

impl InTurn {
    fn line(&self) -> MutexGuard<'_, Line> {
        // Nobody panics while holding it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn.
    pub(super) async fn turn(&self, tenant: &Tenant) -> Taken {
        let waiting = {
            let mut line = self.line();
            if !line.taken {
                line.serve(tenant.clone());
                return Taken(self.clone());
            }
            let (to, from) = oneshot::channel();
            // Not those that went away: whoever asks again and again holds one place.
            line.waiting.retain(|(_, waits)| !waits.is_closed());
            line.waiting.push((tenant.clone(), to));
            from
        };
        match waiting.await {
            Ok(taken) => taken,
            // Whoever waits is told, for as long as there is a line.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Line {
    fn serve(&mut self, tenant: Tenant) {
        self.taken = true;
        self.served.retain(|other| *other != tenant);
        if self.served.len() >= REMEMBERED {
            self.served.remove(0);
        }
        self.served.push(tenant);
    }

    /// Who is next; nobody: the turn is free.
    fn next(&mut self) -> Option<oneshot::Sender<Taken>> {
        self.taken = false;
        let last_turn = |tenant: &Tenant| self.served.iter().position(|other| other == tenant);
        // The first of those that are equal; one that was never served is before all others.
        let (place, _) = self.waiting.iter().enumerate().min_by_key(|(_, (tenant, _))| last_turn(tenant))?;
        let (tenant, waits) = self.waiting.remove(place);
        self.serve(tenant);
        Some(waits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_comes_again_and_again_waits_behind_those_that_were_not_served_yet() {
        let (queue, greedy) = (InTurn::default(), "greedy".parse::<Tenant>().unwrap());
        let first = queue.turn(&greedy).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for name in ["greedy", "greedy", "one", "two", "one"] {
            let (queue, order) = (queue.clone(), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let _turn = queue.turn(&name.parse().unwrap()).await;
                order.lock().unwrap().push(name);
            }));
            tokio::task::yield_now().await;
        }
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), ["one", "two", "greedy", "one", "greedy"]);
    }

    #[tokio::test]
    async fn who_goes_away_holds_nobody_up() {
        let (queue, me) = (InTurn::default(), Tenant::local());
        let first = queue.turn(&me).await;
        for _ in 0..3 {
            assert!(tokio::time::timeout(std::time::Duration::ZERO, queue.turn(&me)).await.is_err());
        }
        drop(first);
        let again = queue.turn(&me).await;
        drop(again);
        assert!(!queue.line().taken);
    }
}
