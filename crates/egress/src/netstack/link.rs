//! The link to the box: one packet in, one packet out. A TUN device of its network namespace, or the wire to a machine's card.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use blastbox_sys::tun;
use rustix::io::Errno;
use smoltcp::wire::{IpAddress, IpProtocol, IpVersion, Ipv4Packet, Ipv6Packet, TcpPacket, checksum};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use crate::card::{self, Address, Frames, HEAD, LENGTH};

/// Bytes that a packet's buffer needs beside it.
pub const MARGIN: usize = tun::HEAD;
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
            tun::leave(self.end.get_ref().as_fd()).ok();
        }
    }

    /// Waits until there is something to read.
    pub async fn readable(&self) -> io::Result<tokio::io::unix::AsyncFdReadyGuard<'_, OwnedFd>> {
        self.end.readable().await
    }

    /// Whether whoever reads a packet at the other end takes its sum for right.
    pub(super) fn spares_sums(&self) -> bool {
        self.wire.is_none()
    }

    /// Reads one packet. `None`: there is none now. A frame that carries none is an empty packet, which is malformed.
    /// `buffer` needs [`MARGIN`] bytes more than the packet.
    /// `UnexpectedEof`: the machine has let go of its wire, and nothing comes any more.
    pub fn read<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<&'b [u8]>> {
        if let Some(wire) = &self.wire {
            return wire.read(self.end.get_ref(), buffer);
        }
        match rustix::io::read(self.end.get_ref(), &mut *buffer) {
            // What stands before a packet says of its sum and of nothing else, for nothing else was offered.
            Ok(length) => Ok(Some(buffer.get(tun::HEAD..length).unwrap_or_default())),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Writes one packet. One that does not go is lost, as packets are: TCP sends it again.
    pub fn write(&self, packet: &[u8]) {
        self.put(tun::WHOLE, packet);
    }

    /// Writes one packet of TCP that was not summed up.
    pub(crate) fn write_unsummed(&self, packet: &mut [u8]) {
        let before = without_sum(packet).unwrap_or(tun::WHOLE);
        self.put(before, packet);
    }

    fn put(&self, before: [u8; tun::HEAD], packet: &[u8]) {
        let Some(wire) = &self.wire else {
            rustix::io::writev(self.end.get_ref(), &[IoSlice::new(&before), IoSlice::new(packet)]).ok();
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

/// Fills in what of a packet's sum has to be there, and says where. `None`: it is not TCP, and whole.
fn without_sum(packet: &mut [u8]) -> Option<[u8; tun::HEAD]> {
    const PLACE: u16 = 16;
    // It looks at the first byte without asking whether there is one.
    packet.first()?;
    let (protocol, head, from, to) = match IpVersion::of_packet(packet).ok()? {
        IpVersion::Ipv4 => {
            let ip = Ipv4Packet::new_checked(&*packet).ok()?;
            (
                ip.next_header(),
                usize::from(ip.header_len()),
                IpAddress::from(ip.src_addr()),
                IpAddress::from(ip.dst_addr()),
            )
        }
        IpVersion::Ipv6 => {
            let ip = Ipv6Packet::new_checked(&*packet).ok()?;
            (
                ip.next_header(),
                ip.header_len(),
                IpAddress::from(ip.src_addr()),
                IpAddress::from(ip.dst_addr()),
            )
        }
    };
    if protocol != IpProtocol::Tcp {
        return None;
    }
    let segment = packet.get_mut(head..)?;
    let length = u32::try_from(segment.len()).ok()?;
    let mut tcp = TcpPacket::new_checked(segment).ok()?;
    tcp.set_checksum(checksum::pseudo_header(&from, &to, protocol, length));
    Some(tun::unsummed(u16::try_from(head).ok()?, PLACE))
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
#[path = "link_tests.rs"]
mod tests;
