//! Pages of a guest's memory that its first command writes to, found out when the guest was made.
//!
//! They are made the guest's own all at once, before anything looks at them. Otherwise each is first shown as the image's and
//! replaced when it is written to, for which the kernel interrupts every processor that runs a thread of the worker.

use std::fmt;
use std::ops::Range;

/// What the kernel copies at once.
pub const PAGE: usize = 4096;
/// Pages at most: a guest that waits holds as many, whatever a manifest says.
const MOST: usize = 1024;
/// Ranges at most: with as many a manifest is not yet too long to be read.
const MOST_RANGES: usize = 320;

/// Ranges of pages, each behind the last one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pages(Vec<Range<usize>>);

impl Pages {
    /// Of these numbers, which rise. As many as there may be.
    #[must_use]
    pub fn of(numbers: &[usize]) -> Self {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for number in numbers.iter().take(MOST) {
            let ended = ranges.len() == MOST_RANGES;
            match ranges.last_mut() {
                Some(last) if last.end == *number => last.end = number.saturating_add(1),
                _ if ended => break,
                _ => ranges.push(*number..number.saturating_add(1)),
            }
        }
        Self(ranges)
    }

    /// From first pages and counts: `4094+2 6401+3`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let mut all = 0_usize;
        for word in text.split(' ') {
            let (first, count) = word.split_once('+')?;
            let (first, count): (usize, usize) = (first.parse().ok()?, count.parse().ok()?);
            all = all.checked_add(count).filter(|all| count > 0 && *all <= MOST)?;
            let range = first..first.checked_add(count)?;
            if ranges.last().is_some_and(|last| range.start <= last.end) {
                return None;
            }
            ranges.push(range);
        }
        Some(Self(ranges)).filter(|pages| pages.0.len() <= MOST_RANGES)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Makes them the guest's own, with what is in them. What does not lie in its memory is left out.
    pub(crate) fn own(&self, memory: &mut [u8]) {
        for Range { start, end } in &self.0 {
            if let Some(pages) = memory.get_mut(start.saturating_mul(PAGE)..end.saturating_mul(PAGE)) {
                blastbox_sys::memory::own(pages);
            }
        }
    }
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, range) in self.0.iter().enumerate() {
            let space = if number == 0 { "" } else { " " };
            write!(f, "{space}{}+{}", range.start, range.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_range_and_what_is_written_can_be_read() {
        let pages = Pages::of(&[3, 4, 9]);
        assert_eq!(pages.to_string(), "3+2 9+1");
        assert_eq!(Pages::parse("3+2 9+1"), Some(pages));
        // A guest has 2^20 pages at most.
        for many in [1_040_000..1_048_576, 0..9000].map(Iterator::collect::<Vec<usize>>) {
            for step in [1, 2] {
                let some: Vec<usize> = many.iter().copied().step_by(step).collect();
                let text = Pages::of(&some).to_string();
                assert!(Pages::parse(&text).is_some() && text.len() < crate::manifest::MOST - 512, "{text}");
            }
        }
    }

    #[test]
    fn ranges_that_are_none_or_too_many_are_refused() {
        for text in ["", " ", "3", "3+", "+3", "3+0", "-1+1", "3+2 5+1", "3+2 4+1", "0+1025", "0+1 5+1024"] {
            assert_eq!(Pages::parse(text), None, "{text}");
        }
        assert_eq!(Pages::parse(&format!("{}+1", usize::MAX)), None);
        assert!(Pages::parse("0+1 5+1023").is_some());
    }

    #[test]
    fn pages_keep_their_bytes_and_those_behind_a_memory_are_left_out() {
        let mut memory: Vec<u8> = (0..8 * PAGE).map(|at| u8::try_from(at % 251).unwrap_or(0)).collect();
        let before = memory.clone();
        // This memory begins in the middle of a page, as no guest's does: the kernel refuses, and that is all.
        Pages::of(&[0, 1, 7, 8, 9, 1 << 40, usize::MAX]).own(&mut memory);
        assert!(memory == before);
    }
}
