//! `Sandbox.create(snapshot)`: a sandbox that begins with a snapshot. Policy, image and size are the snapshot's, so that nothing
//! in it gains by being copied.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use blastbox_engine::keeper::{KeepError, SnapshotCard, Tenant};
use blastbox_policy::{BoxRoot, NetworkMode, SealedPolicy};
use serde_json::{Value, json};

use super::portrait::Portrait;
use crate::Internet;
use crate::e2b::control::create::{MOST_ENVS, bounded, new_box};
use crate::e2b::control::show;
use crate::e2b::desk::Desk;
use crate::e2b::no::{No, echo};
use crate::e2b::ports::Front;
use crate::e2b::sandbox::{Envs, Made, Plans, Sandbox, name_of};
use crate::e2b::template::Size;
use crate::e2b::token::Token;

/// What is asked of a new sandbox beside what it is made of.
#[derive(Debug)]
pub(in crate::e2b) struct Wanted {
    /// As the caller named what it is made of.
    pub(in crate::e2b) asked: String,
    pub(in crate::e2b) plans: Plans,
    pub(in crate::e2b) metadata: BTreeMap<String, String>,
    pub(in crate::e2b) envs: Envs,
    pub(in crate::e2b) life: Duration,
    pub(in crate::e2b) token: Token,
    /// Whether its ports are everybody's, where its owner says so.
    pub(in crate::e2b) public: Option<bool>,
    pub(in crate::e2b) front: Option<Front>,
}

pub(in crate::e2b) async fn begin(
    desk: &Arc<Desk>,
    tenant: &Tenant,
    card: &SnapshotCard,
    wanted: Wanted,
) -> Result<Value, No> {
    let Wanted { asked, plans, metadata, envs, life, token, public, front } = wanted;
    let gone = |error: &KeepError| match error {
        KeepError::NotFound => No::new(404, format!("snapshot '{}' not found", echo(&asked))),
        error => No::kept(error, &asked),
    };
    let opened = desk.keeper().open_snapshot(tenant, &card.id).await.map_err(|error| gone(&error))?;
    may_reach(desk, &opened.policy, &plans)?;
    let portrait = Portrait::read(opened.caption.clone());
    // What was closed stays closed, unless its owner opens it by name.
    let public = public.unwrap_or(!portrait.private_ports);
    let traffic_token = (!public).then(|| Token::new().ok_or_else(No::defect)).transpose()?;
    // What was said of variables before, its owner may say otherwise.
    let mut variables = portrait.envs.clone();
    variables.extend(envs.0);
    bounded("envVars, with those of the snapshot,", &variables, MOST_ENVS)?;
    let lost = "the image of the sandbox that this snapshot was taken of is not in the store any more";
    let image = desk.image_called(opened.image.clone()).await.ok_or_else(|| No::new(404, lost))?;
    let (size, has_root) = (Size::of(&opened.policy), opened.policy.kernel().root == BoxRoot::Allowed);
    let new = new_box(opened.policy.clone(), image, metadata, life, &plans);
    let made = desk.keeper().create(tenant, opened.begin(new)).await.map_err(|error| gone(&error))?;
    // Nothing waits from here on: whoever goes away leaves a sandbox that is known.
    let mut sandbox = Sandbox::new(Made {
        box_id: made.id.clone(),
        tenant: tenant.clone(),
        template: asked.strip_suffix(":default").unwrap_or(&asked).to_owned(),
        token,
        traffic_token,
        size,
        has_root,
        envs: Envs(variables),
        plans,
        life,
        workdir: portrait.workdir.clone(),
    });
    // As the one it was taken of, where its owner says nothing.
    sandbox.front = front.unwrap_or_default().or(&portrait.front);
    portrait.hang(desk.keeper(), &sandbox);
    let sandbox = desk.add(sandbox);
    sandbox.note("info", "sandbox created from a snapshot", json!({ "sandboxID": name_of(&made.id) }));
    Ok(show::sandbox(desk, &sandbox))
}

/// A copy reaches what the one reached that it was taken of: not where its caller wants it closed, nor where the operator does by now.
fn may_reach(desk: &Desk, policy: &SealedPolicy, plans: &Plans) -> Result<(), No> {
    let mode = policy.network().mode;
    let why = if plans.internet == Some(false) && mode != NetworkMode::Off {
        "a sandbox that begins with this snapshot reaches what the one reached that it was taken of: it cannot begin closed"
    } else if mode == NetworkMode::Open && desk.hall().internet != Internet::DangerouslyOpen {
        "the sandbox that this snapshot was taken of reached everything, and the operator lets no sandbox do that any more"
    } else {
        return Ok(());
    };
    Err(No::bad(why).coded("sandbox_create_refused"))
}
