//! `/v1/modules`: programs of the tier `wasm` that a tenant brings, for boxes whose image they are.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, StatusCode};
use blastbox_engine::keeper::{KeepError, NewBox as Wanted};
use blastbox_images::ModuleImage;
use blastbox_policy::{GuestName, Refusal, SealedPolicy, Tier, TierChoice, tiers_for};
use serde::Serialize;

use crate::answer::Answer;
use crate::ask::NewBox;
use crate::caller::Caller;
use crate::modules::{Lease, ModuleCard, ModuleTrouble, Modules};
use crate::take::{ModulePath, drain, patient_piece};
use crate::{Hall, Trouble};

/// Every module of a tenant; how many there are is bounded.
#[derive(Debug, Serialize)]
pub(crate) struct All {
    modules: Vec<ModuleCard>,
}

fn of(hall: &Hall) -> Result<Arc<Modules>, ModuleTrouble> {
    hall.modules.clone().ok_or(ModuleTrouble::Off)
}

pub(crate) async fn list(State(hall): State<Hall>, caller: Caller) -> Result<Answer<All>, Trouble> {
    let modules = of(&hall)?;
    let listed = tokio::task::spawn_blocking(move || modules.list(&caller.tenant)).await;
    Ok(Answer::ok(All { modules: listed.map_err(|_| Trouble::Defect)?? }))
}

/// Takes one in as it comes, and has it compiled.
pub(crate) async fn put(
    State(hall): State<Hall>,
    caller: Caller,
    ModulePath(name): ModulePath,
    headers: HeaderMap,
    mut body: Body,
) -> Result<Answer<ModuleCard>, Trouble> {
    let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let taken = async {
        let modules = of(&hall)?;
        let most = modules.largest();
        if announced.is_some_and(|length| length > most) {
            return Err(ModuleTrouble::TooLarge { most }.into());
        }
        let begun = tokio::task::spawn_blocking(move || modules.begin(&caller.tenant, &name)).await;
        let mut draft = begun.map_err(|_| Trouble::Defect)??;
        while let Some(piece) = patient_piece(&mut body).await? {
            draft.write(&piece).await?;
        }
        Ok(draft)
    };
    match taken.await {
        Ok(draft) => Ok(Answer::created(draft.compile().await?)),
        Err(trouble) => {
            drain(&mut body).await;
            Err(trouble)
        }
    }
}

pub(crate) async fn remove(
    State(hall): State<Hall>,
    caller: Caller,
    ModulePath(name): ModulePath,
) -> Result<StatusCode, Trouble> {
    let modules = of(&hall)?;
    let removed = tokio::task::spawn_blocking(move || modules.remove(&caller.tenant, &name)).await;
    match removed.map_err(|_| Trouble::Defect)?? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Trouble::NotFound("module")),
    }
}

/// The module that a box is to begin with, taken out of what is asked for.
pub(crate) fn named(new: &mut NewBox) -> Option<String> {
    let name = new.image.as_ref()?.strip_prefix(ModuleImage::PREFIX)?.to_owned();
    new.image = None;
    Some(name)
}

/// Gives a box that module, compiled as its policy wants it. It stays where it is until the lease is dropped: once the box has begun.
pub(crate) async fn give(
    hall: &Hall,
    caller: &Caller,
    name: &str,
    wanted: &mut Wanted,
) -> Result<Arc<Lease>, Trouble> {
    let modules = of(hall)?;
    may_run(&name.parse().map_err(ModuleTrouble::BadName)?, &wanted.policy)?;
    let (image, lease) = modules.image(&caller.tenant, name, &wanted.policy).await?;
    wanted.image = Arc::new(image);
    Ok(lease)
}

/// Refuses a box that no module runs in, before one is compiled for it.
fn may_run(name: &GuestName, policy: &SealedPolicy) -> Result<(), KeepError> {
    let tiers = tiers_for(policy);
    if tiers.contains(&Tier::Wasm) {
        return Ok(());
    }
    let tier = match policy.kernel().tier {
        TierChoice::Exactly(tier) => tier,
        TierChoice::ByThreat => tiers.first().copied().unwrap_or(Tier::Jail),
    };
    let why = format!(
        "{name} is a WebAssembly module or component, and only the tier wasm runs such (kernel.tier)"
    );
    Err(KeepError::Refused { refusal: Refusal::TierUnavailable { tier, why } })
}
