//! The borders of HTTP/1 messages: the same verdict however the bytes are cut.
#![no_main]

use blastbox_egress::http::framing::Framing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (size, bytes) = input;
    let mut whole = Framing::default();
    let verdict = whole.feed(bytes);
    let mut cut = Framing::default();
    let again = bytes.chunks(usize::from(size).max(1)).try_for_each(|piece| cut.feed(piece));
    assert_eq!(verdict, again);
    if verdict.is_ok() {
        assert_eq!(whole.between_requests(), cut.between_requests());
    }
});
