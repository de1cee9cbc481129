//! One entry after another, with links, lengths and kinds that a taken-over agent invents.
#![no_main]

use blastbox_wire::agent::{AgentFrame, FileSay, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // A batch of entries and one of changes, with as many items announced as the first byte says.
    let Some((count, items)) = bytes.split_first() else { return };
    for kind in [14_u8, 15] {
        let body = [&7_u32.to_be_bytes()[..], &u32::from(*count).to_be_bytes(), items].concat();
        let mut framed = vec![kind];
        framed.extend(u32::try_from(body.len()).unwrap_or(0).to_be_bytes());
        framed.extend(&body);
        if let Ok(Some((AgentFrame::File { op, say }, _))) = parse(&framed) {
            assert_eq!(op, 7);
            match &say {
                FileSay::Entries { entries } => assert_eq!(entries.len(), usize::from(*count)),
                FileSay::Changes { changes } => assert_eq!(changes.len(), usize::from(*count)),
                _ => panic!("another kind than asked"),
            }
        }
    }
});
