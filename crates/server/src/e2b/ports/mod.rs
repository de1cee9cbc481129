//! Ports of a sandbox: HTTP/1.1 and WebSockets to a server inside, for whoever names `PORT-ID.domain` as the host.
//!
//! Trust: caller. What the server inside answers is read by the HTTP library, within bounds, and passed on; requests are
//! passed on as they are, less the headers that open something here: those of [`OURS`], and `Authorization` where it holds a key. Keys
//! elsewhere (a body, a cookie, another header) are the client's own and pass. Must not: listen on, or connect to, any port of the host.

mod front;
mod pace;
mod relay;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    AUTHORIZATION, CONNECTION, HOST, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, Version};
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

use super::desk::Desk;
use super::edge;
use super::no::No;
use super::sandbox::Sandbox;
use crate::door::Seat;
use crate::keys::PREFIXES;

pub(super) use front::Front;
use front::{Line, encrypted};
pub(super) use pace::Pace;

const TRAFFIC_TOKEN: HeaderName = HeaderName::from_static("e2b-traffic-access-token");
/// What opens something here, and is not for whoever listens in the box.
const OURS: [&str; 5] =
    ["e2b-sandbox-id", "e2b-sandbox-port", "x-access-token", "x-api-key", "e2b-traffic-access-token"];
/// How long a server may take until its answer begins.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long it may take over a greeting.
const HANDSHAKE: Duration = Duration::from_secs(20);
/// What the answer of a server may begin with. It is the guest's.
const MOST_HEAD: usize = 64 * 1024;
const MOST_HEADERS: usize = 128;

/// Answers a request to a port that its sandbox's owner has opened by listening on it.
pub(super) async fn answer(
    desk: &Arc<Desk>,
    sandbox: &Arc<Sandbox>,
    port: u16,
    request: Request,
) -> Result<Response<Body>, No> {
    let id = sandbox.id();
    let place = let_in(sandbox, port, &request)?;
    // Whoever may reach a port may wake what listens there: its owner has said so.
    desk.wake(sandbox).await?;
    let line = relay::dial(desk.keeper(), sandbox, port, place).await;
    let line = line.map_err(|_| if desk.runs(sandbox) { No::port_closed(id, port) } else { No::gone(id) })?;
    let mut line: Box<dyn Line> = Box::new(line);
    if sandbox.front.is_https(port) {
        let silent = || No::new(502, "the server in the sandbox did not answer in TLS");
        line = timeout(HANDSHAKE, encrypted(line)).await.map_err(|_| silent())?.map_err(|_| silent())?;
    }
    let broken = |_| No::new(502, "the server in the sandbox did not answer in HTTP/1.1");
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MOST_HEAD).max_headers(MOST_HEADERS);
    let (mut asks, talk) = builder.handshake::<_, Body>(TokioIo::new(line)).await.map_err(broken)?;
    tokio::spawn(talk.with_upgrades());
    let (mut request, switch) = pass_on(request)?;
    if let Some(host) = sandbox.front.host(port) {
        request.headers_mut().insert(HOST, host);
    }
    let answered = timeout(PATIENCE, asks.send_request(request)).await;
    let answered = answered.map_err(|_| No::new(504, "the server in the sandbox did not answer in time"))?;
    let mut answered = answered.map_err(broken)?;
    match switch {
        Some(switch) if answered.status() == StatusCode::SWITCHING_PROTOCOLS => {
            tokio::spawn(join(switch, hyper::upgrade::on(&mut answered)));
            strip(answered.headers_mut(), Keep::Upgrade);
        }
        // A server that switches without having been asked to is none.
        None if answered.status() == StatusCode::SWITCHING_PROTOCOLS => {
            return Err(No::new(502, "the server in the sandbox did not answer in HTTP/1.1"));
        }
        Some(_) | None => strip(answered.headers_mut(), Keep::Nothing),
    }
    Ok(answered.map(Body::new))
}

/// Whether a request brings along what its owner demands of traffic to the ports.
pub(super) fn show_traffic_token(sandbox: &Sandbox, request: &Request) -> Result<(), No> {
    match &sandbox.traffic_token {
        Some(token)
            if !request.headers().get(TRAFFIC_TOKEN).is_some_and(|given| token.is(given.as_bytes())) =>
        {
            Err(No::new(403, "this sandbox takes no traffic without its traffic access token"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Whether a request may go to a port, and its place among those that do. From here on the connection is one of the
/// owner's tenant, with the token or without: whoever fills the ports of one tenant fills nobody else's seats, and a
/// stranger not all of its owner's.
pub(super) fn let_in(sandbox: &Sandbox, port: u16, request: &Request) -> Result<OwnedSemaphorePermit, No> {
    show_traffic_token(sandbox, request)?;
    // Nothing listens on port 0, wherever.
    if port == 0 {
        return Err(No::port_closed(sandbox.id(), port));
    }
    let place = Arc::clone(&sandbox.lines).try_acquire_owned();
    let place =
        place.map_err(|_| No::new(429, "too many connections to the ports of this sandbox at once"))?;
    if !sandbox.pace.take(Instant::now()) {
        return Err(No::new(429, "too many connections to the ports of this sandbox within a short time"));
    }
    match &sandbox.traffic_token {
        Some(_) => edge::sit_down(request, &sandbox.tenant)?,
        None => edge::sit_down_as_stranger(request, &sandbox.tenant)?,
    }
    Ok(place)
}

/// A client's line that may become something else than HTTP, with its seat at the door.
struct Switch {
    line: OnUpgrade,
    _seat: Option<Arc<Seat>>,
}

/// From one line to the other, until one of them is gone.
async fn join(switch: Switch, server: OnUpgrade) {
    let (Ok(client), Ok(server)) = tokio::join!(switch.line, server) else { return };
    let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
    // Whichever breaks off: the other hears of it by its own end.
    tokio::io::copy_bidirectional(&mut client, &mut server).await.ok();
}

/// The request as the server gets it.
fn pass_on(request: Request) -> Result<(Request, Option<Switch>), No> {
    let (mut parts, body) = request.into_parts();
    let upgrades = names(&parts.headers).any(|name| name == UPGRADE) && parts.headers.contains_key(UPGRADE);
    let line = parts.extensions.remove::<OnUpgrade>();
    let seat = parts.extensions.get::<Arc<Seat>>().cloned();
    let switch = line.filter(|_| upgrades).map(|line| Switch { line, _seat: seat });
    strip(&mut parts.headers, if switch.is_some() { Keep::Upgrade } else { Keep::Nothing });
    for name in OURS {
        parts.headers.remove(name);
    }
    // By the word that a key would be: `Bearer KEY`, or the key alone. A caller's own token may have such letters in the middle.
    let a_key = |word: &str| PREFIXES.iter().any(|key| word.starts_with(key));
    let ours = |value: &HeaderValue| value.to_str().is_ok_and(|text| text.split_whitespace().any(a_key));
    if parts.headers.get_all(AUTHORIZATION).iter().any(ours) {
        parts.headers.remove(AUTHORIZATION);
    }
    // What the client named itself; a server of many names tells them apart by it.
    if let Some(host) = parts.uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok()) {
        parts.headers.insert(HOST, host);
    }
    let path = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let mut passed = Request::new(body);
    *passed.uri_mut() = Uri::from(path);
    (*passed.method_mut(), *passed.version_mut()) = (parts.method, Version::HTTP_11);
    *passed.headers_mut() = parts.headers;
    Ok((passed, switch))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    Nothing,
    /// The two headers that turn a connection into something else.
    Upgrade,
}

/// The headers that `Connection` names.
fn names(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> + '_ {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok())
}

/// Takes away what is about one connection and no other.
fn strip(headers: &mut HeaderMap, keep: Keep) {
    let named: Vec<HeaderName> = names(headers).collect();
    let upgrade = headers.get(UPGRADE).cloned();
    for name in named {
        headers.remove(name);
    }
    for name in [CONNECTION, UPGRADE, TE, TRAILER, TRANSFER_ENCODING, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION]
    {
        headers.remove(name);
    }
    headers.remove("keep-alive");
    headers.remove("proxy-connection");
    if let (Keep::Upgrade, Some(upgrade)) = (keep, upgrade) {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, upgrade);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::Semaphore;

    use super::super::control::network::Reaches;
    use super::super::sandbox::{AtTimeout, Envs, Made, OnTraffic, Plans};
    use super::super::template::Size;
    use super::super::token::Token;
    use super::*;
    use crate::door::Tenants;

    fn sandbox(traffic_token: Option<Token>) -> Sandbox {
        Sandbox::new(Made {
            box_id: "bx_aaaaaaaaaaaaaaaaaaaa".parse().unwrap(),
            tenant: "ann".parse().unwrap(),
            template: "base".to_owned(),
            token: Token::new().unwrap(),
            traffic_token,
            size: Size { cpus: 1, memory_mib: 1, disk_mib: 1 },
            has_root: false,
            envs: Envs::default(),
            plans: Plans {
                on_timeout: AtTimeout::Kill,
                on_traffic: OnTraffic::StayPaused,
                internet: None,
                reaches: Reaches::Nothing,
            },
            life: Duration::from_secs(1),
            workdir: None,
        })
    }

    #[test]
    fn a_connection_to_a_port_counts_among_the_owners_with_a_token_and_without() {
        let token = Token::new().unwrap();
        for sandbox in [sandbox(None), sandbox(Some(token.clone()))] {
            let (room, tenants) = (Arc::new(Semaphore::new(8)), Tenants::new(1));
            let connection = || {
                let seat = Seat::new(Arc::clone(&room).try_acquire_owned().unwrap(), &tenants);
                let request = Request::builder().header(TRAFFIC_TOKEN, token.show_to_owner());
                request.extension(Arc::new(seat)).body(Body::empty()).unwrap()
            };
            let (one, other) = (connection(), connection());
            assert!(let_in(&sandbox, 80, &one).is_ok() && let_in(&sandbox, 80, &one).is_ok());
            assert_eq!(let_in(&sandbox, 80, &other).unwrap_err().status(), 429);
            drop(one);
            assert!(let_in(&sandbox, 80, &other).is_ok());
        }
    }

    #[test]
    fn connections_begin_no_faster_than_their_pace() {
        let sandbox = sandbox(None);
        let request = Request::new(Body::empty());
        let begun = (0..1_000).filter(|_| let_in(&sandbox, 80, &request).is_ok()).count();
        assert!((200..1_000).contains(&begun), "{begun}");
        assert_eq!(let_in(&sandbox, 0, &request).unwrap_err().status(), 502);
    }

    #[test]
    fn what_is_refused_takes_no_seat() {
        let sandbox = sandbox(Some(Token::new().unwrap()));
        let tenants = Tenants::new(0);
        let seat = Seat::new(Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap(), &tenants);
        let request = Request::builder().extension(Arc::new(seat)).body(Body::empty()).unwrap();
        assert_eq!(let_in(&sandbox, 80, &request).unwrap_err().status(), 403);
    }

    fn passed(headers: &[(&str, &str)]) -> HeaderMap {
        let mut request = Request::builder().uri("/a?b=c");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (request, switch) = pass_on(request.body(Body::empty()).unwrap()).unwrap();
        assert!(switch.is_none() && request.uri() == "/a?b=c");
        request.headers().clone()
    }

    #[test]
    fn keys_and_tokens_do_not_reach_the_box() {
        let headers = passed(&[
            ("host", "80-abc.test"),
            ("x-access-token", "t"),
            ("e2b-traffic-access-token", "t"),
            ("e2b-sandbox-id", "abc"),
            ("e2b-sandbox-port", "80"),
            ("x-api-key", "bbx_x"),
            ("authorization", "Bearer bbx_x"),
            ("cookie", "a=b"),
        ]);
        assert_eq!(headers.len(), 2);
        assert!(headers["host"] == "80-abc.test" && headers["cookie"] == "a=b");
        assert!(passed(&[("authorization", "Bearer e2b_0f")]).is_empty());
        assert!(passed(&[("authorization", "bbx_x")]).is_empty());
        for theirs in ["Basic eDp5", "Bearer mine-bbx_x", "Bearer aaae2b_0f"] {
            assert_eq!(passed(&[("authorization", theirs)])["authorization"], theirs);
        }
    }

    #[test]
    fn what_is_about_one_connection_stays_with_it() {
        let headers = passed(&[
            ("connection", "keep-alive, x-mine"),
            ("x-mine", "1"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("x-other", "2"),
        ]);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-other"]);
    }
}
