//! One connection: a bounded head within a bounded time, one request after the other, one line in the log for each.
//!
//! A panic in a handler is answered with 500 and ends nothing else.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service;

use super::Lobby;
use super::https::TlsDoor;
use super::log::Line;
use super::seats::Seat;
use crate::Trouble;
use crate::caller::{Denied, Peer, admit};
use crate::gather::Account;

/// Bytes of a request's head. A key, a cookie or two, and what proxies add.
const MOST_HEAD: usize = 64 * 1024;
const MOST_HEADERS: usize = 64;

/// Takes a connection, where there is room.
pub(super) fn receive<S>(stream: S, peer: Peer, lobby: &Lobby)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    // Without room it is closed at once: waiting callers would only be more memory.
    let Ok(seat) = lobby.room.clone().try_acquire_owned() else { return };
    let lobby = lobby.clone();
    let seat = Arc::new(Seat::new(seat, &lobby.tenants));
    tokio::spawn(talk(stream, peer, lobby, seat));
}

/// The same for a caller who speaks TLS. It has its seat while it greets, and as long for that as for a request's head: strangers who
/// never greet must not be more than there is room for.
pub(super) fn receive_tls(stream: TcpStream, door: &TlsDoor, lobby: &Lobby) {
    let Ok(seat) = lobby.room.clone().try_acquire_owned() else { return };
    let (lobby, greeting) = (lobby.clone(), door.greet(stream));
    let seat = Arc::new(Seat::new(seat, &lobby.tenants));
    tokio::spawn(async move {
        if let Ok(Ok(stream)) = timeout(lobby.head, greeting).await {
            talk(stream, Peer::Tcp, lobby, seat).await;
        }
    });
}

async fn talk<S>(stream: S, peer: Peer, lobby: Lobby, seat: Arc<Seat>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut closed = lobby.closed.clone();
    let head = lobby.head;
    let service = service_fn(move |request: Request<Incoming>| {
        let (lobby, seat) = (lobby.clone(), Arc::clone(&seat));
        async move { Ok::<_, Infallible>(answer(request.map(Body::new), peer, &lobby, seat).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head).max_headers(MOST_HEADERS);
    builder.max_buf_size(MOST_HEAD).half_close(false);
    let mut talk = pin!(builder.serve_connection(TokioIo::new(stream), service).with_upgrades());
    tokio::select! {
        // A caller that broke off, was too slow or spoke nonsense has had its answer, if any.
        _ = talk.as_mut() => return,
        _ = closed.wait_for(|closed| *closed) => {}
    }
    talk.as_mut().graceful_shutdown();
    talk.await.ok();
}

async fn answer(mut request: Request<Body>, peer: Peer, lobby: &Lobby, seat: Arc<Seat>) -> Response<Body> {
    let begun = Instant::now();
    let caller = admit(peer, request.headers(), &lobby.hall)
        .and_then(|caller| if seat.take_for(&caller.tenant) { Ok(caller) } else { Err(Denied::Crowded) });
    let mut line = Line::of(&request, caller.as_ref().ok());
    request.extensions_mut().insert(caller);
    // Whoever takes the connection over keeps its seat.
    request.extensions_mut().insert(Arc::clone(&seat));
    // Held until it is answered: what was gathered is as large as what is made of it.
    let gathered = Account::new(&lobby.hall.bodies, seat);
    request.extensions_mut().insert(Arc::clone(&gathered));
    let response = carry_out(lobby.router.clone(), request).await;
    drop(gathered);
    line.answered(&response, begun.elapsed());
    lobby.log.write(&line);
    response
}

/// Asks the router, and lives through it.
pub(super) async fn carry_out(mut router: Router, request: Request<Body>) -> Response<Body> {
    let mut asked = pin!(async move { Service::call(&mut router, request).await });
    let answered = std::future::poll_fn(|context| {
        match catch_unwind(AssertUnwindSafe(|| asked.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(Ok(response))) => Poll::Ready(response),
            Ok(Poll::Ready(Err(never))) => match never {},
            // Never polled again, so nothing of it is seen half done.
            Err(_) => Poll::Ready(Trouble::Defect.into_response()),
        }
    });
    answered.await
}

#[cfg(test)]
mod tests {
    use axum::routing::get;

    use super::*;

    async fn broken() -> Trouble {
        panic!("a defect");
    }

    #[tokio::test]
    async fn a_panic_in_a_handler_is_an_answer_and_the_next_request_is_served() {
        let router = Router::new().route("/a", get(broken)).route("/b", get(async || Trouble::NoRoute));
        let ask = |path: &str| Request::builder().uri(path).body(Body::empty()).unwrap();
        assert_eq!(carry_out(router.clone(), ask("/a")).await.status(), 500);
        assert_eq!(carry_out(router, ask("/b")).await.status(), 404);
    }
}
