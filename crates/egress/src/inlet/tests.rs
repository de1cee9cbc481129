//! Who asks again and who asks anew, in a real network namespace.

use std::net::{IpAddr, TcpStream as Plain};

use blastbox_sys::shortcut::{Ears, Loopback, lay};
use blastbox_sys::{namespaces, tun};
use blastbox_wire::egress::{BOX_V4, BOX_V6, GATEWAY_V4, GATEWAY_V6, LINK_MTU, LINK_NAME};
use rustix::fs::{Mode, OFlags, open};

use super::*;
use crate::link::Packet;
use crate::netstack::MARGIN;

/// Where the number of a packet of TCP over IPv4 without options ends.
const NUMBER: usize = 20 + 7;

/// The interface and the ears of a box, where this host can have them.
fn made() -> Result<(OwnedFd, Ears), String> {
    namespaces::own_network().map_err(|error| format!("no network namespace can be made here: {error}"))?;
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device =
        open("/dev/net/tun", flags, Mode::empty()).map_err(|error| format!("no /dev/net/tun: {error}"))?;
    let interface = tun::Interface { name: LINK_NAME, mtu: LINK_MTU, v4: BOX_V4, v6: BOX_V6 };
    tun::make(&device, &interface).unwrap();
    let proc = open("/proc", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let ears = lay(proc.as_fd(), &interface, (GATEWAY_V4, GATEWAY_V6), Loopback::Shut)
        .map_err(|error| format!("this kernel has no short way: {error}"))?;
    Ok((device, ears))
}

async fn opening(link: &Link) -> (Ends, Vec<u8>) {
    let mut buffer = vec![0; 70_000 + MARGIN];
    loop {
        let mut ready = link.readable().await.unwrap();
        match link.read(&mut buffer).unwrap() {
            Some(frame) => {
                if let Ok(Packet::Tcp { from, to, opens: true }) = link::read(frame) {
                    return (Ends { from, to }, frame.to_vec());
                }
            }
            None => ready.clear_ready(),
        }
    }
}

async fn one_comes_and_is_heard_of_twice(device: OwnedFd, ears: Ears) {
    let link = Arc::new(Link::tun(device).unwrap());
    let inlet = Arc::new(Inlet::new(vec![ears.v4], Arc::clone(&link)).unwrap());
    let network = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
    let boxed = std::thread::spawn(move || {
        namespaces::enter_network(network.as_fd()).unwrap();
        Plain::connect((IpAddr::from([93, 184, 216, 34]), 443)).unwrap()
    });
    let (ends, packet) = opening(&link).await;
    assert!(!inlet.asks_again(&ends, &packet), "nobody has asked before");
    let expected = inlet.expect(ends, &packet);
    assert!(inlet.asks_again(&ends, &packet), "it waits");
    let arrived = tokio::select! {
        arrived = expected.let_in() => arrived.unwrap(),
        () = inlet.tend() => return,
    };
    drop(boxed.join().unwrap());
    // What was sent again before the box heard that it was let in, and is read only now.
    assert!(inlet.asks_again(&ends, &packet), "its target would be dialled a second time");
    let mut anew = packet.clone();
    anew[NUMBER] ^= 1;
    assert!(!inlet.asks_again(&ends, &anew), "another one, from the same port");
    let other = inlet.expect(ends, &anew);
    drop(arrived);
    assert!(inlet.asks_again(&ends, &anew), "the end of the old one is not that of the new one");
    drop(other);
    assert!(!inlet.asks_again(&ends, &packet), "nobody is left");
}

#[test]
fn an_opening_that_is_sent_twice_is_one_connection() {
    let done = std::thread::spawn(|| match made() {
        Err(why) => blastbox_skips::skip("an_opening_that_is_sent_twice_is_one_connection", &why),
        Ok((device, ears)) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let test = one_comes_and_is_heard_of_twice(device, ears);
                tokio::time::timeout(Duration::from_secs(60), test).await.unwrap();
            });
        }
    });
    done.join().unwrap();
}
