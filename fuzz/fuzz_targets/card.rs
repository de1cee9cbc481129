//! A frame from a machine's network card: a packet and where the answer goes, or nothing.
#![no_main]

use blastbox_egress::card::{self, HEAD};
use blastbox_egress::link;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|frame: &[u8]| {
    let Some((from, packet)) = card::open(frame) else { return };
    assert_eq!(packet.len() + HEAD, frame.len());
    let back = [&card::head(packet, from)[..], packet].concat();
    assert!(back.starts_with(&from) && card::open(&back).is_some_and(|(_, same)| same == packet));
    link::read(packet).ok();
});
