//! What a gateway tells the engine: it parses hostile bytes for a living, and may have been taken over.
#![no_main]

use blastbox_wire::egress::FromGateway;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = FromGateway::decode(bytes) {
        assert_eq!(FromGateway::decode(&message.encode()), Ok(message));
    }
});
