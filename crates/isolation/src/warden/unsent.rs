//! What is said to the warden without waiting for it.
//!
//! A warden that does not read for a moment holds nobody up, and nothing that ends a box is lost: what its socket has no room
//! for waits here, in order.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::PoisonError;

use blastbox_sys::channel;
use blastbox_wire::warden::Ask;

use super::{Warden, WardenError};

/// What waits for room, with its descriptors. No more than a few for each box: a later one takes the place of one that means the
/// same, and the end of a box that of all that was to become of it before.
#[derive(Debug, Default)]
pub(super) struct Unsent(VecDeque<(Ask, Vec<OwnedFd>)>);

impl Unsent {
    fn push(&mut self, ask: Ask, fds: Vec<OwnedFd>) {
        self.0.retain(|(old, _)| match (old, &ask) {
            (
                Ask::Kill(old) | Ask::Until { box_id: old, .. } | Ask::Pause(old) | Ask::Resume(old),
                Ask::Kill(new),
            )
            | (Ask::Until { box_id: old, .. }, Ask::Until { box_id: new, .. })
            | (Ask::Pause(old), Ask::Pause(new))
            | (Ask::Resume(old), Ask::Resume(new)) => old != new,
            _ => true,
        });
        self.0.push_back((ask, fds));
    }
}

impl Warden {
    /// Asks, where there is room for it now. `false`: there is none, or what was said before still waits for it.
    pub fn try_ask(&mut self, ask: &Ask, fds: &[BorrowedFd<'_>]) -> Result<bool, WardenError> {
        Ok(self.flush()? && self.post(&ask.encode(), fds)?)
    }

    /// Says something that must not be lost. What there is no room for now goes with a later [`Warden::flush`].
    pub fn say(&mut self, ask: Ask) -> Result<(), WardenError> {
        self.say_with(ask, Vec::new())
    }

    /// The same, with descriptors, which are the message's until it has gone.
    pub fn say_with(&mut self, ask: Ask, fds: Vec<OwnedFd>) -> Result<(), WardenError> {
        self.unsent.push(ask, fds);
        self.flush().map(drop)
    }

    /// Sends what waits, as far as there is room. `true`: nothing waits any more.
    pub fn flush(&mut self) -> Result<bool, WardenError> {
        while let Some((next, fds)) = self.unsent.0.front() {
            let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            if !self.post(&next.encode(), &fds)? {
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
    fn a_box_that_is_stopped_and_let_go_all_day_costs_two_messages_and_its_end_one() {
        let (mut warden, theirs) = stand_in();
        while warden.try_ask(&Ask::Sweep, &[]).unwrap() {}
        for _ in 0..1000 {
            warden.say(Ask::Pause(id(1))).unwrap();
            warden.say(Ask::Resume(id(1))).unwrap();
        }
        warden.say(Ask::Pause(id(2))).unwrap();
        let waiting =
            |warden: &Warden| warden.unsent.0.iter().map(|(ask, _)| ask.clone()).collect::<Vec<_>>();
        assert_eq!(waiting(&warden), [Ask::Pause(id(1)), Ask::Resume(id(1)), Ask::Pause(id(2))]);
        warden.say(Ask::Until { box_id: id(1), millis: 1 }).unwrap();
        warden.say(Ask::Kill(id(1))).unwrap();
        assert_eq!(waiting(&warden), [Ask::Pause(id(2)), Ask::Kill(id(1))]);
        drop(theirs);
    }

    #[test]
    fn nothing_overtakes_what_waits_not_even_who_waits_for_room() {
        let (mut warden, theirs) = stand_in();
        let mut sent = 0;
        while warden.try_ask(&Ask::Sweep, &[]).unwrap() {
            sent += 1;
        }
        let (keep, other) = std::os::unix::net::UnixStream::pair().unwrap();
        warden.say_with(Ask::Keep(id(1)), vec![keep.into()]).unwrap();
        warden.say(Ask::Kill(id(2))).unwrap();
        let reader = std::thread::spawn(move || {
            let (mut bytes, mut heard) = ([0; 256], Vec::new());
            while heard.len() < sent + 3 {
                // What is not read yet: whoever waits for room waits for this.
                match channel::receive(&theirs, &mut bytes) {
                    Ok(Some((length, fds))) => {
                        heard.push((Ask::decode(&bytes[..length]).unwrap(), fds.len()))
                    }
                    Ok(None) => panic!("it hung up"),
                    Err(_) => std::thread::yield_now(),
                }
            }
            heard.split_off(sent)
        });
        warden.ask(&Ask::Count(id(3)), &[other.as_fd()]).unwrap();
        let heard = reader.join().unwrap();
        assert_eq!(heard, [(Ask::Keep(id(1)), 1), (Ask::Kill(id(2)), 0), (Ask::Count(id(3)), 1)]);
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
