//! Boxes that are made before they are asked for.
//!
//! A member is a box that is ready and in which nothing has run but what its kind begins by itself: it holds no data, no
//! credentials and no directory of anybody. It is handed out once, never comes back, and is replaced after its time. One that died while it waited, or
//! does not answer when it is claimed, is never handed out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::config::PoolConfig;
use super::demand::Demand;
use super::gate::Need;
use super::make::need_of;
use super::member::{Kind, Member, Recipe};
use super::prepare::Preparation;
use super::prepared_machine::LastTry;
use super::warm::MOST_WARM;

/// Kinds that are remembered. The one that was not asked for the longest makes place.
const KINDS: usize = 64;
/// Members that are in the making at the same time.
const MAKING: usize = 4;
/// How many of them may be such as begin something: those take long until they are ready, and must not keep others from being made.
const PREPARING: usize = MAKING - 1;
/// A kind that nobody asked for in so many spans is forgotten.
const FORGET: u32 = 10;

#[derive(Debug)]
struct Shelf {
    recipe: Recipe,
    members: VecDeque<Member>,
    making: usize,
    demand: Demand,
    /// So many wait always, because somebody said so in advance. Such a kind is never forgotten.
    floor: usize,
    /// That its members do not get ready was told, and none was made since.
    unready: bool,
}

impl Shelf {
    fn new(recipe: Recipe) -> Self {
        let (members, demand) = (VecDeque::new(), Demand::default());
        Self { recipe, members, making: 0, demand, floor: 0, unready: false }
    }

    /// Whether its members begin something.
    fn prepares(&self) -> bool {
        self.recipe.preparation.is_some()
    }

    /// How many there are, or will be. Where some must always wait, their successors are there before their time is over.
    fn there(&self, ttl: Duration, now: Instant) -> usize {
        let aging = |member: &&Member| now.duration_since(member.made) >= ttl / 4 * 3;
        let aging = self.members.iter().filter(aging).count().min(self.floor);
        self.members.len() - aging + self.making
    }
}

/// All members, by kind.
#[derive(Debug)]
pub(crate) struct Pool {
    config: PoolConfig,
    shelves: Mutex<BTreeMap<Kind, Shelf>>,
    /// Rings when there is something to make.
    pub(crate) bell: Notify,
    /// Rings when a member was taken and enough are left: what takes its place can wait until nobody else does.
    pub(crate) claimed: Notify,
    /// Rings, for whoever listens then, when a command has ended.
    pub(crate) quiet: Notify,
    /// One machine is prepared at a time, and whoever wants copies of it waits for it. What came of the last one.
    pub(crate) preparing: tokio::sync::Mutex<LastTry>,
}

/// What a look through the pool found.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// To be ended: their time is over, or there are too many.
    pub(crate) old: Vec<Member>,
    /// They died while they waited.
    pub(crate) poisoned: Vec<Member>,
    /// To be made, each once.
    pub(crate) missing: Vec<(Kind, Recipe)>,
    /// How many kinds are remembered.
    pub(crate) kinds: usize,
}

/// What a claim found.
#[derive(Debug)]
pub(crate) struct Claim {
    /// The member, where there is one.
    pub(crate) member: Option<Member>,
    /// Those that turned out to be dead.
    pub(crate) poisoned: Vec<Member>,
    /// To be ended: their kind is forgotten.
    pub(crate) old: Vec<Member>,
}

impl Pool {
    pub(crate) fn new(config: PoolConfig) -> Arc<Self> {
        Arc::new(Self {
            config,
            shelves: Mutex::default(),
            bell: Notify::new(),
            claimed: Notify::new(),
            quiet: Notify::new(),
            preparing: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) fn is_off(&self) -> bool {
        self.config.max == 0
    }

    /// How long a member lives at most, while it waits.
    pub(crate) fn longest(&self) -> Duration {
        self.config.ttl.saturating_mul(2).saturating_add(Duration::from_secs(60))
    }

    /// How many of one kind wait at most.
    pub(crate) fn most(&self) -> usize {
        self.config.max
    }

    /// So many of this kind wait from now on. `false`: there are as many such kinds as there may be.
    pub(crate) fn keep(&self, kind: Kind, recipe: Recipe, least: usize) -> bool {
        let mut shelves = self.shelves();
        let kept = shelves.values().filter(|shelf| shelf.floor > 0).count();
        if kept >= MOST_WARM && shelves.get(&kind).is_none_or(|shelf| shelf.floor == 0) {
            return false;
        }
        let shelf = shelves.entry(kind).or_insert_with(|| Shelf::new(recipe));
        shelf.floor = shelf.floor.max(least);
        drop(shelves);
        self.bell.notify_one();
        true
    }

    /// What waits always, and how many of each.
    pub(crate) fn floors(&self) -> Vec<(Kind, Need, usize)> {
        let shelves = self.shelves();
        let kept = shelves.iter().filter(|(_, shelf)| shelf.floor > 0);
        kept.map(|(kind, shelf)| (kind.clone(), need_of(&shelf.recipe.policy), shelf.floor)).collect()
    }

    fn shelves(&self) -> MutexGuard<'_, BTreeMap<Kind, Shelf>> {
        // Nobody panics while holding it.
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn size(&self) -> usize {
        self.shelves().values().map(|shelf| shelf.members.len()).sum()
    }

    /// A member of this kind, if there is a live one. Either way it was asked for, and more will be made.
    pub(crate) fn claim(&self, kind: &Kind, recipe: impl FnOnce() -> Recipe) -> Claim {
        let now = Instant::now();
        let (mut poisoned, mut old) = (Vec::new(), Vec::new());
        let mut shelves = self.shelves();
        if !shelves.contains_key(kind) {
            make_place(&mut shelves, &mut old);
        }
        let shelf = shelves.entry(kind.clone()).or_insert_with(|| Shelf::new(recipe()));
        shelf.demand.asked(&self.config, now);
        let mut member = None;
        while let Some(next) = shelf.members.pop_front() {
            if next.live.is_stopped() {
                poisoned.push(next);
            } else {
                member = Some(next);
                break;
            }
        }
        let short = shelf.members.len() * 2 < shelf.demand.wanted(&self.config, shelf.floor, now);
        drop(shelves);
        if short {
            self.bell.notify_one()
        } else {
            self.claimed.notify_one()
        }
        Claim { member, poisoned, old }
    }

    /// The next member of this kind, where the one before turned out to be of no use.
    pub(crate) fn another(&self, kind: &Kind) -> Option<Member> {
        let member = self.shelves().get_mut(kind)?.members.pop_front()?;
        self.claimed.notify_one();
        Some(member)
    }

    /// What is to be ended and what is to be made. What it tells to make counts as in the making.
    pub(crate) fn survey(&self) -> Survey {
        let now = Instant::now();
        let mut found = Survey::default();
        let mut shelves = self.shelves();
        let forgotten = self.config.ttl.saturating_mul(FORGET);
        let idle = |shelf: &Shelf| {
            shelf.floor == 0 && shelf.demand.last().is_none_or(|at| now.duration_since(at) > forgotten)
        };
        for shelf in shelves.values_mut() {
            let wanted = if idle(shelf) { 0 } else { shelf.demand.wanted(&self.config, shelf.floor, now) };
            let age = |member: &Member| now.duration_since(member.made);
            for member in std::mem::take(&mut shelf.members) {
                if member.live.is_stopped() {
                    found.poisoned.push(member);
                } else if age(&member) >= self.config.ttl {
                    found.old.push(member);
                } else {
                    shelf.members.push_back(member);
                }
            }
            // The oldest go: what was made to take their place stays.
            let spare = shelf.members.len().saturating_sub(wanted);
            found.old.extend(shelf.members.drain(..spare));
        }
        let in_making = |shelves: &BTreeMap<Kind, Shelf>, which: &dyn Fn(&Shelf) -> bool| -> usize {
            shelves.values().filter(|shelf| which(shelf)).map(|shelf| shelf.making).sum()
        };
        let mut free = MAKING.saturating_sub(in_making(&shelves, &|_| true));
        let mut preparing = PREPARING.saturating_sub(in_making(&shelves, &Shelf::prepares));
        // What must always wait comes before what may be asked for.
        for always in [true, false] {
            for (kind, shelf) in shelves.iter_mut().filter(|(_, shelf)| !idle(shelf)) {
                let asked = shelf.demand.wanted(&self.config, shelf.floor, now);
                let wanted = if always { shelf.floor.min(asked) } else { asked };
                let room = if shelf.prepares() { free.min(preparing) } else { free };
                let missing = shelf.demand.missing(wanted, shelf.there(self.config.ttl, now), now).min(room);
                free -= missing;
                if shelf.prepares() {
                    preparing -= missing;
                }
                shelf.making += missing;
                found.missing.extend(std::iter::repeat_n((kind.clone(), shelf.recipe.clone()), missing));
            }
        }
        shelves.retain(|_, shelf| !(idle(shelf) && shelf.members.is_empty() && shelf.making == 0));
        found.kinds = shelves.len();
        found
    }

    /// One that was told to be made is there, or could not be made. A member without a shelf comes back.
    pub(crate) fn put(&self, kind: &Kind, made: Option<Member>) -> Option<Member> {
        let mut shelves = self.shelves();
        let Some(shelf) = shelves.get_mut(kind) else { return made };
        shelf.making = shelf.making.saturating_sub(1);
        match made {
            Some(member) => {
                shelf.unready = false;
                shelf.demand.made();
                shelf.members.push_back(member);
            }
            None => shelf.demand.failed(Instant::now()),
        }
        drop(shelves);
        self.bell.notify_one();
        None
    }

    /// One does not get ready. Whether that is to be told: of several, and again and again, it is once.
    pub(crate) fn is_unready(&self, kind: &Kind) -> bool {
        self.shelves().get_mut(kind).is_some_and(|shelf| !std::mem::replace(&mut shelf.unready, true))
    }

    /// Whether more than one of a kind will be made, as far as that can be known.
    pub(crate) fn is_sought(&self, kind: &Kind) -> bool {
        let wanted = |shelf: &Shelf| shelf.demand.wanted(&self.config, shelf.floor, Instant::now());
        self.shelves().get(kind).is_some_and(|shelf| shelf.floor > 0 || wanted(shelf) > 1)
    }

    /// What members of this kind begin that wait always, where whoever asks for such a box does not have to know of it.
    pub(crate) fn preparation_of(&self, kind: &Kind) -> Option<Preparation> {
        let shelves = self.shelves();
        let kept = shelves
            .iter()
            .filter(|(other, shelf)| shelf.floor > 0 && other.unprepared().as_ref() == Some(kind));
        let mut known = kept.filter_map(|(_, shelf)| shelf.recipe.preparation.clone());
        known.find(|preparation| !preparation.waits())
    }

    /// One that was told to be made was not tried: there is no room on the host.
    pub(crate) fn skip(&self, kind: &Kind) {
        if let Some(shelf) = self.shelves().get_mut(kind) {
            shelf.making = shelf.making.saturating_sub(1);
        }
    }

    /// Has every member die, as a fault of the host would.
    #[cfg(test)]
    pub(crate) fn poison_for_test(&self) {
        for shelf in self.shelves().values() {
            shelf.members.iter().for_each(|member| member.live.bells.stop.notify_one());
        }
    }

    /// Takes all members out: somebody needs their room.
    pub(crate) fn shed(&self) -> Vec<Member> {
        self.shelves().values_mut().flat_map(|shelf| std::mem::take(&mut shelf.members)).collect()
    }
}

/// Forgets the kind that was not asked for the longest, where there are too many.
fn make_place(shelves: &mut BTreeMap<Kind, Shelf>, discarded: &mut Vec<Member>) {
    if shelves.len() < KINDS {
        return;
    }
    let asked_for = shelves.iter().filter(|(_, shelf)| shelf.floor == 0);
    let oldest = asked_for.min_by_key(|(_, shelf)| shelf.demand.last()).map(|(kind, _)| kind.clone());
    if let Some(shelf) = oldest.and_then(|kind| shelves.remove(&kind)) {
        discarded.extend(shelf.members);
    }
}

#[cfg(test)]
mod tests;
