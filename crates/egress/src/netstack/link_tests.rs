//! Tests of the link.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use super::*;

const THEIRS: Address = [0x52, 1, 2, 3, 4, 5];

fn wire() -> (Link, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_nonblocking(true).unwrap();
    (Link::card(ours.into()).unwrap(), theirs)
}

fn framed(frame: &[u8]) -> Vec<u8> {
    [&u32::try_from(frame.len()).unwrap().to_be_bytes(), frame].concat()
}

fn said(packet: &[u8]) -> Vec<u8> {
    framed(&[&[0; 6][..], &THEIRS, &[8, 0], packet].concat())
}

#[tokio::test]
async fn packets_travel_as_frames_and_nothing_is_said_first() {
    let (link, mut machine) = wire();
    let mut buffer = [0; 100];
    link.write(&[0x45, 1]);
    assert!(machine.read(&mut buffer).is_err(), "said to nobody");
    let both = [said(&[0x45, 7]), framed(b"no frame")].concat();
    let (first, rest) = both.split_at(9);
    machine.write_all(first).unwrap();
    assert_eq!(link.read(&mut [0; 100]).unwrap(), None);
    machine.write_all(rest).unwrap();
    assert_eq!(link.read(&mut [0; 100]).unwrap(), Some(&[0x45, 7][..]));
    assert_eq!(link.read(&mut [0; 100]).unwrap(), Some(&[][..]));
    assert_eq!(link.read(&mut [0; 100]).unwrap(), None);
    link.write(&[0x45, 1]);
    let length = machine.read(&mut buffer).unwrap();
    assert_eq!(buffer[..10], [&[0, 0, 0, 16][..], &THEIRS].concat());
    assert_eq!(buffer[16..length], [8, 0, 0x45, 1]);
}

#[tokio::test]
async fn a_lying_length_ends_the_link_and_a_machine_that_lets_go_does_not() {
    for (last, kind) in [
        (&[0; 4][..], io::ErrorKind::InvalidData),
        (&[0, 1, 0, 0], io::ErrorKind::InvalidData),
        (&[0, 0], io::ErrorKind::UnexpectedEof),
        (&[], io::ErrorKind::UnexpectedEof),
    ] {
        let (link, mut machine) = wire();
        machine.write_all(&[&said(&[0x45, 7]), last].concat()).unwrap();
        drop(machine);
        assert_eq!(link.read(&mut [0; 100]).unwrap(), Some(&[0x45, 7][..]));
        assert_eq!(link.read(&mut [0; 100]).unwrap_err().kind(), kind);
        // What is said to it then is lost, and nothing waits.
        link.write(&[0x45, 1]);
        assert_eq!(link.wire.as_ref().map(|wire| wire.state().bytes), Some(0));
    }
}

#[tokio::test]
async fn a_machine_that_does_not_read_costs_a_bound_and_gets_everything_in_order() {
    let (link, mut machine) = wire();
    machine.write_all(&said(&[0x45])).unwrap();
    link.read(&mut [0; 100]).unwrap();
    let packet = |number: u8| [&[0x45, number][..], &[0; 60_000]].concat();
    for number in 0..200 {
        link.write(&packet(number));
    }
    let held = || link.wire.as_ref().map(|wire| wire.state().bytes).unwrap();
    assert!(held() > 0 && held() <= MOST_WAITING);
    let mut buffer = vec![0; 70_000];
    let (mut frames, mut next, mut idle) = (Frames::default(), 0, 0);
    let reading = async {
        // Until it has been asked often enough in vain that nothing more can come.
        while idle < 100 {
            match machine.read(&mut buffer) {
                Ok(count) => {
                    frames.room()[..count].copy_from_slice(&buffer[..count]);
                    frames.filled(count);
                    while let Some(frame) = frames.take().unwrap() {
                        assert_eq!((frame.len(), frame[HEAD + 1]), (60_002 + HEAD, next));
                        next += 1;
                    }
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
    assert_eq!((held(), frames.room().len()), (0, Frames::default().room().len()), "half a frame");
}

/// The kernel of the box takes such a sum for right, and finishes it where it passes the packet on.
#[test]
fn what_is_not_summed_up_says_where_and_has_the_pseudo_headers_sum() {
    let tcp =
        [&[0_u8, 80, 0, 81, 0, 0, 0, 0, 0, 0, 0, 0, 5 << 4, 0, 0, 0, 0, 0, 0, 0][..], b"payload"].concat();
    let v4 = [&[0x45, 0, 0, 47, 0, 0, 0, 0, 64, 6, 0, 0, 10, 9, 9, 9, 10, 0, 0, 2][..], &tcp].concat();
    let v6 = [&[0x60, 0, 0, 0, 0, 27, 6, 64][..], &[0xfd; 16], &[0xfc; 16], &tcp].concat();
    let whole =
        crate::link::datagram("10.9.9.9:53".parse().unwrap(), "10.0.0.2:9".parse().unwrap(), b"datagram");
    for (mut packet, head) in [(v4, 20_u16), (v6, 40)] {
        assert_eq!(without_sum(&mut packet), Some(tun::unsummed(head, 16)));
        let (from, to): (IpAddress, IpAddress) = if head == 20 {
            let ip = Ipv4Packet::new_checked(&packet).unwrap();
            (ip.src_addr().into(), ip.dst_addr().into())
        } else {
            let ip = Ipv6Packet::new_checked(&packet).unwrap();
            (ip.src_addr().into(), ip.dst_addr().into())
        };
        let segment = TcpPacket::new_checked(&packet[usize::from(head)..]).unwrap();
        assert!(segment.verify_partial_checksum(&from, &to));
    }
    for mut other in [whole.unwrap(), Vec::new(), vec![0x45; 10]] {
        let before = other.clone();
        assert_eq!(without_sum(&mut other), None, "no TCP");
        assert_eq!(other, before);
    }
}
