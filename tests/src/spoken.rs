//! Requests to a daemon without an SDK, for what no SDK does: half of one, or two at a time.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::suites::Daemon;

/// Sends the beginning of a request over a connection of its own.
pub fn begin(daemon: &Daemon, head: &str, body: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(daemon.url.trim_start_matches("http://")).expect("connect");
    stream
        .write_all(format!("{head}\r\nHost: volumes\r\nConnection: close\r\n\r\n").as_bytes())
        .expect("ask");
    // An error: it is answered before everything was sent.
    stream.write_all(body).ok();
    stream
}

/// Everything that is answered.
pub fn end(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    // An error: the connection ends behind the answer, with what nobody read.
    stream.read_to_end(&mut answer).ok();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Asks, and waits for the answer.
pub fn ask(daemon: &Daemon, head: &str, body: &[u8]) -> String {
    end(begin(daemon, head, body))
}

/// Asks with the daemon's key.
pub fn with_key(daemon: &Daemon, what: &str, body: &str) -> String {
    let head = format!(
        "{what} HTTP/1.1\r\nX-API-KEY: {}\r\nContent-Type: application/json\r\nContent-Length: {}",
        daemon.key,
        body.len()
    );
    ask(daemon, &head, body.as_bytes())
}

/// A text in the JSON of an answer.
pub fn field(answer: &str, name: &str) -> String {
    let value = answer.split(&format!("\"{name}\":\"")).nth(1).and_then(|rest| rest.split('"').next());
    value.unwrap_or_else(|| panic!("no {name}: {answer}")).to_owned()
}
