//! Who copies a box next. One is copied at a time, because each copy takes a machine's memory beside the boxes that were let in.
//!
//! Nobody holds up the others for long: each box waits once, each tenant in a few places, everybody for a bounded time, which is
//! longer than what is before it takes; the tenant that was not served for the longest time is next. Whoever goes away while it
//! waits leaves its place.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use blastbox_wire::BoxId;
use tokio::time::timeout;

use super::cards::Tenant;
use super::error::KeepError;
use super::in_turn::{InTurn, Taken};
use crate::engine::SnapshotError;

/// Copies of one tenant that run or wait.
const OF_A_TENANT: usize = 2;
/// How long one waits for its turn: longer than another one may take.
const PATIENCE: Duration = Duration::from_secs(240);
/// When to come again.
const AGAIN: Duration = Duration::from_secs(10);

type Places = Arc<Mutex<Vec<(Tenant, BoxId)>>>;

#[derive(Debug, Default)]
pub(crate) struct CopyQueue {
    turn: InTurn,
    places: Places,
}

/// A place in the queue, which is free again when this is dropped.
#[derive(Debug)]
struct Place {
    places: Places,
    id: BoxId,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|(_, id)| *id != self.id);
    }
}

/// It is this box's turn until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _turn: Taken,
    _place: Place,
}

impl CopyQueue {
    /// Waits for a turn.
    pub(crate) async fn turn(&self, tenant: &Tenant, id: &BoxId) -> Result<Turn, KeepError> {
        let place = self.place(tenant, id)?;
        let turn = timeout(PATIENCE, self.turn.turn(tenant)).await.map_err(|_| busy())?;
        Ok(Turn { _turn: turn, _place: place })
    }

    fn place(&self, tenant: &Tenant, id: &BoxId) -> Result<Place, KeepError> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.iter().any(|(_, waits)| waits == id) {
            return Err(KeepError::Snapshot(SnapshotError::Copying));
        }
        if places.iter().filter(|(whose, _)| whose == tenant).count() >= OF_A_TENANT {
            return Err(busy());
        }
        places.push((tenant.clone(), id.clone()));
        drop(places);
        Ok(Place { places: Arc::clone(&self.places), id: id.clone() })
    }
}

/// The host copies others, or too many for this tenant.
pub(crate) const fn busy() -> KeepError {
    KeepError::Busy { retry_after: AGAIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> BoxId {
        BoxId::from_random([number; 20])
    }

    #[tokio::test(start_paused = true)]
    async fn a_box_waits_once_a_tenant_in_few_places_and_nobody_for_ever() {
        let (queue, me) = (CopyQueue::default(), Tenant::local());
        let other: Tenant = "other".parse().unwrap();
        let first = queue.turn(&me, &id(1)).await.unwrap();
        let twice = queue.turn(&me, &id(1)).await.unwrap_err();
        assert_eq!(twice.code(), "snapshot_copying");
        let two = id(2);
        let mut second = Box::pin(queue.turn(&me, &two));
        assert!(timeout(Duration::from_secs(1), &mut second).await.is_err(), "two at a time");
        let many = queue.turn(&me, &id(3)).await.unwrap_err();
        assert!(many.code() == "busy" && many.retry_after().is_some());
        // Another tenant has places of its own, and is not kept for ever either.
        assert_eq!(queue.turn(&other, &id(4)).await.unwrap_err().code(), "busy");
        assert_eq!(second.await.unwrap_err().code(), "busy");
        drop(first);
        queue.turn(&me, &id(1)).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_goes_away_leaves_its_place() {
        let (queue, me) = (CopyQueue::default(), Tenant::local());
        let first = queue.turn(&me, &id(1)).await.unwrap();
        for _ in 0..5 {
            assert!(timeout(Duration::from_millis(1), queue.turn(&me, &id(2))).await.is_err());
        }
        drop(first);
        queue.turn(&me, &id(2)).await.unwrap();
    }
}
