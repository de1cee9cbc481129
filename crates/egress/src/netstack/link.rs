//! The link to the box: one packet in, one packet out. A TUN device of its network namespace, or the wire to a machine's card.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use crate::card::{self, Address, HEAD};

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
    state: Mutex<State>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Its address, as its last frame said.
    theirs: Option<Address>,
    waiting: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Link {
    /// The link over a TUN device, which does not block.
    pub fn tun(end: OwnedFd) -> io::Result<Self> {
        Self::over(end, None)
    }

    /// The link over a socket that carries frames of a network card, one in each datagram, and does not block.
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
    pub fn read<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<&'b [u8]>> {
        let length = match rustix::io::read(self.end.get_ref(), &mut *buffer) {
            Ok(length) => length,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let bytes = buffer.get(..length).unwrap_or_default();
        let Some(wire) = &self.wire else { return Ok(Some(bytes)) };
        let Some((theirs, packet)) = card::open(bytes) else { return Ok(Some(&[])) };
        wire.state().theirs = Some(theirs);
        Ok(Some(packet))
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
        let behind = !state.waiting.is_empty();
        if !behind {
            let both = [IoSlice::new(&head), IoSlice::new(packet)];
            if !matches!(rustix::io::writev(self.end.get_ref(), &both), Err(Errno::AGAIN)) {
                return;
            }
        }
        let length = packet.len().saturating_add(HEAD);
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

    fn send_waiting(&self, end: &OwnedFd) -> Sent {
        let mut state = self.state();
        while let Some(frame) = state.waiting.front() {
            // What cannot be sent for another reason is lost.
            if matches!(rustix::io::write(end, frame), Err(Errno::AGAIN)) {
                return Sent::NotAll;
            }
            state.bytes = state.bytes.saturating_sub(frame.len());
            state.waiting.pop_front();
        }
        Sent::All
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    const THEIRS: Address = [0x52, 1, 2, 3, 4, 5];

    fn wire() -> (Link, UnixDatagram) {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        (Link::card(ours.into()).unwrap(), theirs)
    }

    #[tokio::test]
    async fn packets_travel_as_frames_and_nothing_is_said_first() {
        let (link, machine) = wire();
        let mut buffer = [0; 100];
        link.write(&[0x45, 1]);
        assert!(machine.recv(&mut buffer).is_err(), "said to nobody");
        machine.send(&[&[0; 6][..], &THEIRS, &[8, 0, 0x45, 7]].concat()).unwrap();
        machine.send(b"no frame").unwrap();
        assert_eq!(link.read(&mut [0; 100]).unwrap(), Some(&[0x45, 7][..]));
        assert_eq!(link.read(&mut [0; 100]).unwrap(), Some(&[][..]));
        assert_eq!(link.read(&mut [0; 100]).unwrap(), None);
        link.write(&[0x45, 1]);
        let length = machine.recv(&mut buffer).unwrap();
        assert_eq!((&buffer[..6], &buffer[12..length]), (&THEIRS[..], &[8, 0, 0x45, 1][..]));
    }

    #[tokio::test]
    async fn a_machine_that_does_not_read_costs_a_bound_and_gets_everything_in_order() {
        let (link, machine) = wire();
        machine.send(&[&[0; 6][..], &THEIRS, &[8, 0, 0x45]].concat()).unwrap();
        link.read(&mut [0; 100]).unwrap();
        let packet = |number: u8| [&[0x45, number][..], &[0; 60_000]].concat();
        for number in 0..200 {
            link.write(&packet(number));
        }
        let held = || link.wire.as_ref().map(|wire| wire.state().bytes).unwrap();
        assert!(held() > 0 && held() <= MOST_WAITING);
        let mut buffer = vec![0; 70_000];
        let (mut next, mut idle) = (0, 0);
        let reading = async {
            // Until it has been asked often enough in vain that nothing more can come.
            while idle < 100 {
                match machine.recv(&mut buffer) {
                    Ok(_) => {
                        assert_eq!(buffer[HEAD + 1], next);
                        next += 1;
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
        assert_eq!(held(), 0);
    }
}
