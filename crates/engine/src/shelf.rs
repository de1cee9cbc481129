//! The templates of an engine: looked for in this process, then in the store, and made where one is nowhere.
//!
//! Where none can be had, a box boots by itself; the receipt says what it was.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use blastbox_images::machine::{Template, Templates};
use blastbox_wire::BoxId;
use blastbox_wire::event::Hash;
use tokio::sync::TryLockError;
use tokio::time::Instant;

use crate::copies::{Need, Source, Useless};
use crate::host_memory;
use crate::sleeper::{self, Unmade};

/// Templates that this process keeps: each takes all of its machine's memory.
const KEPT: usize = 4;
/// Which part of the memory that is free all of them may take, in use or not. What boxes are promised is three quarters of it, where
/// the operator says nothing else.
const PART: u64 = 4;
/// Kinds of machines of which no template could be made, and for how long that is not tried again.
const FAILED: usize = 64;
const AGAIN: Duration = Duration::from_secs(600);
/// A boot takes seconds, also where the processor is emulated.
const PATIENCE: Duration = Duration::from_secs(120);

/// The templates of an engine.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    known: Mutex<Known>,
    /// One at a time is made: each takes a processor.
    making: tokio::sync::Mutex<()>,
    /// Which: whoever wants the same waits for it, and nobody else does.
    in_making: Mutex<Option<Hash>>,
    /// Bytes that all templates together may take.
    budget: OnceLock<u64>,
}

#[derive(Debug, Default)]
struct Known {
    /// The one that was used last comes last.
    kept: Vec<(Hash, Arc<Template>)>,
    failed: Vec<(Hash, Instant)>,
    /// All that have memory: a box keeps that of what it began as, also where nobody else will begin with it.
    alive: Vec<(Hash, Weak<Template>)>,
    /// Bytes of those that are being made.
    pending: u64,
    /// What is known of the prepared machines among them.
    prepared: Vec<(Hash, PreparedBox)>,
}

/// What boxes have to know that begin as copies of a prepared machine.
#[derive(Debug, Clone)]
pub(crate) struct PreparedBox {
    /// What a copy relies on.
    pub(crate) bound: Hash,
    /// The box that was prepared.
    pub(crate) of: BoxId,
}

/// Room for one that is being made, until this is dropped.
#[derive(Debug)]
pub(crate) struct Pending<'a> {
    shelf: &'a Shelf,
    bytes: u64,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let mut known = self.shelf.known();
        known.pending = known.pending.saturating_sub(self.bytes);
    }
}

/// How a box begins, in words for its receipt.
#[derive(Debug)]
pub(crate) enum Origin {
    /// As a copy.
    Copy { from: Source, told: String },
    /// By booting.
    Boot { told: String },
}

const COPIED: &str = "it began as a copy of a machine that booted once and ran nothing; randomness, clock and name were its own \
                      before its first command";

impl Shelf {
    /// Bytes that all templates together may take: by what was free when this was asked first.
    pub(crate) fn budget(&self) -> u64 {
        *self.budget.get_or_init(|| host_memory::free() / PART)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Nobody panics while holding it.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn at making, or at finding what somebody else has made meanwhile. An error: another kind is being made, which a
    /// stranger may have asked for again and again.
    async fn turn(&self, bound: Hash) -> Result<tokio::sync::MutexGuard<'_, ()>, TryLockError> {
        let in_making = || self.in_making.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = match self.making.try_lock() {
            Err(_) if *in_making() == Some(bound) => self.making.lock().await,
            tried => tried?,
        };
        *in_making() = Some(bound);
        Ok(turn)
    }

    /// What a box of this kind begins as.
    pub(crate) async fn origin(&self, need: Need<'_>) -> Origin {
        let (engine, bound, memory) = (need.copies.engine, need.copies.bound, need.copies.memory);
        let Some(workshop) = need.image.workshop() else {
            return Origin::Boot {
                told: "it booted by itself: its image has no store for templates".to_owned(),
            };
        };
        let store = workshop.templates();
        let copy = |template, told: String| {
            let from = Source { engine, template, bound, useless: Useless::ForgetIn(store.clone()) };
            Origin::Copy { from, told }
        };
        if let Some(template) = self.find(&bound) {
            return copy(template, COPIED.to_owned());
        }
        let Ok(_turn) = self.turn(bound).await else {
            return Origin::Boot {
                told: "it booted by itself: a template of another kind was being made".to_owned(),
            };
        };
        // Whoever was before may have made it.
        if let Some(template) = self.find(&bound) {
            return copy(template, COPIED.to_owned());
        }
        if self.known().has_failed(&bound) {
            return Origin::Boot {
                told: "it booted by itself: no template could be made a while ago".to_owned(),
            };
        }
        let Some(_pending) = self.make_room(memory) else {
            return Origin::Boot {
                told: "it booted by itself: a template of it does not fit into the memory that there is for templates, or others take it"
                    .to_owned(),
            };
        };
        let refused = match on_thread(&store, move |store| store.find(&bound, memory)).await {
            Some(Ok(Some(template))) => {
                let template = self.put(bound, Arc::new(template));
                fill_meanwhile(&template);
                return copy(template, COPIED.to_owned());
            }
            Some(Err(refused)) => Some(with_cause(&refused)),
            Some(Ok(None)) | None => None,
        };
        let patience = need.timeout.min(PATIENCE);
        let made = match sleeper::make(need, patience).await {
            Ok(template) => template,
            Err(why) => {
                if says_something(&why) {
                    self.known().note_failure(bound);
                }
                return Origin::Boot {
                    told: format!("it booted by itself: no template could be made: {why}"),
                };
            }
        };
        let template = self.put(bound, Arc::new(made));
        let mut told = COPIED.to_owned();
        if let Some(refused) = refused {
            told = format!("{told}; that machine was made anew, because {refused}");
        }
        let keeping = Arc::clone(&template);
        // For the next process. Without it this one has it all the same.
        if let Some(Err(error)) = on_thread(&store, move |store| store.keep(&bound, &keeping)).await {
            told = format!("{told}; it is not there for the next daemon: {}", with_cause(&error));
        }
        fill_meanwhile(&template);
        copy(template, told)
    }

    fn find(&self, bound: &Hash) -> Option<Arc<Template>> {
        let mut known = self.known();
        let Some(at) = known.kept.iter().position(|(kept, _)| kept == bound) else {
            // Kept no more, and there all the same: a box has begun with it.
            let alive = known.alive.iter().filter(|(alive, _)| alive == bound);
            return alive
                .filter_map(|(_, template)| template.upgrade())
                .find(|template| !template.is_spoilt());
        };
        let (bound, template) = known.kept.remove(at);
        if template.is_spoilt() {
            // Not tried again at once: what made it useless may still be there.
            known.note_failure(bound);
            return None;
        }
        known.kept.push((bound, Arc::clone(&template)));
        Some(template)
    }

    /// Whether there is memory for one more, if need be instead of those that no box has begun with. Nobody's quota has it: without a
    /// bound of its own, boxes of ever other kinds would take the host's.
    pub(crate) fn make_room(&self, memory: u64) -> Option<Pending<'_>> {
        let budget = self.budget();
        let mut known = self.known();
        known.alive.retain(|(_, template)| template.strong_count() > 0);
        let alive = known.alive.iter().filter_map(|(_, template)| template.upgrade());
        let mut taken = alive.map(|template| template.bytes()).fold(known.pending, u64::saturating_add);
        let idle = known.kept.iter().filter(|(_, template)| Arc::strong_count(template) == 1);
        let idle = idle.map(|(_, template)| template.bytes()).fold(0, u64::saturating_add);
        // Nothing of others is dropped for what would not fit all the same.
        if taken.saturating_sub(idle).saturating_add(memory) > budget {
            return None;
        }
        let mut dropped = Vec::new();
        while taken.saturating_add(memory) > budget {
            let idle = known.kept.iter().position(|(_, template)| Arc::strong_count(template) == 1);
            let Some(idle) = idle else { break };
            let (_, template) = known.kept.remove(idle);
            taken = taken.saturating_sub(template.bytes());
            dropped.push(template);
        }
        known.pending = known.pending.saturating_add(memory);
        // The kernel takes its time to have gigabytes back: nobody waits for that with the lock.
        drop(known);
        drop(dropped);
        Some(Pending { shelf: self, bytes: memory })
    }

    /// A machine that was prepared, and what copies of it rely on.
    pub(crate) fn find_prepared(&self, kind: &Hash) -> Option<(Arc<Template>, PreparedBox)> {
        let template = self.find(kind)?;
        let prepared = &self.known().prepared;
        prepared.iter().find(|(known, _)| known == kind).map(|(_, known)| (template, known.clone()))
    }

    /// Boxes begin as copies of this one from now on. Whoever puts it here has made room for it.
    pub(crate) fn put_prepared(&self, kind: Hash, of: PreparedBox, template: &Arc<Template>) {
        let mut known = self.known();
        let alive = known.alive.iter().filter(|(_, one)| one.strong_count() > 0);
        let alive: Vec<Hash> = alive.map(|(kind, _)| *kind).collect();
        known.prepared.retain(|(other, _)| *other != kind && alive.contains(other));
        known.prepared.push((kind, of));
        drop(known);
        self.put(kind, Arc::clone(template));
    }

    pub(crate) fn forget_prepared(&self, kind: &Hash) {
        let mut known = self.known();
        known.prepared.retain(|(other, _)| other != kind);
        // Boxes that have begun with it hold it still, and nobody finds it there.
        let alive =
            known.alive.iter().filter(|(other, _)| other == kind).filter_map(|(_, one)| one.upgrade());
        let held: Vec<_> = alive.inspect(|template| template.spoil()).collect();
        let at = known.kept.iter().position(|(other, _)| other == kind);
        let forgotten = at.map(|at| known.kept.remove(at));
        drop(known);
        drop((forgotten, held));
    }

    pub(crate) fn has_failed(&self, kind: &Hash) -> bool {
        self.known().has_failed(kind)
    }

    pub(crate) fn fail(&self, kind: Hash) {
        self.known().note_failure(kind);
    }

    fn put(&self, bound: Hash, template: Arc<Template>) -> Arc<Template> {
        let mut known = self.known();
        known.alive.push((bound, Arc::downgrade(&template)));
        known.kept.push((bound, Arc::clone(&template)));
        let oldest = (known.kept.len() > KEPT).then(|| known.kept.remove(0));
        drop(known);
        drop(oldest);
        template
    }
}

impl Known {
    fn has_failed(&mut self, bound: &Hash) -> bool {
        self.failed.retain(|(_, at)| at.elapsed() < AGAIN);
        self.failed.iter().any(|(failed, _)| failed == bound)
    }

    fn note_failure(&mut self, bound: Hash) {
        if self.failed.len() >= FAILED {
            self.failed.remove(0);
        }
        self.failed.push((bound, Instant::now()));
    }
}

/// Whether the next machine of this kind would fare no better: a box with a short life that came too late says nothing about that.
fn says_something(why: &Unmade) -> bool {
    match why {
        Unmade::Late(after) => *after >= PATIENCE,
        Unmade::Failed(_) => true,
    }
}

/// Where a template is empty, the first copy that writes there would pay for the template's page and for its own, and with half of its memory
/// in use be over its limit. Nobody waits for it: a machine that has just begun has memory left. Where the host has none, it is as it was.
fn fill_meanwhile(template: &Arc<Template>) {
    let template = Arc::clone(template);
    drop(tokio::task::spawn_blocking(move || template.fill()));
}

/// Reads and writes of hundreds of megabytes are nobody else's to wait for. `None`: the thread is gone.
async fn on_thread<T: Send + 'static>(
    store: &Templates,
    work: impl FnOnce(&Templates) -> T + Send + 'static,
) -> Option<T> {
    let store = store.clone();
    tokio::task::spawn_blocking(move || work(&store)).await.ok()
}

fn with_cause(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use blastbox_images::machine::blank;

    use super::*;

    fn template() -> Template {
        Template::seal(blank(1 << 20).unwrap(), b"state".to_vec()).unwrap()
    }

    fn bound(number: u8) -> Hash {
        Hash::from_bytes([number; 32])
    }

    #[test]
    fn what_fails_is_not_tried_again_at_once_unless_only_the_time_was_short() {
        assert!(says_something(&Unmade::Failed("QEMU ended".to_owned())));
        assert!(says_something(&Unmade::Late(PATIENCE)));
        assert!(!says_something(&Unmade::Late(Duration::from_secs(2))));
    }

    #[tokio::test]
    async fn a_template_that_failed_a_copy_is_used_no_more_and_few_are_kept() {
        let shelf = Shelf::default();
        for number in 0..=4 {
            shelf.put(bound(number), Arc::new(template()));
            // The first one is in use.
            assert!(number == 4 || shelf.find(&bound(0)).is_some());
        }
        assert_eq!(shelf.known().kept.len(), KEPT);
        assert!(shelf.find(&bound(1)).is_none() && shelf.find(&bound(0)).is_some());
        assert!(!shelf.known().has_failed(&bound(0)));
        shelf.find(&bound(0)).unwrap().spoil();
        assert!(shelf.find(&bound(0)).is_none());
        assert!(shelf.known().has_failed(&bound(0)));
    }

    #[test]
    fn templates_of_ever_other_kinds_take_no_more_memory_than_there_is_for_them() {
        let shelf = Shelf { budget: OnceLock::from(3 << 20), ..Shelf::default() };
        let mut used = Vec::new();
        for number in 0..3 {
            assert!(shelf.make_room(1 << 20).is_some());
            used.push(shelf.put(bound(number), Arc::new(template())));
        }
        // Boxes have begun with all of them: also one that is kept no more has its memory.
        shelf.known().kept.remove(0);
        assert!(shelf.make_room(1 << 20).is_none(), "a fourth");
        used.remove(0);
        assert!(shelf.make_room(1 << 20).is_some(), "its last box is gone");
        assert!(shelf.make_room(2 << 20).is_none() && shelf.find(&bound(1)).is_some());
        // One that nobody uses makes room, and only as much as is needed.
        drop(used);
        assert!(shelf.make_room(2 << 20).is_some());
        assert_eq!(shelf.known().kept.len(), 1);
        assert!(shelf.make_room(4 << 20).is_none(), "more than all of it");
        assert_eq!(shelf.known().kept.len(), 1, "for which nothing is dropped");
        // Nor for what does not fit beside those in use.
        let used = [shelf.put(bound(7), Arc::new(template())), shelf.put(bound(8), Arc::new(template()))];
        assert!(shelf.make_room(2 << 20).is_none());
        assert_eq!((shelf.known().kept.len(), used.len()), (3, 2));
    }

    #[test]
    fn a_prepared_machine_is_one_of_the_templates_in_their_bound_and_is_found_while_a_box_has_begun_with_it()
    {
        let shelf = Shelf { budget: OnceLock::from(3 << 20), ..Shelf::default() };
        let of = || PreparedBox { bound: bound(9), of: BoxId::from_random([1; 20]) };
        let room = shelf.make_room(2 << 20).unwrap();
        assert!(shelf.make_room(2 << 20).is_none(), "what is being made counts");
        let machine = Arc::new(template());
        shelf.put_prepared(bound(0), of(), &machine);
        drop(room);
        assert_eq!(shelf.find_prepared(&bound(0)).unwrap().1.bound, bound(9));
        assert!(shelf.find_prepared(&bound(1)).is_none());
        assert!(shelf.make_room(3 << 20).is_none(), "it is in use, and counts");
        shelf.known().kept.clear();
        assert!(shelf.find_prepared(&bound(0)).is_some(), "a box has it");
        machine.spoil();
        assert!(shelf.find_prepared(&bound(0)).is_none());
        drop(machine);
        assert!(shelf.make_room(3 << 20).is_some());
        shelf.put_prepared(bound(0), of(), &Arc::new(template()));
        shelf.forget_prepared(&bound(0));
        assert!(shelf.find_prepared(&bound(0)).is_none() && !shelf.has_failed(&bound(0)));
        shelf.fail(bound(0));
        assert!(shelf.has_failed(&bound(0)));
    }
}
