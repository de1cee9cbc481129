//! Members of a pool that begin something: each begins it by itself, or, where they are machines, all of them are copies of one that
//! has begun it once.
//!
//! ```text
//! a copy that ran nothing ── what its kind begins ──► asleep ──► heir ──► prepared machine, nobody's ──► members, copies of it
//! ```
//! Where no such machine can be made, each member begins it by itself as before, and its receipt says why.

use std::sync::Arc;
use std::time::Duration;

use blastbox_wire::event::{About, Event, Hash, Label};
use tokio::time::{Instant, timeout};

use super::begin::Begun;
use super::cards::Tenant;
use super::error::KeepError;
use super::house::House;
use super::make::need_of;
use super::member::{Kind, Recipe};
use super::prepare::{Preparation, Prepared};
use super::provision::{Given, launch};
use super::register::Entry;
use super::rehearse::rehearse;
use crate::engine::Machine;
use crate::error::CreateError;
use crate::live::LiveBox;

/// How long the machine that is prepared lives at most: its turn to be copied is waited for.
const LONGEST: Duration = Duration::from_secs(600);

/// How long what waits in a copy may take to answer, and how long where somebody waits for the box.
const PATIENCE: Duration = Duration::from_secs(60);
const SOMEBODY_WAITS: Duration = Duration::from_secs(10);

/// A box in which everything has begun.
pub(super) struct Ready {
    pub(super) live: LiveBox,
    pub(super) entry: Entry,
    pub(super) prepared: Option<Prepared>,
}

/// Why there is none.
pub(super) enum Unready {
    /// It could not be made.
    Unmade,
    /// What its kind begins did not get ready.
    Unprepared,
}

/// The last machine whose kind's beginnings did not get ready, and when that was known.
#[derive(Debug, Default)]
pub(crate) struct LastTry(Option<(Hash, Instant)>);

impl LastTry {
    fn failed(kind: Hash) -> Self {
        Self(Some((kind, Instant::now())))
    }

    /// Whether one of this kind failed while somebody waited for it since then: to try once more would only hold up the next.
    fn failed_since(&self, kind: &Hash, asked: Instant) -> bool {
        self.0.as_ref().is_some_and(|(other, at)| other == kind && *at >= asked)
    }
}

/// Makes a member of a pool.
pub(super) async fn member(
    house: &Arc<House>,
    kind: &Kind,
    recipe: &Recipe,
    nobody: &About,
) -> Result<Ready, Unready> {
    let Some(preparation) = &recipe.preparation else {
        let (live, entry) =
            launch(house, recipe, None, Given::default(), nobody).await.map_err(|_| Unready::Unmade)?;
        live.live_until(Instant::now() + house.pool.longest());
        if rehearse(house, &live, nobody).await {
            return Ok(Ready { live, entry, prepared: None });
        }
        live.end().await;
        drop(entry);
        return Err(Unready::Unprepared);
    };
    // Of one that nobody asks for again it would be made in vain.
    if !recipe.copied || !house.pool.is_sought(kind) {
        return by_itself(house, recipe, preparation, nobody, None).await;
    }
    let name = kind.digest();
    // One at a time is made. Whoever has its machine, or can have none, waits for nobody; whoever waited looks again.
    let asked = Instant::now();
    let mut turn = match house.engine.prepared(&name) {
        Machine::Wanted => Some(house.pool.preparing.lock().await),
        Machine::There(..) | Machine::Failed => None,
    };
    // The one before has just shown what would come of it.
    if turn.as_ref().is_some_and(|last| last.failed_since(&name, asked)) {
        return Err(Unready::Unprepared);
    }
    match house.engine.prepared(&name) {
        Machine::There(..) => {}
        Machine::Failed => {
            drop(turn);
            let why = "no machine could be prepared for all of its kind a while ago";
            return by_itself(house, recipe, preparation, nobody, Some(why.to_owned())).await;
        }
        Machine::Wanted => {
            let made = by_itself(house, recipe, preparation, nobody, None).await;
            if let (Err(Unready::Unprepared), Some(last)) = (&made, &mut turn) {
                **last = LastTry::failed(name);
            }
            let mut first = made?;
            if let Err(why) = copy(house, name, &first.live, recipe, nobody).await {
                first.live.note_beginning(told(&format!("no copy could be made of it: {why}")));
                first.live.live_until(Instant::now() + house.pool.longest());
                return Ok(first);
            }
            let Ready { live, entry, .. } = first;
            live.end().await;
            drop(entry);
        }
    }
    drop(turn);
    match copy_of(house, &name, recipe, (preparation, PATIENCE), nobody).await {
        Some(made) => made.inspect(|made| made.live.live_until(Instant::now() + house.pool.longest())),
        None => {
            let why = "templates that others need have taken the place of the machine that was prepared";
            by_itself(house, recipe, preparation, nobody, Some(why.to_owned())).await
        }
    }
}

/// A box for somebody who found nobody in the pool, where its machine is prepared already. `None`: it is not, or no copy came of it.
pub(super) async fn at_once(
    house: &Arc<House>,
    kind: &Kind,
    recipe: &Recipe,
    about: &About,
) -> Option<Ready> {
    let preparation = recipe.preparation.as_ref().filter(|_| recipe.copied)?;
    copy_of(house, &kind.digest(), recipe, (preparation, SOMEBODY_WAITS), about).await?.ok()
}

/// What a receipt says of a member that is no copy of a prepared machine.
fn told(why: &str) -> String {
    format!("what boxes of its kind begin was begun in it by itself: {why}")
}

async fn by_itself(
    house: &Arc<House>,
    recipe: &Recipe,
    preparation: &Preparation,
    nobody: &About,
    why: Option<String>,
) -> Result<Ready, Unready> {
    let (mut live, entry) =
        launch(house, recipe, None, Given::default(), nobody).await.map_err(|_| Unready::Unmade)?;
    let longest = house.pool.longest().max(LONGEST);
    live.live_until(Instant::now() + longest);
    if let Some(why) = why {
        live.note_beginning(told(&why));
    }
    match Prepared::begin(house, &live, preparation, nobody).await {
        Some(prepared) => {
            live.live_until(Instant::now() + longest);
            Ok(Ready { live, entry, prepared: Some(prepared) })
        }
        None => {
            live.end().await;
            drop(entry);
            Err(Unready::Unprepared)
        }
    }
}

/// Copies a box that has begun everything; why not, where that cannot be. Then it goes on.
async fn copy(
    house: &Arc<House>,
    name: Hash,
    live: &LiveBox,
    recipe: &Recipe,
    nobody: &About,
) -> Result<(), String> {
    let Recipe { policy, image, .. } = recipe;
    let busy = |error: KeepError| error.to_string();
    let _turn = house.album.copying.turn(&Tenant::local(), live.id()).await.map_err(busy)?;
    // That of the machine which takes over. Nobody is asked to make place for it.
    let room = house.try_room_for_machine(need_of(policy).memory);
    let _room = room.ok_or_else(|| "the host's memory has no room for it now".to_owned())?;
    let about = About { box_id: Some(live.id().clone()), ..nobody.clone() };
    house.pen.announce(Some(&about), &Event::BoxCopied { to: Label::new("its pool") }).map_err(busy)?;
    house.engine.prepare(name, live, policy, image).await.map_err(|error| error.to_string())
}

/// A copy of a machine that is prepared; `None`: there is none.
async fn copy_of(
    house: &Arc<House>,
    name: &Hash,
    recipe: &Recipe,
    (preparation, patience): (&Preparation, Duration),
    about: &About,
) -> Option<Result<Ready, Unready>> {
    let Machine::There(of, snapshot) = house.engine.prepared(name) else { return None };
    let template = Arc::clone(&snapshot.template);
    let (execs, inherited) = (Vec::new(), Vec::new());
    let begun = Begun { snapshot, execs, inherited, from: of.to_string(), itself: None, room: None };
    let (live, entry) = match launch(house, recipe, Some(&begun), Given::default(), about).await {
        Ok(made) => made,
        Err(error) => {
            if matches!(error, KeepError::Failed(CreateError::Foreign)) {
                house.engine.forget_prepared(name);
            }
            return Some(Err(Unready::Unmade));
        }
    };
    // Longer than it is waited for: a copy that dies of its time would look like one that died by itself.
    live.live_until(Instant::now() + patience + PATIENCE);
    let found = timeout(patience, Prepared::find(house, &live, preparation, about)).await;
    if let Some(prepared) = found.unwrap_or_default() {
        return Some(Ok(Ready { live, entry, prepared: Some(prepared) }));
    }
    if !house.is_closed() {
        // What its copies have is not what was begun, or they die of it: nobody begins with it any more.
        house.engine.spoil_prepared(*name, &template);
    }
    live.end().await;
    drop(entry);
    Some(Err(Unready::Unprepared))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_who_waited_for_the_one_that_failed_and_want_the_same_are_told_so() {
        let [one, other] = [b"one".as_slice(), b"other"].map(|name| Hash::of([name]));
        let before = Instant::now();
        assert!(!LastTry::default().failed_since(&one, before));
        let last = LastTry::failed(one);
        assert!(last.failed_since(&one, before) && !last.failed_since(&other, before));
        let later = Instant::now() + Duration::from_millis(1);
        assert!(!last.failed_since(&one, later), "the next round tries again");
    }
}
