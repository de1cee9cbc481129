//! `/v1/modules`: programs of the tier `wasm` that a tenant brings, for boxes whose image they are.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use blastbox_engine::keeper::NewBox as Wanted;
use blastbox_images::ModuleImage;
use serde::Serialize;

use crate::answer::Answer;
use crate::ask::NewBox;
use crate::caller::Caller;
use crate::modules::{ModuleCard, ModuleTrouble, Modules};
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
    mut body: Body,
) -> Result<Answer<ModuleCard>, Trouble> {
    let taken = async {
        let mut draft = of(&hall)?.begin(&caller.tenant, &name)?;
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

/// Gives a box that module, compiled as its policy wants it.
pub(crate) async fn give(
    hall: &Hall,
    caller: &Caller,
    name: &str,
    wanted: &mut Wanted,
) -> Result<(), Trouble> {
    let image = of(hall)?.image(&caller.tenant, name, &wanted.policy).await?;
    wanted.image = Arc::new(image);
    Ok(())
}
