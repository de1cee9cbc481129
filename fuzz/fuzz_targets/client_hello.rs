//! The first bytes of a connection that should be TLS: a name, or a reason why there is none.
#![no_main]

use blastbox_egress::client_hello::{self, Hello};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Hello::Name(host) = client_hello::read(bytes) {
        assert!(
            bytes
                .windows(host.as_str().len())
                .any(|part| part.eq_ignore_ascii_case(host.as_str().as_bytes()))
                || bytes.len() > 5
        );
    }
});
