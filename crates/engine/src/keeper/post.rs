//! Copies of the ledger, carried to sinks while the keeper works: one thread per sink, so that one that is slow or down
//! holds up nobody. A sink that must acknowledge holds up the word that a box is gone, and nothing else.
//!
//! ```text
//! pen ── head ──► carry (a thread per sink) ── batches ──► sink
//!  ▲                │ acknowledged ──► whoever waits for it
//!  └─ unreachable, reached ◄┘
//! ```

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use blastbox_wire::event::{Event, Label};
use tokio::sync::watch;
use tokio::time::timeout;

use super::events::Happened;
use super::face::Keeper;
use super::house::House;
use crate::ledger::{Courier, Need, Sink, SinkError};

/// After a failure: so long at first, twice as long each time, and never longer than the last.
pub(crate) const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long a stopping keeper lets its sinks have the rest.
const REST: Duration = Duration::from_secs(5);
/// Most characters of why a sink does not answer.
const MOST_WHY: usize = 200;

/// A sink that must acknowledge a record did not, and will not any more: the keeper has stopped. Whatever the record says
/// is not to be told as done; the next daemon tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unheard;

/// Where sinks learn that there is something to carry.
#[derive(Debug, Default)]
pub(crate) struct Post {
    state: Mutex<State>,
    bell: Condvar,
    /// Nothing more will be acknowledged, nor written.
    over: watch::Sender<bool>,
    /// Of those sinks that must acknowledge: the first record that each of them does not have.
    waited_for: Mutex<Vec<watch::Receiver<u64>>>,
}

#[derive(Debug, Default)]
struct State {
    /// How many records there are.
    written: u64,
    closed: bool,
    carrying: usize,
}

impl Post {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nobody panics while holding it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another record is in the ledger.
    pub(crate) fn written(&self, seq: u64) {
        let mut state = self.state();
        state.written = state.written.max(seq.saturating_add(1));
        drop(state);
        self.bell.notify_all();
    }

    /// Waits until every sink that must has acknowledged this record.
    pub(crate) async fn acknowledged(&self, seq: u64) -> Result<(), Unheard> {
        let sinks = self.waited_for.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut over = self.over.subscribe();
        for mut missing in sinks {
            // That the keeper stops, or the thread of a sink, is no acknowledgement.
            tokio::select! {
                biased;
                heard = missing.wait_for(|missing| *missing > seq) => heard.map(drop).map_err(|_| Unheard)?,
                _ = over.wait_for(|over| *over) => return Err(Unheard),
            }
        }
        Ok(())
    }

    /// Waits until every sink that must has acknowledged everything that is there now.
    pub(crate) async fn all_acknowledged(&self) -> Result<(), Unheard> {
        let written = self.state().written;
        match written.checked_sub(1) {
            Some(last) => self.acknowledged(last).await,
            None => Ok(()),
        }
    }

    /// Whether a sink must acknowledge ends before they are told.
    pub(crate) fn must_acknowledge(&self) -> bool {
        !self.waited_for.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Waits before another attempt at something that failed; in vain where there will be none.
    pub(crate) async fn wait(&self, pause: &mut Duration) -> Result<(), Unheard> {
        let mut over = self.over.subscribe();
        let over = over.wait_for(|over| *over);
        match timeout(std::mem::replace(pause, (*pause * 2).min(LONGEST_PAUSE)), over).await {
            Ok(_) => Err(Unheard),
            Err(_) => Ok(()),
        }
    }

    /// There will be nothing more. Waits a moment for what is on its way.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        self.bell.notify_all();
        let left = |state: &mut State| state.carrying > 0;
        drop(self.bell.wait_timeout_while(state, REST, left).unwrap_or_else(PoisonError::into_inner));
        self.over.send_replace(true);
    }

    /// From now on ends wait for a sink that has the records before this one. Whoever carries them says how far it is.
    pub(crate) fn wait_for_sink(&self, missing: u64) -> watch::Sender<u64> {
        let (to, from) = watch::channel(missing);
        self.waited_for.lock().unwrap_or_else(PoisonError::into_inner).push(from);
        to
    }

    /// Waits for a record that the sink does not have; `None` once there will be none.
    fn next(&self, missing: u64) -> Option<u64> {
        let wait = |state: &mut State| state.written <= missing && !state.closed;
        let state = self.bell.wait_while(self.state(), wait).unwrap_or_else(PoisonError::into_inner);
        (state.written > missing).then(|| state.written - 1)
    }

    /// Waits, whatever is written meanwhile. `false`: there is no time for that any more.
    fn rest(&self, pause: Duration) -> bool {
        let wait = |state: &mut State| !state.closed;
        let rested = self.bell.wait_timeout_while(self.state(), pause, wait);
        !rested.unwrap_or_else(PoisonError::into_inner).0.closed
    }
}

impl Keeper {
    /// Carries the ledger's records to a sink from now on, those first that it does not have. With
    /// [`Need::MustAcknowledge`] the end of a box is told only when the sink has it.
    ///
    /// # Errors
    /// Where the sink cannot be one, or has what the ledger has lost. A sink that is only down is none.
    pub fn ship_to(&self, sink: Box<dyn Sink>, need: Need) -> Result<(), SinkError> {
        let Some(directory) = self.0.pen.directory() else { return Ok(()) };
        let courier = Courier::new(&directory, sink, need)?;
        let post = Arc::clone(self.0.pen.post());
        let missing = courier.acked().map_or(0, |head| head.seq.saturating_add(1));
        post.state().carrying += 1;
        let to = match need {
            Need::MustAcknowledge => post.wait_for_sink(missing),
            Need::BestEffort => watch::Sender::new(missing),
        };
        let carrier = Carrier { courier, post, house: Arc::downgrade(&self.0), to };
        let named = thread::Builder::new().name("sink".to_owned()).stack_size(256 * 1024);
        named.spawn(move || carrier.carry()).map_err(SinkError::Unreachable).map(drop)
    }
}

/// Carries records to one sink.
struct Carrier {
    courier: Courier,
    post: Arc<Post>,
    house: Weak<House>,
    to: watch::Sender<u64>,
}

impl Carrier {
    fn carry(mut self) {
        let (mut down, mut pause) = (false, PAUSE);
        loop {
            // On a line of its own: what is borrowed here must not be held while the sink is waited for.
            let missing = *self.to.borrow();
            let Some(wanted) = self.post.next(missing) else { return };
            let delivered = self.courier.deliver_until(wanted);
            if let Some(head) = self.courier.acked() {
                self.to.send_replace(head.seq.saturating_add(1));
            }
            match delivered {
                Ok(()) => {
                    pause = PAUSE;
                    if std::mem::take(&mut down) {
                        self.tell(None);
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut down, true) {
                        self.tell(Some(&error));
                    }
                    if !self.post.rest(pause) {
                        return;
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Tells that the sink takes nothing, or takes records again: once each, not for every attempt.
    fn tell(&self, error: Option<&SinkError>) {
        let Some(house) = self.house.upgrade() else { return };
        let sink = self.courier.name().to_owned();
        let (event, what) = match error {
            Some(error) => {
                let why = why(error);
                let event = Event::SinkUnreachable { sink: Label::new(&sink), why: Label::new(&why) };
                (event, Happened::SinkUnreachable { sink, why })
            }
            None => (Event::SinkReached { sink: Label::new(&sink) }, Happened::SinkReached { sink }),
        };
        house.pen.announce(None, &event).ok();
        house.hub.tell(None, what);
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        let mut state = self.post.state();
        state.carrying = state.carrying.saturating_sub(1);
        drop(state);
        self.post.bell.notify_all();
    }
}

/// The whole chain of causes in one line, cut: what a sink says of itself may be long.
fn why(error: &dyn std::error::Error) -> String {
    crate::causes(error).chars().filter(|c| !c.is_control()).take(MOST_WHY).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it is still waited for, without waiting.
    macro_rules! waits {
        ($future:expr) => {
            tokio::select! {
                biased;
                _ = &mut $future => false,
                () = std::future::ready(()) => true,
            }
        };
    }

    #[tokio::test]
    async fn neither_a_sink_that_goes_nor_a_keeper_that_stops_is_an_acknowledgement() {
        let post = Post::default();
        assert!(!post.must_acknowledge());
        assert_eq!(post.acknowledged(7).await, Ok(()), "nobody has to");
        let (one, two) = (post.wait_for_sink(0), post.wait_for_sink(0));
        post.written(7);
        let mut waiting = Box::pin(post.acknowledged(7));
        assert!(waits!(waiting));
        one.send_replace(8);
        assert!(waits!(waiting), "the other has it not");
        drop(two);
        assert_eq!(waiting.await, Err(Unheard));
        let three = post.wait_for_sink(8);
        assert_eq!(Post::default().all_acknowledged().await, Ok(()));
        post.close();
        assert_eq!(post.acknowledged(9).await, Err(Unheard));
        drop((one, three));
    }

    #[tokio::test]
    async fn what_was_acknowledged_before_the_end_stays_so() {
        let post = Post::default();
        let sink = post.wait_for_sink(0);
        post.written(7);
        let mut all = Box::pin(post.all_acknowledged());
        assert!(waits!(all));
        sink.send_replace(8);
        drop(sink);
        post.close();
        assert_eq!(all.await, Ok(()));
    }
}
