//! The address of a request that a guest has made: whatever it is, it is read or refused, and never with a path or a user in it.
#![no_main]

use blastbox_egress::door::call::Address;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if Address::parse(text).is_ok() {
        let authority = text.split_once("://").map_or("", |(_, authority)| authority);
        assert!(
            !authority.is_empty() && !authority.contains(['/', '@', '?', '#', ' ', '\r', '\n']),
            "{text}"
        );
    }
});
