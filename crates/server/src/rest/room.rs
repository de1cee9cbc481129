//! Room for answers that are held in memory whole. Each tenant has so much of it, for all its answers together, from the
//! first byte until the caller has taken the last: many runs at once, or callers that do not read, fill no machine.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::Response;
use blastbox_engine::keeper::Tenant;
use hyper::body::{Frame, SizeHint};

/// Bytes of output that one tenant's answers hold at once. As JSON, with base64 and text, they are up to five times that.
const MOST: usize = 32 * 1024 * 1024;

/// How much each tenant holds.
#[derive(Debug, Default)]
pub(crate) struct Rooms(Mutex<HashMap<Tenant, usize>>);

/// What one answer holds of its tenant's room. Given back with it.
#[derive(Debug)]
pub(crate) struct Room {
    rooms: Arc<Rooms>,
    tenant: Tenant,
    held: usize,
}

impl Rooms {
    fn all(&self) -> MutexGuard<'_, HashMap<Tenant, usize>> {
        // Nobody panics while holding it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn open(self: &Arc<Self>, tenant: &Tenant) -> Room {
        Room { rooms: Arc::clone(self), tenant: tenant.clone(), held: 0 }
    }
}

impl Room {
    /// Takes so many bytes, or as many as there are: how many it got.
    pub(super) fn take(&mut self, wanted: usize) -> usize {
        let mut all = self.rooms.all();
        let taken = all.entry(self.tenant.clone()).or_default();
        let got = wanted.min(MOST.saturating_sub(*taken));
        *taken += got;
        self.held += got;
        got
    }

    /// Holds it until the answer is out, or nobody wants it any more.
    pub(super) fn until_sent(self, response: Response<Body>) -> Response<Body> {
        response.map(|body| Body::new(Held { body, _room: self }))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut all = self.rooms.all();
        if let Some(taken) = all.get_mut(&self.tenant) {
            *taken = taken.saturating_sub(self.held);
            if *taken == 0 {
                all.remove(&self.tenant);
            }
        }
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
        let rooms = Arc::new(Rooms::default());
        let (one, two): (Tenant, Tenant) = ("one".parse().unwrap(), "two".parse().unwrap());
        let (mut a, mut b, mut c) = (rooms.open(&one), rooms.open(&one), rooms.open(&two));
        assert_eq!((a.take(MOST - 10), b.take(100), b.take(1)), (MOST - 10, 10, 0));
        assert_eq!(c.take(100), 100);
        // An answer that nobody has read holds its room, and gives it back.
        let response = a.until_sent(Response::new(Body::from("x")));
        assert_eq!(rooms.open(&one).take(1), 0);
        drop(response);
        assert_eq!(rooms.open(&one).take(MOST), MOST - 10);
        drop((b, c));
        assert!(rooms.all().is_empty());
    }
}
