//! Guests that were begun before anybody asked for them, each to be run once. Whoever needs memory takes theirs.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::guests::Seat;

/// Guests of one name that wait at most: one to be taken while the next is begun.
const DEPTH: usize = 2;
/// Guests that wait at most, whatever they are called: with those that run they must fit into the worker's places.
const MOST: usize = 4;

/// Those that wait.
#[derive(Default)]
pub(crate) struct Ready(Mutex<Vec<(String, Seat)>>);

impl Ready {
    /// A thread that panicked aborts the worker, so no lock is ever poisoned.
    fn lock(&self) -> MutexGuard<'_, Vec<(String, Seat)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The youngest of this name: what was written last is likeliest to be in a cache.
    pub(crate) fn take(&self, name: &str) -> Option<Seat> {
        let mut all = self.lock();
        let at = all.iter().rposition(|(other, _)| other == name)?;
        Some(all.remove(at).1)
    }

    /// Whether more of this name may wait.
    pub(crate) fn has_room(&self, name: &str) -> bool {
        room(&self.lock(), name)
    }

    /// Lets one wait, if there is still room, or one of which another waits makes some. Says whether it does.
    pub(crate) fn add(&self, name: &str, seat: Seat) -> bool {
        let mut all = self.lock();
        if !room(&all, name) {
            return false;
        }
        let gone = if all.len() < MOST { None } else { double(&all).map(|at| all.swap_remove(at)) };
        all.push((name.to_owned(), seat));
        drop(all);
        // Not dropped under the lock.
        drop(gone);
        true
    }

    /// Lets all of them go. `false`: there was none.
    pub(crate) fn give_up(&self) -> bool {
        // Not dropped under the lock: what a guest holds goes back under others.
        let all = std::mem::take(&mut *self.lock());
        !all.is_empty()
    }
}

fn room<T>(all: &[(String, T)], name: &str) -> bool {
    (all.len() < MOST || double(all).is_some()) && count(all, name) < DEPTH
}

/// One that does not wait alone under its name.
fn double<T>(all: &[(String, T)]) -> Option<usize> {
    all.iter().position(|(name, _)| count(all, name) > 1)
}

fn count<T>(all: &[(String, T)], name: &str) -> usize {
    all.iter().filter(|(other, _)| other == name).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(names: &[&str]) -> Vec<(String, ())> {
        names.iter().map(|name| ((*name).to_owned(), ())).collect()
    }

    #[test]
    fn a_third_kind_finds_room_and_no_kind_loses_its_last_one() {
        assert!(room(&waiting(&["a", "a", "b", "b"]), "c"));
        assert_eq!(double(&waiting(&["c", "a", "b", "b"])), Some(2));
        assert!(room(&waiting(&["c", "a", "b", "b"]), "c"));
        assert!(!room(&waiting(&["c", "a", "b", "c"]), "c"));
        assert!(!room(&waiting(&["a", "b", "c", "d"]), "e"));
    }
}
