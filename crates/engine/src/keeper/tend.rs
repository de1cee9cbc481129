//! The background work on the pool: ends what is old, makes what is missing.

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use blastbox_wire::event::{Event, Label};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::cards::Tenant;
use super::events::Happened;
use super::house::House;
use super::make::need_of;
use super::member::{Kind, Member, Recipe};
use super::pen;
use super::pool::{Pool, Survey};
use super::prepared_machine::{self, Ready, Unready};

/// How often the pool is looked through while there is something in it.
const ROUND: Duration = Duration::from_secs(1);
/// How long a box that was taken has the host for itself, where others wait in the pool still and none of its commands ends.
const HEAD_START: Duration = Duration::from_millis(20);
const MOMENT: Duration = Duration::from_millis(1);

/// Tends the pool for as long as there is a house.
pub(crate) async fn tend(house: Weak<House>, pool: Arc<Pool>) {
    let mut kinds = 0;
    loop {
        tokio::select! {
            () = pool.bell.notified() => {}
            () = pool.claimed.notified() => let_it_begin(&pool).await,
            () = sleep(ROUND), if kinds > 0 => {}
        }
        let Some(house) = house.upgrade() else { return };
        if house.is_closed() {
            return;
        }
        let Survey { old, poisoned, missing, kinds: found } = pool.survey();
        kinds = found;
        end_all(old);
        bury_poisoned(&house, poisoned);
        for (kind, recipe) in missing {
            match house.admission.try_room(need_of(&recipe.policy)) {
                Some(room) => drop(tokio::spawn(fill(Arc::clone(&house), kind, recipe, room))),
                None => pool.skip(&kind),
            }
        }
    }
}

/// Somebody has taken a box and is about to use it. Making another takes as much of a small host as its first command does.
async fn let_it_begin(pool: &Pool) {
    tokio::select! {
        () = pool.bell.notified() => {}
        // And a moment for the answer to be read.
        () = pool.quiet.notified() => sleep(MOMENT).await,
        () = sleep(HEAD_START) => {}
    }
}

async fn fill(house: Arc<House>, kind: Kind, recipe: Recipe, room: super::admission::Room) {
    let asked = SystemTime::now();
    let nobody =
        pen::about(None, &Tenant::local(), &recipe.policy, &recipe.image.label(), Some(recipe.tier), &[]);
    let made = match prepared_machine::member(&house, &kind, &recipe, &nobody).await {
        Ok(Ready { live, entry, prepared }) => {
            house.register.pooled(live.id());
            Some(Member { live, entry, room, asked, made: Instant::now(), prepared })
        }
        Err(Unready::Unprepared) => {
            if house.pool.is_unready(&kind) {
                tell_poisoned(&house, "what boxes of its kind begin does not get ready");
            }
            None
        }
        Err(Unready::Unmade) => None,
    };
    if made.is_none() {
        // Nobody waits for it; whoever watches the numbers sees that none can be made.
        house.count(|metrics| metrics.failures += 1);
    }
    let homeless = house.pool.put(&kind, made);
    end_all(homeless.into_iter().collect());
    if house.is_closed() {
        end_all(house.pool.shed());
    }
}

/// Ends members in the background; their room is free when they are gone.
pub(crate) fn end_all(members: Vec<Member>) -> Vec<JoinHandle<()>> {
    let end = |Member { live, entry, room, .. }: Member| {
        tokio::spawn(async move {
            live.end().await;
            drop((entry, room));
        })
    };
    members.into_iter().map(end).collect()
}

/// Members that died while they waited: nobody gets them, and somebody is told.
pub(crate) fn bury_poisoned(house: &House, members: Vec<Member>) {
    for member in &members {
        house.count(|metrics| metrics.pool_poisoned += 1);
        let why = if member.live.is_stopped() { "it died while it waited" } else { "it does not answer" };
        tell_poisoned(house, why);
    }
    end_all(members);
}

fn tell_poisoned(house: &House, why: &str) {
    // Nothing is begun with this, so that it is no reason to stop when it cannot be written.
    house.pen.announce(None, &Event::PoolPoisoned { why: Label::new(why) }).ok();
    house.hub.tell(None, Happened::PoolPoisoned);
}
