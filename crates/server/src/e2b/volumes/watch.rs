//! Looks how much lies in the volumes that sandboxes have, and ends those whose volumes have too much, or cannot be looked at.
//!
//! - [`guard`]: the same for the disk that all of them share. [`endings`]: nobody waits until a sandbox has ended.
//!
//! The kernel of the host holds no number of bytes to a directory: between two looks a sandbox can write more, and one that wants to
//! shows less than it has. That is the gap `volume-size`, which every such sandbox has.

mod endings;
mod guard;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use self::endings::Endings;
use super::shelf::Shelf;
use crate::e2b::desk::Desk;
use crate::e2b::no::No;

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(2);
/// Looks in a row that may fail: a box can change what is looked at, and an honest one does not every time.
const MOST_BLIND: u32 = 3;

/// Begins to look, once there will be something to look at. Where nobody can look there is no sandbox with volumes.
pub(in crate::e2b) fn watch(desk: &Arc<Desk>) -> Result<(), No> {
    let shelf = Arc::clone(super::shelf(desk)?);
    let (desk, on, endings) = (Arc::downgrade(desk), Arc::clone(&shelf), Endings::default());
    let mut watched = shelf.watched.lock().unwrap_or_else(PoisonError::into_inner);
    if !*watched {
        // Each by itself: a volume may take its time to be measured, and the disk fills meanwhile.
        guard::guard(desk.clone(), Arc::clone(&on), endings.clone()).map_err(|error| {
            No::new(503, format!("nobody can look how full the disk is: no thread could be started: {error}"))
        })?;
        drop(tokio::spawn(look(desk, on, endings)));
        *watched = true;
    }
    Ok(())
}

async fn look(desk: Weak<Desk>, shelf: Arc<Shelf>, endings: Endings) {
    let mut eyes = Eyes::default();
    loop {
        tokio::time::sleep(EVERY).await;
        let Some(desk) = desk.upgrade() else { return };
        let mut seen: BTreeMap<String, Option<Why>> = BTreeMap::new();
        for tenant in shelf.tenants() {
            for (sandbox, _) in desk.of(&tenant) {
                for (id, name) in sandbox.mounts.ids() {
                    // Once a round, however many sandboxes have it.
                    if !seen.contains_key(id) {
                        seen.insert(id.to_owned(), eyes.look(&shelf, id).await);
                    }
                    let Some(Some(why)) = seen.get(id) else { continue };
                    endings.end(desk.keeper(), &sandbox, name, why);
                }
            }
        }
        eyes.blind.retain(|id, _| seen.contains_key(id));
    }
}

/// Why a volume's sandboxes are ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Why {
    /// There is more than there may be, of this.
    Outgrown(&'static str),
    /// Nobody knows how much there is.
    Unmeasured(String),
}

impl Why {
    fn message(&self) -> &'static str {
        match self {
            Self::Outgrown(_) => "has outgrown its limit",
            Self::Unmeasured(_) => "cannot be measured",
        }
    }

    fn reason(&self) -> &str {
        match self {
            Self::Outgrown(what) => what,
            Self::Unmeasured(error) => error,
        }
    }
}

/// Whoever looks, and how often in a row each volume could not be looked at.
#[derive(Debug, Default)]
struct Eyes {
    blind: BTreeMap<String, u32>,
}

impl Eyes {
    async fn look(&mut self, shelf: &Arc<Shelf>, id: &str) -> Option<Why> {
        let (on, of) = (Arc::clone(shelf), id.to_owned());
        let looked = tokio::task::spawn_blocking(move || on.measure(&of)).await;
        // A defect of ours is no reason to look away either.
        match looked.unwrap_or_else(|defect| Err(defect.into())) {
            Ok(amount) => {
                self.blind.remove(id);
                let most = shelf.most();
                let what = [(amount.bytes > most.bytes, "bytes"), (amount.entries > most.entries, "entries")];
                what.into_iter().find_map(|(more, what)| more.then_some(Why::Outgrown(what)))
            }
            Err(error) => {
                let blind = self.blind.entry(id.to_owned()).or_default();
                *blind += 1;
                (*blind >= MOST_BLIND)
                    .then(|| Why::Unmeasured(format!("{MOST_BLIND} looks in a row failed: {error}")))
            }
        }
    }
}

#[cfg(test)]
mod tests;
