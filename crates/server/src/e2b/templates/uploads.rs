//! Files that a COPY takes: a client asks where to put them, and puts them there.
//!
//! Trust: caller. Whoever has the address that was handed out may write this one file once; nothing else is opened by it, and
//! what comes counts for the tenant that asked for the address: its connections, its uploads at once, its bytes.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use blastbox_engine::keeper::Tenant;
use http_body_util::BodyExt;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::build::make_room;
use super::place::{Draft, MOST_UPLOAD};
use super::{Templates, ask};
use crate::e2b::no::{No, echo};
use crate::e2b::token::Token;
use crate::e2b::{edge, form};
use crate::keys::{KeyMark, Keys};

/// How long an address is good for, how long its caller may be silent, and how long a whole upload may take.
const GOOD_FOR: Duration = Duration::from_secs(3_600);
const SILENCE: Duration = Duration::from_secs(60);
const WHOLE: Duration = Duration::from_secs(1_800);
/// Addresses of one tenant that are good at once, and its uploads under way.
const MOST_PASSES: usize = 64;
const MOST_AT_ONCE: usize = 8;
/// How long an upload waits until others of its tenant are over, and how often it looks.
const FOR_A_LANE: Duration = Duration::from_secs(60);
const LOOKS_AGAIN: Duration = Duration::from_millis(50);

/// Uploads that are under way, by tenant.
#[derive(Debug, Default)]
pub(super) struct Lanes(Mutex<BTreeMap<Tenant, usize>>);

/// One upload; over with this.
struct Lane<'a> {
    lanes: &'a Lanes,
    tenant: Tenant,
}

impl Lanes {
    /// Waits for a place: a client that sends all its files at once does not come back with the ninth.
    async fn wait(&self, tenant: &Tenant) -> Result<Lane<'_>, No> {
        let deadline = Instant::now() + FOR_A_LANE;
        loop {
            match self.enter(tenant) {
                Err(_) if Instant::now() < deadline => sleep(LOOKS_AGAIN).await,
                entered => return entered,
            }
        }
    }

    fn enter(&self, tenant: &Tenant) -> Result<Lane<'_>, No> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.entry(tenant.clone()).or_default();
        if *count >= MOST_AT_ONCE {
            return Err(No::new(429, format!("a key has at most {MOST_AT_ONCE} uploads at once")));
        }
        *count += 1;
        Ok(Lane { lanes: self, tenant: tenant.clone() })
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        let mut all = self.lanes.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = all.get(&self.tenant).map_or(0, |count| count.saturating_sub(1));
        match left {
            0 => all.remove(&self.tenant),
            _ => all.insert(self.tenant.clone(), left),
        };
    }
}

/// Addresses that were handed out.
#[derive(Debug, Default)]
pub(super) struct Passes(Mutex<HashMap<String, Pass>>);

#[derive(Debug, Clone)]
struct Pass {
    tenant: Tenant,
    /// The key that it was asked for with. None: at the socket.
    key: Option<KeyMark>,
    hash: String,
    until: Instant,
}

impl Passes {
    /// An address for this file: the one that there is, or a new one, for which a tenant's oldest makes place.
    fn give(&self, (tenant, key): (&Tenant, Option<&KeyMark>), hash: &str) -> Result<String, No> {
        let now = Instant::now();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, pass| pass.until > now);
        let same = |(_, pass): &(&String, &mut Pass)| {
            pass.tenant == *tenant && pass.key.as_ref() == key && pass.hash == hash
        };
        if let Some((token, pass)) = all.iter_mut().find(same) {
            pass.until = now + GOOD_FOR;
            return Ok(token.clone());
        }
        let theirs = all.iter().filter(|(_, pass)| pass.tenant == *tenant);
        if theirs.clone().count() >= MOST_PASSES
            && let Some(oldest) = theirs.min_by_key(|(_, pass)| pass.until).map(|(token, _)| token.clone())
        {
            all.remove(&oldest);
        }
        let token = Token::new().ok_or_else(No::defect)?.show_to_owner().to_owned();
        let (tenant, key, hash) = (tenant.clone(), key.cloned(), hash.to_owned());
        let pass = Pass { tenant, key, hash, until: now + GOOD_FOR };
        all.insert(token.clone(), pass);
        Ok(token)
    }

    /// Whose it is, where it is good for this file. It does not outlive the key that it was asked for with.
    fn whose(&self, keys: &Keys, token: &str, hash: &str) -> Option<Tenant> {
        let (tenant, key) = self.good(token, hash)?;
        key.is_none_or(|key| keys.has(&key)).then_some(tenant)
    }

    fn good(&self, token: &str, hash: &str) -> Option<(Tenant, Option<KeyMark>)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pass = all.get(token).filter(|pass| pass.hash == hash && pass.until > Instant::now())?;
        Some((pass.tenant.clone(), pass.key.clone()))
    }

    /// It is good once.
    fn take(&self, token: &str, hash: &str) -> Option<Tenant> {
        let (tenant, _) = self.good(token, hash)?;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(token).map(|_| tenant)
    }
}

/// `GET /templates/{id}/files/{hash}`: whether it is there, and where to put it.
pub(super) fn link(
    templates: &Templates,
    caller: (&Tenant, Option<&KeyMark>),
    (template, hash): (&str, &str),
    headers: &HeaderMap,
) -> Result<Response<Body>, No> {
    let (tenant, _) = caller;
    templates.book.own(tenant, template)?;
    if !ask::is_hash(hash) {
        return Err(No::bad("the hash of files is 64 hexadecimal digits in lower case"));
    }
    let present = templates.place.has_upload(tenant, hash).map_err(|error| unkept(&error))?;
    let token = templates.passes.give(caller, hash)?;
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    // Whoever ends TLS in front says so; it is the caller's own address that this makes.
    let secure = headers.get("x-forwarded-proto").is_some_and(|scheme| scheme == "https");
    let scheme = if secure { "https" } else { "http" };
    let url = format!("{scheme}://{host}/templates/{}/files/{hash}?pass={token}", echo(template));
    let answer = json!({ "present": present, "url": url });
    Ok(crate::answer::Answer(StatusCode::CREATED, answer).into_response())
}

/// `PUT` to that address: no key comes along.
pub(super) async fn put(
    templates: &Arc<Templates>,
    keys: &Keys,
    hash: &str,
    request: Request,
) -> Result<Response<Body>, No> {
    edge::let_through(&request)?;
    let query = form::pairs(request.uri().query());
    let token = form::value(&query, "pass").unwrap_or_default();
    let not_good = || No::new(403, "this address for an upload is not good, or not any more");
    let tenant = templates.passes.whose(keys, token, hash).ok_or_else(not_good)?;
    edge::sit_down(&request, &tenant)?;
    let _lane = templates.lanes.wait(&tenant).await?;
    make_room(templates, &tenant).await;
    let draft = templates.place.draft("uploads", &tenant).await.map_err(|error| unkept(&error))?;
    // Whoever was refused until here can come again with it.
    templates.passes.take(token, hash).ok_or_else(not_good)?;
    let received = timeout(WHOLE, receive(draft, request.into_body())).await;
    let draft = received
        .map_err(|_| No::new(408, format!("an upload takes at most {} s", WHOLE.as_secs())))
        .flatten()?;
    let at = templates.place.upload(&tenant, hash).map_err(|error| unkept(&error))?;
    draft.keep(at).await.map_err(|error| unkept(&error))?;
    Ok(StatusCode::OK.into_response())
}

async fn receive(mut draft: Draft, mut body: Body) -> Result<Draft, No> {
    let mut taken = 0_u64;
    loop {
        let frame =
            timeout(SILENCE, body.frame()).await.map_err(|_| No::new(408, "the upload did not go on"))?;
        let Some(frame) = frame else { return Ok(draft) };
        let Ok(data) = frame.map_err(|_| No::bad("the upload broke off"))?.into_data() else { continue };
        taken = taken.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
        if taken > MOST_UPLOAD {
            return Err(No::new(413, format!("an upload has at most {MOST_UPLOAD} bytes")));
        }
        draft = draft.take(&data).await.map_err(|error| unkept(&error))?;
    }
}

fn unkept(error: &io::Error) -> No {
    match error.kind() {
        io::ErrorKind::QuotaExceeded => No::new(
            507,
            "there is no room for more files of templates; delete a template, or wait two hours for uploads to go",
        ),
        io::ErrorKind::StorageFull => {
            No::new(507, "the disk of the host has no room for more files of templates")
        }
        _ => No::new(500, format!("the upload cannot be kept: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_upload_too_many_waits_for_another_and_not_for_ever() {
        let (lanes, ann): (Lanes, Tenant) = (Lanes::default(), "ann".parse().unwrap());
        let mut all: Vec<_> =
            (0..MOST_AT_ONCE).map(|_| lanes.enter(&ann).unwrap_or_else(|_| unreachable!())).collect();
        assert_eq!(lanes.wait(&ann).await.err().map(|no| no.status()), Some(429));
        let leave = async {
            sleep(LOOKS_AGAIN).await;
            all.pop();
        };
        let (waited, ()) = tokio::join!(lanes.wait(&ann), leave);
        assert!(waited.is_ok());
    }

    #[test]
    fn an_address_is_good_once_and_for_one_file() {
        let passes = Passes::default();
        let tenant: Tenant = "ours".parse().unwrap();
        let token = passes.give((&tenant, None), "a").unwrap();
        assert!(passes.take(&token, "b").is_none() && passes.take("other", "a").is_none());
        assert_eq!(passes.take(&token, "a"), Some(tenant));
        assert!(passes.take(&token, "a").is_none());
    }

    #[test]
    fn one_tenants_addresses_make_place_for_its_own_and_leave_others_theirs() {
        let passes = Passes::default();
        let (ann, bob): (Tenant, Tenant) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        let his = passes.give((&bob, None), "a").unwrap();
        let first = passes.give((&ann, None), "0").unwrap();
        assert_eq!(passes.give((&ann, None), "0").unwrap(), first, "one file has one address");
        (1..=MOST_PASSES).for_each(|number| drop(passes.give((&ann, None), &number.to_string()).unwrap()));
        assert_eq!(passes.0.lock().unwrap().len(), MOST_PASSES + 1);
        assert!(passes.take(&first, "0").is_none());
        assert_eq!(passes.take(&his, "a"), Some(bob));
    }

    #[test]
    fn an_address_is_gone_with_the_key_that_it_was_asked_for_with() {
        let scratch = crate::testing::Scratch::new("passes");
        let (keys, passes) = (Keys::in_directory(scratch.path()), Passes::default());
        let ours: Tenant = "ours".parse().unwrap();
        let [old, new] = ["old", "new"].map(|name| {
            let key = keys.create(name.parse().unwrap(), Some(ours.clone())).unwrap();
            keys.find(key.show_once()).unwrap().unwrap().1
        });
        let [old, new] = [old, new].map(|key| passes.give((&ours, Some(&key)), "a").unwrap());
        let socket = passes.give((&Tenant::local(), None), "a").unwrap();
        let whose = |token: &str| passes.whose(&keys, token, "a");
        assert!(whose(&old) == Some(ours.clone()) && whose(&new) == Some(ours.clone()));
        keys.remove(&"old".parse().unwrap()).unwrap();
        // Nor does a later key of that name bring it back.
        keys.create("old".parse().unwrap(), Some(ours.clone())).unwrap();
        assert!(whose(&old).is_none() && whose(&new) == Some(ours));
        assert_eq!(whose(&socket), Some(Tenant::local()));
    }

    #[test]
    fn one_tenant_has_few_uploads_at_once() {
        let lanes = Lanes::default();
        let (ann, bob): (Tenant, Tenant) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        let mut all: Vec<Lane<'_>> = (0..MOST_AT_ONCE).map(|_| lanes.enter(&ann).unwrap()).collect();
        assert_eq!(lanes.enter(&ann).err().unwrap().status(), 429);
        drop(lanes.enter(&bob).unwrap());
        all.pop();
        drop(lanes.enter(&ann).unwrap());
        all.clear();
        assert!(lanes.0.lock().unwrap().is_empty());
    }
}
