//! What any program of a box may send to the agent as a request for another user.
#![no_main]

use blastbox_wire::agent::SudoRequest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some((request, taken))) = SudoRequest::parse(bytes) {
        assert!(taken <= bytes.len());
        let written = request.encode().expect("what was read fits");
        assert_eq!(SudoRequest::parse(&written), Ok(Some((request, written.len()))));
    }
});
