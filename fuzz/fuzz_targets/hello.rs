//! The first message of a TLS client: a name or nothing, and the bytes as they came.
#![no_main]

use blastbox_egress::tls::hello::Reader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (size, bytes) = input;
    let mut reader = Reader::default();
    let mut fed = 0;
    for piece in bytes.chunks(usize::from(size).max(1)) {
        fed += piece.len();
        match reader.feed(piece) {
            Ok(None) => {}
            Ok(Some(hello)) => return assert_eq!(Some(hello.raw.as_slice()), bytes.get(..fed)),
            Err(_) => return,
        }
    }
});
