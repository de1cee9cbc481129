//! HTTP, request by request: ended here with hyper and made anew with hyper, so a server sees only messages that we
//! wrote. [`serve`] is for connections in the clear, [`serve_inspected`] for those whose TLS was ended here.

mod answer;
mod body;
mod exchange;
pub mod framing;
mod guard;
mod head;
mod scrubbable;
mod tunnel;
mod unreached;
mod upstream;
mod websocket;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use blastbox_wire::egress::Reason;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use self::exchange::{Room, carry_tunnel};
use self::guard::Guarded;
use self::head::Addressed;
use self::upstream::{Speech, Upstream, WithFlow};
use crate::credentials::{Inspected, Keyring};
use crate::decide::Target;
use crate::flow::Flow;
use crate::house::House;
use crate::tls::Offer;

/// How long a guest may take for the head of a request, and keep a connection open without one.
const HEAD_TIME: Duration = Duration::from_secs(60);
/// Requests at the same time on one HTTP/2 connection.
const MOST_STREAMS: u32 = 64;

/// The refusal of a whole connection, for whoever would send a request on it.
pub(crate) fn refuse(reason: Reason, host: &str) -> Vec<u8> {
    answer::raw_refusal(reason.as_str(), host, "the rules of this box do not let it there")
}

/// Serves a connection in the clear.
pub async fn serve<S>(stream: S, flow: Flow, house: Arc<House>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Target::Name(host) = flow.target().clone() else { return flow.deny(Reason::AddressNotAllowed) };
    let to = Addressed { host, port: flow.port(), scheme: "http" };
    let keyring = house.inspection().map_or_else(Arc::default, |inspection| Arc::clone(inspection.keyring()));
    one_by_one(stream, flow, house, to, None, keyring, Speech::Plain).await;
}

/// What the guest and we have agreed to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spoken {
    Http1,
    Http2,
}

/// Serves a connection whose TLS was ended here, for the name that it was certified for.
pub(crate) async fn serve_inspected<S>(
    stream: S,
    spoken: Spoken,
    flow: Flow,
    house: Arc<House>,
    inspected: Inspected,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Some(inspection) = house.inspection() else { return flow.deny(Reason::InspectionNotBuilt) };
    let (roots, keyring) = (inspection.roots().clone(), Arc::clone(inspection.keyring()));
    let to = Addressed { host: inspected.host().clone(), port: inspected.port(), scheme: "https" };
    match spoken {
        Spoken::Http1 => {
            let speech = Speech::Tls(roots, Offer::Http1);
            Box::pin(one_by_one(stream, flow, house, to, Some(inspected), keyring, speech)).await;
        }
        Spoken::Http2 => {
            let speech = Speech::Tls(roots, Offer::Both);
            Box::pin(shared(stream, flow, house, to, inspected, keyring, speech)).await;
        }
    }
}

/// HTTP/1: one request after the other, each looked at by the guard.
async fn one_by_one<S>(
    stream: S,
    flow: Flow,
    house: Arc<House>,
    to: Addressed,
    inspected: Option<Inspected>,
    keyring: Arc<Keyring>,
    speech: Speech,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let open = Arc::new(AtomicBool::new(false));
    let (tunnels, mut upgraded) = mpsc::channel(1);
    let upstream = Upstream::new(Arc::clone(&house), flow.clone(), speech);
    let host = to.host.to_string();
    let room = Room {
        house,
        flow: flow.clone(),
        to,
        inspected,
        keyring,
        upstream,
        open: Arc::clone(&open),
        tunnels,
    };
    let room = Arc::new(room);
    let answer = move |request: Request<Incoming>| {
        let room = Arc::clone(&room);
        // A connection has room for one from its first request to its end.
        Box::pin(async move { Ok::<_, Infallible>(room.answer(request).await) })
    };
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_headers(framing::MOST_HEADERS + 1)
        .max_buf_size(framing::LONGEST_HEAD + 8 * 1024)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(Guarded::new(stream, open)), service_fn(answer))
        .with_upgrades();
    // What went wrong on the guest's own connection concerns nobody else; only a violation is answered.
    (&mut connection).await.ok();
    if let Some(parts) = connection.into_parts()
        && let (mut stream, Some(violation)) = parts.io.into_inner().into_parts()
    {
        flow.deny(Reason::BadRequest);
        let refusal = answer::raw_refusal(Reason::BadRequest.as_str(), &host, &violation.to_string());
        // The guest may have closed already; it knows what it sent.
        stream.write_all(&refusal).await.ok();
        stream.shutdown().await.ok();
        return;
    }
    // The service is gone with the connection, so nothing more can arrive here than what is there.
    if let Ok(tunnel) = upgraded.try_recv() {
        carry_tunnel(tunnel).await;
    }
}

/// HTTP/2: bounded in every direction that a guest can push.
async fn shared<S>(
    stream: S,
    flow: Flow,
    house: Arc<House>,
    to: Addressed,
    inspected: Inspected,
    keyring: Arc<Keyring>,
    speech: Speech,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // No upgrades here: extended CONNECT is not offered.
    let (tunnels, _) = mpsc::channel(1);
    let upstream = Upstream::new(Arc::clone(&house), flow.clone(), speech);
    let (open, with_flow) = (Arc::default(), WithFlow(flow.stop()));
    let room =
        Arc::new(Room { house, flow, to, inspected: Some(inspected), keyring, upstream, open, tunnels });
    let answer = move |request: Request<Incoming>| {
        let room = Arc::clone(&room);
        // A connection has room for one from its first request to its end.
        Box::pin(async move { Ok::<_, Infallible>(room.answer(request).await) })
    };
    let connection = http2::Builder::new(with_flow)
        .timer(TokioTimer::new())
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(u32::try_from(framing::LONGEST_HEAD).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(20)
        .max_local_error_reset_streams(64)
        .initial_stream_window_size(256 * 1024)
        .initial_connection_window_size(1024 * 1024)
        .max_send_buf_size(64 * 1024)
        .keep_alive_interval(Duration::from_secs(30))
        .auto_date_header(false)
        .serve_connection(TokioIo::new(stream), service_fn(answer));
    // What the guest broke on its own connection concerns nobody else.
    connection.await.ok();
}
