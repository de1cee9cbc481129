//! A stream from a host that is out of its mind: the agent must not fall over it.
#![no_main]

use blastbox_wire::agent::HostFrame;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(Some((frame, taken))) = HostFrame::parse(rest) {
        let written = frame.encode();
        assert_eq!(HostFrame::parse(&written), Ok(Some((frame, written.len()))));
        rest = &rest[taken..];
    }
});
