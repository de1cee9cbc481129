//! What a program says to the SOCKS port: a wish is never longer than what was said.
#![no_main]

use blastbox_egress::door::{Wish, socks};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for greeted in [false, true] {
        match socks::read(bytes, greeted) {
            Wish::Connect { length, .. } | Wish::Greeting { length, .. } => assert!(length <= bytes.len()),
            Wish::Unfinished | Wish::Refused { .. } => {}
        }
    }
});
