//! Room in a volume for what is on its way there. It is held before anything is written, so that uploads that come at once do not
//! pass the volume's size together.
//!
//! Must not: be waited for on a thread of the runtime, since a volume is measured meanwhile.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::tree::{Amount, Tree};

/// What was measured longer ago is measured again: sandboxes write too, and ask nobody.
const LASTS: Duration = Duration::from_secs(2);
const BLOCK: u64 = 4_096;

/// That of one volume.
#[derive(Debug)]
pub(super) struct Room {
    volume: PathBuf,
    most: Amount,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// What lies there, and when that was measured.
    lies: Option<(Instant, Amount)>,
    coming: Amount,
}

/// A part of it, for one who comes. Given back with this, unless that has arrived.
#[derive(Debug)]
pub(super) struct Hold {
    room: Arc<Room>,
    amount: Amount,
}

/// So many new entries, of so many bytes together.
pub(super) fn new_entries(entries: u64, bytes: u64) -> Amount {
    Amount { bytes: blocks(bytes), entries }
}

fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK).saturating_mul(BLOCK)
}

impl Room {
    pub(super) fn of(volume: PathBuf, most: Amount) -> Arc<Self> {
        Arc::new(Self { volume, most, held: Mutex::default() })
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // Sums alone: whoever panics leaves them whole.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds room for so much. `None`: there is none.
    pub(super) fn hold(self: &Arc<Self>, amount: Amount) -> io::Result<Option<Hold>> {
        Ok(self.take(amount)?.then(|| Hold { room: Arc::clone(self), amount }))
    }

    fn take(&self, more: Amount) -> io::Result<bool> {
        // Kept while it is measured: what arrives meanwhile would count neither as coming nor as there.
        let mut held = self.held();
        let wanted = held.coming.plus(more);
        let fits = |lies: Amount| {
            let all = lies.plus(wanted);
            all.bytes <= self.most.bytes && all.entries <= self.most.entries
        };
        // Nobody has a volume measured, which takes its time, by asking for what never fits.
        if !fits(Amount::default()) {
            return Ok(false);
        }
        let recent = held.lies.filter(|(at, _)| at.elapsed() < LASTS);
        // Nobody is refused for what was there a moment ago, and may be gone.
        if !recent.is_some_and(|(_, lies)| fits(lies)) {
            let at = Instant::now();
            let lies = Tree::open(&self.volume)?.measure(self.most)?;
            held.lies = Some((at, lies));
            if !fits(lies) {
                return Ok(false);
            }
        }
        held.coming = wanted;
        Ok(true)
    }
}

impl Hold {
    /// Sees to it that there is room for a file of so many bytes. `false`: there is none.
    pub(super) fn reach(&mut self, bytes: u64) -> io::Result<bool> {
        let more = Amount { bytes: blocks(bytes).saturating_sub(self.amount.bytes), entries: 0 };
        // What lies there is looked at also where no more is wanted: a sandbox may have filled it meanwhile.
        let fits = self.room.take(more)?;
        if fits {
            self.amount = self.amount.plus(more);
        }
        Ok(fits)
    }

    /// Lets it arrive: from then on it lies there, and comes no more.
    pub(super) fn arrive<T>(&mut self, put: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let mut held = self.room.held();
        let done = put();
        if done.is_err() {
            // Half of it may be there.
            held.lies = None;
            return done;
        }
        let amount = std::mem::take(&mut self.amount);
        held.coming = held.coming.less(amount);
        // Too much where it has replaced something, which the next who has no room finds out.
        held.lies = held.lies.map(|(at, lies)| (at, lies.plus(amount)));
        done
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = self.room.held();
        held.coming = held.coming.less(self.amount);
    }
}

#[cfg(test)]
mod tests;
