//! Waiting for room: the gate with a lock, a clock and somebody at the door.
//!
//! What was given comes back when [`Hold`] or [`Room`] is dropped, so that a caller who goes away, at whatever moment,
//! leaves nothing reserved.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::cards::Tenant;
use super::config::KeeperConfig;
use super::error::KeepError;
use super::gate::{Asked, Gate, Need};

/// Longest time after which somebody should ask again.
const LONGEST_RETRY: u64 = 30;
/// Waiting askers that are worth one second more.
const PER_SECOND: usize = 100;

/// The door of the house.
#[derive(Debug)]
pub(crate) struct Admission {
    door: Mutex<Door>,
    patience: Duration,
}

#[derive(Debug)]
struct Door {
    gate: Gate,
    waiting: HashMap<u64, oneshot::Sender<Room>>,
    closed: bool,
}

/// A tenant's part of its quota.
#[derive(Debug)]
pub(crate) struct Hold {
    admission: Arc<Admission>,
    tenant: Tenant,
    need: Need,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.admission.door().gate.unreserve(&self.tenant, self.need);
    }
}

/// Room on the host for one box.
#[derive(Debug)]
pub(crate) struct Room {
    admission: Arc<Admission>,
    need: Need,
}

/// Where a box is: room of its own, and a share in that of the machine it began as a copy of. Its last copy gives that back.
#[derive(Debug)]
pub(crate) struct Lodging {
    _own: Room,
    _shared: Option<Arc<Room>>,
}

impl Lodging {
    pub(crate) fn new(own: Room, shared: Option<Arc<Room>>) -> Self {
        Self { _own: own, _shared: shared }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let admitted = self.admission.door().gate.release(self.need);
        self.admission.let_in(admitted);
    }
}

/// Somebody in the queue, who leaves it when this is dropped.
struct Place<'a> {
    admission: &'a Arc<Admission>,
    tenant: &'a Tenant,
    ticket: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut door = self.admission.door();
        door.waiting.remove(&self.ticket);
        let admitted = door.gate.leave(self.tenant, self.ticket);
        drop(door);
        self.admission.let_in(admitted);
    }
}

impl Admission {
    pub(crate) fn new(config: &KeeperConfig) -> Arc<Self> {
        let door = Door { gate: Gate::new(config), waiting: HashMap::new(), closed: false };
        Arc::new(Self { door: Mutex::new(door), patience: config.host.patience })
    }

    fn door(&self) -> MutexGuard<'_, Door> {
        // Nobody panics while holding it.
        self.door.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.door().gate.waiting()
    }

    /// Whether the host could have all of these at once; or which of its limits they are over.
    pub(crate) fn could_hold(
        &self,
        all: impl IntoIterator<Item = (Need, usize)>,
    ) -> Result<(), &'static str> {
        self.door().gate.could_hold(all)
    }

    /// Whether this fits on the host at all, with nobody else on it.
    pub(crate) fn fits(&self, need: Need) -> bool {
        self.door().gate.fits(need)
    }

    /// Takes one box out of a tenant's quota.
    pub(crate) fn reserve(self: &Arc<Self>, tenant: &Tenant, need: Need) -> Result<Hold, KeepError> {
        self.door().gate.reserve(tenant, need).map_err(|what| KeepError::QuotaSpent { what })?;
        Ok(Hold { admission: Arc::clone(self), tenant: tenant.clone(), need })
    }

    /// The part and the room of a box that is there already: of an earlier daemon, which may have had more to give.
    pub(crate) fn count(self: &Arc<Self>, tenant: &Tenant, need: Need) -> (Hold, Room) {
        self.door().gate.count(tenant, need);
        let hold = Hold { admission: Arc::clone(self), tenant: tenant.clone(), need };
        (hold, Room { admission: Arc::clone(self), need })
    }

    /// Room where there is some and nobody waits for it.
    pub(crate) fn try_room(self: &Arc<Self>, need: Need) -> Option<Room> {
        let mut door = self.door();
        let taken = !door.closed && door.gate.try_take(need);
        taken.then(|| Room { admission: Arc::clone(self), need })
    }

    /// Room, now or when it is this tenant's turn. `on_wait` is called where there is none at once.
    pub(crate) async fn room(
        self: &Arc<Self>,
        tenant: &Tenant,
        need: Need,
        on_wait: impl FnOnce(),
    ) -> Result<Room, KeepError> {
        let (place, room) = match self.ask(tenant, need)? {
            Ok(room) => return Ok(room),
            Err((ticket, room)) => (Place { admission: self, tenant, ticket }, room),
        };
        on_wait();
        let outcome = timeout(self.patience, room).await;
        drop(place);
        match outcome {
            Ok(Ok(room)) => Ok(room),
            Ok(Err(_)) => Err(KeepError::Stopping),
            Err(_) => Err(self.busy()),
        }
    }

    fn ask(
        self: &Arc<Self>,
        tenant: &Tenant,
        need: Need,
    ) -> Result<Result<Room, (u64, oneshot::Receiver<Room>)>, KeepError> {
        let mut door = self.door();
        if door.closed {
            return Err(KeepError::Stopping);
        }
        match door.gate.ask(tenant, need) {
            Asked::Admitted => Ok(Ok(Room { admission: Arc::clone(self), need })),
            Asked::Waiting(ticket) => {
                let (to, from) = oneshot::channel();
                door.waiting.insert(ticket, to);
                Ok(Err((ticket, from)))
            }
            Asked::Full => {
                drop(door);
                Err(self.busy())
            }
        }
    }

    fn busy(&self) -> KeepError {
        let more = u64::try_from(self.waiting() / PER_SECOND).unwrap_or(LONGEST_RETRY);
        KeepError::Busy { retry_after: Duration::from_secs((1 + more).min(LONGEST_RETRY)) }
    }

    fn let_in(self: &Arc<Self>, admitted: Vec<(u64, Need)>) {
        for (ticket, need) in admitted {
            let room = Room { admission: Arc::clone(self), need };
            let waiting = self.door().waiting.remove(&ticket);
            match waiting {
                // Went away in this moment: the room comes back in the answer, and is released.
                Some(waiting) => drop(waiting.send(room)),
                None => drop(room),
            }
        }
    }

    /// Nobody gets in any more; whoever waits is told.
    pub(crate) fn close(&self) {
        let mut door = self.door();
        door.closed = true;
        let waiting = std::mem::take(&mut door.waiting);
        drop(door);
        drop(waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tight(boxes: usize, queue: usize) -> Arc<Admission> {
        let mut config = KeeperConfig::default();
        config.host.boxes = boxes;
        config.host.queue = queue;
        config.host.patience = Duration::from_secs(10);
        config.tenant_default.boxes = 10;
        Admission::new(&config)
    }

    const NEED: Need = Need { boxes: 1, memory: 1, millicpus: 1 };

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_gets_the_room_that_is_freed() {
        let door = tight(1, 5);
        let tenant = Tenant::local();
        let first = door.room(&tenant, NEED, || {}).await.unwrap();
        let waiting = tokio::spawn({
            let (door, tenant) = (Arc::clone(&door), tenant.clone());
            async move { door.room(&tenant, NEED, || {}).await.map(drop) }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(door.waiting(), 1);
        drop(first);
        waiting.await.unwrap().unwrap();
        assert_eq!(door.waiting(), 0);
        assert!(door.try_room(NEED).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn patience_ends_with_a_time_to_try_again_and_leaves_nothing_behind() {
        let door = tight(1, 5);
        let tenant = Tenant::local();
        let first = door.room(&tenant, NEED, || {}).await.unwrap();
        let mut shed = 0;
        let outcome = door.room(&tenant, NEED, || shed += 1).await;
        assert!(
            matches!(outcome, Err(KeepError::Busy { retry_after }) if retry_after >= Duration::from_secs(1))
        );
        assert_eq!((door.waiting(), shed), (0, 1));
        drop(first);
        assert!(door.try_room(NEED).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_asker_who_goes_away_while_waiting_or_when_let_in_leaves_nothing_reserved() {
        let door = tight(1, 5);
        let tenant = Tenant::local();
        for let_in in [false, true] {
            let first = door.room(&tenant, NEED, || {}).await.unwrap();
            let hold = door.reserve(&tenant, NEED).unwrap();
            let mut asking = Box::pin(door.room(&tenant, NEED, || {}));
            assert!(timeout(Duration::from_millis(1), &mut asking).await.is_err());
            if let_in {
                drop(first);
                drop(asking);
            } else {
                drop(asking);
                drop(first);
            }
            drop(hold);
            assert_eq!(door.waiting(), 0);
            assert!(door.try_room(NEED).is_some());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_door_tells_whoever_waits_and_whoever_comes() {
        let door = tight(1, 5);
        let tenant = Tenant::local();
        let _first = door.room(&tenant, NEED, || {}).await.unwrap();
        let closing = Arc::clone(&door);
        let outcome = door.room(&tenant, NEED, move || closing.close()).await;
        assert!(matches!(outcome, Err(KeepError::Stopping)));
        assert!(matches!(door.room(&tenant, NEED, || {}).await, Err(KeepError::Stopping)));
    }
}
