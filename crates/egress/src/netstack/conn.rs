//! One connection: a socket with an interface of its own.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use blastbox_wire::egress::LINK_MTU;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, IpListenEndpoint};

use super::{Clock, Ends, Handshake, Link, Room};

/// How long the box may not answer at all before its connection is given up.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a connection may take to end after both sides have said everything.
const FAREWELL: Duration = Duration::from_secs(10);

/// Whether a connection has to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Alive,
    /// It can be forgotten.
    Over,
}

#[derive(Debug)]
pub(super) struct Conn {
    inner: Mutex<Inner>,
}

struct Inner {
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    /// When it has to be looked after again.
    due: Option<Instant>,
    /// Set when nobody holds the stream any more: by then it must be over.
    farewell: Option<Instant>,
    _room: Room,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("due", &self.due)
            .field("farewell", &self.farewell)
            .finish_non_exhaustive()
    }
}

impl Conn {
    pub(super) fn new(
        ends: &Ends,
        seed: u64,
        room: Room,
        handshake: Handshake,
        link: &Link,
        now: Instant,
    ) -> io::Result<Self> {
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut Port { packet: None, link }, now);
        let (address, bits) = match ends.to.ip() {
            IpAddr::V4(v4) => (IpAddress::Ipv4(v4), 32),
            IpAddr::V6(v6) => (IpAddress::Ipv6(v6), 128),
        };
        // The interface is the very host that the box wants to talk to, and knows one way: to the box.
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(address, bits)).ok();
        });
        let routed = match address {
            IpAddress::Ipv4(v4) => interface.routes_mut().add_default_ipv4_route(v4).map(drop),
            IpAddress::Ipv6(v6) => interface.routes_mut().add_default_ipv6_route(v6).map(drop),
        };
        routed.map_err(|_| io::Error::other("no room for a route"))?;
        let buffer = || tcp::SocketBuffer::new(vec![0; room.size]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(None);
        socket.set_timeout(Some(PATIENCE));
        socket.pause_synack(handshake == Handshake::Held);
        let here = IpListenEndpoint { addr: Some(address), port: ends.to.port() };
        socket.listen(here).map_err(|_| io::Error::other("cannot listen"))?;
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let handle = sockets.add(socket);
        let inner = Inner { interface, sockets, handle, due: None, farewell: None, _room: room };
        Ok(Self { inner: Mutex::new(inner) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn deliver(&self, packet: &[u8], link: &Link, clock: &Clock) -> State {
        let mut inner = self.lock();
        inner.pump(Some(packet), link, clock);
        inner.state(clock.now())
    }

    pub(super) fn tend(&self, link: &Link, clock: &Clock) -> State {
        let mut inner = self.lock();
        let now = clock.now();
        if inner.due.is_some_and(|due| due <= now) {
            inner.pump(None, link, clock);
        } else if inner.due.is_some() || inner.farewell.is_some() {
            clock.wait();
        }
        if inner.farewell.is_some_and(|farewell| farewell <= now) {
            inner.socket().abort();
            inner.pump(None, link, clock);
        }
        inner.state(now)
    }

    /// Finishes a handshake that was held.
    pub(super) fn accept(&self, link: &Link, clock: &Clock) {
        let mut inner = self.lock();
        inner.socket().pause_synack(false);
        inner.pump(None, link, clock);
    }

    pub(super) fn poll_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
        link: &Link,
        clock: &Clock,
    ) -> Poll<io::Result<()>> {
        let mut inner = self.lock();
        let socket = inner.socket();
        if socket.can_recv() {
            // Twice, because what has arrived may lie at both ends of the ring.
            for _ in 0..2 {
                let read = socket.recv(|bytes| {
                    let length = bytes.len().min(buffer.remaining());
                    buffer.put_slice(bytes.get(..length).unwrap_or_default());
                    (length, length)
                });
                if read.is_err() || buffer.remaining() == 0 {
                    break;
                }
            }
            // The window has opened again; the box may have to be told.
            inner.pump(None, link, clock);
            return Poll::Ready(Ok(()));
        }
        match socket.state() {
            tcp::State::Listen | tcp::State::SynReceived | tcp::State::SynSent => {}
            _ if socket.may_recv() => {}
            // The box has said everything.
            tcp::State::CloseWait | tcp::State::LastAck | tcp::State::Closing | tcp::State::TimeWait => {
                return Poll::Ready(Ok(()));
            }
            _ => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
        socket.register_recv_waker(context.waker());
        Poll::Pending
    }

    pub(super) fn poll_write(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        link: &Link,
        clock: &Clock,
    ) -> Poll<io::Result<usize>> {
        let mut inner = self.lock();
        let socket = inner.socket();
        if socket.can_send() {
            let written = socket.send_slice(bytes).map_err(|_| io::ErrorKind::BrokenPipe)?;
            inner.pump(None, link, clock);
            return Poll::Ready(Ok(written));
        }
        match socket.state() {
            tcp::State::Listen | tcp::State::SynReceived | tcp::State::SynSent => {}
            _ if socket.may_send() => {}
            _ => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
        socket.register_send_waker(context.waker());
        Poll::Pending
    }

    /// Says that nothing more will be said.
    pub(super) fn finish(&self, link: &Link, clock: &Clock) {
        let mut inner = self.lock();
        inner.socket().close();
        inner.pump(None, link, clock);
    }

    /// Nobody holds the stream any more: what was said is still delivered, if the end was said too.
    pub(super) fn leave(&self, finished: bool, link: &Link, clock: &Clock) {
        let mut inner = self.lock();
        if !finished {
            inner.socket().abort();
        }
        inner.pump(None, link, clock);
        inner.farewell = Some(clock.now() + FAREWELL);
        clock.wait();
    }
}

impl Inner {
    fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// Takes a packet in, and sends what there is to send.
    fn pump(&mut self, packet: Option<&[u8]>, link: &Link, clock: &Clock) {
        let now = clock.now();
        let mut port = Port { packet, link };
        self.interface.poll(now, &mut port, &mut self.sockets);
        self.due = self.interface.poll_at(now, &self.sockets);
        if self.due.is_some() {
            clock.wait();
        }
    }

    fn state(&mut self, _now: Instant) -> State {
        let left = self.farewell.is_some();
        match self.socket().state() {
            tcp::State::Closed | tcp::State::TimeWait if left => State::Over,
            _ => State::Alive,
        }
    }
}

/// One packet in and any number out: what smoltcp calls a device.
struct Port<'a> {
    packet: Option<&'a [u8]>,
    link: &'a Link,
}

struct Incoming<'a>(&'a [u8]);
struct Outgoing<'a>(&'a Link);

impl Device for Port<'_> {
    type RxToken<'t>
        = Incoming<'t>
    where
        Self: 't;
    type TxToken<'t>
        = Outgoing<'t>
    where
        Self: 't;

    fn receive(&mut self, _now: Instant) -> Option<(Incoming<'_>, Outgoing<'_>)> {
        self.packet.take().map(|packet| (Incoming(packet), Outgoing(self.link)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Outgoing<'_>> {
        Some(Outgoing(self.link))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = usize::try_from(LINK_MTU).unwrap_or(1500);
        // The link is memory: what comes out of it is what was put in. Only the box's kernel wants sums, where it cannot be told that.
        let mut sums = ChecksumCapabilities::default();
        sums.ipv4 = Checksum::Tx;
        sums.tcp = if self.link.spares_sums() { Checksum::None } else { Checksum::Tx };
        capabilities.checksum = sums;
        capabilities
    }
}

impl RxToken for Incoming<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

impl TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        let link = self.0;
        let mut scratch = link.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        if scratch.len() < length {
            scratch.resize(length, 0);
        }
        let packet = scratch.get_mut(..length).unwrap_or_default();
        let result = f(packet);
        if link.spares_sums() {
            link.write_unsummed(packet);
        } else {
            link.write(packet);
        }
        result
    }
}

/// So that `Arc<Conn>` can be held by tasks of any runtime.
const _: () = {
    const fn sendable<T: Send + Sync>() {}
    sendable::<Arc<Conn>>();
};
