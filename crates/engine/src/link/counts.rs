//! Whose turn it is to be counted. Pure.
//!
//! A look is worth less than anything else that the warden is asked for: a thousand boxes that are looked at in the same
//! moment ask one after the other, and no more than a few have asked and wait.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use blastbox_wire::BoxId;

/// Counts that were asked for and not answered. Their answers fit into any socket.
const MOST: usize = 8;
/// One that was not answered for so long is answered no more, if others were meanwhile: a warden that is stopped has them all still
/// to read, and more of them would only fill its line.
const LOST: Duration = Duration::from_secs(5);

/// Those that are looked at.
#[derive(Debug, Default)]
pub(super) struct Counts {
    waiting: VecDeque<BoxId>,
    /// When each was asked for, and how many had been answered by then.
    asked: HashMap<BoxId, (Instant, u64)>,
    answered: u64,
}

impl Counts {
    /// Somebody looks at this box.
    pub(super) fn want(&mut self, id: &BoxId) {
        if !self.asked.contains_key(id) && !self.waiting.contains(id) {
            self.waiting.push_back(id.clone());
        }
    }

    /// The next one to be asked for, where it is anybody's turn.
    pub(super) fn next(&mut self, now: Instant) -> Option<BoxId> {
        if self.waiting.is_empty() {
            return None;
        }
        let answered = self.answered;
        self.asked.retain(|_, (at, by_then)| now.duration_since(*at) < LOST || answered == *by_then);
        if self.asked.len() >= MOST {
            return None;
        }
        let id = self.waiting.pop_front()?;
        self.asked.insert(id.clone(), (now, self.answered));
        Some(id)
    }

    /// It was answered, or will not be.
    pub(super) fn over(&mut self, id: &BoxId) {
        match self.asked.remove(id) {
            Some(_) => self.answered = self.answered.wrapping_add(1),
            None => self.waiting.retain(|waiting| waiting != id),
        }
    }

    /// How many were asked for and wait for their answer.
    #[cfg(test)]
    pub(super) fn in_flight(&self) -> usize {
        self.asked.len()
    }

    /// The warden has no room. Whoever looks next asks again.
    pub(super) fn give_up(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_thousand_looks_at_once_few_are_asked_for_and_each_has_its_turn() {
        let ids: Vec<BoxId> = (0..1000_u16)
            .map(|number| {
                let mut random = [0; 20];
                // Five bits of each are told apart.
                random[..3].copy_from_slice(
                    &[number, number >> 5, number >> 10].map(|part| u8::try_from(part % 32).unwrap()),
                );
                BoxId::from_random(random)
            })
            .collect();
        let (mut counts, start) = (Counts::default(), Instant::now());
        ids.iter().chain(&ids).for_each(|id| counts.want(id));
        let mut asked = Vec::new();
        while let Some(id) = counts.next(start) {
            asked.push(id);
        }
        assert_eq!(asked, ids[..MOST], "the first few");
        for (answered, expected) in ids.iter().zip(&ids[MOST..]) {
            counts.over(answered);
            assert_eq!(counts.next(start).as_ref(), Some(expected));
            assert_eq!(counts.next(start), None);
        }
        // Those that nobody answered do not keep others from asking for ever.
        counts.want(&ids[0]);
        assert_eq!(counts.next(start), None);
        assert_eq!(counts.next(start + LOST), Some(ids[0].clone()));
        assert!(counts.asked.len() <= MOST);
    }

    #[test]
    fn a_warden_that_answers_nobody_is_asked_nothing_more() {
        let id = |number: u8| BoxId::from_random([number; 20]);
        let (mut counts, start) = (Counts::default(), Instant::now());
        (0..30).for_each(|number| counts.want(&id(number)));
        while counts.next(start).is_some() {}
        assert_eq!(counts.asked.len(), MOST);
        assert_eq!(counts.next(start + LOST * 100), None, "it is stopped");
        // It goes on: one answer shows that the others, which are as old, are lost.
        counts.over(&id(0));
        assert_eq!(counts.next(start + LOST * 100), Some(id(8)));
        assert_eq!(counts.asked.len(), 1);
    }
}
