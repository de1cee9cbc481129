//! `POST /v2/sandboxes` and `POST /sandboxes`: make a sandbox.

use blastbox_policy::{BoxRoot, SealedPolicy};
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, Response, StatusCode};
use blastbox_engine::keeper::{NewBox, Tenant};
use blastbox_images::Image;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::headers::Headers;
use super::network::Reaches;
use super::once::Promise;
use super::{Generation, body, network, show};
use crate::config::Internet;
use crate::e2b::copies::{self, Wanted};
use crate::e2b::desk::{Desk, PAUSED_FOR};
use crate::e2b::ending::Ending;
use crate::e2b::interpreter::pooled;
use crate::e2b::no::No;
use crate::e2b::process::environment;
use crate::e2b::rooted::settle;
use crate::e2b::sandbox::{AtTimeout, Envs, Made, OnTraffic, Plans, Sandbox, name_of};
use crate::e2b::secrets;
use crate::e2b::template::{self, Size, Template};
use crate::e2b::templates::{Build, Made as Built, Templates};
use crate::e2b::token::Token;
use crate::e2b::volumes::{self, AskedMount, Mounts};

/// What each generation assumes where no time is given.
const FIRST_TIMEOUT: i64 = 15;
const SECOND_TIMEOUT: i64 = 300;
/// What an owner may write on a sandbox, and the variables it may have: entries, and bytes of all together.
const MOST_NOTES: (usize, usize) = (64, 16 * 1024);
pub(in crate::e2b) const MOST_ENVS: (usize, usize) = (1_024, 256 * 1024);

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    #[serde(rename = "templateID")]
    template_id: Option<String>,
    timeout: Option<i64>,
    auto_pause: Option<bool>,
    auto_pause_memory: Option<bool>,
    auto_resume: Option<AutoResume>,
    #[serde(rename = "allow_internet_access")]
    allow_internet_access: Option<bool>,
    network: Option<network::Asked>,
    metadata: Option<BTreeMap<String, String>>,
    env_vars: Option<BTreeMap<String, String>>,
    mcp: Option<Value>,
    iam: Option<Value>,
    volume_mounts: Option<Vec<AskedMount>>,
}

#[derive(Debug, Deserialize)]
struct AutoResume {
    #[serde(default)]
    enabled: bool,
}

pub(super) async fn create(
    desk: &Arc<Desk>,
    tenant: &Tenant,
    request: Request,
    generation: Generation,
) -> Result<Response<Body>, No> {
    let key = idempotency_key(request.headers())?;
    let bytes = body::bytes(request).await?;
    let Some(key) = key else {
        return Ok(created(made(desk, tenant, &bytes, generation).await?));
    };
    match desk.promises.begin(tenant, &key, &bytes)? {
        Promise::Kept(answer) => Ok(created(answer)),
        // Dropping it without keeping it lets the next one try.
        Promise::Ours(promise) => {
            let answer = made(desk, tenant, &bytes, generation).await?;
            promise.keep(answer.clone());
            Ok(created(answer))
        }
    }
}

fn created(answer: Value) -> Response<Body> {
    super::json(StatusCode::CREATED, answer)
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, No> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let plain = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if plain && (1..=255).contains(&text.len()) {
        return Ok(Some(text.to_owned()));
    }
    Err(No::bad("Idempotency-Key is not 1 to 255 of a-z, 0-9 and -"))
}

async fn made(desk: &Arc<Desk>, tenant: &Tenant, bytes: &[u8], generation: Generation) -> Result<Value, No> {
    let asked: Asked = body::parse(bytes)?;
    if asked.volume_mounts.as_ref().is_some_and(|mounts| !mounts.is_empty()) {
        return made_apart(desk, tenant, asked, generation).await;
    }
    make(desk, tenant, asked, generation).await
}

/// Makes a sandbox with volumes, whether its owner waits or not: a box that is half made has them, and whoever hangs up must not
/// free them for somebody who deletes them. What nobody waits for any more is ended, as a sandbox that is known.
async fn made_apart(
    desk: &Arc<Desk>,
    tenant: &Tenant,
    asked: Asked,
    generation: Generation,
) -> Result<Value, No> {
    let (tell, told) = oneshot::channel();
    let (desk, tenant) = (Arc::clone(desk), tenant.clone());
    tokio::spawn(async move {
        let made = make(&desk, &tenant, asked, generation).await;
        if let Err(Ok(unheard)) = tell.send(made)
            && let Some(id) = unheard.get("sandboxID").and_then(Value::as_str)
            && let Ok((sandbox, _)) = desk.own(&tenant, id)
        {
            // An error: it is gone already.
            desk.keeper().kill(&tenant, &sandbox.box_id).await.ok();
        }
    });
    told.await.unwrap_or_else(|_| Err(No::defect()))
}

async fn make(desk: &Arc<Desk>, tenant: &Tenant, asked: Asked, generation: Generation) -> Result<Value, No> {
    let life = life(asked.timeout, generation)?;
    let plans = plans(&asked, desk.hall().internet)?;
    let plans_of_a_copy = plans_of_a_copy(&asked);
    let headers = Headers::of(asked.network.as_ref(), &|name| secrets::fill(desk, tenant, name))?;
    refuse_what_is_not_served(&asked)?;
    let public = asked.network.as_ref().and_then(|network| network.allow_public_traffic);
    let front = asked.network.as_ref().map(network::Asked::front).transpose()?;
    let traffic_token = match public {
        Some(false) => Some(Token::new().ok_or_else(No::defect)?),
        Some(true) | None => None,
    };
    let mounts = asked.volume_mounts.filter(|mounts| !mounts.is_empty());
    let metadata = asked.metadata.unwrap_or_default();
    bounded("metadata", &metadata, MOST_NOTES)?;
    let envs = asked.env_vars.unwrap_or_default();
    bounded("envVars", &envs, MOST_ENVS)?;
    if envs.iter().any(|(name, value)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0'))
    {
        return Err(No::bad("envVars has a name that is empty or has `=` in it, or a NUL"));
    }
    let token = Token::new().ok_or_else(No::defect)?;
    let name = asked.template_id.ok_or_else(|| No::bad("templateID is missing"))?;
    let own = desk.built()?.map(|templates| templates.opened(tenant, &name)).transpose()?.flatten();
    let opened = match own {
        Some((build, made, home)) => {
            Ok((open_own(desk, &name, &build, &made, &plans.reaches).await?, Some((made, home))))
        }
        // Only what nobody else could have meant is looked for among snapshots: that takes the disk.
        None => open(desk, name.clone(), plans.reaches.clone()).await.map(|template| (template, None)),
    };
    let (template, built) = match opened {
        Ok(opened) => opened,
        Err(no) if no.status() == 404 => {
            let Some(card) = copies::find(desk, tenant, &name).await? else { return Err(no) };
            if mounts.is_some() {
                let why = "volumeMounts is refused: a sandbox that begins with a snapshot is a virtual machine, which has none";
                return Err(No::bad(why).coded("sandbox_create_refused"));
            }
            if !headers.is_empty() {
                let why = "network.rules is refused: a sandbox that begins with a snapshot reaches what the one reached that it was taken of";
                return Err(No::bad(why).coded("sandbox_create_refused"));
            }
            let (plans, envs) = (plans_of_a_copy?, Envs(envs));
            let wanted = Wanted { asked: name, plans, metadata, envs, life, token, public, front };
            return copies::begin(desk, tenant, &card, wanted).await;
        }
        Err(no) => return Err(no),
    };
    let (built, home) = built.unzip();
    // What the template says of variables, its owner may say otherwise.
    let mut envs: BTreeMap<String, String> = envs;
    if let Some(built) = &built {
        let said = std::mem::replace(&mut envs, built.env.clone());
        envs.extend(said);
        bounded("envVars, with those of the template,", &envs, MOST_ENVS)?;
    }
    let volumes = Mounts::open(desk, tenant, mounts.as_deref()).await?;
    if !volumes.mounts.is_empty() {
        volumes::watch(desk)?;
    }
    let policy = headers.bound(match volumes.mounts.is_empty() {
        true => template.policy,
        false => volumes::accepted(&template.policy)?,
    })?;
    let preparation = template::preparation(&template.name, &desk.hall().begins);
    let size = Size::of(&policy);
    let has_root = policy.kernel().root == BoxRoot::Allowed;
    let new = new_box(policy, template.image, metadata, life, &plans);
    let new = NewBox { preparation, volumes: volumes.directories, secrets: headers.secrets(), ..new };
    let made = desk.keeper().create(tenant, new).await;
    let card = made.map_err(|error| No::kept(&error, ""))?;
    // Up to where a template's own is begun nothing waits: whoever goes away meanwhile leaves a sandbox that is known.
    let mut sandbox = Sandbox::new(Made {
        box_id: card.id.clone(),
        tenant: tenant.clone(),
        template: template.name,
        token,
        traffic_token,
        size,
        has_root,
        envs: Envs(envs),
        plans,
        life,
        workdir: built.as_ref().map(|built| built.workdir.clone()),
    });
    sandbox.mounts = volumes.mounts;
    sandbox.front = front.unwrap_or_default();
    pooled::take_over(desk.keeper(), &sandbox);
    let sandbox = desk.add(sandbox);
    // From here on it is the sandbox that has them.
    drop(volumes.claim);
    if let Some(built) = &built {
        // Whoever does not wait for it leaves no sandbox that is half begun.
        let ending = Ending::of(desk.keeper(), tenant, &card.id);
        begin(desk, &sandbox, built, home.flatten()).await?;
        ending.keep();
    }
    sandbox.note("info", "sandbox created", json!({ "sandboxID": name_of(&card.id) }));
    Ok(show::sandbox(desk, &sandbox))
}

fn life(asked: Option<i64>, generation: Generation) -> Result<Duration, No> {
    let usual = match generation {
        Generation::First => FIRST_TIMEOUT,
        Generation::Second => SECOND_TIMEOUT,
    };
    body::seconds("timeout", asked.unwrap_or(usual))
}

fn plans(asked: &Asked, operator: Internet) -> Result<Plans, No> {
    if asked.auto_pause_memory == Some(false) {
        return Err(No::bad("autoPauseMemory: false is refused: blastbox pauses a sandbox with its memory"));
    }
    let on_timeout = if asked.auto_pause == Some(true) { AtTimeout::Pause } else { AtTimeout::Kill };
    let resumes = asked.auto_resume.as_ref().is_some_and(|auto| auto.enabled);
    let on_traffic = if resumes { OnTraffic::Resume } else { OnTraffic::StayPaused };
    let internet = asked.allow_internet_access;
    let said = network::Asked::default();
    let reaches = asked.network.as_ref().unwrap_or(&said).reaches(internet, operator)?;
    Ok(Plans { on_timeout, on_traffic, internet, reaches })
}

/// The same for a sandbox that begins with a snapshot: it reaches what that one reached, and no copy gets what it had not.
fn plans_of_a_copy(asked: &Asked) -> Result<Plans, No> {
    let plans = plans(asked, Internet::Closed)?;
    // Said in any of three ways.
    let closes = asked.network.as_ref().is_some_and(network::Asked::closes);
    let internet = if closes { Some(false) } else { plans.internet };
    match plans.reaches {
        Reaches::Nothing => Ok(Plans { internet, ..plans }),
        Reaches::Named(_) | Reaches::Everything => Err(No::bad(
            "a sandbox that begins with a snapshot reaches what the one reached that it was taken of: leave `network` out",
        )
        .coded("sandbox_create_refused")),
    }
}

/// What is not served is refused by name rather than left out.
fn refuse_what_is_not_served(asked: &Asked) -> Result<(), No> {
    let not_served = [
        (asked.mcp.as_ref().is_some_and(|mcp| !mcp.is_null()), "`mcp` (the MCP gateway)"),
        (asked.iam.as_ref().is_some_and(|iam| !is_empty(iam)), "`iam` (workload identity)"),
    ];
    match not_served.iter().find(|(wanted, _)| *wanted) {
        Some((_, what)) => Err(No::bad(format!("{what} is not served by blastbox; see docs/e2b.md"))
            .coded("sandbox_create_refused")),
        None => Ok(()),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

pub(in crate::e2b) fn bounded(
    name: &str,
    map: &BTreeMap<String, String>,
    (entries, bytes): (usize, usize),
) -> Result<(), No> {
    let size: usize = map.iter().map(|(key, value)| key.len() + value.len()).sum();
    if map.len() <= entries && size <= bytes {
        return Ok(());
    }
    Err(No::bad(format!("{name} has more than {entries} entries, or more than {bytes} bytes")))
}

/// Gives a sandbox what its tenant's own template has. One that cannot begin is ended.
async fn begin(desk: &Arc<Desk>, sandbox: &Sandbox, made: &Built, home: Option<File>) -> Result<(), No> {
    let templates = desk.templates()?;
    let variables = environment::of_sandbox(sandbox);
    let whose = (desk.keeper(), &sandbox.tenant, &sandbox.box_id);
    if let Err(no) = Templates::fill(whose, made, home, &variables).await {
        // An error: it is gone already.
        desk.keeper().kill(&sandbox.tenant, &sandbox.box_id).await.ok();
        return Err(no);
    }
    templates.spawned(&sandbox.tenant, &sandbox.template);
    Ok(())
}

/// Opens what a tenant has built.
async fn open_own(
    desk: &Desk,
    name: &str,
    build: &Build,
    made: &Built,
    reaches: &Reaches,
) -> Result<Template, No> {
    let shape = made.base.as_deref().and_then(|base| template::shape_of(base, &desk.hall().images));
    let shape = shape.cloned().unwrap_or_default();
    let policy = template::sized(reaches, &shape, build.cpus, build.memory_mib);
    let policy = policy.map_err(|error| template::unsealed(&error))?;
    let (images, templates, tree) =
        (Arc::clone(&desk.hall().images), Arc::clone(desk.templates()?), made.tree);
    let open = move || templates.image(tree, &images);
    let image = tokio::task::spawn_blocking(open).await.unwrap_or_else(|_| Err(No::defect()))?;
    settled(desk, Template { name: name.to_owned(), policy, image }).await
}

/// Opens the image on a thread of its own: a directory on a dead file server must hold up nobody else.
async fn open(desk: &Desk, name: String, reaches: Reaches) -> Result<Template, No> {
    let images = Arc::clone(&desk.hall().images);
    let opened = tokio::task::spawn_blocking(move || template::open(&name, &images, &reaches)).await;
    settled(desk, opened.unwrap_or_else(|_| Err(No::defect()))?).await
}

/// With a root, where its sandboxes have one.
async fn settled(desk: &Desk, template: Template) -> Result<Template, No> {
    let Template { name, policy, image } = template;
    let policy = settle(desk.keeper(), desk.hall().roots_of_boxes, policy, &image).await;
    Ok(Template { name, policy: policy.map_err(|error| template::unsealed(&error))?, image })
}

/// A box as every sandbox has one.
pub(in crate::e2b) fn new_box(
    policy: SealedPolicy,
    image: Image,
    metadata: BTreeMap<String, String>,
    life: Duration,
    plans: &Plans,
) -> NewBox {
    // E2B's sandboxes are never idle: only their time ends them.
    NewBox {
        metadata,
        life,
        idle: PAUSED_FOR,
        on_timeout: plans.on_timeout.into(),
        ..NewBox::new(policy, image)
    }
}
