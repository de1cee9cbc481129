//! All the boxes of a keeper, those that are gone included for a while, and what was counted.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blastbox_wire::BoxId;
use blastbox_wire::receipt::Receipt;
use tokio::sync::Notify;

use super::admission::Admission;
use super::album::Album;
use super::cards::{Phase, Tenant};
use super::error::KeepError;
use super::events::Hub;
use super::kept::Kept;
use super::metrics::Metrics;
use super::on_disk::OnDisk;
use super::past::Past;
use super::pen::Pen;
use super::pool::Pool;
use super::register::Register;
use crate::engine::Engine;

/// Receipts of boxes that are gone.
const GRAVES: usize = 1_000;

/// Everything that a keeper holds.
#[derive(Debug)]
pub(crate) struct House {
    pub(crate) engine: Engine,
    pub(crate) admission: Arc<Admission>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) hub: Hub,
    /// What boxes do with their network, in a ring of its own.
    pub(crate) traffic: Hub,
    pub(crate) pen: Pen,
    pub(crate) register: Arc<Register>,
    rooms: Mutex<Rooms>,
    metrics: Mutex<Metrics>,
    /// Rings when a box is gone.
    pub(crate) left: Notify,
    /// Boxes of earlier daemons whose ends are not told yet.
    pub(crate) past: Past,
    /// Snapshots of boxes.
    pub(crate) album: Album,
}

#[derive(Debug, Default)]
struct Rooms {
    boxes: HashMap<BoxId, Arc<Kept>>,
    /// Those of which nothing runs. A box is in one of both.
    on_disk: HashMap<BoxId, Arc<OnDisk>>,
    graves: VecDeque<(BoxId, Tenant, Arc<Receipt>)>,
    closed: bool,
}

impl Rooms {
    fn remember(&mut self, id: &BoxId, tenant: &Tenant, receipt: &Receipt) {
        if self.graves.len() >= GRAVES {
            self.graves.pop_front();
        }
        self.graves.push_back((id.clone(), tenant.clone(), Arc::new(receipt.clone())));
    }
}

impl House {
    /// Writes down when a box ends now. Whoever moves a deadline writes it so: under the box's own lock the last one to write is the
    /// last one to have moved it.
    pub(crate) fn write_deadlines(&self, kept: &Kept) {
        let fate = kept.fate();
        self.register.extended(&kept.card.id, &fate.clock.deadlines());
    }

    pub(crate) fn new(
        engine: Engine,
        admission: Arc<Admission>,
        pool: Arc<Pool>,
        pen: Pen,
        register: Register,
        past: Past,
        album: Album,
    ) -> Self {
        Self {
            engine,
            admission,
            pool,
            hub: Hub::default(),
            traffic: Hub::default(),
            pen,
            register: Arc::new(register),
            rooms: Mutex::default(),
            metrics: Mutex::default(),
            left: Notify::new(),
            past,
            album,
        }
    }

    fn rooms(&self) -> MutexGuard<'_, Rooms> {
        // Nobody panics while holding it.
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts something.
    pub(crate) fn count(&self, count: impl FnOnce(&mut Metrics)) {
        count(&mut self.metrics.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn metrics(&self) -> Metrics {
        let mut metrics = self.metrics.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for kept in self.boxes() {
            *metrics.live.entry((kept.card.tier, kept.phase())).or_default() += 1;
        }
        for lies in self.rooms().on_disk.values() {
            *metrics.live.entry((lies.card().tier, Phase::Paused)).or_default() += 1;
        }
        metrics.pool_size = u64::try_from(self.pool.size()).unwrap_or(u64::MAX);
        metrics.waiting = u64::try_from(self.admission.waiting()).unwrap_or(u64::MAX);
        metrics
    }

    pub(crate) fn boxes(&self) -> Vec<Arc<Kept>> {
        self.rooms().boxes.values().cloned().collect()
    }

    /// How many boxes there are.
    pub(crate) fn crowd(&self) -> usize {
        self.rooms().boxes.len()
    }

    /// Waits until there is no box.
    pub(crate) async fn empty(&self) {
        loop {
            let left = self.left.notified();
            tokio::pin!(left);
            left.as_mut().enable();
            if self.boxes().is_empty() {
                return;
            }
            left.await;
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.rooms().closed
    }

    pub(crate) fn close(&self) {
        self.rooms().closed = true;
    }

    /// Moves a new box in, unless the house is closed.
    pub(crate) fn move_in(&self, kept: &Arc<Kept>) -> Result<(), KeepError> {
        let mut rooms = self.rooms();
        if rooms.closed {
            return Err(KeepError::Stopping);
        }
        rooms.boxes.insert(kept.card.id.clone(), Arc::clone(kept));
        if let Some(lies) = rooms.on_disk.remove(&kept.card.id) {
            let begun = kept.fate().clock.life();
            // Somebody has set its deadline while it was made. Here, where nobody finds it on disk any more and nobody has found it in
            // the house yet: a moment later this would undo what the box itself was told.
            if lies.left() != begun {
                // One that has ended already has no deadline to set; its end is told as any other.
                kept.set_life(lies.left()).ok();
            }
        }
        Ok(())
    }

    /// Nothing of a box runs any more, and it lies on disk; `false`: somebody has killed it meanwhile.
    pub(crate) fn lay_on_disk(&self, kept: &Kept) -> bool {
        let lies = Arc::new(OnDisk::of(kept));
        let mut rooms = self.rooms();
        if !kept.close_unless_killed() {
            return false;
        }
        rooms.boxes.remove(&kept.card.id);
        rooms.on_disk.insert(kept.card.id.clone(), lies);
        drop(rooms);
        self.left.notify_waiters();
        true
    }

    /// One of an earlier daemon.
    pub(super) fn lies_on_disk(&self, lies: OnDisk) {
        self.rooms().on_disk.insert(lies.id().clone(), Arc::new(lies));
    }

    /// The box of this tenant, where it lies on disk.
    pub(super) fn on_disk(&self, tenant: &Tenant, id: &BoxId) -> Option<Arc<OnDisk>> {
        self.rooms().on_disk.get(id).filter(|lies| lies.tenant() == tenant).cloned()
    }

    pub(super) fn is_on_disk(&self, id: &BoxId) -> bool {
        self.rooms().on_disk.contains_key(id)
    }

    pub(super) fn images_on_disk(&self) -> Vec<(Tenant, String)> {
        self.rooms().on_disk.values().map(|lies| (lies.tenant().clone(), lies.card().image)).collect()
    }

    pub(super) fn all_on_disk(&self, tenant: &Tenant) -> Vec<Arc<OnDisk>> {
        self.rooms().on_disk.values().filter(|lies| lies.tenant() == tenant).cloned().collect()
    }

    /// A box that lay on disk is gone; without a receipt its end is not told before the keeper ends.
    pub(super) fn leave_disk(&self, lies: &OnDisk, receipt: Option<&Receipt>) {
        let mut rooms = self.rooms();
        rooms.on_disk.remove(lies.id());
        match receipt {
            Some(receipt) => rooms.remember(lies.id(), lies.tenant(), receipt),
            None => self.past.leave(lies.id(), lies.tenant()),
        }
    }

    /// Waits until nothing of a box runs.
    pub(super) async fn has_left(&self, id: &BoxId) {
        loop {
            let left = self.left.notified();
            tokio::pin!(left);
            left.as_mut().enable();
            if !self.rooms().boxes.contains_key(id) {
                return;
            }
            left.await;
        }
    }

    /// A box is gone: its receipt stays for a while.
    pub(crate) fn bury(&self, kept: &Kept, receipt: &Receipt) {
        let mut rooms = self.rooms();
        rooms.boxes.remove(&kept.card.id);
        rooms.remember(&kept.card.id, &kept.card.tenant, receipt);
        drop(rooms);
        self.left.notify_waiters();
    }

    /// A box is gone, and its end is not told before the keeper ends. Those that ask hear that.
    pub(crate) fn leave_untold(&self, kept: &Kept) {
        self.past.leave(&kept.card.id, &kept.card.tenant);
        self.rooms().boxes.remove(&kept.card.id);
        self.left.notify_waiters();
    }

    pub(crate) fn receipt(&self, tenant: &Tenant, id: &BoxId) -> Option<Arc<Receipt>> {
        let rooms = self.rooms();
        let grave = rooms.graves.iter().rev().find(|(other, whose, _)| other == id && whose == tenant)?;
        Some(Arc::clone(&grave.2))
    }

    /// The box of this tenant. To another tenant it is as if it had never been.
    pub(crate) fn find(&self, tenant: &Tenant, id: &BoxId) -> Result<Arc<Kept>, KeepError> {
        let found = self.rooms().boxes.get(id).cloned();
        match found {
            Some(kept) if kept.card.tenant == *tenant => Ok(kept),
            Some(_) => Err(KeepError::NotFound),
            None if self.on_disk(tenant, id).is_some() => Err(KeepError::WrongPhase(Phase::Paused)),
            None if self.past.holds(tenant, id) => Err(KeepError::Unacknowledged),
            None if self.receipt(tenant, id).is_some() || self.register.remembers(tenant, id) => {
                Err(KeepError::Gone)
            }
            None => Err(KeepError::NotFound),
        }
    }
}

impl Drop for House {
    fn drop(&mut self) {
        // Whoever tends the pool learns that there is nothing to tend.
        self.pool.bell.notify_one();
    }
}
