//! Bodies of requests that are gathered before anybody reads them: bounded each, timed, and bounded for all of a tenant
//! together, however many connections it has.
//!
//! Trust: caller. Whoever has a key, or the token of a sandbox, may send anything.

use std::error::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::Extensions;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Frame, SizeHint};
use tokio::time::timeout;

use crate::door::Seat;
use crate::room::{Room, Rooms};

/// What is said where a tenant's requests hold as much as they may, and its code.
pub(crate) const NO_ROOM: &str =
    "the requests of this tenant that are being read or answered hold as much memory as they may together";
pub(crate) const NO_ROOM_CODE: &str = "request_memory_spent";

/// What one request holds of its tenant's room for bodies. Whose it is is asked when something is taken: the door does not
/// know it of a request with the token of a sandbox.
#[derive(Debug)]
pub(crate) struct Account {
    rooms: Arc<Rooms>,
    seat: Arc<Seat>,
    held: Mutex<Option<Room>>,
}

impl Account {
    pub(crate) fn new(rooms: &Arc<Rooms>, seat: Arc<Seat>) -> Arc<Self> {
        Arc::new(Self { rooms: Arc::clone(rooms), seat, held: Mutex::new(None) })
    }

    /// That of a request. `None`: there is no door, and nothing to count: a test.
    pub(crate) fn of(extensions: &Extensions) -> Option<Arc<Self>> {
        extensions.get::<Arc<Self>>().cloned()
    }

    /// Another account of the same tenant, for what is not given back with the request.
    pub(crate) fn another(&self) -> Arc<Self> {
        Self::new(&self.rooms, Arc::clone(&self.seat))
    }

    /// `false`: there is not so much.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.get_or_insert_with(|| self.rooms.open(self.seat.tenant())).take_all(bytes)
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        if let Some(room) = &mut *self.held.lock().unwrap_or_else(PoisonError::into_inner) {
            room.give_back(bytes);
        }
    }
}

/// Why a body was not gathered.
#[derive(Debug)]
pub(crate) enum Ungathered {
    TooLong,
    TooSlow,
    /// The tenant's other requests hold it all.
    NoRoom,
    BrokeOff(String),
}

/// Gathers a body to its end, or says why not.
pub(crate) async fn gather(
    body: Body,
    gathered: Option<Arc<Account>>,
    most: usize,
    patience: Duration,
) -> Result<Bytes, Ungathered> {
    let body = Limited::new(Counted { body, gathered }, most);
    match timeout(patience, body.collect()).await {
        Err(_) => Err(Ungathered::TooSlow),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Ungathered::TooLong),
        Ok(Err(error)) if error.is::<NoRoom>() => Err(Ungathered::NoRoom),
        Ok(Err(error)) => Err(Ungathered::BrokeOff(error.to_string())),
        Ok(Ok(body)) => Ok(body.to_bytes()),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{NO_ROOM}")]
struct NoRoom;

/// A body whose bytes are counted as they come.
struct Counted {
    body: Body,
    gathered: Option<Arc<Account>>,
}

impl hyper::body::Body for Counted {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        polled.map(|next| {
            next.map(|frame| {
                let frame = frame?;
                let length = frame.data_ref().map_or(0, Bytes::len);
                match &self.gathered {
                    Some(gathered) if !gathered.take(length) => Err(NoRoom.into()),
                    Some(_) | None => Ok(frame),
                }
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use blastbox_engine::keeper::Tenant;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::door::Tenants;
    use crate::room::OF_BODIES;

    const PATIENCE: Duration = Duration::from_secs(1);

    /// Requests of these tenants, each over a connection of its own, at one door.
    pub(crate) fn requests<const N: usize>(names: [&str; N]) -> [Arc<Account>; N] {
        let (rooms, tenants) = (Rooms::of_bodies(), Tenants::new(N));
        names.map(|name| {
            let seat = Seat::new(Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap(), &tenants);
            // As with the token of a sandbox: whose it is is known after the request began.
            let gathered = Account::new(&rooms, Arc::new(seat));
            assert!(gathered.seat.take_for(&name.parse::<Tenant>().unwrap()));
            gathered
        })
    }

    #[tokio::test]
    async fn bodies_of_a_tenant_are_bounded_together_and_its_neighbours_are_its_own() {
        let [one, two, three, neighbour, last] = requests(["a", "a", "a", "b", "a"]);
        assert!(one.take(OF_BODIES - 10));
        let read = async |whose: &Arc<Account>, bytes: usize| {
            gather(Body::from(vec![b'x'; bytes]), Some(Arc::clone(whose)), 100, PATIENCE).await
        };
        assert_eq!(read(&two, 10).await.unwrap().len(), 10);
        assert!(matches!(read(&three, 1).await, Err(Ungathered::NoRoom)));
        assert_eq!(read(&neighbour, 100).await.unwrap().len(), 100);
        // It is held until the request is answered, and not only until it is read.
        drop(one);
        assert_eq!(read(&three, 1).await.unwrap().len(), 1);
        drop((two, three));
        assert!(last.take(OF_BODIES) && !last.take(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_bounded_and_timed() {
        let long = gather(Body::from(vec![b' '; 11]), None, 10, PATIENCE).await;
        assert!(matches!(long, Err(Ungathered::TooLong)));
        assert_eq!(gather(Body::from("0123456789"), None, 10, PATIENCE).await.unwrap().len(), 10);
        let (_keep, silent) = crate::sse::channel();
        assert!(matches!(gather(silent, None, 10, PATIENCE).await, Err(Ungathered::TooSlow)));
    }
}
