//! A line of a ledger that somebody else held: it ends in a record or an error, never in a panic; a line whose hash
//! fits still fits when it is read again, and no other byte at its end would do.
#![no_main]

use blastbox_wire::event::ledger_text::{read, read_record};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(line) = read(bytes) else { return };
    if let Ok(record) = read_record(bytes) {
        assert_eq!((record.seq, record.prev), (line.link.seq, line.link.prev));
        assert_eq!(record.hash, line.claimed, "the hash that is shown is the hash that is checked");
    }
    assert!(read(&bytes[..bytes.len() - 1]).is_err(), "a shorter line is no line");
});
