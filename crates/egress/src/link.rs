//! Packets of the box: what is one, and what is answered to one without a connection.
//!
//! Trust: guest. Every byte is chosen by an attacker who is root in his own network, as far as we care. Only whole
//! IPv4 and IPv6 packets from the box's own two addresses pass; fragments, options of IPv6 and every other protocol
//! than TCP, UDP and ping do not.

use std::net::{IpAddr, SocketAddr};

use blastbox_wire::egress::{BOX_V4, BOX_V6};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    Icmpv4DstUnreachable, Icmpv4Message, Icmpv4Packet, Icmpv4Repr, Icmpv6DstUnreachable, Icmpv6Message,
    Icmpv6Packet, Icmpv6Repr, IpProtocol, IpRepr, Ipv4Packet, Ipv4Repr, Ipv6Packet, Ipv6Repr, TcpControl,
    TcpPacket, TcpRepr, TcpSeqNumber, UdpPacket, UdpRepr,
};

/// How much of a packet is quoted to its sender as unreachable.
const QUOTED: usize = 512;
/// The largest ping that is answered.
const LARGEST_PING: usize = 4096;

/// A packet of the box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet<'p> {
    /// A piece of a TCP connection.
    Tcp {
        /// The box's end.
        from: SocketAddr,
        /// The other end.
        to: SocketAddr,
        /// Whether it opens a connection.
        opens: bool,
    },
    /// A datagram.
    Udp {
        /// The box's end.
        from: SocketAddr,
        /// The other end.
        to: SocketAddr,
        /// What it carries.
        payload: &'p [u8],
    },
    /// A ping.
    Ping {
        /// To whom.
        to: IpAddr,
    },
    /// What a kernel says by itself when an interface comes up. Nobody asked for it, nobody is told.
    Chatter,
    /// A protocol that does not pass.
    Other {
        /// To whom.
        to: IpAddr,
    },
}

/// Why a frame is no packet of the box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAPacket {
    /// Neither IPv4 nor IPv6, cut off, or inconsistent.
    Malformed,
    /// Its sender is not the box.
    ForgedSource,
    /// A piece of a packet.
    Fragment,
}

/// Reads one frame.
pub fn read(frame: &[u8]) -> Result<Packet<'_>, NotAPacket> {
    match frame.first().map(|byte| byte >> 4) {
        Some(4) => read_v4(frame),
        Some(6) => read_v6(frame),
        _ => Err(NotAPacket::Malformed),
    }
}

fn read_v4(frame: &[u8]) -> Result<Packet<'_>, NotAPacket> {
    let packet = Ipv4Packet::new_checked(frame).map_err(|_| NotAPacket::Malformed)?;
    if usize::from(packet.total_len()) != frame.len() {
        return Err(NotAPacket::Malformed);
    }
    let to = packet.dst_addr();
    if packet.next_header() == IpProtocol::Igmp && to.is_multicast() {
        return Ok(Packet::Chatter);
    }
    if packet.src_addr() != BOX_V4 {
        return Err(NotAPacket::ForgedSource);
    }
    // No kernel sends itself a packet over a wire: whoever does wants an answer that looks like the box's own (a "land" attack).
    if to == BOX_V4 {
        return Err(NotAPacket::Malformed);
    }
    if packet.more_frags() || packet.frag_offset() != 0 {
        return Err(NotAPacket::Fragment);
    }
    let ends = (IpAddr::from(BOX_V4), IpAddr::from(to));
    match packet.next_header() {
        IpProtocol::Icmp => {
            let ping = Icmpv4Packet::new_checked(packet.payload()).map_err(|_| NotAPacket::Malformed)?;
            let asks = ping.msg_type() == Icmpv4Message::EchoRequest && ping.msg_code() == 0;
            Ok(if asks { Packet::Ping { to: ends.1 } } else { Packet::Other { to: ends.1 } })
        }
        protocol => transport(protocol, packet.payload(), ends),
    }
}

fn read_v6(frame: &[u8]) -> Result<Packet<'_>, NotAPacket> {
    let packet = Ipv6Packet::new_checked(frame).map_err(|_| NotAPacket::Malformed)?;
    if packet.total_len() != frame.len() {
        return Err(NotAPacket::Malformed);
    }
    let (from, to) = (packet.src_addr(), packet.dst_addr());
    // Reports of multicast groups come with a hop-by-hop header, solicitations without; both go to multicast only.
    if matches!(packet.next_header(), IpProtocol::Icmpv6 | IpProtocol::HopByHop) && to.is_multicast() {
        return Ok(Packet::Chatter);
    }
    if from != BOX_V6 {
        return Err(NotAPacket::ForgedSource);
    }
    if to == BOX_V6 {
        return Err(NotAPacket::Malformed);
    }
    let ends = (IpAddr::from(BOX_V6), IpAddr::from(to));
    match packet.next_header() {
        IpProtocol::Icmpv6 => {
            let ping = Icmpv6Packet::new_checked(packet.payload()).map_err(|_| NotAPacket::Malformed)?;
            let asks = ping.msg_type() == Icmpv6Message::EchoRequest && ping.msg_code() == 0;
            Ok(if asks { Packet::Ping { to: ends.1 } } else { Packet::Other { to: ends.1 } })
        }
        IpProtocol::Ipv6Frag => Err(NotAPacket::Fragment),
        protocol => transport(protocol, packet.payload(), ends),
    }
}

fn transport(protocol: IpProtocol, payload: &[u8], ends: (IpAddr, IpAddr)) -> Result<Packet<'_>, NotAPacket> {
    let (from, to) = ends;
    match protocol {
        IpProtocol::Tcp => {
            let segment = TcpPacket::new_checked(payload).map_err(|_| NotAPacket::Malformed)?;
            let opens = segment.syn() && !segment.ack() && !segment.rst() && !segment.fin();
            let (from, to) =
                (SocketAddr::new(from, segment.src_port()), SocketAddr::new(to, segment.dst_port()));
            Ok(Packet::Tcp { from, to, opens })
        }
        IpProtocol::Udp => {
            let datagram = UdpPacket::new_checked(payload).map_err(|_| NotAPacket::Malformed)?;
            let (from, to) =
                (SocketAddr::new(from, datagram.src_port()), SocketAddr::new(to, datagram.dst_port()));
            Ok(Packet::Udp { from, to, payload: datagram.payload() })
        }
        _ => Ok(Packet::Other { to }),
    }
}

fn ip(from: IpAddr, to: IpAddr, next_header: IpProtocol, payload_len: usize) -> Option<IpRepr> {
    match (from, to) {
        (IpAddr::V4(src_addr), IpAddr::V4(dst_addr)) => {
            Some(IpRepr::Ipv4(Ipv4Repr { src_addr, dst_addr, next_header, payload_len, hop_limit: 64 }))
        }
        (IpAddr::V6(src_addr), IpAddr::V6(dst_addr)) => {
            Some(IpRepr::Ipv6(Ipv6Repr { src_addr, dst_addr, next_header, payload_len, hop_limit: 64 }))
        }
        _ => None,
    }
}

/// A packet with this header, its payload written by `fill`.
fn packet(repr: &IpRepr, fill: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(bytes.as_mut_slice(), &ChecksumCapabilities::default());
    if let Some(payload) = bytes.get_mut(repr.header_len()..) {
        fill(payload);
    }
    bytes
}

/// A datagram to the box.
#[must_use]
pub fn datagram(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Option<Vec<u8>> {
    let udp = UdpRepr { src_port: from.port(), dst_port: to.port() };
    let repr = ip(from.ip(), to.ip(), IpProtocol::Udp, udp.header_len() + payload.len())?;
    Some(packet(&repr, |bytes| {
        udp.emit(
            &mut UdpPacket::new_unchecked(bytes),
            &repr.src_addr(),
            &repr.dst_addr(),
            payload.len(),
            |to| to.copy_from_slice(payload),
            &ChecksumCapabilities::default(),
        );
    }))
}

/// Who sends it to whom, and what.
fn open(frame: &[u8]) -> Option<(IpAddr, IpAddr, &[u8])> {
    match frame.first().map(|byte| byte >> 4)? {
        4 => {
            let packet = Ipv4Packet::new_checked(frame).ok()?;
            Some((packet.src_addr().into(), packet.dst_addr().into(), packet.payload()))
        }
        6 => {
            let packet = Ipv6Packet::new_checked(frame).ok()?;
            Some((packet.src_addr().into(), packet.dst_addr().into(), packet.payload()))
        }
        _ => None,
    }
}

/// The number that a TCP packet begins with: of all that open a connection between the same two ends, only one that is sent again has the same.
pub(crate) fn number(frame: &[u8]) -> Option<i32> {
    let (_, _, payload) = open(frame)?;
    Some(TcpPacket::new_checked(payload).ok()?.seq_number().0)
}

/// The refusal of a TCP packet: the sender's connection, if it has one, ends at once.
#[must_use]
pub fn reset(frame: &[u8]) -> Option<Vec<u8>> {
    let (from, to, payload) = open(frame)?;
    let segment = TcpPacket::new_checked(payload).ok()?;
    // A reset is never answered: two who do would do it for ever.
    if segment.rst() {
        return None;
    }
    let length = segment.segment_len();
    let (seq_number, ack_number) = if segment.ack() {
        (segment.ack_number(), None)
    } else {
        (TcpSeqNumber(0), Some(segment.seq_number() + length))
    };
    let tcp = TcpRepr {
        src_port: segment.dst_port(),
        dst_port: segment.src_port(),
        control: TcpControl::Rst,
        seq_number,
        ack_number,
        window_len: 0,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None, None, None],
        timestamp: None,
        payload: &[],
    };
    let repr = ip(to, from, IpProtocol::Tcp, tcp.buffer_len())?;
    Some(packet(&repr, |bytes| {
        tcp.emit(
            &mut TcpPacket::new_unchecked(bytes),
            &repr.src_addr(),
            &repr.dst_addr(),
            &ChecksumCapabilities::default(),
        );
    }))
}

/// "Port unreachable" for a packet of the box: whoever sent it learns at once that nobody will answer.
#[must_use]
pub fn unreachable(frame: &[u8]) -> Option<Vec<u8>> {
    let caps = ChecksumCapabilities::default();
    match frame.first().map(|byte| byte >> 4)? {
        4 => {
            let sent = Ipv4Packet::new_checked(frame).ok()?;
            let header = Ipv4Repr::parse(&sent, &ChecksumCapabilities::ignored()).ok()?;
            let data = sent.payload().get(..QUOTED).unwrap_or(sent.payload());
            let icmp =
                Icmpv4Repr::DstUnreachable { reason: Icmpv4DstUnreachable::PortUnreachable, header, data };
            let repr =
                ip(header.dst_addr.into(), header.src_addr.into(), IpProtocol::Icmp, icmp.buffer_len())?;
            Some(packet(&repr, |bytes| icmp.emit(&mut Icmpv4Packet::new_unchecked(bytes), &caps)))
        }
        6 => {
            let sent = Ipv6Packet::new_checked(frame).ok()?;
            let header = Ipv6Repr::parse(&sent).ok()?;
            let data = sent.payload().get(..QUOTED).unwrap_or(sent.payload());
            let icmp =
                Icmpv6Repr::DstUnreachable { reason: Icmpv6DstUnreachable::PortUnreachable, header, data };
            let repr =
                ip(header.dst_addr.into(), header.src_addr.into(), IpProtocol::Icmpv6, icmp.buffer_len())?;
            Some(packet(&repr, |bytes| {
                icmp.emit(&header.dst_addr, &header.src_addr, &mut Icmpv6Packet::new_unchecked(bytes), &caps);
            }))
        }
        _ => None,
    }
}

/// The answer to a ping.
#[must_use]
pub fn pong(frame: &[u8]) -> Option<Vec<u8>> {
    let (caps, ignored) = (ChecksumCapabilities::default(), ChecksumCapabilities::ignored());
    if frame.len() > LARGEST_PING {
        return None;
    }
    match frame.first().map(|byte| byte >> 4)? {
        4 => {
            let sent = Ipv4Packet::new_checked(frame).ok()?;
            let ping = Icmpv4Packet::new_checked(sent.payload()).ok()?;
            let Ok(Icmpv4Repr::EchoRequest { ident, seq_no, data }) = Icmpv4Repr::parse(&ping, &ignored)
            else {
                return None;
            };
            let icmp = Icmpv4Repr::EchoReply { ident, seq_no, data };
            let repr =
                ip(sent.dst_addr().into(), sent.src_addr().into(), IpProtocol::Icmp, icmp.buffer_len())?;
            Some(packet(&repr, |bytes| icmp.emit(&mut Icmpv4Packet::new_unchecked(bytes), &caps)))
        }
        6 => {
            let sent = Ipv6Packet::new_checked(frame).ok()?;
            let ping = Icmpv6Packet::new_checked(sent.payload()).ok()?;
            let (from, to) = (sent.src_addr(), sent.dst_addr());
            let Ok(Icmpv6Repr::EchoRequest { ident, seq_no, data }) =
                Icmpv6Repr::parse(&from, &to, &ping, &ignored)
            else {
                return None;
            };
            let icmp = Icmpv6Repr::EchoReply { ident, seq_no, data };
            let repr = ip(to.into(), from.into(), IpProtocol::Icmpv6, icmp.buffer_len())?;
            Some(packet(&repr, |bytes| icmp.emit(&to, &from, &mut Icmpv6Packet::new_unchecked(bytes), &caps)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
