//! Room for what is held in memory whole: answers, and bodies of requests. Each tenant has so much of each, for all of them
//! together. An answer has it from the first byte until the caller has taken the last, a body until its request is answered:
//! many at once, or callers that neither read nor go on, fill no machine.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::Response;
use blastbox_engine::keeper::Tenant;
use hyper::body::{Frame, SizeHint};

/// Bytes of output that one tenant's answers hold at once. As JSON, with base64 and text, they are up to five times that.
const OF_ANSWERS: usize = 32 * 1024 * 1024;
/// Bytes of requests that are gathered for one tenant at once: eight of the longest.
pub(crate) const OF_BODIES: usize = 64 * 1024 * 1024;

/// How much each tenant holds; `None`: those of whom nobody knows yet whose they are, together.
#[derive(Debug)]
pub(crate) struct Rooms {
    most: usize,
    taken: Mutex<HashMap<Option<Tenant>, usize>>,
}

/// What one answer, or one request, holds of its tenant's room. Given back with it.
#[derive(Debug)]
pub(crate) struct Room {
    rooms: Arc<Rooms>,
    tenant: Option<Tenant>,
    held: usize,
}

impl Rooms {
    pub(crate) fn of_answers() -> Arc<Self> {
        Self::of(OF_ANSWERS)
    }

    pub(crate) fn of_bodies() -> Arc<Self> {
        Self::of(OF_BODIES)
    }

    fn of(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default() })
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Option<Tenant>, usize>> {
        // Nobody panics while holding it.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn open(self: &Arc<Self>, tenant: Option<Tenant>) -> Room {
        Room { rooms: Arc::clone(self), tenant, held: 0 }
    }
}

impl Room {
    /// Takes so many bytes, or as many as there are: how many it got.
    pub(crate) fn take(&mut self, wanted: usize) -> usize {
        let mut all = self.rooms.all();
        let taken = all.entry(self.tenant.clone()).or_default();
        let got = wanted.min(self.rooms.most.saturating_sub(*taken));
        *taken += got;
        self.held += got;
        got
    }

    /// Takes so many bytes or none. `false`: there are not so many.
    pub(crate) fn take_all(&mut self, wanted: usize) -> bool {
        let mut all = self.rooms.all();
        let taken = all.get(&self.tenant).copied().unwrap_or(0);
        let fits = wanted <= self.rooms.most.saturating_sub(taken);
        if fits && wanted > 0 {
            all.insert(self.tenant.clone(), taken + wanted);
            self.held += wanted;
        }
        fits
    }

    /// Gives some of it back.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        let bytes = bytes.min(self.held);
        self.held -= bytes;
        let mut all = self.rooms.all();
        if let Some(taken) = all.get_mut(&self.tenant) {
            *taken = taken.saturating_sub(bytes);
            if *taken == 0 {
                all.remove(&self.tenant);
            }
        }
    }

    /// Holds it until the answer is out, or nobody wants it any more.
    pub(crate) fn until_sent(self, response: Response<Body>) -> Response<Body> {
        response.map(|body| Body::new(Held { body, _room: self }))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.give_back(self.held);
    }
}

struct Held {
    body: Body,
    _room: Room,
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_holds_so_much_at_once_and_its_neighbour_has_its_own() {
        const MOST: usize = OF_ANSWERS;
        let rooms = Rooms::of_answers();
        let (one, two): (Tenant, Tenant) = ("one".parse().unwrap(), "two".parse().unwrap());
        let open = |tenant: &Tenant| rooms.open(Some(tenant.clone()));
        let (mut a, mut b, mut c) = (open(&one), open(&one), open(&two));
        assert_eq!((a.take(MOST - 10), b.take(100), b.take(1)), (MOST - 10, 10, 0));
        assert_eq!(c.take(100), 100);
        // An answer that nobody has read holds its room, and gives it back.
        let response = a.until_sent(Response::new(Body::from("x")));
        assert_eq!(open(&one).take(1), 0);
        drop(response);
        assert_eq!(open(&one).take(MOST), MOST - 10);
        drop((b, c));
        assert!(rooms.all().is_empty());
    }

    #[test]
    fn what_is_taken_whole_is_taken_whole_or_not_at_all() {
        let rooms = Rooms::of(10);
        let (mut a, mut b) = (rooms.open(None), rooms.open(None));
        assert!(a.take_all(8) && !b.take_all(3) && b.take_all(2));
        a.give_back(5);
        assert!(!b.take_all(6) && b.take_all(5));
        // No more than it holds.
        a.give_back(100);
        drop(b);
        assert!(a.take_all(10));
        drop(a);
        assert!(rooms.all().is_empty());
    }
}
