//! The link to the box: one packet in, one packet out. A TUN device of its network namespace, or the wire to a machine's card.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use crate::card::{self, Address, Frames, HEAD, LENGTH};

/// Bytes of frames that wait for a machine that does not read. What comes then is lost, as packets are: TCP sends it again.
const MOST_WAITING: usize = 2 << 20;

/// The link to the box.
#[derive(Debug)]
pub struct Link {
    end: AsyncFd<OwnedFd>,
    pub(super) scratch: Mutex<Vec<u8>>,
    /// Where packets are frames.
    wire: Option<Wire>,
}

/// What is known of a machine's card.
#[derive(Debug, Default)]
struct Wire {
    heard: Mutex<Frames>,
    state: Mutex<State>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Its address, as its last frame said.
    theirs: Option<Address>,
    waiting: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Bytes of the first that waits which the machine has already.
    sent: usize,
}

impl Link {
    /// The link over a TUN device, which does not block.
    pub fn tun(end: OwnedFd) -> io::Result<Self> {
        Self::over(end, None)
    }

    /// The link over a stream that carries frames of a network card, each behind its length, and does not block.
    pub fn card(end: OwnedFd) -> io::Result<Self> {
        Self::over(end, Some(Wire::default()))
    }

    fn over(end: OwnedFd, wire: Option<Wire>) -> io::Result<Self> {
        #[expect(
            deprecated,
            reason = "sound for a descriptor that is owned; its replacement is unsafe to call"
        )]
        let end = AsyncFd::new(end)?;
        Ok(Self { end, scratch: Mutex::default(), wire })
    }

    /// Leaves the interface to the box's namespace, which is about to go. Where that cannot be, closing takes longer.
    pub(crate) fn leave(&self) {
        if self.wire.is_none() {
            blastbox_sys::tun::leave(self.end.get_ref().as_fd()).ok();
        }
    }

    /// Waits until there is something to read.
    pub async fn readable(&self) -> io::Result<tokio::io::unix::AsyncFdReadyGuard<'_, OwnedFd>> {
        self.end.readable().await
    }

    /// Reads one packet. `None`: there is none now. A frame that carries none is an empty packet, which is malformed.
    /// `UnexpectedEof`: the machine has let go of its wire, and nothing comes any more.
    pub fn read<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<&'b [u8]>> {
        if let Some(wire) = &self.wire {
            return wire.read(self.end.get_ref(), buffer);
        }
        match rustix::io::read(self.end.get_ref(), &mut *buffer) {
            Ok(length) => Ok(Some(buffer.get(..length).unwrap_or_default())),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Writes one packet. One that does not go is lost, as packets are: TCP sends it again.
    pub fn write(&self, packet: &[u8]) {
        let Some(wire) = &self.wire else {
            rustix::io::write(self.end.get_ref(), packet).ok();
            return;
        };
        let mut state = wire.state();
        // Nothing is said to a machine that has said nothing.
        let Some(theirs) = state.theirs else { return };
        let head = card::head(packet, theirs);
        let length = packet.len().saturating_add(LENGTH + HEAD);
        if state.waiting.is_empty() {
            let both = [IoSlice::new(&head), IoSlice::new(packet)];
            match rustix::io::writev(self.end.get_ref(), &both) {
                Ok(sent) if sent >= length => return,
                // The rest has to follow before anything else does.
                Ok(sent) => state.sent = sent,
                Err(Errno::AGAIN | Errno::INTR) => state.sent = 0,
                // Nobody is there any more.
                Err(_) => return,
            }
        }
        if state.bytes.saturating_add(length) <= MOST_WAITING {
            state.bytes = state.bytes.saturating_add(length);
            state.waiting.push_back([&head, packet].concat());
            drop(state);
            wire.filled.notify_one();
        }
    }

    /// Sends what waits when it can be sent. Runs for ever; idle while nothing waits.
    pub(crate) async fn catch_up(&self) -> io::Result<()> {
        let Some(wire) = &self.wire else { return std::future::pending().await };
        loop {
            if wire.state().waiting.is_empty() {
                wire.filled.notified().await;
                continue;
            }
            let mut ready = self.end.writable().await?;
            if wire.send_waiting(self.end.get_ref()) == Sent::NotAll {
                ready.clear_ready();
            }
            drop(ready);
            tokio::task::yield_now().await;
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Sent {
    All,
    NotAll,
}

impl Wire {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next packet, copied out of what was heard. One who sends a frame byte by byte keeps only his own gateway busy.
    fn read<'b>(&self, end: &OwnedFd, buffer: &'b mut [u8]) -> io::Result<Option<&'b [u8]>> {
        let mut frames = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let bad = |bad| io::Error::new(io::ErrorKind::InvalidData, bad);
            if let Some(frame) = frames.take().map_err(bad)? {
                let Some((theirs, packet)) = card::open(frame) else { return Ok(Some(&[])) };
                let Some(place) = buffer.get_mut(..packet.len()) else { return Ok(Some(&[])) };
                place.copy_from_slice(packet);
                self.state().theirs = Some(theirs);
                return Ok(Some(place));
            }
            match rustix::io::read(end, frames.room()) {
                Ok(0) | Err(Errno::CONNRESET) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => frames.filled(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn send_waiting(&self, end: &OwnedFd) -> Sent {
        let mut state = self.state();
        while let Some(frame) = state.waiting.front() {
            let (length, rest) = (frame.len(), frame.get(state.sent..).unwrap_or_default());
            match rustix::io::write(end, rest) {
                Ok(count) if count < rest.len() => state.sent = state.sent.saturating_add(count),
                Ok(_) => {
                    state.bytes = state.bytes.saturating_sub(length);
                    state.sent = 0;
                    state.waiting.pop_front();
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Sent::NotAll,
                // Nobody is there any more.
                Err(_) => {
                    state.waiting.clear();
                    (state.bytes, state.sent) = (0, 0);
                }
            }
        }
        Sent::All
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    const THEIRS: Address = [0x52, 1, 2, 3, 4, 5];

    fn wire() -> (Link, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        (Link::card(ours.into()).unwrap(), theirs)
    }

    fn framed(frame: &[u8]) -> Vec<u8> {
        [&u32::try_from(frame.len()).unwrap().to_be_bytes(), frame].concat()
    }

    fn said(packet: &[u8]) -> Vec<u8> {
        framed(&[&[0; 6][..], &THEIRS, &[8, 0], packet].concat())
    }

    #[tokio::test]
    async fn packets_travel_as_frames_and_nothing_is_said_first() {
        let (link, mut machine) = wire();
        let mut buffer = [0; 100];
        link.write(&[0x45, 1]);
        assert!(machine.read(&mut buffer).is_err(), "said to nobody");
        let both = [said(&[0x45, 7]), framed(b"no frame")].concat();
        let (first, rest) = both.split_at(9);
        machine.write_all(first).unwrap();
        assert_eq!(link.read(&mut [0; 100]).unwrap(), None);
        machine.write_all(rest).unwrap();
        assert_eq!(link.read(&mut [0; 100]).unwrap(), Some(&[0x45, 7][..]));
        assert_eq!(link.read(&mut [0; 100]).unwrap(), Some(&[][..]));
        assert_eq!(link.read(&mut [0; 100]).unwrap(), None);
        link.write(&[0x45, 1]);
        let length = machine.read(&mut buffer).unwrap();
        assert_eq!(buffer[..10], [&[0, 0, 0, 16][..], &THEIRS].concat());
        assert_eq!(buffer[16..length], [8, 0, 0x45, 1]);
    }

    #[tokio::test]
    async fn a_lying_length_ends_the_link_and_a_machine_that_lets_go_does_not() {
        for (last, kind) in [
            (&[0; 4][..], io::ErrorKind::InvalidData),
            (&[0, 1, 0, 0], io::ErrorKind::InvalidData),
            (&[0, 0], io::ErrorKind::UnexpectedEof),
            (&[], io::ErrorKind::UnexpectedEof),
        ] {
            let (link, mut machine) = wire();
            machine.write_all(&[&said(&[0x45, 7]), last].concat()).unwrap();
            drop(machine);
            assert_eq!(link.read(&mut [0; 100]).unwrap(), Some(&[0x45, 7][..]));
            assert_eq!(link.read(&mut [0; 100]).unwrap_err().kind(), kind);
            // What is said to it then is lost, and nothing waits.
            link.write(&[0x45, 1]);
            assert_eq!(link.wire.as_ref().map(|wire| wire.state().bytes), Some(0));
        }
    }

    #[tokio::test]
    async fn a_machine_that_does_not_read_costs_a_bound_and_gets_everything_in_order() {
        let (link, mut machine) = wire();
        machine.write_all(&said(&[0x45])).unwrap();
        link.read(&mut [0; 100]).unwrap();
        let packet = |number: u8| [&[0x45, number][..], &[0; 60_000]].concat();
        for number in 0..200 {
            link.write(&packet(number));
        }
        let held = || link.wire.as_ref().map(|wire| wire.state().bytes).unwrap();
        assert!(held() > 0 && held() <= MOST_WAITING);
        let mut buffer = vec![0; 70_000];
        let (mut frames, mut next, mut idle) = (Frames::default(), 0, 0);
        let reading = async {
            // Until it has been asked often enough in vain that nothing more can come.
            while idle < 100 {
                match machine.read(&mut buffer) {
                    Ok(count) => {
                        frames.room()[..count].copy_from_slice(&buffer[..count]);
                        frames.filled(count);
                        while let Some(frame) = frames.take().unwrap() {
                            assert_eq!((frame.len(), frame[HEAD + 1]), (60_002 + HEAD, next));
                            next += 1;
                        }
                        idle = 0;
                    }
                    Err(_) if held() > 0 => {}
                    Err(_) => idle += 1,
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = reading => {}
            ended = link.catch_up() => panic!("{ended:?}"),
        }
        assert!(next > 34 && next < 200, "{next}");
        assert_eq!((held(), frames.room().len()), (0, Frames::default().room().len()), "half a frame");
    }
}
