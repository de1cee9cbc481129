//! The loop of one gateway: each packet of the box, and what becomes of it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};

use blastbox_policy::{NetworkRules, Protocol, is_resolver_port};
use blastbox_wire::egress::{Door, GATEWAY_V4, GATEWAY_V6, Reason};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use crate::decide::{Ask, Said, Target, Verdict};
use crate::door::Knock;
use crate::flow::Flow;
use crate::house::House;
use crate::inlet::Inlet;
use crate::link::{self, NotAPacket, Packet};
use crate::netstack::{Ends, Handshake, Link, MARGIN, Netstack};
use crate::relay::relay;
use crate::report::Denial;
use crate::side::Asking;
use crate::{door, serve};

/// Packets that are taken before anybody else gets a turn.
const TURN: usize = 32;
/// Room for the largest packet, and one byte more so that a larger one is noticed.
const LARGEST: usize = 65_536 + 1;
const DNS: u16 = 53;

/// The gateway of one box.
#[derive(Debug)]
pub struct Gateway {
    house: Arc<House>,
    link: Arc<Link>,
    stack: Netstack,
    /// Where the kernel carries what was let in.
    inlet: Option<Arc<Inlet>>,
    knocking: Arc<AtomicUsize>,
    tasks: Mutex<JoinSet<()>>,
}

impl Gateway {
    /// The gateway over this link. Where there are `ears` behind it, the kernel carries TCP.
    pub fn new(house: Arc<House>, link: Link, ears: Vec<OwnedFd>) -> io::Result<Self> {
        let link = Arc::new(link);
        let inlet =
            (!ears.is_empty()).then(|| Inlet::new(ears, Arc::clone(&link))).transpose()?.map(Arc::new);
        let flows = usize::try_from(house.rules().limits.flows).unwrap_or(usize::MAX);
        let stack = Netstack::new(Arc::clone(&link), flows);
        Ok(Self { stack, inlet, house, link, knocking: Arc::default(), tasks: Mutex::default() })
    }

    /// Takes other rules. What they no longer allow is closed by whoever carries it.
    pub fn change_rules(&self, rules: NetworkRules) {
        self.stack.limit(usize::try_from(rules.limits.flows).unwrap_or(usize::MAX));
        self.house.change_rules(rules);
    }

    /// Serves the box until its link is gone.
    pub async fn serve(&self) -> io::Result<()> {
        tokio::select! {
            ended = self.carry() => ended,
            () = self.stack.tend() => Ok(()),
            ended = self.link.catch_up() => ended,
            () = self.take_arrivals() => Ok(()),
        }
    }

    async fn take_arrivals(&self) {
        match &self.inlet {
            Some(inlet) => inlet.tend().await,
            None => std::future::pending().await,
        }
    }

    /// Ends every connection and waits until each of them has reported its end.
    pub async fn end(&self) {
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.shutdown().await;
    }

    /// The box is gone in order, and its network with it.
    pub(crate) fn leave_link(&self) {
        self.link.leave();
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    async fn carry(&self) -> io::Result<()> {
        let mut buffer = vec![0_u8; LARGEST + MARGIN];
        loop {
            let mut ready = self.link.readable().await?;
            for _ in 0..TURN {
                match self.link.read(&mut buffer) {
                    Ok(Some(packet)) => self.take(packet),
                    Ok(None) => {
                        ready.clear_ready();
                        break;
                    }
                    // A machine ends before its box does. That the box is gone is its warden's to say.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        return std::future::pending().await;
                    }
                    Err(error) => return Err(error),
                }
            }
            drop(ready);
            tokio::task::yield_now().await;
        }
    }

    /// Takes one packet.
    fn take(&self, frame: &[u8]) {
        match link::read(frame) {
            Ok(Packet::Tcp { from, to, opens }) => self.take_tcp(frame, Ends { from, to }, opens),
            Ok(Packet::Udp { from, to, payload }) => self.take_udp(frame, from, to, payload),
            Ok(Packet::Ping { to }) if is_gateway(to) => self.answer(link::pong(frame)),
            Ok(Packet::Ping { to } | Packet::Other { to }) => {
                self.deny(of(&Target::Address(to), 0, Reason::Transport))
            }
            Ok(Packet::Chatter) => {}
            Err(NotAPacket::Malformed | NotAPacket::ForgedSource | NotAPacket::Fragment) => {
                self.deny(Denial::of_text(Door::Link, String::new(), 0, Reason::BadPacket));
            }
        }
    }

    fn answer(&self, packet: Option<Vec<u8>>) {
        if let Some(packet) = packet {
            self.link.write(&packet);
        }
    }

    fn deny(&self, denial: Denial) {
        self.house.reporter().denied(denial);
    }

    fn take_udp(&self, frame: &[u8], from: SocketAddr, to: SocketAddr, payload: &[u8]) {
        if is_gateway(to.ip()) && to.port() == DNS {
            let answer = self.house.answer(payload);
            return self.answer(answer.and_then(|answer| link::datagram(to, from, &answer)));
        }
        let reason = match to.port() {
            port if is_resolver_port(port) => Reason::Resolver,
            443 => Reason::Quic,
            _ => Reason::Transport,
        };
        self.deny(of(&self.house.meaning(to.ip()), to.port(), reason));
        // Told at once, so that clients go on with TCP; what is neither a resolver nor QUIC gets silence.
        if reason != Reason::Transport {
            self.answer(link::unreachable(frame));
        }
    }

    fn take_tcp(&self, frame: &[u8], ends: Ends, opens: bool) {
        let known = match &self.inlet {
            Some(inlet) => opens && inlet.asks_again(&ends, frame),
            None => self.stack.deliver(&ends, frame),
        };
        if known {
            return;
        }
        if !opens {
            return self.answer(link::reset(frame));
        }
        let to = ends.to;
        let opened = if is_gateway(to.ip()) && door::is_open(to.port()) {
            self.open_door(frame, ends)
        } else {
            self.open(frame, ends)
        };
        if let Err(denial) = opened {
            self.deny(denial);
            self.answer(link::reset(frame));
        }
    }

    /// A request that the engine brings.
    pub(crate) fn visit(&self, stream: UnixStream, to: String) {
        match Knock::at(&self.knocking) {
            Some(knock) => self.spawn(door::call::serve(stream, to, Arc::clone(&self.house), knock)),
            None => self.deny(Denial::of_text(Door::Call, "call".to_owned(), 0, Reason::FlowLimit)),
        }
    }

    /// A connection to one of the gateway's own ports.
    fn open_door(&self, frame: &[u8], ends: Ends) -> Result<(), Denial> {
        let crowded = || Denial::of_text(Door::Link, "proxy".to_owned(), ends.to.port(), Reason::FlowLimit);
        let knock = Knock::at(&self.knocking).filter(|_| !self.stack.is_full()).ok_or_else(crowded)?;
        let asking = self.ask(ends, frame, Handshake::Now).map_err(|_| crowded())?;
        let (house, port) = (Arc::clone(&self.house), ends.to.port());
        self.spawn(async move {
            if let Some(stream) = asking.accept().await {
                door::serve(stream, port, house, knock).await;
            }
        });
        Ok(())
    }

    /// A connection to somewhere else: decided before the handshake goes on.
    fn open(&self, frame: &[u8], ends: Ends) -> Result<(), Denial> {
        let to = ends.to;
        let target = self.house.meaning(to.ip());
        let denied = |reason| of(&target, to.port(), reason);
        // Its ports of resolvers are told as such, like everybody's.
        if is_gateway(to.ip()) && !is_resolver_port(to.port()) {
            return Err(denied(Reason::PortNotAllowed));
        }
        let allowed = match self.house.decide(&Ask { target: &target, port: to.port(), said: Said::Nothing })
        {
            Verdict::Allow(allowed) => allowed,
            Verdict::Deny(reason) => return Err(denied(reason)),
        };
        if self.stack.is_full() {
            return Err(denied(Reason::FlowLimit));
        }
        // Of raw TCP nothing is read first, so the target itself can refuse the connection.
        let held = allowed.protocol() == Protocol::Tcp;
        let flow = self.house.admit(Door::Link, allowed).map_err(denied)?;
        let handshake = if held { Handshake::Held } else { Handshake::Now };
        let asking = self.ask(ends, frame, handshake).map_err(|_| {
            flow.leave_untold();
            denied(Reason::FlowLimit)
        })?;
        let house = Arc::clone(&self.house);
        if held {
            self.spawn(dial_first(asking, flow, house));
        } else {
            self.spawn(let_in(asking, flow, house));
        }
        Ok(())
    }

    /// Notes that a connection was asked for, with whoever is to carry it.
    fn ask(&self, ends: Ends, frame: &[u8], handshake: Handshake) -> io::Result<Asking> {
        match &self.inlet {
            Some(inlet) => Ok(Asking::Kernel(inlet.expect(ends, frame))),
            None => self.stack.open(ends, frame, handshake).map(Asking::Packets),
        }
    }
}

/// Raw TCP: the box's connection is accepted when the target's is.
async fn dial_first(asking: Asking, flow: Flow, house: Arc<House>) {
    let allowed = flow.allowed.clone();
    let carried = async {
        // Dropped without having been accepted, the box's connection is refused.
        // What dialling takes is given back when it is done.
        let Ok(target) = Box::pin(house.dial(&flow, &allowed)).await else { return };
        let Some(stream) = asking.accept().await else { return };
        relay(house.metered(stream, &flow), target, &flow).await;
    };
    flow.unless_stopped(carried).await;
}

/// What is read first: the box's connection is accepted at once.
async fn let_in(asking: Asking, flow: Flow, house: Arc<House>) {
    if let Some(stream) = asking.accept().await {
        serve::serve(stream, flow, house).await;
    }
}

/// A denial of what came as a packet.
fn of(target: &Target, port: u16, reason: Reason) -> Denial {
    Denial::of(Door::Link, target, port, reason)
}

fn is_gateway(address: IpAddr) -> bool {
    address == IpAddr::from(GATEWAY_V4) || address == IpAddr::from(GATEWAY_V6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::side::Side;

    /// Thousands of them wait for something, and each holds the memory of everything that it could be doing.
    #[test]
    fn the_task_of_a_connection_is_small() {
        fn of<A, B, C, F: Future>(_: fn(A, B, C) -> F) -> usize {
            size_of::<F>()
        }
        assert!(of(dial_first) < 4096, "{}", of(dial_first));
        assert!(of(let_in) < 4096, "{}", of(let_in));
        assert!(of(serve::serve::<Side>) < 4096, "{}", of(serve::serve::<Side>));
    }
}
