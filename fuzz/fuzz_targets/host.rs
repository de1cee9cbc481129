//! A host name from anywhere: it is one spelling of one name, or nothing, and never an address.
#![no_main]

use std::net::IpAddr;

use blastbox_policy::Host;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(host) = Host::from_bytes(bytes) else { return };
    assert_eq!(host.as_str().parse::<Host>().as_ref(), Ok(&host), "the one spelling is its own");
    assert!(host.as_str().parse::<IpAddr>().is_err(), "{host} is an address");
    assert!(host.as_str().bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.')));
    assert!(host.as_str().len() <= 253 && !host.is_under(&host));
});
