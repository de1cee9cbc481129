//! `/mcp`: the same tools over streamable HTTP, for every tenant of a daemon.
//!
//! Clients of older versions of the protocol have sessions; newer ones have none, and name the box with every call. So
//! here a box of `start_box` belongs to the tenant and stays until it is stopped, idle or too old, while the box that a
//! session has of its own goes with the session.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use axum::response::IntoResponse as _;
use blastbox_engine::keeper::{Keeper, NewBox, Tenant};
use blastbox_images::Image;
use blastbox_policy::{Bytes, PolicyError, Profile, SealedPolicy};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};

use super::desk::{Made, Scope};
use super::notebook::Notebooks;
use super::{Recipe, Session};
use crate::caller::Caller;
use crate::gather::Account;
use crate::{Hall, Trouble, take};

/// Sessions of one tenant at a time. One that says nothing for five minutes is over.
const MOST: usize = 64;
/// The limit on output is meant for one command; a session has many, and its answers are bounded anyway.
const OUTPUT: Bytes = Bytes::mib(1_024);
/// Longest message of a client.
const MOST_BODY: usize = 4 * 1024 * 1024;

type Service = StreamableHttpService<Session, LocalSessionManager>;

/// The services of a daemon, one a tenant: no session is ever found by another tenant, whatever it says its name is.
#[derive(Default)]
pub(crate) struct Services(Mutex<BTreeMap<Tenant, Service>>);

impl std::fmt::Debug for Services {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Services").finish_non_exhaustive()
    }
}

impl Services {
    fn of(&self, tenant: &Tenant, keeper: &Keeper) -> Result<Service, PolicyError> {
        let mut services = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(service) = services.get(tenant) {
            return Ok(service.clone());
        }
        let policy = Profile::Default.draft()?.output(OUTPUT).seal()?;
        let service = service(tenant.clone(), keeper.clone(), policy);
        services.insert(tenant.clone(), service.clone());
        Ok(service)
    }
}

/// A place among a tenant's sessions.
#[derive(Debug)]
pub(crate) struct Seat(Arc<AtomicUsize>);

impl Seat {
    fn take(taken: &Arc<AtomicUsize>) -> io::Result<Self> {
        // Counted first, so that two at once cannot both have the last one.
        let seat = Self(Arc::clone(taken));
        if taken.fetch_add(1, Ordering::Relaxed) >= MOST {
            return Err(io::Error::other(format!("there are {MOST} sessions already; end one")));
        }
        Ok(seat)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn service(tenant: Tenant, keeper: Keeper, policy: SealedPolicy) -> Service {
    let taken = Arc::new(AtomicUsize::new(0));
    let (notebooks, made) = (Arc::new(Notebooks::default()), Arc::new(Made::default()));
    let sealed = policy.clone();
    let recipe: Recipe = Arc::new(move || Ok(NewBox::new(sealed.clone(), Image::host())));
    let session = move || {
        let scope = Scope::Tenant {
            seat: Seat::take(&taken)?,
            notebooks: Arc::clone(&notebooks),
            made: Arc::clone(&made),
        };
        let image = Arc::new(Image::host());
        Ok(Session::with(keeper.clone(), tenant.clone(), image, Arc::clone(&recipe), scope))
    };
    // Who asks, and from which page, was looked at at the door: a key is needed, whatever the address is called.
    let config =
        StreamableHttpServerConfig::default().disable_allowed_hosts().with_max_request_body_bytes(MOST_BODY);
    let mut sessions = LocalSessionManager::default();
    // Answers are not kept for whoever might ask for them again: each may have hundreds of kilobytes, and a model in a
    // loop asks for many.
    sessions.session_config.completed_cache_ttl = Duration::ZERO;
    StreamableHttpService::new(session, Arc::new(sessions), config)
}

/// Every method of `/mcp`.
pub(crate) async fn serve(
    State(hall): State<Hall>,
    caller: Caller,
    request: Request,
) -> Result<Response<Body>, Trouble> {
    let service = hall.mcp.of(&caller.tenant, &hall.keeper).map_err(Box::new)?;
    // Here and not there, where it counts for its tenant, and whoever sends it is not waited for without end.
    let (parts, body) = request.into_parts();
    let gathered = Account::of(&parts.extensions);
    let body = take::gathered(body, gathered, MOST_BODY, take::PATIENCE).await?;
    let request = Request::from_parts(parts, Body::from(body));
    Ok(service.handle(request).await.into_response())
}
