//! The short way in real network namespaces.

mod undo;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use rustix::fs::{Mode, OFlags, open};
use rustix::net::acceptfrom;

use super::*;

const INTERFACE: tun::Interface<'static> = tun::Interface {
    name: "tun0",
    mtu: 65_520,
    v4: Ipv4Addr::new(198, 18, 0, 2),
    v6: Ipv6Addr::new(0xfd62, 0x6c61, 0x7374, 0, 0, 0, 0, 2),
};

const GATEWAY: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(198, 18, 0, 1), Ipv6Addr::new(0xfd62, 0x6c61, 0x7374, 0, 0, 0, 0, 1));

/// Longer than anything here takes.
const LONG: std::time::Duration = std::time::Duration::from_secs(20);

/// In a network of its own, where this host lets us make one.
fn with_way(name: &'static str, loopback: Loopback, then: impl FnOnce(OwnedFd, Ears) + Send + 'static) {
    let done = std::thread::spawn(move || {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if namespaces::own_network().is_err() {
            return blastbox_skips::skip(name, "needs to make a network namespace, as root can");
        }
        let Ok(device) = open("/dev/net/tun", flags, Mode::empty()) else {
            return blastbox_skips::skip(name, "needs /dev/net/tun");
        };
        tun::make(&device, &INTERFACE).unwrap();
        let proc = open("/proc", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        match lay(proc.as_fd(), &INTERFACE, GATEWAY, loopback) {
            Ok(ears) => then(device, ears),
            Err(error) => blastbox_skips::skip(name, &format!("this kernel has no short way: {error}")),
        }
    });
    done.join().unwrap();
}

/// What `tried` comes to before it would take for ever.
fn soon<T>(what: &str, mut tried: impl FnMut() -> Result<Option<T>, rustix::io::Errno>) -> T {
    for _ in 0..20_000 {
        match tried() {
            Ok(Some(come)) => return come,
            Ok(None) => {}
            Err(rustix::io::Errno::AGAIN) => std::thread::sleep(std::time::Duration::from_millis(1)),
            Err(errno) => panic!("{what}: {errno}"),
        }
    }
    panic!("{what}: never came")
}

/// The next packet of TCP that the box sends.
fn packet(device: &OwnedFd) -> Vec<u8> {
    let mut buffer = vec![0; 70_000];
    soon("a packet of the box", || {
        let length = rustix::io::read(device, &mut buffer)?;
        let is_tcp =
            |&(version, at): &(u8, usize)| buffer[tun::HEAD] >> 4 == version && buffer[tun::HEAD + at] == 6;
        Ok([(4, 9), (6, 6)].iter().any(is_tcp).then(|| buffer[..length].to_vec()))
    })
}

fn nothing_left(device: &OwnedFd) -> bool {
    let mut buffer = vec![0; 70_000];
    while let Ok(_length) = rustix::io::read(device, &mut buffer) {
        if buffer[tun::HEAD] >> 4 == 4 && buffer[tun::HEAD + 9] == 6 {
            return false;
        }
    }
    true
}

fn accept(ear: &OwnedFd) -> (TcpStream, SocketAddr) {
    let taken = soon("a connection at the ear", || acceptfrom(ear).map(|(taken, _)| Some(taken)));
    let stream = TcpStream::from(taken);
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let local = stream.local_addr().unwrap();
    (stream, local)
}

fn carries(name: &'static str, to: &'static str) {
    with_way(name, Loopback::Shut, move |device, ears| {
        // As strict as hosts are: a namespace takes this from its host.
        std::fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "1").unwrap();
        // A namespace belongs to a thread.
        let network = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
        let boxed = std::thread::spawn(move || {
            namespaces::enter_network(network.as_fd()).unwrap();
            let mut stream = TcpStream::connect(to).unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            stream.write_all(&[7; 100_000]).unwrap();
            let mut word = [0; 4];
            stream.read_exact(&mut word).unwrap();
            word
        });
        let opening = packet(&device);
        assert!(nothing_left(&device));
        rustix::io::write(&device, &opening).unwrap();
        let ear = if to.starts_with('[') { ears.v6.unwrap() } else { ears.v4 };
        let (mut stream, local) = accept(&ear);
        assert_eq!(local, to.parse().unwrap(), "whom the box meant");
        let own = [IpAddr::from(INTERFACE.v4), IpAddr::from(INTERFACE.v6)];
        assert!(own.contains(&stream.peer_addr().unwrap().ip()), "the box has no other address");
        let mut heard = vec![0; 100_000];
        stream.read_exact(&mut heard).unwrap();
        stream.write_all(b"well").unwrap();
        assert_eq!(&boxed.join().unwrap(), b"well");
        assert!(nothing_left(&device), "what follows an opening never left the kernel");
    });
}

#[test]
fn what_the_gateway_lets_in_is_carried_by_the_kernel() {
    carries("what_the_gateway_lets_in_is_carried_by_the_kernel", "93.184.216.34:443");
}

#[test]
fn so_is_ipv6() {
    carries("so_is_ipv6", "[2a00:9::34]:443");
}

#[test]
fn the_namespace_has_settings_of_its_own_and_the_host_keeps_its() {
    let name = "the_namespace_has_settings_of_its_own_and_the_host_keeps_its";
    let now = || {
        SETTINGS.map(|(name, _)| {
            let said = std::fs::read_to_string(format!("/proc/{name}")).unwrap();
            said.split_whitespace().collect::<Vec<_>>().join(" ")
        })
    };
    let before = now();
    with_way(name, Loopback::Shut, move |_device, _ears| {
        assert_eq!(now(), SETTINGS.map(|(_, value)| String::from_utf8_lossy(value).into_owned()));
    });
    assert_eq!(now(), before);
}

#[test]
fn a_program_of_the_box_may_listen_on_the_same_port() {
    with_way("a_program_of_the_box_may_listen_on_the_same_port", Loopback::Open, |_device, _ears| {
        let listener = TcpListener::bind("0.0.0.0:443").unwrap();
        let mut near = TcpStream::connect("127.0.0.1:443").unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(b"x").unwrap();
        far.read_exact(&mut [0]).unwrap();
    });
}

#[test]
fn without_a_loopback_the_box_does_not_reach_itself() {
    with_way("without_a_loopback_the_box_does_not_reach_itself", Loopback::Shut, |device, _ears| {
        let listener = TcpListener::bind("0.0.0.0:443").unwrap();
        listener.set_nonblocking(true).unwrap();
        let wait = std::time::Duration::from_millis(100);
        for to in ["127.0.0.1:443", "198.18.0.2:443"] {
            assert!(TcpStream::connect_timeout(&to.parse().unwrap(), wait).is_err(), "{to}");
        }
        tun::without_loopback().unwrap();
        // And hears so at once, instead of waiting for somebody who never answers.
        for to in ["127.0.0.1:443", "127.1.2.3:80", "[::1]:443"] {
            let error = TcpStream::connect_timeout(&to.parse().unwrap(), wait).unwrap_err().raw_os_error();
            let nowhere = [libc::EHOSTUNREACH, libc::ENETUNREACH, libc::EADDRNOTAVAIL];
            assert!(error.is_some_and(|errno| nowhere.contains(&errno)), "{to}: {error:?}");
        }
        assert!(listener.accept().is_err());
        drop(device);
    });
}
