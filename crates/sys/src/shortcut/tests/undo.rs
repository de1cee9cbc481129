//! A short way that fails half way leaves a box that goes by packets, as if it had never been tried.

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::*;

const FAR: &str = "93.184.216.34:443";
/// Where the flags of a packet of TCP over IPv4 without options stand.
const FLAGS: usize = tun::HEAD + 20 + 13;
const SYN: u8 = 2;
const ACK: u8 = 16;

/// In a network of its own, in which `before` has put something that is in the way; what `lay` said of that, and the device.
fn in_the_way(
    name: &'static str,
    loopback: Loopback,
    before: fn() -> io::Result<()>,
    then: fn(OwnedFd, io::Error),
) {
    let done = std::thread::spawn(move || {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if namespaces::own_network().is_err() {
            return blastbox_skips::skip(name, "needs to make a network namespace, as root can");
        }
        let Ok(device) = open("/dev/net/tun", flags, Mode::empty()) else {
            return blastbox_skips::skip(name, "needs /dev/net/tun");
        };
        tun::make(&device, &INTERFACE).unwrap();
        // Whether this kernel has it at all is seen by the rules that come first: taken away again, nothing is left of them.
        let index = index_of("tun0");
        if let Err(error) = tell(Table::Packets, packets::rules(index, GATEWAY, None)) {
            return blastbox_skips::skip(name, &format!("this kernel has no short way: {error}"));
        }
        tell(Table::Packets, packets::no_rules()).unwrap();
        before().unwrap();
        let proc = open("/proc", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        then(device, lay(proc.as_fd(), &INTERFACE, GATEWAY, loopback).unwrap_err());
    });
    done.join().unwrap();
}

fn any_socket() -> OwnedFd {
    socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).unwrap()
}

fn index_of(name: &str) -> u32 {
    rustix::net::netdevice::name_to_index(any_socket(), name).unwrap()
}

fn is_up(name: &str) -> bool {
    // SAFETY: `ifreq` is plain data for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    let socket = any_socket();
    // SAFETY: the request reads the name in one structure and writes the flags into it; it lives until after the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    // SAFETY: the kernel has just written the flags.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    i32::from(flags) & libc::IFF_UP != 0
}

/// Nothing is turned round any more, and there is no loopback that would be open to the box.
fn nothing_is_left() {
    // Only what is there can be taken away.
    let gone = tell(Table::Packets, packets::no_rules()).unwrap_err();
    assert_eq!(gone.raw_os_error(), Some(libc::ENOENT), "{gone}");
    assert!(!is_up("lo"), "the loopback is up");
}

/// What a target answers to a packet that opens a connection.
fn answer(opening: &[u8]) -> Vec<u8> {
    let mut packet = opening.get(tun::HEAD..tun::HEAD + 40).unwrap().to_vec();
    let (ip, tcp) = packet.split_at_mut(20);
    ip[2..4].copy_from_slice(&40_u16.to_be_bytes());
    ip[12..20].rotate_left(4);
    ip[10..12].fill(0);
    let sum: u32 = ip.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap()).to_be_bytes());
    tcp[..4].rotate_left(2);
    let asked = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    tcp[4..8].copy_from_slice(&7_u32.to_be_bytes());
    tcp[8..12].copy_from_slice(&asked.wrapping_add(1).to_be_bytes());
    (tcp[12], tcp[13]) = (5 << 4, SYN | ACK);
    // Whoever reads it takes its sum for right.
    [&tun::unsummed(20, 16)[..], &packet].concat()
}

/// All packets of a connection come out of the interface, not only the first.
fn packets_go_the_packet_way(device: &OwnedFd) {
    let network = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
    let boxed = std::thread::spawn(move || {
        namespaces::enter_network(network.as_fd()).unwrap();
        TcpStream::connect(FAR).map(drop)
    });
    let opening = packet(device);
    assert_eq!(opening[FLAGS] & (SYN | ACK), SYN);
    rustix::io::write(device, &answer(&opening)).unwrap();
    let mut next = packet(device);
    while next[FLAGS] & (SYN | ACK) == SYN {
        next = packet(device);
    }
    assert_eq!(next[FLAGS] & (SYN | ACK), ACK, "what follows an opening leaves by the interface");
    boxed.join().unwrap().unwrap();
}

/// The rule for IPv6 is the last thing that is laid: everything before it lies there and is taken away.
#[test]
fn a_last_step_that_fails_takes_all_the_others_back() {
    let name = "a_last_step_that_fails_takes_all_the_others_back";
    let before = || tell(Table::Routes, vec![keeping_rule(libc::AF_INET6)]);
    for loopback in [Loopback::Open, Loopback::Shut] {
        in_the_way(name, loopback, before, |device, error| {
            assert_eq!(error.raw_os_error(), Some(libc::EEXIST), "{error}");
            nothing_is_left();
            packets_go_the_packet_way(&device);
        });
    }
}

/// The same in the middle, where the loopback has come up and only IPv4 has its route.
#[test]
fn so_does_one_in_the_middle() {
    let before = || tell(Table::Routes, vec![keeping_rule(libc::AF_INET)]);
    in_the_way("so_does_one_in_the_middle", Loopback::Shut, before, |device, error| {
        assert_eq!(error.raw_os_error(), Some(libc::EEXIST), "{error}");
        nothing_is_left();
        packets_go_the_packet_way(&device);
    });
}

/// The rules are one change: where they are in the way of each other, none of them is laid, and nothing that came before is touched.
#[test]
fn rules_that_are_refused_are_not_laid_in_part() {
    let before = || tell(Table::Packets, packets::rules(index_of("tun0"), GATEWAY, None));
    in_the_way("rules_that_are_refused_are_not_laid_in_part", Loopback::Shut, before, |device, error| {
        assert_eq!(error.raw_os_error(), Some(libc::EEXIST), "{error}");
        // Those that were there before still are, once.
        tell(Table::Packets, packets::no_rules()).unwrap();
        nothing_is_left();
        packets_go_the_packet_way(&device);
    });
}
