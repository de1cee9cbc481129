//! The short way of TCP to a box's gateway: the kernel carries it within the box's own network namespace.
//!
//! The packet that opens a connection goes out of the interface as ever, and the gateway decides. What it lets in it puts back
//! into the interface, where a rule hands it to the gateway's listening socket; everything that follows is turned round by another
//! rule and never leaves the kernel. There is no other interface: what no socket of the gateway takes ends here.

mod packets;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};

use crate::netlink::{CREATE, Message, Table, tell};
use crate::{namespaces, tun};

/// Where the gateway listens, at an address that is nobody's here: only what a rule hands over comes to it.
const PORT: u16 = 1;
/// Connections that were let in and not yet taken.
const BACKLOG: i32 = 4096;
/// The mark of packets that stay here, and the table of routes that keeps them.
const MARK: u32 = 0x6262;
const ROUTES: u32 = 0x6262;
/// The mark of what the gateway's own sockets send. Nobody in a box may set one.
const VOICE: u32 = 0x6263;
/// Most that lies unread in one socket of this namespace, in each direction; a gateway with many makes its own smaller.
pub const ROOM: u32 = 1 << 20;
/// What is different in this namespace: those bounds as the kernel reads them (least, at first, most), and that nobody holds back what goes
/// through memory alone, as a host's own choice may (BBR: by a timer for every few packets). Reno is in every kernel, and free to choose.
const SETTINGS: [(&str, &[u8]); 3] = [
    ("sys/net/ipv4/tcp_rmem", b"4096 131072 1048576"),
    ("sys/net/ipv4/tcp_wmem", b"4096 16384 1048576"),
    ("sys/net/ipv4/tcp_congestion_control", b"reno"),
];

/// The ends of the short way that belong to the gateway.
#[derive(Debug)]
pub struct Ears {
    /// For IPv4.
    pub v4: OwnedFd,
    /// For IPv6, where the kernel has it.
    pub v6: Option<OwnedFd>,
}

/// Whether programs of the box may reach each other over its loopback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loopback {
    /// They may.
    Open,
    /// The interface is up for the short way alone.
    Shut,
}

/// Lays the short way in the current network namespace, whose interface exists already; `gateway`: the addresses that mean the gateway
/// itself, `proc` an open `/proc`. An error means that this kernel has it not, or not whole: then no packet is turned round, the
/// loopback is down, and everything goes over the interface.
pub fn lay(
    proc: BorrowedFd<'_>,
    interface: &tun::Interface<'_>,
    gateway: (Ipv4Addr, Ipv6Addr),
    loopback: Loopback,
) -> io::Result<Ears> {
    let v4 = ear(SocketAddr::from((gateway.0, PORT)))?;
    let v6 = ear(SocketAddr::from((gateway.1, PORT))).ok();
    let index = rustix::net::netdevice::name_to_index(&v4, interface.name)?;
    let home = rustix::net::netdevice::name_to_index(&v4, "lo")?;
    SETTINGS.iter().try_for_each(|(name, value)| namespaces::write_at(proc, name, value))?;
    // First, because most that can be missing is missing here; and before there is a loopback that has to be shut.
    let shut = (loopback == Loopback::Shut).then_some(home);
    tell(Table::Packets, packets::rules(index, gateway, shut))?;
    let families: &[i32] = if v6.is_some() { &[libc::AF_INET, libc::AF_INET6] } else { &[libc::AF_INET] };
    match keep(index, home, loopback, families) {
        Ok(()) => Ok(Ears { v4, v6 }),
        Err(error) => {
            // Whoever has a loopback has it brought up again.
            tun::take_down("lo")?;
            tell(Table::Packets, packets::no_rules())?;
            Err(error)
        }
    }
}

/// Lets what has the mark stay here.
fn keep(index: u32, home: u32, loopback: Loopback, families: &[i32]) -> io::Result<()> {
    tell(Table::Routes, vec![accepts_own_address(index)])?;
    namespaces::loopback_up()?;
    if loopback == Loopback::Shut {
        tun::without_addresses("lo")?;
    }
    for family in families {
        tell(Table::Routes, vec![keeping_route(*family, home)])?;
        tell(Table::Routes, vec![keeping_rule(*family)])?;
    }
    Ok(())
}

/// A socket that takes connections to any address. What it takes has its mark.
fn ear(at: SocketAddr) -> io::Result<OwnedFd> {
    let (family, level, transparent) = match at {
        SocketAddr::V4(_) => (AddressFamily::INET, libc::SOL_IP, libc::IP_TRANSPARENT),
        SocketAddr::V6(_) => (AddressFamily::INET6, libc::SOL_IPV6, libc::IPV6_TRANSPARENT),
    };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    // What it takes may lie on a port that a program of the box listens on.
    set_socket_reuseaddr(&socket, true)?;
    set(socket.as_fd(), level, transparent, 1)?;
    set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MARK, VOICE)?;
    bind(&socket, &at)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn set(socket: BorrowedFd<'_>, level: i32, option: i32, value: u32) -> io::Result<()> {
    let size = libc::socklen_t::try_from(size_of::<u32>()).unwrap_or(0);
    // SAFETY: all options that are set here read one integer, which lives until after the call.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), size) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// How much was written to a connected socket that the other side's kernel has not taken yet; its end counts as one.
pub fn untaken(socket: BorrowedFd<'_>) -> io::Result<i32> {
    let mut bytes = 0;
    // SAFETY: the request writes one integer, which lives until after the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { Ok(bytes) } else { Err(io::Error::last_os_error()) }
}

fn small(number: i32) -> u8 {
    u8::try_from(number).unwrap_or(0)
}

/// What the gateway puts back comes from the box's own address.
fn accepts_own_address(index: u32) -> Message {
    const INET_CONF: u16 = 1;
    const ACCEPT_LOCAL: u16 = 23;
    let body = [&[0; 4][..], &index.to_ne_bytes(), &[0; 8]].concat();
    let settings = Message::default().number(ACCEPT_LOCAL, 1);
    let of_family = Message::default().list(INET_CONF, settings);
    let families = Message::default().list(u16::from(small(libc::AF_INET)), of_family);
    Message::new(libc::RTM_SETLINK, 0, &body).list(libc::IFLA_AF_SPEC, families)
}

/// In the table of its own, every address is here.
fn keeping_route(family: i32, home: u32) -> Message {
    let body =
        [small(family), 0, 0, 0, 0, libc::RTPROT_BOOT, libc::RT_SCOPE_HOST, libc::RTN_LOCAL, 0, 0, 0, 0];
    Message::new(libc::RTM_NEWROUTE, CREATE, &body)
        .number(libc::RTA_OIF, home)
        .number(libc::RTA_TABLE, ROUTES)
}

/// What has the mark goes by that table.
fn keeping_rule(family: i32) -> Message {
    const TO_TABLE: u8 = 1;
    const PRIORITY: u16 = 6;
    const FIREWALL_MARK: u16 = 10;
    const TABLE: u16 = 15;
    let body = [small(family), 0, 0, 0, 0, 0, 0, TO_TABLE, 0, 0, 0, 0];
    Message::new(libc::RTM_NEWRULE, CREATE, &body)
        .number(PRIORITY, 100)
        .number(FIREWALL_MARK, MARK)
        .number(TABLE, ROUTES)
}

#[cfg(test)]
mod tests;
