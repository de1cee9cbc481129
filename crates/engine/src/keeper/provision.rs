//! A box from the engine: written down before there is anything of it, and waited for until it is ready.

use std::sync::Arc;
use std::time::Duration;

use blastbox_policy::NetworkMode;
use blastbox_wire::BoxId;
use blastbox_wire::event::{About, Event, Label};
use tokio::time::{Instant, timeout};

use super::begin::Begun;
use super::error::KeepError;
use super::house::House;
use super::member::Recipe;
use super::metrics::Stretch;
use super::register::Entry;
use super::unborn::Unborn;
use crate::engine::BoxSpec;
use crate::error::CreateError;
use crate::failpoint;
use crate::leases::GivenSecret;
use crate::leases::Tell;
use crate::live::LiveBox;
use crate::outcome::{Ending, Loss};
use crate::patience::{backoff, random_byte};
use crate::state::{Cure, cure};
use crate::volume::VolumeDir;
use crate::workspace::WorkspaceDir;

/// How long a box may take until it is ready.
const PROVISION: Duration = Duration::from_secs(30);
/// How often a warden is asked for a box, where the one before was lost.
const TRIES: u32 = 3;

/// Directories of the host, and secrets, that one box is given.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Given<'a> {
    pub(crate) workspace: Option<&'a WorkspaceDir>,
    pub(crate) volumes: &'a [VolumeDir],
    pub(crate) secrets: &'a [GivenSecret],
}

/// Makes a box and waits until it is ready. Where there was no warden to ask, another one is, ever later.
pub(super) async fn provision(
    house: &Arc<House>,
    recipe: &Recipe,
    begun: Option<&Begun>,
    given: Given<'_>,
    about: &About,
) -> Result<(LiveBox, Entry), KeepError> {
    let deadline = Instant::now() + PROVISION;
    // What lies on disk goes on lying there: whoever wants it asks again.
    let most = if begun.is_some_and(|begun| begun.itself.is_some()) { 1 } else { TRIES };
    // Neither a box with a gateway nor a copy of a machine is tried again by whoever drives it.
    let untried = recipe.policy.network().mode != NetworkMode::Off || recipe.copied;
    let mut tried = 0;
    loop {
        tried += 1;
        match launch(house, recipe, begun, given, about).await {
            Err(KeepError::Failed(error)) if tried < most && is_passing(&error, tried, untried) => {
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
    Given { workspace, volumes, secrets }: Given<'_>,
    about: &About,
) -> Result<(LiveBox, Entry), KeepError> {
    let Recipe { policy, image, tier, .. } = recipe;
    let began = Instant::now();
    let warden = house.engine.warden_name();
    let (id, entry) = match begun.and_then(|begun| begun.itself.as_ref()) {
        Some(itself) => (itself.lies.id().clone(), house.register.revive(itself.lies.id(), &warden)?),
        None => {
            let id = house.engine.new_id()?;
            let entry = house.register.begin(&id, policy, &image.label(), *tier, &warden)?;
            (id, entry)
        }
    };
    failpoint::reach("box-noted");
    let about = About { box_id: Some(id.clone()), ..about.clone() };
    if let Some(begun) = begun {
        house.pen.announce(Some(&about), &Event::BoxBegunFrom { from: Label::new(&begun.from) })?;
    }
    let (tell, unborn) = Unborn::begin(house, about);
    let live =
        make_ready(house, id, BoxSpec { policy, image, workspace, volumes, secrets }, begun, tell).await?;
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
        // Its own clock may be heard first: that nobody answered in time is not the guest's doing, nor its caller's.
        Ok(Err(CreateError::NotReady(Ending::TimedOut))) | Err(_) => KeepError::TooSlow(PROVISION),
        Ok(Err(error)) => KeepError::from(error),
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
