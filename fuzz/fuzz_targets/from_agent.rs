//! A stream from an agent that a payload has taken over: frames are read off the front until one is none.
#![no_main]

use blastbox_wire::agent::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(Some((frame, taken))) = parse(rest) {
        // What was read can be written, and means the same again.
        let written = frame.encode();
        assert_eq!(parse(&written), Ok(Some((frame, written.len()))));
        rest = &rest[taken..];
    }
});
