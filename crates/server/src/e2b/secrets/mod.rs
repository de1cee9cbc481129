//! Secrets: values that a tenant leaves here under a name, and that headers of sandboxes' requests are filled with
//! (`${e2b.secrets.NAME}` in `network.rules`).
//!
//! - [`drawer`]: which there are, and whose. [`value`]: what nobody prints.
//!
//! Trust: caller. Must not: answer with a value, write one anywhere but into its tenant's file, or give one to a box.

mod drawer;
mod value;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use blastbox_engine::keeper::Tenant;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use zeroize::Zeroizing;

pub(crate) use self::drawer::{Drawer, SecretLimits};

use self::drawer::{About, Metadata, PREFIX, Undone};
pub(super) use self::value::Hidden;
use super::apart::Threads;
use super::control::{body, page};
use super::desk::Desk;
use super::no::{No, echo};
use super::{form, moment};

const LONGEST_NAME: usize = 128;
/// What can be put into a header, and what is shorter could not be told from chance in an answer.
pub(super) const LENGTHS: std::ops::RangeInclusive<usize> = 8..=8 * 1024;
const MOST_NOTES: usize = 32;
const LONGEST_NOTE: (usize, usize) = (128, 1_024);
const ALL_NOTES: usize = 8_192;

/// The secrets of this daemon, where the operator wants some.
fn drawer(desk: &Desk) -> Result<&Arc<Drawer>, No> {
    desk.hall().secrets.as_ref().ok_or_else(|| {
        No::new(
            403,
            "secrets are off here: the operator has switched them off (`enabled` under [e2b.secrets] of the daemon's configuration)",
        )
        .coded("secrets_off")
    })
}

/// The value of a tenant's secret as it is now, for the gateway of a new sandbox.
pub(super) fn fill(desk: &Desk, tenant: &Tenant, name: &str) -> Result<Hidden, No> {
    let drawer = drawer(desk)?;
    if drawer.is_damaged(tenant) {
        return Err(damaged());
    }
    drawer.value(tenant, name).ok_or_else(|| {
        No::bad(format!("network.rules: secret \"{}\" not found", echo(name))).coded("sandbox_create_refused")
    })
}

/// Whether a header can have it.
pub(super) fn is_usable(value: &str) -> bool {
    let printable = value.bytes().all(|byte| matches!(byte, 0x20..=0x7e)) && value.trim() == value;
    printable && LENGTHS.contains(&value.len())
}

/// `/secrets`.
pub(super) async fn answer(
    desk: &Arc<Desk>,
    tenant: &Tenant,
    (method, parts): (&str, &[&str]),
    request: Request,
) -> Result<Response<Body>, No> {
    let drawer = drawer(desk)?;
    let by = By { drawer, tenant, threads: desk.apart.of(tenant) };
    if drawer.is_damaged(tenant) {
        return Err(damaged());
    }
    match (method, parts) {
        ("POST", ["secrets"]) => create(&by, request).await,
        ("GET", ["secrets"]) => list(drawer, tenant, request.uri().query()),
        ("GET", ["secrets", called]) => {
            let about = drawer.find(tenant, called).ok_or_else(|| unknown(called))?;
            Ok(show(StatusCode::OK, shown(&about)))
        }
        ("POST", ["secrets", called]) => renew(&by, called, request).await,
        ("DELETE", ["secrets", called]) => {
            let called = (*called).to_owned();
            by.done(called.clone(), move |drawer, tenant| drawer.remove(tenant, &called)).await?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        // What else there is the table of endpoints refuses.
        _ => Err(No::defect()),
    }
}

fn show(status: StatusCode, value: Value) -> Response<Body> {
    crate::answer::Answer(status, value).into_response()
}

fn shown(about: &About) -> Value {
    let About { id, name, version, metadata, created, updated } = about;
    let at = |millis: i64| moment::text_of_nanos(millis.saturating_mul(1_000_000));
    json!({
        "secretID": id,
        "name": name,
        "currentVersion": version,
        "metadata": metadata,
        "createdAt": at(*created),
        "updatedAt": at(*updated),
    })
}

fn unknown(called: &str) -> No {
    No::new(404, format!("secret \"{}\" not found", echo(called)))
}

fn list(drawer: &Drawer, tenant: &Tenant, query: Option<&str>) -> Result<Response<Body>, No> {
    let pairs = form::pairs(query);
    let limit = page::limit(form::value(&pairs, "limit"))?;
    let after = form::value(&pairs, "nextToken").map(page::place).transpose()?;
    let own = drawer.of(tenant).into_iter();
    let own = own.map(|about| (format!("{:020}-{}", about.created, about.id), about)).collect();
    let (listed, next) = page::cut(own, page::Order::NewestFirst, limit, after.as_deref());
    let mut answer = show(StatusCode::OK, listed.iter().map(|(_, about)| shown(about)).collect());
    answer.headers_mut().extend(next);
    Ok(answer)
}

#[derive(Deserialize)]
struct New {
    name: String,
    value: Hidden,
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct Update {
    value: Hidden,
    metadata: Option<Metadata>,
}

/// Reads a body with a value in it. What a parser says may repeat what it read: only the place is told.
async fn read<T: DeserializeOwned>(request: Request, fields: &str) -> Result<T, No> {
    let text = Zeroizing::new(body::bytes(request).await?);
    serde_json::from_slice(&text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        No::bad(format!("the body is not what this call takes, {fields}: line {line}, column {column}"))
    })
}

async fn create(by: &By<'_>, request: Request) -> Result<Response<Body>, No> {
    let New { name, value, metadata } = read(request, "{name, value, metadata?}").await?;
    let (name, metadata) = (named(&name)?, metadata.unwrap_or_default());
    check(&value, Some(&metadata))?;
    let called = name.clone();
    let make = move |drawer: &Drawer, tenant: &Tenant| drawer.make(tenant, name, value, metadata);
    Ok(show(StatusCode::CREATED, shown(&by.done(called, make).await?)))
}

async fn renew(by: &By<'_>, called: &str, request: Request) -> Result<Response<Body>, No> {
    let Update { value, metadata } = read(request, "{value, metadata?}").await?;
    check(&value, metadata.as_ref())?;
    let called = called.to_owned();
    let name = called.clone();
    let renew = move |drawer: &Drawer, tenant: &Tenant| drawer.renew(tenant, &name, value, metadata);
    Ok(show(StatusCode::OK, shown(&by.done(called, renew).await?)))
}

/// Whoever asks, and of what.
struct By<'a> {
    drawer: &'a Arc<Drawer>,
    tenant: &'a Tenant,
    threads: Threads,
}

impl By<'_> {
    /// Does it on a thread that may wait for the disk.
    async fn done<T: Send + 'static>(
        &self,
        called: String,
        act: impl FnOnce(&Drawer, &Tenant) -> Result<T, Undone> + Send + 'static,
    ) -> Result<T, No> {
        let (on, tenant) = (Arc::clone(self.drawer), self.tenant.clone());
        let done = self.threads.run(move || act(&on, &tenant)).await?;
        done.map_err(|undone| match undone {
            Undone::Unknown => unknown(&called),
            Undone::Taken => No::new(409, format!("there is a secret called \"{}\" already", echo(&called))),
            Undone::TooMany => {
                let most = self.drawer.limits.count;
                No::new(
                    429,
                    format!("a key has at most {most} secrets: delete one, or have the operator raise it"),
                )
                .coded("secret_limit_reached")
            }
            Undone::Damaged => damaged(),
            Undone::Disk(error) => No::new(500, format!("secrets cannot be written: {error}")),
        })
    }
}

fn damaged() -> No {
    No::new(
        500,
        "the secrets of this key cannot be read, and are kept as they are: the operator finds out why where the daemon was started",
    )
}

/// The name as it is kept: one that a header can refer to, and that is no id.
fn named(text: &str) -> Result<String, No> {
    let name = text.to_lowercase();
    let plain = !name.chars().any(|letter| letter.is_control() || matches!(letter, '{' | '}'));
    if name.is_empty() || name.len() > LONGEST_NAME || !plain || name.starts_with(PREFIX) {
        return Err(No::bad(format!(
            "the name of a secret is 1 to {LONGEST_NAME} bytes without `{{`, `}}` and control characters, and does not begin with {PREFIX}"
        )));
    }
    Ok(name)
}

fn check(value: &Hidden, metadata: Option<&Metadata>) -> Result<(), No> {
    if !is_usable(value.expose()) {
        let (least, most) = (LENGTHS.start(), LENGTHS.end());
        return Err(No::bad(format!(
            "the value of a secret has {least} to {most} printable characters: it is put into headers, and struck out of answers"
        )));
    }
    let Some(metadata) = metadata else { return Ok(()) };
    let (key, note) = LONGEST_NOTE;
    let long = metadata.iter().any(|(name, text)| name.len() > key || text.len() > note);
    let all: usize = metadata.iter().map(|(name, text)| name.len() + text.len()).sum();
    if metadata.len() > MOST_NOTES || long || all > ALL_NOTES {
        return Err(No::bad(format!(
            "metadata has at most {MOST_NOTES} entries, keys of {key} bytes, values of {note}, and {ALL_NOTES} bytes in all"
        )));
    }
    Ok(())
}
