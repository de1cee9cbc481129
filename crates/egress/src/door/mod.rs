//! The second door: programs that want a proxy find one at the gateway's address, HTTP CONNECT and SOCKS5. And the third:
//! requests that the engine brings, of boxes that have no link ([`call`]).
//!
//! They lead into the same decision as packets do, and grant nothing that they would not be granted.

pub mod call;
pub mod proxy_connect;
pub mod socks;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use blastbox_wire::egress::{Door, HTTP_PROXY_PORT, Reason, SOCKS_PORT};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::decide::{Ask, Said, Target, Verdict};
use crate::end::End;
use crate::flow::Flow;
use crate::house::House;
use crate::report::Denial;
use crate::serve;
use crate::side::Side;

/// How long a program may take to say where it wants to go.
const PATIENCE: Duration = Duration::from_secs(15);

/// Connections that have not yet said where they want to go.
const MOST_KNOCKING: usize = 64;

/// A place among those who knock. Given back when dropped.
#[derive(Debug)]
pub struct Knock(Arc<AtomicUsize>);

impl Knock {
    /// A place, if there is one.
    #[must_use]
    pub fn at(knocking: &Arc<AtomicUsize>) -> Option<Self> {
        let before = knocking.fetch_add(1, Ordering::Relaxed);
        let knock = Self(Arc::clone(knocking));
        (before < MOST_KNOCKING).then_some(knock)
    }
}

impl Drop for Knock {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a program wants of the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// More bytes are needed.
    Unfinished,
    /// A connection, and how many bytes said so.
    Connect {
        /// Where to.
        target: Asked,
        /// On which port.
        port: u16,
        /// How many bytes said so.
        length: usize,
    },
    /// Something that is not granted: what to answer, and why.
    Refused {
        /// What to answer.
        answer: Vec<u8>,
        /// Why.
        reason: Reason,
        /// What was asked for, as far as it can be shown.
        shown: String,
    },
    /// A greeting that has to be answered before the wish comes.
    Greeting {
        /// The answer.
        answer: Vec<u8>,
        /// How many bytes were the greeting.
        length: usize,
    },
}

/// Where to, as the program said it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// A name.
    Name(blastbox_policy::Host),
    /// An address.
    Address(std::net::IpAddr),
}

/// One way of speaking with a proxy.
struct Speech {
    door: Door,
    read: fn(&[u8], greeted: bool) -> Wish,
    granted: &'static [u8],
    denied: fn(Reason) -> Vec<u8>,
    longest: usize,
}

const CONNECT: Speech = Speech {
    door: Door::Connect,
    read: proxy_connect::read,
    granted: b"HTTP/1.1 200 OK\r\n\r\n",
    denied: proxy_connect::denied,
    longest: 8 * 1024,
};

const SOCKS: Speech = Speech {
    door: Door::Socks,
    read: socks::read,
    granted: &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0],
    denied: socks::denied,
    longest: 512,
};

/// Whether something listens on this port of the gateway.
#[must_use]
pub fn is_open(port: u16) -> bool {
    [HTTP_PROXY_PORT, SOCKS_PORT].contains(&port)
}

/// Serves one connection to a port of the gateway.
pub async fn serve(stream: Side, port: u16, house: Arc<House>, knock: Knock) {
    let speech = if port == SOCKS_PORT { SOCKS } else { CONNECT };
    // A program that breaks off has said nothing that could be decided.
    answer(stream, &speech, house, knock).await.ok();
}

async fn answer(mut stream: Side, speech: &Speech, house: Arc<House>, knock: Knock) -> io::Result<()> {
    let Ok(wish) = tokio::time::timeout(PATIENCE, listen(&mut stream, speech)).await else { return Ok(()) };
    let (target, port, early) = match wish? {
        Heard::Wish { target, port, early } => (target, port, early),
        Heard::Refused { answer, reason, shown } => {
            house.reporter().denied(Denial::of_text(speech.door, shown, 0, reason));
            stream.write_all(&answer).await?;
            return stream.shutdown().await;
        }
    };
    let target = match target {
        Asked::Name(name) => Target::Name(name),
        Asked::Address(address) => house.meaning(address),
    };
    let ask = Ask { target: &target, port, said: Said::Nothing };
    let admitted = match house.decide(&ask) {
        Verdict::Allow(allowed) => house.admit(speech.door, allowed),
        Verdict::Deny(reason) => Err(reason),
    };
    let flow: Flow = match admitted {
        Ok(flow) => flow,
        Err(reason) => {
            house.reporter().denied(Denial::of(speech.door, &target, port, reason));
            stream.write_all(&(speech.denied)(reason)).await?;
            return stream.shutdown().await;
        }
    };
    // From here on it counts as a connection.
    drop(knock);
    stream.write_all(speech.granted).await?;
    serve::serve(Begun { early, stream }, flow, house).await;
    Ok(())
}

enum Heard {
    Wish { target: Asked, port: u16, early: Vec<u8> },
    Refused { answer: Vec<u8>, reason: Reason, shown: String },
}

async fn listen(stream: &mut Side, speech: &Speech) -> io::Result<Heard> {
    let mut bytes = Vec::new();
    let mut greeted = false;
    loop {
        match (speech.read)(&bytes, greeted) {
            Wish::Unfinished if bytes.len() > speech.longest => return Err(io::ErrorKind::InvalidData.into()),
            Wish::Unfinished => {
                if stream.read_buf(&mut bytes).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Wish::Greeting { answer, length } => {
                greeted = true;
                bytes.drain(..length.min(bytes.len()));
                stream.write_all(&answer).await?;
            }
            Wish::Connect { target, port, length } => {
                // What was said in advance already belongs to the connection.
                let early = bytes.split_off(length.min(bytes.len()));
                return Ok(Heard::Wish { target, port, early });
            }
            Wish::Refused { answer, reason, shown } => return Ok(Heard::Refused { answer, reason, shown }),
        }
    }
}

/// A stream of which the first bytes have been read already.
#[derive(Debug)]
struct Begun {
    early: Vec<u8>,
    stream: Side,
}

impl End for Begun {
    fn socket(&self) -> Option<&tokio::net::TcpStream> {
        self.stream.socket().filter(|_| self.early.is_empty())
    }
}

impl AsyncRead for Begun {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        if self.early.is_empty() {
            return std::pin::Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let length = self.early.len().min(buffer.remaining());
        let first: Vec<u8> = self.early.drain(..length).collect();
        buffer.put_slice(&first);
        std::task::Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Begun {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        std::pin::Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
