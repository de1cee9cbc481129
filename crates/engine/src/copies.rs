//! Machines that sleep, so that boxes begin as copies of them instead of booting.
//!
//! A template is a machine that booted once for everything that a box relies on, ran nothing, and fell asleep. It is looked for
//! in this process, then in the store, and made where it is nowhere. It has no name of a box, no secret, no file of anybody.
//! Where none can be had, a box boots by itself; the receipt says what it was.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use blastbox_images::Image;
use blastbox_images::machine::{Template, Templates};
use blastbox_isolation::{Copies, order_wake};
use blastbox_wire::BoxId;
use blastbox_wire::agent::Wake;
use blastbox_wire::event::Hash;
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::sync::TryLockError;
use tokio::time::Instant;

use crate::error::CreateError;
use crate::link::Link;
use crate::sleeper::{self, Unmade};

/// Templates that this process keeps: each takes all of its machine's memory.
const KEPT: usize = 4;
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
}

#[derive(Debug, Default)]
struct Known {
    /// The one that was used last comes last.
    kept: Vec<(Hash, Arc<Template>)>,
    failed: Vec<(Hash, Instant)>,
}

/// How a box begins, in words for its receipt.
#[derive(Debug)]
pub(crate) enum Origin {
    /// As a copy.
    Copy { from: Source, told: String },
    /// By booting.
    Boot { told: String },
}

/// What a copy is of.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) template: Arc<Template>,
    bound: Hash,
    /// Where it is forgotten if it turns out to be useless; `None`: it is somebody's snapshot, and theirs to keep.
    store: Option<Templates>,
}

impl Source {
    /// Somebody's box as it was when it slept.
    pub(crate) fn snapshot(template: Arc<Template>, bound: Hash) -> Self {
        Self { template, bound, store: None }
    }
}

/// What a box that begins as a copy holds until its agent has spoken.
#[derive(Debug)]
pub(crate) struct Birth {
    from: Source,
    /// QEMU's line for orders. It is closed when nobody needs it any more.
    orders: StdStream,
}

impl Birth {
    /// The copy never spoke. Whatever is wrong with its template, nobody else begins with it, in this process or the next.
    pub(crate) fn failed(self) {
        let Source { template, bound, store } = self.from;
        if let Some(store) = store {
            template.spoil();
            store.forget(&bound);
        }
    }

    /// The line for orders, for who may have to say more than how it begins.
    pub(crate) fn line(&self) -> Option<StdStream> {
        self.orders.try_clone().ok()
    }
}

const COPIED: &str = "it began as a copy of a machine that booted once and ran nothing; randomness, clock and name were its own \
                      before its first command";

/// What is needed to make a template: everything that travels with its plan but the memory and the line for orders.
pub(crate) struct Need<'a> {
    pub(crate) link: &'a Arc<Link>,
    pub(crate) copies: &'a Copies,
    pub(crate) image: &'a Image,
    pub(crate) shows: &'a [OwnedFd],
    pub(crate) id: BoxId,
    pub(crate) timeout: Duration,
}

impl Shelf {
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
        let (bound, memory) = (need.copies.bound, need.copies.memory);
        let Some(workshop) = need.image.workshop() else {
            return Origin::Boot {
                told: "it booted by itself: its image has no store for templates".to_owned(),
            };
        };
        let store = workshop.templates();
        let copy = |template, told: String| {
            let from = Source { template, bound, store: Some(store.clone()) };
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
        let refused = match on_thread(&store, move |store| store.find(&bound, memory)).await {
            Some(Ok(Some(template))) => {
                let template = self.put(bound, template);
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
        let template = self.put(bound, made);
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
        let at = known.kept.iter().position(|(kept, _)| kept == bound)?;
        let (bound, template) = known.kept.remove(at);
        if template.is_spoilt() {
            // Not tried again at once: what made it useless may still be there.
            known.note_failure(bound);
            return None;
        }
        known.kept.push((bound, Arc::clone(&template)));
        Some(template)
    }

    fn put(&self, bound: Hash, template: Template) -> Arc<Template> {
        let template = Arc::new(template);
        let mut known = self.known();
        known.kept.push((bound, Arc::clone(&template)));
        if known.kept.len() > KEPT {
            known.kept.remove(0);
        }
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

/// Has the copy that will be started with these descriptors go on from its template: the orders for QEMU, and, as the first
/// bytes of the control channel, what no two copies may have in common. Gives what travels with the plan, and what is held.
pub(crate) fn bear(
    from: Source,
    id: &BoxId,
    control: BorrowedFd<'_>,
) -> Result<(Birth, [OwnedFd; 2]), CreateError> {
    let (orders, theirs) = StdStream::pair().map_err(CreateError::Channel)?;
    let state = from.template.state_file().map_err(CreateError::Channel)?;
    order_wake(&orders, state.as_fd()).map_err(CreateError::Channel)?;
    let mut fresh = [0_u8; 64];
    // So many come whole or not at all.
    getrandom(&mut fresh, GetRandomFlags::empty()).map_err(|errno| CreateError::Randomness(errno.into()))?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let time = (i64::try_from(now.as_secs()).unwrap_or(i64::MAX), now.subsec_nanos());
    let wake = Wake { fresh, time, name: id.as_host_name() }.encode();
    // The socket is empty: what is so short goes in whole.
    if rustix::io::write(control, &wake).map_err(|errno| CreateError::Channel(errno.into()))? != wake.len() {
        return Err(CreateError::Channel(std::io::ErrorKind::WriteZero.into()));
    }
    let memory = from.template.memory().try_clone_to_owned().map_err(CreateError::Channel)?;
    Ok((Birth { from, orders }, [memory, theirs.into()]))
}

#[cfg(test)]
impl Source {
    /// A template that nothing booted, kept nowhere.
    pub(crate) fn test() -> (Self, Arc<Template>) {
        let memory = blastbox_images::machine::blank(4096)
            .and_then(|memory| Template::seal(memory, b"state".to_vec()));
        let template = Arc::new(memory.unwrap());
        let (bound, store) =
            (Hash::from_bytes([1; 32]), Templates::of_store(std::path::Path::new("/nowhere")));
        (Self { template: Arc::clone(&template), bound, store: Some(store) }, template)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use blastbox_images::machine::blank;
    use blastbox_wire::agent::WAKE;

    use super::*;

    fn template() -> Template {
        Template::seal(blank(1 << 20).unwrap(), b"state".to_vec()).unwrap()
    }

    fn bound(number: u8) -> Hash {
        Hash::from_bytes([number; 32])
    }

    #[test]
    fn two_copies_of_a_template_are_never_told_the_same() {
        let (from, template) = Source::test();
        let born = |number| {
            let (ours, mut theirs) = StdStream::pair().unwrap();
            let id = BoxId::from_random([number; 20]);
            let (birth, [memory, _line]) = bear(from.clone(), &id, ours.as_fd()).unwrap();
            let mut wake = [0; WAKE];
            theirs.read_exact(&mut wake).unwrap();
            assert!(rustix::io::pwrite(&memory, b"x", 0).is_err(), "QEMU could write to what copies share");
            (birth, Wake::parse(&wake).unwrap(), id)
        };
        let ((one, first, id), (_two, second, _)) = (born(1), born(2));
        assert_ne!(first.fresh, second.fresh);
        assert_ne!(first.name, second.name);
        assert_eq!(first.name, id.as_host_name());
        assert!(!template.is_spoilt());
        one.failed();
        assert!(template.is_spoilt());
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
            shelf.put(bound(number), template());
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
}
