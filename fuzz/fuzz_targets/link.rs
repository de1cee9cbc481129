//! A frame from the box: a packet of it, or nothing; and every answer to one is a packet to it.
#![no_main]

use blastbox_egress::link::{self, Packet};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|frame: &[u8]| {
    let Ok(packet) = link::read(frame) else { return };
    // What nobody answers.
    if matches!(packet, Packet::Chatter) {
        return;
    }
    for answer in [link::reset(frame), link::unreachable(frame), link::pong(frame)].into_iter().flatten() {
        assert!(link::read(&answer).is_err(), "an answer comes from somebody else than the box: {packet:?}");
        assert!(answer.len() <= frame.len() + 128);
    }
    if let Packet::Udp { from, to, payload } = packet {
        assert!(link::datagram(to, from, payload).is_some());
    }
});
