//! What is read of a box's frames, and what is answered.

use super::*;

const OUT: &str = "93.184.216.34:443";

fn udp(from: &str, to: &str) -> Vec<u8> {
    datagram(from.parse().unwrap(), to.parse().unwrap(), b"hello").unwrap()
}

#[test]
fn packets_of_the_box_are_read_and_those_of_others_are_not() {
    let good = udp("198.18.0.2:5000", OUT);
    let Ok(Packet::Udp { from, to, payload }) = read(&good) else { panic!("not read") };
    assert_eq!((from.port(), to, payload), (5000, OUT.parse().unwrap(), &b"hello"[..]));
    assert_eq!(read(&udp("10.0.0.1:5000", OUT)), Err(NotAPacket::ForgedSource));
    assert_eq!(read(&udp("[fd00::1]:5000", "[2606:4700::1]:53")), Err(NotAPacket::ForgedSource));
    for own in ["198.18.0.2:5000", "[fd62:6c61:7374::2]:5000"] {
        assert_eq!(
            read(&udp(own, own)),
            Err(NotAPacket::Malformed),
            "nobody sends himself a packet over a wire"
        );
    }
    assert!(matches!(read(&udp("[fd62:6c61:7374::2]:5000", "[2606:4700::1]:53")), Ok(Packet::Udp { .. })));
}

#[test]
fn nothing_that_is_cut_or_padded_or_a_fragment_passes() {
    let good = udp("198.18.0.2:5000", OUT);
    for length in 0..good.len() {
        assert!(read(&good[..length]).is_err(), "{length}");
    }
    let padded = [&good[..], b"x"].concat();
    assert_eq!(read(&padded), Err(NotAPacket::Malformed));
    let mut fragment = good.clone();
    fragment[6] |= 0x20;
    assert_eq!(read(&fragment), Err(NotAPacket::Fragment));
    let mut strange = good;
    strange[9] = 132;
    assert!(matches!(read(&strange), Ok(Packet::Other { .. })));
}

#[test]
fn a_refusal_is_an_answer_to_its_packet() {
    let sent = udp("198.18.0.2:5000", OUT);
    let told = unreachable(&sent).unwrap();
    let told = Ipv4Packet::new_checked(told.as_slice()).unwrap();
    assert_eq!((told.src_addr(), told.dst_addr()), ("93.184.216.34".parse().unwrap(), BOX_V4));
    assert!(told.verify_checksum());
    let icmp = Icmpv4Packet::new_checked(told.payload()).unwrap();
    assert!(icmp.verify_checksum());
    assert_eq!(icmp.msg_type(), Icmpv4Message::DstUnreachable);
    assert!(unreachable(&udp("[fd62:6c61:7374::2]:5000", "[2606:4700::1]:443")).is_some());
    assert!(reset(&sent).is_none() && pong(&sent).is_none());
}
