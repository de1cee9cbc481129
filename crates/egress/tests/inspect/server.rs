//! Servers of the world: one that remembers everything it was sent, byte by byte, and answers as it is told.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::rig::World;

/// Requests as a server saw them.
pub(crate) type Seen = Arc<Mutex<Vec<(http::request::Parts, Bytes)>>>;

/// A server that speaks what is asked for and answers each request by a function of it.
pub(crate) fn answering<F>(world: &World, names: &[&str], alpn: &[&[u8]], answer: F) -> Seen
where
    F: Fn(&http::request::Parts, &Bytes) -> Response<Full<Bytes>> + Send + Sync + 'static,
{
    let seen = Seen::default();
    let (told, answer) = (Arc::clone(&seen), Arc::new(answer));
    world.serve(world.authority().server(names, alpn), move |stream| {
        let (seen, answer) = (Arc::clone(&told), Arc::clone(&answer));
        let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let service = service_fn(move |request: Request<Incoming>| {
            let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                let response = answer(&parts, &body);
                seen.lock().unwrap().push((parts, body));
                Ok::<_, hyper::Error>(response)
            }
        });
        async move {
            let io = TokioIo::new(stream);
            if h2 {
                hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(io, service)
                    .await
                    .ok();
            } else {
                hyper::server::conn::http1::Builder::new().serve_connection(io, service).await.ok();
            }
        }
    });
    seen
}

/// A server that answers each connection with fixed bytes once it has read a head, and keeps what it read.
pub(crate) fn fixed(world: &World, names: &[&str], answer: Vec<u8>) -> Arc<Mutex<Vec<u8>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    world.serve(world.authority().server(names, &[]), move |mut stream| {
        let (seen, answer) = (Arc::clone(&told), answer.clone());
        async move {
            let mut read = Vec::new();
            let mut piece = [0; 4096];
            while !read.windows(4).any(|end| end == b"\r\n\r\n") {
                match stream.read(&mut piece).await {
                    Ok(got @ 1..) => read.extend_from_slice(&piece[..got]),
                    _ => break,
                }
            }
            seen.lock().unwrap().extend_from_slice(&read);
            stream.write_all(&answer).await.ok();
            stream.shutdown().await.ok();
        }
    });
    seen
}

/// An ordinary answer.
pub(crate) fn ok(text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    Response::new(Full::new(text.into()))
}
