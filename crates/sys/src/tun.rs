//! The link of a box that has network: an interface whose other end is a descriptor.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::netlink::{CREATE, Message, Table, tell};

/// What the interface of a box is to be.
#[derive(Debug, Clone, Copy)]
pub struct Interface<'a> {
    /// Its name.
    pub name: &'a str,
    /// The largest packet.
    pub mtu: u32,
    /// The box's IPv4 address.
    pub v4: Ipv4Addr,
    /// The box's IPv6 address.
    pub v6: Ipv6Addr,
}

/// Makes the interface in the current network namespace and brings it up, with itself as the way to everywhere.
///
/// `device` is `/dev/net/tun`, freshly opened *in this namespace*: a descriptor keeps the namespace it was opened in.
/// The descriptor is then the other end of the interface.
pub fn make(device: &OwnedFd, interface: &Interface<'_>) -> io::Result<()> {
    let mut request = request(interface.name)?;
    request.ifr_ifru.ifru_flags =
        libc::c_short::try_from(libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR).unwrap_or_default();
    control(device.as_fd(), TUNSETIFF, &request)?;
    // What the box sends need not be summed up: it goes through memory, and nobody would look.
    control_by_number(device.as_fd(), TUNSETOFFLOAD, libc::TUN_F_CSUM.into())?;
    bring_up(interface, None)
}

/// What stands before each packet, in both directions (`struct virtio_net_hdr`).
pub const HEAD: usize = 10;

/// The head of a packet that is whole.
pub const WHOLE: [u8; HEAD] = [0; HEAD];

/// The head of a packet whose sum at `offset` behind `start` is that of the pseudo header alone. Whoever reads it here takes the rest for right;
/// whoever passes it on has to finish it.
#[must_use]
pub fn unsummed(start: u16, offset: u16) -> [u8; HEAD] {
    const NEEDS_SUM: u8 = 1;
    let ([s0, s1], [o0, o1]) = (start.to_ne_bytes(), offset.to_ne_bytes());
    [NEEDS_SUM, 0, 0, 0, 0, 0, s0, s1, o0, o1]
}

/// Gives an interface of the current network namespace its addresses and brings it up, with itself as the way to everywhere.
/// `card`: it is a network card, which has this address from now on; whoever is at its other end is never asked for his (ARP).
pub fn bring_up(interface: &Interface<'_>, card: Option<[u8; 6]>) -> io::Result<()> {
    let mut request = request(interface.name)?;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut flags = libc::IFF_UP | libc::IFF_RUNNING;
    if let Some(address) = card {
        request.ifr_ifru.ifru_hwaddr = plain_address(libc::ARPHRD_ETHER.into(), &address);
        control(socket.as_fd(), libc::SIOCSIFHWADDR, &request)?;
        flags |= libc::IFF_NOARP;
    }
    request.ifr_ifru.ifru_mtu = i32::try_from(interface.mtu).map_err(|_| io::ErrorKind::InvalidInput)?;
    control(socket.as_fd(), libc::SIOCSIFMTU, &request)?;
    request.ifr_ifru.ifru_addr = v4(interface.v4);
    control(socket.as_fd(), libc::SIOCSIFADDR, &request)?;
    request.ifr_ifru.ifru_netmask = v4(Ipv4Addr::BROADCAST);
    control(socket.as_fd(), libc::SIOCSIFNETMASK, &request)?;
    let index = rustix::net::netdevice::name_to_index(&socket, interface.name)?;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(flags).unwrap_or_default();
    control(socket.as_fd(), libc::SIOCSIFFLAGS, &request)?;
    route_v4(socket.as_fd(), interface.name)?;
    match speak_v6(index, interface.v6) {
        // A kernel without IPv6: the box has none, and is no less closed for that.
        Err(error) if no_v6(&error) => Ok(()),
        done => done,
    }
}

/// Lets the addresses of a loopback that is not there lead nowhere in the current network namespace: programs hear so at once, and not
/// after minutes of a gateway that answers nobody there. Where there is one, its own addresses go before this.
pub fn without_loopback() -> io::Result<()> {
    let nowhere = |family: u8, to: &[u8], bits| {
        let (table, kind) = (libc::RT_TABLE_MAIN, libc::RTN_UNREACHABLE);
        let body = [family, bits, 0, 0, table, libc::RTPROT_BOOT, 0, kind, 0, 0, 0, 0];
        Message::new(libc::RTM_NEWROUTE, CREATE, &body).attribute(libc::RTA_DST, to)
    };
    tell(Table::Routes, vec![nowhere(2, &[127, 0, 0, 0], 8)])?;
    match tell(Table::Routes, vec![nowhere(10, &Ipv6Addr::LOCALHOST.octets(), 128)]) {
        Err(error) if no_v6(&error) => Ok(()),
        done => done,
    }
}

/// Takes an interface down: its addresses and ways are gone until it is brought up again.
pub fn take_down(name: &str) -> io::Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut request = request(name)?;
    request.ifr_ifru.ifru_flags = 0;
    control(socket.as_fd(), libc::SIOCSIFFLAGS, &request)
}

/// Leaves the interface to its network namespace, which takes it along when it goes. Otherwise closing the descriptor ends
/// it, and waits until every processor has forgotten it: tens of milliseconds.
pub fn leave(device: BorrowedFd<'_>) -> io::Result<()> {
    control_by_number(device, TUNSETPERSIST, 1)
}

/// Takes from an interface of the current network namespace what it has of the loopback's addresses, if it has them.
pub(crate) fn without_addresses(name: &str) -> io::Result<()> {
    let mut request = request(name)?;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    request.ifr_ifru.ifru_addr = v4(Ipv4Addr::UNSPECIFIED);
    control(socket.as_fd(), libc::SIOCSIFADDR, &request)?;
    let Ok(socket) = socket_with(AddressFamily::INET6, SocketType::DGRAM, SocketFlags::CLOEXEC, None) else {
        return Ok(());
    };
    let index = rustix::net::netdevice::name_to_index(&socket, name)?;
    let index = i32::try_from(index).map_err(|_| io::ErrorKind::InvalidInput)?;
    let address = In6Request { address: Ipv6Addr::LOCALHOST.octets(), bits: 128, index };
    match control(socket.as_fd(), libc::SIOCDIFADDR, &address) {
        Err(error) if no_v6(&error) => Ok(()),
        done => done,
    }
}

const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNSETPERSIST: libc::c_ulong = 0x4004_54cb;
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;

fn no_v6(error: &io::Error) -> bool {
    let unknown =
        [libc::EAFNOSUPPORT, libc::EPROTONOSUPPORT, libc::EACCES, libc::EOPNOTSUPP, libc::EADDRNOTAVAIL];
    error.raw_os_error().is_some_and(|errno| unknown.contains(&errno))
}

fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` is plain data for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    Ok(request)
}

/// One `ioctl` that reads a structure.
fn control<T>(fd: BorrowedFd<'_>, number: libc::c_ulong, argument: &T) -> io::Result<()> {
    // SAFETY: every request here reads (or writes back into) one structure of the type that belongs to its number,
    // which lives until after the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), number, std::ptr::from_ref(argument)) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// One `ioctl` that takes a number.
fn control_by_number(fd: BorrowedFd<'_>, number: libc::c_ulong, argument: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the requests that are made so take a number and touch no memory of ours.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), number, argument) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// An address in the form of a socket address, as `ifreq` and `rtentry` have it.
fn v4(address: Ipv4Addr) -> libc::sockaddr {
    let [a, b, c, d] = address.octets();
    // Two bytes of port, then the address.
    plain_address(libc::AF_INET, &[0, 0, a, b, c, d])
}

fn plain_address(family: i32, bytes: &[u8; 6]) -> libc::sockaddr {
    let mut sa_data = [0; 14];
    for (to, from) in sa_data.iter_mut().zip(bytes) {
        *to = from.cast_signed();
    }
    libc::sockaddr { sa_family: libc::sa_family_t::try_from(family).unwrap_or_default(), sa_data }
}

fn route_v4(socket: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    // SAFETY: `rtentry` is plain data for which all zeros is a value.
    let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
    route.rt_dst = v4(Ipv4Addr::UNSPECIFIED);
    route.rt_genmask = v4(Ipv4Addr::UNSPECIFIED);
    route.rt_flags = libc::RTF_UP;
    let name = std::ffi::CString::new(name)?;
    route.rt_dev = name.as_ptr().cast_mut();
    control(socket, libc::SIOCADDRT, &route)
}

#[repr(C)]
struct In6Request {
    address: [u8; 16],
    bits: u32,
    index: i32,
}

fn speak_v6(index: u32, address: Ipv6Addr) -> io::Result<()> {
    const FAMILY: u8 = 10;
    const ALONE: u8 = 128;
    const UNIVERSE: u8 = 0;
    // Nobody else is here who could have it: it is usable at once. As long as it were not, programs would send from the address that
    // the kernel makes up for the link, and the gateway answers no stranger.
    const SURE: u8 = 2;
    let body = [&[FAMILY, ALONE, SURE, UNIVERSE][..], &index.to_ne_bytes()].concat();
    let address =
        Message::new(libc::RTM_NEWADDR, CREATE, &body).attribute(libc::IFA_LOCAL, &address.octets());
    let everywhere =
        [FAMILY, 0, 0, 0, libc::RT_TABLE_MAIN, libc::RTPROT_BOOT, UNIVERSE, libc::RTN_UNICAST, 0, 0, 0, 0];
    let route = Message::new(libc::RTM_NEWROUTE, CREATE, &everywhere).number(libc::RTA_OIF, index);
    tell(Table::Routes, vec![address, route])
}
