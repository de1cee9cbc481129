//! Which pages of a guest a command writes to, by the kernel's own word.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use crate::pages::PAGE;

/// What the kernel says of a page of this process, eight bytes for each: that it is there, whether it is a file's, and whether nobody else has it.
const PRESENT: u64 = 1 << 63;
const OF_A_FILE: u64 = 1 << 61;
const EXCLUSIVE: u64 = 1 << 56;

/// Numbers of the pages of this memory that are no longer the image's. None where nobody says it: `/proc` may be hidden.
pub(super) fn written(memory: &[u8]) -> Vec<usize> {
    let first = u64::try_from(memory.as_ptr().addr() / PAGE).unwrap_or(u64::MAX);
    let mut words = vec![0; (memory.len() / PAGE).saturating_mul(8)];
    let map = File::open("/proc/self/pagemap");
    if map.and_then(|map| map.read_exact_at(&mut words, first.saturating_mul(8))).is_err() {
        return Vec::new();
    }
    let is_own =
        |word: &[u8; 8]| u64::from_ne_bytes(*word) & (PRESENT | OF_A_FILE | EXCLUSIVE) == PRESENT | EXCLUSIVE;
    let words = words.as_chunks().0.iter().enumerate();
    words.filter(|(_, word)| is_own(word)).map(|(number, _)| number).collect()
}
