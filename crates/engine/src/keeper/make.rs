//! Making a box for somebody: admission, pool or engine, and moving in.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use blastbox_isolation::Lowered;
use blastbox_policy::{NetworkMode, SealedPolicy, SurvivesDaemon};
use blastbox_wire::BoxId;
use blastbox_wire::event::{About, Event, Label};
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
use super::register::Entry;
use super::unborn::Unborn;
use super::{pen, tend, watch};
use crate::engine::{BoxSpec, SnapshotError};
use crate::error::CreateError;
use crate::failpoint;
use crate::leases::Tell;
use crate::live::LiveBox;
use crate::outcome::{Ending, Loss};
use crate::patience::{backoff, random_byte};
use crate::state::{Cure, cure};
use crate::workspace::WorkspaceDir;

/// How long a box may take until it is ready.
const PROVISION: Duration = Duration::from_secs(30);
/// How long a member of a pool may take to answer before nobody gets it.
const SIGN_OF_LIFE: Duration = Duration::from_secs(3);
/// How many members are asked for one box. Where all of a kind are of no use, they must not be all that its owner ever waits for.
const CLAIMS: usize = 2;
/// How often a warden is asked for a box, where the one before was lost.
const TRIES: u32 = 3;

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
    let NewBox { policy, image, preparation, workspace, metadata, life, idle, on_timeout, from } = new;
    let access = workspace.as_ref().map(WorkspaceDir::access);
    // What is refused is refused before anything is reserved for it.
    let label = image.label();
    let Lowered { tier, gaps, copies, .. } = match house.engine.choose(&policy, &image, access).await?.chosen
    {
        Ok(lowered) => lowered,
        Err(refusal) => {
            let about = pen::about(None, tenant, &policy, &label, None, &[]);
            house.pen.announce(Some(&about), &Event::BoxRefused { reason: refusal.code().into() })?;
            return Err(KeepError::Refused { refusal });
        }
    };
    let about = pen::about(None, tenant, &policy, &label, Some(tier), &gaps);
    house.pen.announce(Some(&about), &Event::BoxAsked { threat: policy.level() })?;
    let refuse = |error: KeepError| {
        house.pen.record(&about, &Event::BoxRefused { reason: error.code().into() });
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
    let recipe = Recipe { policy, image, tier, copied: copies.is_some(), preparation };
    let kind = match workspace {
        Some(_) => None,
        None if from.is_some() => None,
        // What is to outlive its daemon is somebody's from its beginning: members of a pool are nobody's.
        None if recipe.policy.lifetime().survives_daemon == SurvivesDaemon::Yes => None,
        None => Kind::of(&recipe.image, &recipe.policy, tier, recipe.preparation.as_ref())
            .filter(|_| !house.pool.is_off()),
    };
    let claimed = match kind {
        Some(kind) => claim(house, &kind, &recipe).await,
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
            let asked = SystemTime::now();
            let (live, entry) = provision(house, &recipe, begun.as_ref(), workspace.as_ref(), &about).await?;
            Fresh { live, entry, room, asked, pooled: None, prepared: None, begun }
        }
    };
    // A box that nobody can be told of is nobody's: it goes with `fresh`.
    let named = About { box_id: Some(fresh.live.id().clone()), ..about };
    house.pen.announce(Some(&named), &Event::BoxReady)?;
    let now = Now::read();
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
        created_at: wall_clock(now.wall),
        ends_at: String::new(),
        idle_seconds: idle.as_secs(),
        on_timeout,
        warm: fresh.pooled.is_some(),
        metadata,
    };
    let made_at = match recipe.policy.lifetime().survives_daemon {
        SurvivesDaemon::No => fresh.asked,
        // What its card says: the next daemon knows nothing else.
        SurvivesDaemon::Yes => now.wall,
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
    let number = prepared.as_ref().map(Prepared::number);
    // It was ready when they were named: nobody waits here.
    let stood = live.take_stood().await;
    live.took_numbers(stood.iter().map(|stood| stood.exec).max().unwrap_or(0));
    let image = Some(image);
    let kept =
        Kept::new(Made { card, live, image, policy, register, asked, pooled, clock, prepared: number });
    let (execs, inherited, shared) = match begun {
        Some(Begun { execs, inherited, room, .. }) => (execs, inherited, Some(room)),
        None => (Vec::new(), Vec::new(), None),
    };
    execs.iter().for_each(|exec| house.register.exec_found(&kept.card.id, exec));
    let commands = find_commands(house, &kept, stood, &execs, &inherited);
    house.move_in(&kept)?;
    commands.into_iter().for_each(|command| drop(tokio::spawn(command)));
    if let Some(prepared) = prepared {
        prepared.hand_over(house, &kept);
    }
    entry.hand_over();
    let whose = Some((&kept.card.tenant, &kept.card.id));
    house.hub.tell(whose, Happened::BoxCreated { warm: kept.card.warm, tier: kept.card.tier });
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    house.hub.tell(whose, Happened::BoxReady { took_ms });
    let card = kept.card();
    failpoint::reach("box-moved-in");
    tokio::spawn(watch::watch(Arc::clone(house), kept, Lodging::new(room, shared), hold));
    Ok(card)
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
    for _ in 0..CLAIMS {
        let Some(mut next) = member.take().or_else(|| house.pool.another(kind)) else { break };
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

/// Makes a box and waits until it is ready. Where there was no warden to ask, another one is, ever later.
async fn provision(
    house: &Arc<House>,
    recipe: &Recipe,
    begun: Option<&Begun>,
    workspace: Option<&WorkspaceDir>,
    about: &About,
) -> Result<(LiveBox, Entry), KeepError> {
    let deadline = Instant::now() + PROVISION;
    // Neither a box with a gateway nor a copy of a machine is tried again by whoever drives it.
    let untried = recipe.policy.network().mode != NetworkMode::Off || recipe.copied;
    let mut tried = 0;
    loop {
        tried += 1;
        match launch(house, recipe, begun, workspace, about).await {
            Err(KeepError::Failed(error)) if tried < TRIES && is_passing(&error, tried, untried) => {
                tokio::time::sleep(backoff(tried, random_byte())).await;
            }
            outcome => return outcome,
        }
        if Instant::now() >= deadline {
            return Err(KeepError::TooSlow(PROVISION));
        }
    }
}

/// Makes a box once and waits until it is ready. It is written down before there is anything of it.
pub(crate) async fn launch(
    house: &Arc<House>,
    recipe: &Recipe,
    begun: Option<&Begun>,
    workspace: Option<&WorkspaceDir>,
    about: &About,
) -> Result<(LiveBox, Entry), KeepError> {
    let Recipe { policy, image, tier, .. } = recipe;
    let began = Instant::now();
    let id = house.engine.new_id()?;
    let entry = house.register.begin(&id, policy, &image.label(), *tier, &house.engine.warden_name())?;
    failpoint::reach("box-noted");
    let about = About { box_id: Some(id.clone()), ..about.clone() };
    if let Some(begun) = begun {
        house.pen.announce(Some(&about), &Event::BoxBegunFrom { from: Label::new(&begun.from) })?;
    }
    let (tell, unborn) = Unborn::begin(house, about);
    let live = make_ready(house, id, BoxSpec { policy, image, workspace }, begun, tell).await?;
    unborn.hand_over(&live);
    house.count(|metrics| metrics.took(Stretch::Provision, began.elapsed()));
    Ok((live, entry))
}

async fn make_ready(
    house: &House,
    id: BoxId,
    spec: BoxSpec<'_>,
    begun: Option<&Begun>,
    tell: Tell,
) -> Result<LiveBox, KeepError> {
    let mut live = house.engine.launch_as(id, spec, begun.map(|begun| &begun.snapshot), tell).await?;
    failpoint::reach("box-launched");
    // Its life is the keeper's to end; the timeout of its policy is for `run`.
    live.live_until(Instant::now() + PROVISION);
    let error = match timeout(PROVISION, live.ready()).await {
        Ok(Ok(())) => return Ok(live),
        Ok(Err(error)) => KeepError::from(error),
        Err(_) => KeepError::TooSlow(PROVISION),
    };
    live.give_back_secrets().await;
    Err(error)
}

/// Whether trying again may help.
fn is_passing(error: &CreateError, tried: u32, untried: bool) -> bool {
    match error {
        CreateError::Ask(_)
        | CreateError::Channel(_)
        | CreateError::Show { .. }
        | CreateError::NotReady(Ending::Lost(Loss::WardenGone)) => true,
        // Others were tried again already, as far as that may help.
        CreateError::NotReady(Ending::LaunchFailed { errno, .. }) => {
            untried && cure(tried, *errno) == Cure::Retry
        }
        CreateError::NotReady(_)
        | CreateError::Gateway(_)
        | CreateError::Secret(_)
        | CreateError::Randomness(_)
        | CreateError::Foreign
        | CreateError::Refused { .. } => false,
    }
}
