//! Making a box for somebody: admission, pool or engine, and moving in.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use blastbox_isolation::Lowered;
use blastbox_policy::{SealedPolicy, SurvivesDaemon};
use blastbox_wire::event::{About, Event};
use tokio::time::{Instant, timeout};

use super::admission::{Hold, Lodging, Room};
use super::adopt::find_commands;
use super::begin::Begun;
use super::cards::{BoxCard, Phase, Tenant};
use super::clock::{Clock, Now};
use super::config::NewBox;
use super::error::KeepError;
use super::events::{Happened, wall_clock};
use super::gate::Need;
use super::house::House;
use super::kept::{Kept, Made};
use super::member::{Kind, Member, Recipe};
use super::metrics::Stretch;
use super::pool::Claim;
use super::prepare::Prepared;
use super::prepared_machine::{self, Ready};
use super::provision::{Given, provision};
use super::register::Entry;
use super::{pen, tend, watch};
use crate::engine::SnapshotError;
use crate::failpoint;
use crate::live::LiveBox;
use crate::workspace::WorkspaceDir;

/// How long a member of a pool may take to answer before nobody gets it.
const SIGN_OF_LIFE: Duration = Duration::from_secs(3);
/// How many members are asked for one box. Where all of a kind are of no use, they must not be all that its owner ever waits for.
const CLAIMS: usize = 2;

/// A box for somebody.
struct Fresh {
    live: LiveBox,
    entry: Entry,
    room: Room,
    asked: SystemTime,
    pooled: Option<Duration>,
    prepared: Option<Prepared>,
    begun: Option<Begun>,
}

/// Makes a box for a tenant and counts how that went. Its part of the quota may be held already.
pub(crate) async fn make(
    house: &Arc<House>,
    tenant: &Tenant,
    new: NewBox,
    hold: Option<Hold>,
) -> Result<BoxCard, KeepError> {
    let began = Instant::now();
    let outcome = try_make(house, tenant, new, hold, began).await;
    house.count(|metrics| match &outcome {
        Ok(_) => {
            metrics.creates += 1;
            metrics.create_latency.add(began.elapsed());
        }
        Err(KeepError::Failed(_) | KeepError::TooSlow(_)) => metrics.failures += 1,
        Err(refused) => *metrics.refusals.entry(refused.code()).or_default() += 1,
    });
    outcome
}

async fn try_make(
    house: &Arc<House>,
    tenant: &Tenant,
    new: NewBox,
    hold: Option<Hold>,
    began: Instant,
) -> Result<BoxCard, KeepError> {
    if house.is_closed() {
        return Err(KeepError::Stopping);
    }
    let NewBox {
        policy,
        image,
        preparation,
        workspace,
        volumes,
        secrets,
        metadata,
        life,
        idle,
        on_timeout,
        from,
    } = new;
    let access = workspace.as_ref().map(WorkspaceDir::access);
    let itself = from.as_ref().and_then(|from| from.itself.clone());
    let id = itself.as_ref().map(|itself| itself.lies.id());
    // What is refused is refused before anything is reserved for it.
    let label = image.label();
    let Lowered { tier, gaps, copies, .. } =
        match house.engine.choose(&policy, &image, access, &volumes).await?.chosen {
            Ok(lowered) => lowered,
            Err(refusal) => {
                if itself.is_none() {
                    let about = pen::about(id, tenant, &policy, &label, None, &[]);
                    house.pen.announce(Some(&about), &Event::BoxRefused { reason: refusal.code().into() })?;
                }
                return Err(KeepError::Refused { refusal });
            }
        };
    let about = pen::about(id, tenant, &policy, &label, Some(tier), &gaps);
    if itself.is_none() {
        house.pen.announce(Some(&about), &Event::BoxAsked { threat: policy.level() })?;
    }
    // Of a box that was to go on, whoever said so says that too, whatever it is that it fails at.
    let refuse = |error: KeepError| {
        if itself.is_none() {
            house.pen.record(&about, &Event::BoxRefused { reason: error.code().into() });
        }
        error
    };
    let bound = copies.as_ref().map(|copies| copies.bound);
    if from.as_ref().is_some_and(|from| bound != Some(from.machine)) {
        return Err(refuse(KeepError::Snapshot(SnapshotError::Foreign)));
    }
    let need = need_of(&policy);
    let hold = match hold {
        Some(hold) => hold,
        None => house.admission.reserve(tenant, need)?,
    };
    let mut recipe = Recipe { policy, image, tier, copied: copies.is_some(), preparation };
    let kind = match workspace {
        Some(_) => None,
        None if from.is_some() || !volumes.is_empty() => None,
        // What is to outlive its daemon is somebody's from its beginning: members of a pool are nobody's.
        None if recipe.policy.lifetime().survives_daemon == SurvivesDaemon::Yes => None,
        None => Kind::of(&recipe.image, &recipe.policy, tier, recipe.preparation.as_ref())
            .filter(|_| !house.pool.is_off()),
    };
    // What the operator has begun in such boxes is begun in all of them that wait, whoever asks.
    let kind = kind.map(|kind| prepared_kind(house, &mut recipe, kind));
    let claimed = match &kind {
        Some(kind) => claim(house, kind, &recipe).await,
        None => None,
    };
    let fresh = match claimed {
        Some(member) => Fresh {
            live: member.live,
            entry: member.entry,
            room: member.room,
            asked: member.asked,
            pooled: Some(member.made.elapsed()),
            prepared: member.prepared,
            begun: None,
        },
        None => {
            let shed = || drop(tend::end_all(house.pool.shed()));
            let room = house.admission.room(tenant, need, shed).await?;
            house.count(|metrics| metrics.took(Stretch::Queue, began.elapsed()));
            let begun = match from {
                Some(from) => Some(from.open(house).await.map_err(refuse)?),
                None => None,
            };
            let asked = itself.as_ref().map_or_else(SystemTime::now, |itself| itself.lies.made_at);
            let ready = match &kind {
                Some(kind) => prepared_machine::at_once(house, kind, &recipe, &about).await,
                None => None,
            };
            match ready {
                Some(Ready { live, entry, prepared }) => {
                    Fresh { live, entry, room, asked, pooled: None, prepared, begun: None }
                }
                None => {
                    let given = Given { workspace: workspace.as_ref(), volumes: &volumes, secrets: &secrets };
                    let made = provision(house, &recipe, begun.as_ref(), given, &about).await;
                    let (live, entry) = made?;
                    Fresh { live, entry, room, asked, pooled: None, prepared: None, begun }
                }
            }
        }
    };
    // A box that nobody can be told of is nobody's: it goes with `fresh`.
    let named = About { box_id: Some(fresh.live.id().clone()), ..about };
    let machine = fresh.live.choice().chosen.as_ref().ok();
    let kernel = machine.and_then(|lowered| lowered.kernel);
    let engine = machine.and_then(|lowered| lowered.engine).map(|engine| engine.name().into());
    house.pen.announce(Some(&named), &Event::BoxReady { kernel, engine })?;
    let now = Now::read();
    let made = itself.as_ref().map(|itself| itself.lies.made_at);
    let clock = Clock::start(life, idle, on_timeout, now);
    let card = BoxCard {
        id: fresh.live.id().clone(),
        tenant: tenant.clone(),
        phase: Phase::Ready,
        tier,
        level: recipe.policy.level(),
        policy: recipe.policy.digest().to_string(),
        image: label,
        gaps,
        created_at: wall_clock(made.unwrap_or(now.wall)),
        ends_at: String::new(),
        idle_seconds: idle.as_secs(),
        on_timeout,
        on_disk: false,
        warm: fresh.pooled.is_some(),
        metadata,
    };
    let made_at = match recipe.policy.lifetime().survives_daemon {
        SurvivesDaemon::No => fresh.asked,
        // What its card says: the next daemon knows nothing else.
        SurvivesDaemon::Yes => made.unwrap_or(now.wall),
    };
    house.register.give(&card, &recipe.policy, made_at, clock.deadlines())?;
    failpoint::reach("box-given");
    move_in(house, fresh, card, recipe, clock, hold, began).await
}

async fn move_in(
    house: &Arc<House>,
    fresh: Fresh,
    card: BoxCard,
    recipe: Recipe,
    clock: Clock,
    hold: Hold,
    began: Instant,
) -> Result<BoxCard, KeepError> {
    let Fresh { live, entry, room, asked, pooled, prepared, begun } = fresh;
    let pooled = pooled.unwrap_or_default();
    let register = Arc::clone(&house.register);
    let Recipe { policy, image, .. } = recipe;
    let number = prepared.as_ref().and_then(Prepared::number);
    // It was ready when they were named: nobody waits here.
    let stood = live.take_stood().await;
    let itself = begun.as_ref().and_then(|begun| begun.itself.as_ref());
    let resumed = itself.is_some();
    let lies = itself.map(|itself| Arc::clone(&itself.lies));
    let numbers = stood.iter().map(|stood| stood.exec).chain(itself.map(|itself| itself.numbers)).max();
    live.took_numbers(numbers.unwrap_or(0));
    let image = Some(image);
    let kept =
        Kept::new(Made { card, live, image, policy, register, asked, pooled, clock, prepared: number });
    let (execs, inherited, shared) = match begun {
        Some(Begun { execs, inherited, room, .. }) => (execs, inherited, room),
        None => (Vec::new(), Vec::new(), None),
    };
    execs.iter().for_each(|exec| house.register.exec_found(&kept.card.id, exec));
    let commands = find_commands(house, &kept, stood, &execs, &inherited);
    // Until its old file is gone nobody writes a new one, which has the same name.
    let whole = resumed.then(|| Arc::clone(&kept.copying).try_lock_owned().ok()).flatten();
    house.move_in(&kept).inspect_err(|_| {
        if let Some(lies) = &lies {
            // It never went on: for the next daemon it lies where it lay. Where the store does not take that, it is lost.
            house.register.on_disk(lies.id(), &lies.deadlines()).ok();
        }
    })?;
    if resumed {
        house.write_deadlines(&kept);
    }
    commands.into_iter().for_each(|command| drop(tokio::spawn(command)));
    if let Some(prepared) = prepared {
        prepared.hand_over(house, &kept);
    }
    entry.hand_over();
    let whose = Some((&kept.card.tenant, &kept.card.id));
    if resumed {
        house.hub.tell(whose, Happened::BoxResumed);
    } else {
        house.hub.tell(whose, Happened::BoxCreated { warm: kept.card.warm, tier: kept.card.tier });
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        house.hub.tell(whose, Happened::BoxReady { took_ms });
    }
    let card = kept.card();
    failpoint::reach("box-moved-in");
    tokio::spawn(watch::watch(Arc::clone(house), kept, Lodging::new(room, shared), hold));
    if resumed {
        house.album.forget(&card.id).await;
    }
    drop(whole);
    Ok(card)
}

/// The kind of a box whose caller does not say what is begun in it: what the operator said of such boxes.
fn prepared_kind(house: &House, recipe: &mut Recipe, kind: Kind) -> Kind {
    if recipe.preparation.is_none() {
        recipe.preparation = house.pool.preparation_of(&kind);
    }
    let Recipe { policy, image, tier, preparation, .. } = recipe;
    Kind::of(image, policy, *tier, preparation.as_ref()).unwrap_or(kind)
}

/// What a box with this policy may use.
pub(crate) fn need_of(policy: &SealedPolicy) -> Need {
    let kernel = policy.kernel();
    Need { boxes: 1, memory: kernel.memory.0, millicpus: u64::from(kernel.cpus.millis()) }
}

/// A member of the pool that has just given a sign of life. One that died, hangs or answers wrongly is nobody's.
async fn claim(house: &Arc<House>, kind: &Kind, recipe: &Recipe) -> Option<Member> {
    let Claim { mut member, poisoned, old } = house.pool.claim(kind, || recipe.clone());
    tend::bury_poisoned(house, poisoned);
    tend::end_all(old);
    let mut found = None;
    // One in which nothing has begun serves too where none is prepared: it is there, and only its first piece of work waits.
    let plain = kind.unprepared();
    let unprepared = || plain.as_ref().and_then(|plain| house.pool.another(plain));
    for _ in 0..CLAIMS {
        let next = member.take().or_else(|| house.pool.another(kind)).or_else(unprepared);
        let Some(mut next) = next else { break };
        if matches!(timeout(SIGN_OF_LIFE, next.answers()).await, Ok(true)) {
            found = Some(next);
            break;
        }
        tend::bury_poisoned(house, vec![next]);
    }
    house.count(|metrics| match &found {
        Some(_) => metrics.pool_hits += 1,
        None => metrics.pool_misses += 1,
    });
    found
}
