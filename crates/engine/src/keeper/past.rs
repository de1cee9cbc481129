//! Boxes of which nothing is left, and whose ends are not told yet: those of an earlier daemon, and those whose end no sink
//! acknowledged before this one ended.
//!
//! ```text
//! store: live, … ──► store: ending ──record──► ledger: box_ended ──► store: ended ──acknowledged──► store: gone, events
//! ```
//! An end is recorded once: where the store says that it is in the ledger, or may be, the ledger is asked.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blastbox_wire::BoxId;
use blastbox_wire::event::ledger_text::read_record;
use blastbox_wire::event::{Event, KilledBy};
use blastbox_wire::receipt::{Outcome, Usage};

use super::cards::Tenant;
use super::events::Happened;
use super::face::Keeper;
use super::house::House;
use super::pen::about_row;
use crate::ledger::{Ledger, LedgerError, records};
use crate::store::{BoxRow, BoxState, Leftovers, Store};

/// Ends that are to be told.
#[derive(Debug, Default)]
pub(crate) struct Past(Mutex<HashMap<BoxId, (Tenant, Option<Outcome>)>>);

impl Past {
    /// Records what an earlier daemon left, with the boxes on disk whose file is missing. Nothing of it is told before [`Keeper::tell_past`].
    pub(crate) fn record(
        ledger: &mut Ledger,
        store: &Store,
        leftovers: &Leftovers,
        missing: &[BoxRow],
    ) -> Result<Self, LedgerError> {
        let recorded = recorded(ledger, leftovers, missing)?;
        let mut past = HashMap::new();
        for lost in leftovers.boxes.iter().chain(missing) {
            let outcome = match recorded.get(&lost.id) {
                Some(outcome) => *outcome,
                None => {
                    let about = about_row(lost);
                    let ended = Event::BoxEnded { outcome: Outcome::Lost, spent: Usage::default() };
                    // From here on whoever comes after this daemon asks the ledger, wherever this one is killed.
                    store.move_box(&lost.id, BoxState::Ending).ok();
                    ledger.append(Some(&about), &Event::KillAsked { by: KilledBy::Reaper })?;
                    ledger.append(Some(&about), &ended)?;
                    // A store that takes neither: the next daemon records it once more, which harms nobody.
                    store.move_box(&lost.id, BoxState::Ended).ok();
                    Outcome::Lost
                }
            };
            past.insert(lost.id.clone(), (lost.tenant.clone(), Some(outcome)));
        }
        // Nobody had them, and nobody is told.
        leftovers.nobodys.iter().for_each(|id| store.strike_lost(id));
        Ok(Self(Mutex::new(past)))
    }

    fn boxes(&self) -> MutexGuard<'_, HashMap<BoxId, (Tenant, Option<Outcome>)>> {
        // Nobody panics while holding it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn holds(&self, tenant: &Tenant, id: &BoxId) -> bool {
        self.boxes().get(id).is_some_and(|(whose, _)| whose == tenant)
    }

    pub(crate) fn len(&self) -> usize {
        self.boxes().len()
    }

    /// A box of this daemon that it does not come to tell of, or not yet.
    pub(crate) fn leave(&self, id: &BoxId, tenant: &Tenant) {
        self.boxes().insert(id.clone(), (tenant.clone(), None));
    }

    /// One that it came to tell of all the same.
    pub(crate) fn told(&self, id: &BoxId) {
        self.boxes().remove(id);
    }
}

/// The ends that are in the ledger already. Of a box that was `ending` nobody knows: its daemon may have been killed between
/// the two. Nor of one on disk whose file is missing: that goes before its row is moved.
fn recorded(
    ledger: &Ledger,
    leftovers: &Leftovers,
    missing: &[BoxRow],
) -> Result<HashMap<BoxId, Outcome>, LedgerError> {
    let mut found = HashMap::new();
    let ending = leftovers.boxes.iter().filter(|row| matches!(row.state, BoxState::Ending | BoxState::Ended));
    let doubtful: HashSet<&BoxId> = ending.chain(missing).map(|row| &row.id).collect();
    if doubtful.is_empty() {
        return Ok(found);
    }
    records(ledger.directory(), |_, _, line| {
        if let Ok(record) = read_record(line)
            && let Event::BoxEnded { outcome, .. } = record.event
            && let Some(id) = record.about.and_then(|about| about.box_id).filter(|id| doubtful.contains(id))
        {
            found.insert(id, outcome);
        }
        Ok::<_, LedgerError>(())
    })?;
    Ok(found)
}

impl Keeper {
    /// Tells the ends that an earlier daemon left, when every sink that must has them; until then whoever asks for such a
    /// box hears that they are not acknowledged. To be asked once the sinks are there, inside a tokio runtime.
    pub fn tell_past(&self) {
        let house = Arc::clone(&self.0);
        if !house.pen.post().must_acknowledge() {
            return house.tell_past();
        }
        tokio::spawn(async move {
            if house.pen.post().all_acknowledged().await.is_ok() {
                house.tell_past();
            }
        });
    }
}

impl House {
    fn tell_past(&self) {
        let ended = self.past.boxes().clone();
        for (id, (tenant, outcome)) in ended {
            let Some(outcome) = outcome else { continue };
            self.register.gone(&id, outcome.as_str());
            self.past.boxes().remove(&id);
            let reason = outcome.as_str().to_owned();
            self.hub.tell(Some((&tenant, &id)), Happened::BoxEnded { outcome, reason });
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
