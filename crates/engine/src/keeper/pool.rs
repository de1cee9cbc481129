//! Boxes that are made before they are asked for.
//!
//! A member is a box that is ready and in which nothing has run but what its kind begins by itself: it holds no data, no
//! credentials and no directory of anybody. It is handed out once, never comes back, and is replaced after its time. One that died while it waited, or
//! does not answer when it is claimed, is never handed out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use blastbox_images::Image;
use blastbox_policy::{CredentialMode, PolicyDigest, SealedPolicy, Tier};
use blastbox_wire::event::Hash;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::admission::Room;
use super::config::PoolConfig;
use super::demand::Demand;
use super::gate::Need;
use super::make::need_of;
use super::prepare::{Preparation, Prepared};
use super::register::Entry;
use super::warm::MOST_WARM;
use crate::live::LiveBox;

/// Kinds that are remembered. The one that was not asked for the longest makes place.
const KINDS: usize = 64;
/// Members that are in the making at the same time.
const MAKING: usize = 4;
/// A kind that nobody asked for in so many spans is forgotten.
const FORGET: u32 = 10;

/// What makes two boxes alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind {
    /// The host's view, or an image of the store with its digest.
    image: String,
    /// What the image says beside its files: a name may get another meaning and keep its tree.
    config: Option<Hash>,
    policy: PolicyDigest,
    tier: Tier,
    /// What its members have begun.
    preparation: Option<Hash>,
}

impl Kind {
    /// `None` where a box is not pooled: where secrets are lent, which are minted for one box when somebody asks for it, and
    /// where the image is a directory, which its owner may change between the member and the box that was asked for.
    pub(crate) fn of(
        image: &Image,
        policy: &SealedPolicy,
        tier: Tier,
        preparation: Option<&Preparation>,
    ) -> Option<Self> {
        if policy.credentials().mode == CredentialMode::Brokered || matches!(image, Image::Directory(_)) {
            return None;
        }
        let config = image.config_digest();
        let preparation = preparation.map(Preparation::digest);
        Some(Self { image: image.label(), config, policy: policy.digest(), tier, preparation })
    }
}

/// A box that waits.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) live: LiveBox,
    pub(crate) entry: Entry,
    pub(crate) room: Room,
    pub(crate) asked: SystemTime,
    pub(crate) made: Instant,
    /// What it has begun, where its kind begins something.
    pub(crate) prepared: Option<Prepared>,
}

impl Member {
    /// Whether its agent, and what it has begun, answer as they should.
    pub(crate) async fn answers(&mut self) -> bool {
        let Self { live, prepared, .. } = self;
        let begun = async {
            match prepared {
                Some(prepared) => prepared.answers().await,
                None => true,
            }
        };
        let (agent, begun) = tokio::join!(live.answers(), begun);
        agent && begun
    }
}

/// What is needed to make a member.
#[derive(Debug, Clone)]
pub(crate) struct Recipe {
    pub(crate) policy: SealedPolicy,
    pub(crate) image: Arc<Image>,
    pub(crate) tier: Tier,
    /// Whether the plan says that it may begin as a copy of a machine.
    pub(crate) copied: bool,
    /// What a member begins.
    pub(crate) preparation: Option<Preparation>,
}

#[derive(Debug)]
struct Shelf {
    recipe: Recipe,
    members: VecDeque<Member>,
    making: usize,
    demand: Demand,
    /// So many wait always, because somebody said so in advance. Such a kind is never forgotten.
    floor: usize,
}

impl Shelf {
    fn new(recipe: Recipe) -> Self {
        Self { recipe, members: VecDeque::new(), making: 0, demand: Demand::default(), floor: 0 }
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
        self.shelves().get_mut(kind)?.members.pop_front()
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
        let mut making: usize = shelves.values().map(|shelf| shelf.making).sum();
        for (kind, shelf) in shelves.iter_mut() {
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
            // Where some must always wait, their successors are there before their time is over.
            let aging = shelf.members.iter().filter(|member| age(member) >= self.config.ttl / 4 * 3).count();
            let aging = aging.min(shelf.floor);
            let there = shelf.members.len() - aging + shelf.making;
            let missing = shelf.demand.missing(wanted, there, now).min(MAKING.saturating_sub(making));
            making += missing;
            shelf.making += missing;
            found.missing.extend(std::iter::repeat_n((kind.clone(), shelf.recipe.clone()), missing));
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
                shelf.demand.made();
                shelf.members.push_back(member);
            }
            None => shelf.demand.failed(Instant::now()),
        }
        drop(shelves);
        self.bell.notify_one();
        None
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
mod tests {
    use blastbox_policy::{Draft, Profile};

    use super::*;

    const BROKERED: &str = "[network]\nmode = \"allow\"\nallow = [{ host = \"api.example.com\", tls = \"inspect\" }]\n\
        [credentials]\nmode = \"brokered\"\nbind = [{ secret = \"s\", host = \"api.example.com\" }]\n";

    fn draft() -> Draft {
        Profile::Default.draft().unwrap()
    }

    #[test]
    fn boxes_that_cannot_be_alike_before_somebody_asks_are_not_pooled() {
        let tier = *Tier::ALL.first().unwrap();
        let of = |image: &Image, draft: Draft| Kind::of(image, &draft.seal().unwrap(), tier, None);
        assert!(of(&Image::host(), draft()).is_some());
        assert_eq!(of(&Image::host(), draft()), of(&Image::host(), draft()));
        assert_ne!(of(&Image::host(), draft()), of(&Image::host(), draft().pids(99)));
        let brokered = blastbox_policy::parse(BROKERED).unwrap();
        assert_eq!(of(&Image::host(), brokered), None, "a secret is minted for one box");
        let directory = Image::parse("/usr").unwrap();
        assert_eq!(of(&directory, draft()), None, "its owner may change it meanwhile");
    }
}
