//! Files that a COPY takes: a client asks where to put them, and puts them there.
//!
//! Trust: caller. Whoever has the address that was handed out may write this one file once; nothing else is opened by it.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use blastbox_engine::keeper::Tenant;
use http_body_util::BodyExt;
use serde_json::json;
use tokio::time::{Instant, timeout};

use super::{Templates, ask};
use crate::e2b::no::{No, echo};
use crate::e2b::token::Token;
use crate::e2b::{edge, form};

const MOST_UPLOAD: u64 = 1 << 30;
/// How long an address is good for, and how long its caller may be silent.
const GOOD_FOR: Duration = Duration::from_secs(3_600);
const SILENCE: Duration = Duration::from_secs(60);
/// Addresses that are good at once, of everybody together.
const MOST_PASSES: usize = 1_024;

/// Addresses that were handed out.
#[derive(Debug, Default)]
pub(super) struct Passes(Mutex<HashMap<String, Pass>>);

#[derive(Debug, Clone)]
struct Pass {
    tenant: Tenant,
    hash: String,
    until: Instant,
}

impl Passes {
    fn give(&self, tenant: &Tenant, hash: &str) -> Result<String, No> {
        let token = Token::new().ok_or_else(No::defect)?.show_to_owner().to_owned();
        let now = Instant::now();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, pass| pass.until > now);
        if all.len() >= MOST_PASSES {
            return Err(No::new(429, "too many uploads are under way"));
        }
        let pass = Pass { tenant: tenant.clone(), hash: hash.to_owned(), until: now + GOOD_FOR };
        all.insert(token.clone(), pass);
        Ok(token)
    }

    /// It is good once.
    fn take(&self, token: &str, hash: &str) -> Option<Tenant> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pass = all.get(token).filter(|pass| pass.hash == hash && pass.until > Instant::now())?;
        let tenant = pass.tenant.clone();
        all.remove(token);
        Some(tenant)
    }
}

/// `GET /templates/{id}/files/{hash}`: whether it is there, and where to put it.
pub(super) fn link(
    templates: &Templates,
    tenant: &Tenant,
    (template, hash): (&str, &str),
    headers: &HeaderMap,
) -> Result<Response<Body>, No> {
    templates.book.own(tenant, template)?;
    if !ask::is_hash(hash) {
        return Err(No::bad("the hash of files is 64 hexadecimal digits in lower case"));
    }
    let at = templates.place.upload(tenant, hash).map_err(|error| unkept(&error))?;
    let token = templates.passes.give(tenant, hash)?;
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    // Whoever ends TLS in front says so; it is the caller's own address that this makes.
    let secure = headers.get("x-forwarded-proto").is_some_and(|scheme| scheme == "https");
    let scheme = if secure { "https" } else { "http" };
    let url = format!("{scheme}://{host}/templates/{}/files/{hash}?pass={token}", echo(template));
    let answer = json!({ "present": at.is_file(), "url": url });
    Ok(crate::answer::Answer(StatusCode::CREATED, answer).into_response())
}

/// `PUT` to that address: no key comes along.
pub(super) async fn put(templates: &Templates, hash: &str, request: Request) -> Result<Response<Body>, No> {
    edge::let_through(&request)?;
    let query = form::pairs(request.uri().query());
    let tenant = form::value(&query, "pass").and_then(|token| templates.passes.take(token, hash));
    let tenant =
        tenant.ok_or_else(|| No::new(403, "this address for an upload is not good, or not any more"))?;
    let most = templates.place.left(&tenant).map_err(|error| unkept(&error))?.min(MOST_UPLOAD);
    let mut draft = templates.place.draft("uploads", &tenant).map_err(|error| unkept(&error))?;
    let (mut body, mut taken) = (request.into_body(), 0_u64);
    loop {
        let frame =
            timeout(SILENCE, body.frame()).await.map_err(|_| No::new(408, "the upload did not go on"))?;
        let Some(frame) = frame else { break };
        let Ok(data) = frame.map_err(|_| No::bad("the upload broke off"))?.into_data() else { continue };
        taken = taken.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
        if taken > most {
            return Err(No::new(413, format!("an upload has at most {most} bytes here now")));
        }
        draft.file.write_all(&data).map_err(|error| unkept(&error))?;
    }
    let at = templates.place.upload(&tenant, hash).map_err(|error| unkept(&error))?;
    draft.keep(&at).map_err(|error| unkept(&error))?;
    Ok(StatusCode::OK.into_response())
}

fn unkept(error: &io::Error) -> No {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            No::new(507, "there is no room for more files of templates; delete a template")
        }
        _ => No::new(500, format!("the upload cannot be kept: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_good_once_and_for_one_file() {
        let passes = Passes::default();
        let tenant: Tenant = "ours".parse().unwrap();
        let token = passes.give(&tenant, "a").unwrap();
        assert!(passes.take(&token, "b").is_none() && passes.take("other", "a").is_none());
        assert_eq!(passes.take(&token, "a"), Some(tenant));
        assert!(passes.take(&token, "a").is_none());
    }
}
