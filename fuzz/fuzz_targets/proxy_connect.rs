//! What a program says to the proxy port: a wish is never longer than what was said.
#![no_main]

use blastbox_egress::door::{Wish, proxy_connect};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match proxy_connect::read(bytes, false) {
        Wish::Connect { length, .. } | Wish::Greeting { length, .. } => assert!(length <= bytes.len()),
        Wish::Unfinished | Wish::Refused { .. } => {}
    }
});
