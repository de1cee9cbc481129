//! How often it is told that a box did the same again: tried a denied system call, wrote at an unexpected path.
//!
//! The counts come from a box, which may try a call a million times a second for as long as it lives. Each kind is told
//! at once the first time, and then after 1, 2, 4, … seconds with the count of what came meanwhile: the ledger and the
//! ring of events, which all tenants share, grow with the logarithm of its life and not with its zeal.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::deeds::{Kind, place};

/// Between the first word of a kind and the second.
const FIRST_GAP: Duration = Duration::from_secs(1);

/// What one box did.
#[derive(Debug)]
pub(crate) struct Repeats<K>(BTreeMap<K, Repeat>);

impl<K> Default for Repeats<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

#[derive(Debug)]
struct Repeat {
    untold: u64,
    /// Not told before.
    due: Instant,
    gap: Duration,
}

impl<K: Kind> Repeats<K> {
    /// Takes in what was done.
    pub(crate) fn count(&mut self, done: &BTreeMap<K, u64>, now: Instant) {
        for (kind, count) in done {
            let kind = place(&self.0, kind.clone());
            let repeat = self.0.entry(kind).or_insert_with(|| Repeat { untold: 0, due: now, gap: FIRST_GAP });
            repeat.untold = repeat.untold.saturating_add(*count);
        }
    }

    /// When something is to be told; `None` where everything is.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.values().filter(|repeat| repeat.untold > 0).map(|repeat| repeat.due).min()
    }

    /// What is to be told by now, with its counts.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<(K, u64)> {
        let due = |repeat: &mut Repeat| {
            if repeat.untold == 0 || repeat.due > now {
                return None;
            }
            repeat.due = now + repeat.gap;
            repeat.gap = repeat.gap.saturating_mul(2);
            Some(std::mem::take(&mut repeat.untold))
        };
        self.0.iter_mut().filter_map(|(kind, repeat)| Some((kind.clone(), due(repeat)?))).collect()
    }

    /// All that was not told, at the end.
    pub(crate) fn rest(&mut self) -> Vec<(K, u64)> {
        let rest = self.0.iter_mut().map(|(kind, repeat)| (kind.clone(), std::mem::take(&mut repeat.untold)));
        rest.filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_tried_all_day_is_told_a_few_times_and_counted_every_time() {
        let begin = Instant::now();
        let mut repeats = Repeats::default();
        let (mut words, mut told, mut tried) = (0, 0, 0);
        // Every quarter of a second, as often as an agent passes counts on.
        for quarter in 0..4 * 86_400 {
            let now = begin + Duration::from_millis(250) * quarter;
            repeats.count(&BTreeMap::from([(165, 1_000)]), now);
            tried += 1_000;
            for (number, count) in repeats.due(now) {
                assert_eq!(number, 165);
                (words, told) = (words + 1, told + count);
            }
        }
        told += repeats.rest().iter().map(|(_, count)| count).sum::<u64>();
        assert_eq!(told, tried);
        assert!((2..=20).contains(&words), "{words}");
        assert!(repeats.rest().is_empty());
    }

    #[test]
    fn the_first_of_each_number_is_told_at_once_and_the_second_is_not_forgotten() {
        let now = Instant::now();
        let mut repeats = Repeats::default();
        assert_eq!(repeats.next(), None);
        repeats.count(&BTreeMap::from([(1, 3)]), now);
        assert_eq!((repeats.next(), repeats.due(now)), (Some(now), vec![(1, 3)]));
        assert_eq!(repeats.next(), None);
        repeats.count(&BTreeMap::from([(1, 4), (2, 1)]), now);
        assert_eq!(repeats.due(now), vec![(2, 1)], "a new one does not wait for an old one");
        let later = now + FIRST_GAP;
        assert_eq!((repeats.next(), repeats.due(later)), (Some(later), vec![(1, 4)]));
    }

    #[test]
    fn numbers_without_end_are_told_as_one() {
        let now = Instant::now();
        let mut repeats = Repeats::default();
        for number in 0..100_000 {
            repeats.count(&BTreeMap::from([(number, 1)]), now);
        }
        let told = repeats.due(now);
        assert_eq!((told.len(), told.iter().map(|(_, count)| count).sum()), (u32::MOST + 1, 100_000_u64));
        assert_eq!(told.last().map(|(number, _)| *number), Some(u32::MAX));
    }
}
