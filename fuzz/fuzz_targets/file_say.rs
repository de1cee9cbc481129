//! What a taken-over agent says about files: the body of each kind, so that no byte is spent on finding the frame.
#![no_main]

use blastbox_wire::agent::{AgentFrame, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for kind in 11..=16_u8 {
        let mut framed = vec![kind];
        framed.extend(u32::try_from(bytes.len()).unwrap_or(0).to_be_bytes());
        framed.extend(bytes);
        if let Ok(Some((frame, taken))) = parse(&framed) {
            assert_eq!(taken, framed.len());
            let AgentFrame::File { say, .. } = &frame else { panic!("not about a file") };
            // What waits on the host is bounded by the window, so nothing may cost less than it takes.
            assert!(say.cost() <= bytes.len());
            let written = frame.encode();
            assert_eq!(parse(&written), Ok(Some((frame, written.len()))));
        }
    }
});
