//! What is said to the warden without waiting for it.
//!
//! A warden that does not read for a moment holds nobody up, and nothing that ends a box is lost: what its socket has no room
//! for waits here, in order.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::PoisonError;

use blastbox_sys::channel;
use blastbox_wire::warden::Ask;

use super::{Warden, WardenError};

/// What waits for room. No more than a few for each box: a later one takes the place of one that means the same.
#[derive(Debug, Default)]
pub(super) struct Unsent(VecDeque<Ask>);

impl Unsent {
    fn push(&mut self, ask: Ask) {
        self.0.retain(|old| match (old, &ask) {
            (Ask::Kill(old), Ask::Kill(new)) => old != new,
            (Ask::Until { box_id: old, .. }, Ask::Until { box_id: new, .. }) => old != new,
            _ => true,
        });
        self.0.push_back(ask);
    }
}

impl Warden {
    /// Asks, where there is room for it now. `false`: there is none, or what was said before still waits for it.
    pub fn try_ask(&mut self, ask: &Ask, fds: &[BorrowedFd<'_>]) -> Result<bool, WardenError> {
        Ok(self.flush()? && self.post(&ask.encode(), fds)?)
    }

    /// Says something that must not be lost. What there is no room for now goes with a later [`Warden::flush`].
    pub fn say(&mut self, ask: Ask) -> Result<(), WardenError> {
        self.unsent.push(ask);
        self.flush().map(drop)
    }

    /// Sends what waits, as far as there is room. `true`: nothing waits any more.
    pub fn flush(&mut self) -> Result<bool, WardenError> {
        while let Some(next) = self.unsent.0.front() {
            if !self.post(&next.encode(), &[])? {
                return Ok(false);
            }
            self.unsent.0.pop_front();
        }
        Ok(true)
    }

    /// Whether something waits.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        !self.unsent.0.is_empty()
    }

    /// One message. `false`: there is no room for it.
    pub(super) fn post(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<bool, WardenError> {
        loop {
            match channel::send(self, bytes, fds) {
                Ok(()) => {
                    drop(self.view.lock().unwrap_or_else(PoisonError::into_inner).take());
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(WardenError::Send(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use blastbox_wire::BoxId;

    use super::super::tests::stand_in;
    use super::*;

    fn id(number: u16) -> BoxId {
        let mut random = [0; 20];
        // Five bits of each are told apart.
        random[..3].copy_from_slice(
            &[number, number >> 5, number >> 10].map(|part| u8::try_from(part % 32).unwrap()),
        );
        BoxId::from_random(random)
    }

    #[test]
    fn a_thousand_looks_at_a_warden_that_does_not_read_cost_no_kill() {
        let (mut warden, theirs) = stand_in();
        let looks: Vec<bool> =
            (0..1000).map(|number| warden.try_ask(&Ask::Count(id(number)), &[]).unwrap()).collect();
        let sent = looks.iter().filter(|sent| **sent).count();
        assert!(sent > 0 && sent < 1000, "the socket is full: {sent}");
        for number in (0..100).chain(0..100) {
            warden.say(Ask::Kill(id(number))).unwrap();
            warden.say(Ask::Until { box_id: id(number), millis: 1 }).unwrap();
        }
        assert_eq!(warden.unsent.0.len(), 200, "each once");
        assert!(!warden.try_ask(&Ask::Sweep, &[]).unwrap(), "nothing overtakes what waits");
        // One message at a time, with everything that there is room for after each.
        let (mut bytes, mut counts, mut kills) = ([0; 256], 0, Vec::new());
        while counts < sent || kills.len() < 100 {
            let (length, _) = channel::receive(&theirs, &mut bytes).unwrap().unwrap();
            match Ask::decode(&bytes[..length]).unwrap() {
                Ask::Count(_) => counts += 1,
                Ask::Kill(id) => kills.push(id),
                Ask::Until { .. } => {}
                other => panic!("{other:?}"),
            }
            warden.flush().unwrap();
        }
        assert_eq!(kills, (0..100).map(id).collect::<Vec<_>>());
        assert!(!warden.has_unsent());
    }

    #[test]
    fn what_waits_for_a_warden_that_is_gone_is_an_error() {
        let (mut warden, theirs) = stand_in();
        while warden.try_ask(&Ask::Sweep, &[]).unwrap() {}
        warden.say(Ask::Kill(id(1))).unwrap();
        drop(theirs);
        assert!(matches!(warden.flush(), Err(WardenError::Send(_))));
    }
}
