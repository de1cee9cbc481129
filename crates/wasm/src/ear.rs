//! Where every thread that has nothing to do waits: for bytes of the host, or for the bell.
//!
//! They wait at one place, each for itself, so that nobody has to wake the next one before a command begins. Each event is told to one of
//! them, and Linux picks the one that came last: it has made the next guest ready on the processor that it is on, whose caches still
//! hold both. Nothing relies on that but speed.
//!
//! An event is told once (edges): whoever hears of the host reads until nothing is left.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

const HOST: u64 = 0;
const BELL: u64 = 1;

/// What a thread waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The host has said something, or takes something again; or the bell rang.
    Something,
    /// The same, and the host is going: its last words may have come together with its end, which is not told once more.
    LastWords,
    /// Nothing, for so long as was waited.
    Nothing,
}

/// The place.
#[derive(Debug)]
pub(crate) struct Ear {
    epoll: OwnedFd,
}

impl Ear {
    /// The stream to the host, and the bell.
    pub(crate) fn at(host: impl AsFd, bell: impl AsFd) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let once = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&epoll, host, EventData::new_u64(HOST), once)?;
        epoll::add(&epoll, bell, EventData::new_u64(BELL), once)?;
        Ok(Self { epoll })
    }

    /// What of the host is worth being told of from now on. What is there already is told.
    pub(crate) fn expect(&self, host: impl AsFd, interest: EventFlags) -> io::Result<()> {
        Ok(epoll::modify(
            &self.epoll,
            host,
            EventData::new_u64(HOST),
            interest | EventFlags::RDHUP | EventFlags::ET,
        )?)
    }

    /// From now on a ring is told to everybody, again and again.
    pub(crate) fn toll(&self, bell: impl AsFd) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, bell, EventData::new_u64(BELL), EventFlags::IN)?)
    }

    /// Waits, without end where there is no patience to lose.
    pub(crate) fn wait(&self, patience: Option<Duration>) -> io::Result<Heard> {
        let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
        let mut events: Vec<Event> = Vec::with_capacity(1);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), patience.as_ref()) {
            Ok(0) => Ok(Heard::Nothing),
            // Whoever was interrupted looks what there is.
            Ok(_) | Err(Errno::INTR) => {
                let flags = events.iter().fold(EventFlags::empty(), |all, &Event { flags, .. }| all | flags);
                let is_going = flags.intersects(EventFlags::HUP | EventFlags::RDHUP | EventFlags::ERR);
                Ok(if is_going { Heard::LastWords } else { Heard::Something })
            }
            Err(errno) => Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    const NOW: Option<Duration> = Some(Duration::ZERO);

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap()
    }

    #[test]
    fn what_was_said_is_told_once_and_again_when_there_is_more_or_somebody_expects_it() {
        let ((host, worker), bell) = (pair(), eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let ear = Ear::at(&worker, &bell).unwrap();
        let mut heard = Vec::new();
        let mut look = || heard.push(ear.wait(NOW).unwrap() == Heard::Something);
        look();
        rustix::io::write(&host, b"a").unwrap();
        look();
        look();
        rustix::io::write(&host, b"b").unwrap();
        look();
        ear.expect(&worker, EventFlags::IN).unwrap();
        look();
        rustix::io::write(&bell, &1_u64.to_ne_bytes()).unwrap();
        look();
        look();
        rustix::io::write(&bell, &1_u64.to_ne_bytes()).unwrap();
        look();
        assert_eq!(heard, [false, true, false, true, true, true, false, true]);
    }

    #[test]
    fn an_end_that_comes_with_the_last_words_is_heard() {
        let ((host, worker), bell) = (pair(), eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let ear = Ear::at(&worker, &bell).unwrap();
        rustix::io::write(&host, b"a").unwrap();
        drop(host);
        assert_eq!(ear.wait(NOW).unwrap(), Heard::LastWords);
    }

    #[test]
    fn everybody_hears_the_bell_toll() {
        let ((_host, worker), bell) = (pair(), eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let ear = Ear::at(&worker, &bell).unwrap();
        std::thread::scope(|scope| {
            let all: Vec<_> =
                (0..3).map(|_| scope.spawn(|| ear.wait(Some(Duration::from_secs(20))).unwrap())).collect();
            ear.toll(&bell).unwrap();
            rustix::io::write(&bell, &1_u64.to_ne_bytes()).unwrap();
            assert!(all.into_iter().all(|one| one.join().unwrap() == Heard::Something));
        });
    }
}
