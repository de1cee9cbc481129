//! An archive as a box sends it, cut as a line may cut it: parts come out in order, and never more than went in.
#![no_main]

use blastbox_wire::untar::{Part, Untar};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((size, archive)) = bytes.split_first() else { return };
    let (mut untar, mut content, mut inside) = (Untar::new(), 0_usize, false);
    for piece in archive.chunks(usize::from(*size).max(1)) {
        let mut rest = piece;
        loop {
            match untar.next(&mut rest) {
                Ok(Some(Part::Entry(_))) => {
                    assert!(!inside);
                    inside = true;
                }
                Ok(Some(Part::Content(part))) => {
                    assert!(inside && !part.is_empty());
                    content += part.len();
                }
                Ok(Some(Part::EntryEnd)) => {
                    assert!(inside);
                    inside = false;
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
        assert!(rest.is_empty());
    }
    assert!(content <= archive.len());
});
