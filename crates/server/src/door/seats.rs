//! Who sits where: each connection has a seat, and each tenant only so many, so that one with a thousand open streams
//! does not keep the others out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blastbox_engine::keeper::Tenant;
use tokio::sync::OwnedSemaphorePermit;

/// Who sits in a tenant's seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Guest {
    /// Somebody with a key of its, or a token of one of its boxes.
    Own,
    /// Somebody who asks for a public port of one of its boxes. They are counted apart, and are fewer: they must not keep the
    /// owner from its own boxes.
    Stranger,
}

/// How many connections each tenant has.
#[derive(Debug)]
pub(crate) struct Tenants {
    most: usize,
    taken: Mutex<HashMap<(Tenant, Guest), usize>>,
}

impl Tenants {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default() })
    }

    fn most(&self, guest: Guest) -> usize {
        match guest {
            Guest::Own => self.most,
            Guest::Stranger => self.most.div_ceil(4),
        }
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<(Tenant, Guest), usize>> {
        // Nobody panics while holding it.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(&self, tenant: &(Tenant, Guest)) {
        let mut taken = self.taken();
        if let Some(count) = taken.get_mut(tenant) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                taken.remove(tenant);
            }
        }
    }
}

/// A connection's place at the door. It belongs to a tenant from the first request that says which.
#[derive(Debug)]
pub(crate) struct Seat {
    _room: OwnedSemaphorePermit,
    tenants: Arc<Tenants>,
    whose: Mutex<Option<(Tenant, Guest)>>,
}

impl Seat {
    pub(crate) fn new(room: OwnedSemaphorePermit, tenants: &Arc<Tenants>) -> Self {
        Self { _room: room, tenants: Arc::clone(tenants), whose: Mutex::new(None) }
    }

    /// Gives the seat to a tenant. `false`: it has as many as it may.
    pub(crate) fn take_for(&self, tenant: &Tenant) -> bool {
        self.take(tenant, Guest::Own)
    }

    /// The same for somebody who has shown nothing. A seat that the tenant has already stays its own.
    pub(crate) fn take_for_stranger(&self, tenant: &Tenant) -> bool {
        self.take(tenant, Guest::Stranger)
    }

    /// Whose it is, once that is known.
    pub(crate) fn tenant(&self) -> Option<Tenant> {
        let whose = self.whose.lock().unwrap_or_else(PoisonError::into_inner);
        whose.as_ref().map(|(tenant, _)| tenant.clone())
    }

    fn take(&self, tenant: &Tenant, guest: Guest) -> bool {
        let mut whose = self.whose.lock().unwrap_or_else(PoisonError::into_inner);
        if whose.as_ref().is_some_and(|(of, sits)| of == tenant && (*sits == guest || *sits == Guest::Own)) {
            return true;
        }
        let place = (tenant.clone(), guest);
        {
            let mut taken = self.tenants.taken();
            let count = taken.entry(place.clone()).or_default();
            if *count >= self.tenants.most(guest) {
                return false;
            }
            *count += 1;
        }
        if let Some(before) = whose.replace(place) {
            self.tenants.give_back(&before);
        }
        true
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let whose = self.whose.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = whose.take() {
            self.tenants.give_back(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    #[test]
    fn a_tenant_has_so_many_seats_and_its_neighbour_has_its_own() {
        let (room, tenants) = (Arc::new(Semaphore::new(10)), Tenants::new(2));
        let seat = || Seat::new(Arc::clone(&room).try_acquire_owned().unwrap(), &tenants);
        let (one, two): (Tenant, Tenant) = ("one".parse().unwrap(), "two".parse().unwrap());
        let (a, b, c) = (seat(), seat(), seat());
        assert!(a.take_for(&one) && a.take_for(&one) && b.take_for(&one));
        assert!(!c.take_for(&one) && c.take_for(&two));
        // A connection that comes with another key belongs to another tenant.
        assert!(b.take_for(&two) && !seat().take_for(&two));
        drop((b, c));
        assert!(seat().take_for(&two));
        drop(a);
        assert_eq!(tenants.taken().len(), 0);
    }

    #[test]
    fn strangers_fill_seats_of_their_own_and_leave_the_owner_all_of_its() {
        let (room, tenants) = (Arc::new(Semaphore::new(20)), Tenants::new(4));
        let seat = || Seat::new(Arc::clone(&room).try_acquire_owned().unwrap(), &tenants);
        let one: Tenant = "one".parse().unwrap();
        let (stranger, another) = (seat(), seat());
        assert!(stranger.take_for_stranger(&one) && !another.take_for_stranger(&one));
        let own: Vec<Seat> = (0..4).map(|_| seat()).collect();
        assert!(own.iter().all(|seat| seat.take_for(&one)) && !seat().take_for(&one));
        // Whoever shows its token afterwards needs a seat of the owner's, and makes room for the next stranger.
        drop(own);
        assert!(
            stranger.take_for(&one) && stranger.take_for_stranger(&one) && another.take_for_stranger(&one)
        );
        drop((stranger, another));
        assert_eq!(tenants.taken().len(), 0);
    }
}
