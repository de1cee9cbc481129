//! Looking names up, on the host's side and only after the decision.
//!
//! A small resolver of our own: the programs are static, and the C library's would load modules from disk. It asks the
//! host's resolvers for A and AAAA, takes what they answer for the name that was asked, and follows no alias itself.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use blastbox_policy::Host;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Duration, Instant, timeout};

use crate::dns::upstream::{self, Kind};

/// How long one resolver may take for one question.
const PATIENCE: Duration = Duration::from_secs(3);
/// Rounds over all resolvers.
const ROUNDS: usize = 2;
/// Answers that are remembered.
const REMEMBERED: usize = 256;
/// The longest that an answer is remembered, whatever its own time to live.
const LONGEST: Duration = Duration::from_secs(60);

/// Why a name has no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// The resolvers say so.
    #[error("the name has no address")]
    NotFound,
    /// No resolver answered.
    #[error("no resolver answered")]
    NoAnswer,
}

/// Asks the host's resolvers.
#[derive(Debug)]
pub struct Resolver {
    servers: Vec<SocketAddr>,
    remembered: Mutex<HashMap<Host, (Instant, Vec<IpAddr>)>>,
}

impl Resolver {
    /// Asks these, in this order.
    #[must_use]
    pub fn new(servers: Vec<SocketAddr>) -> Self {
        Self { servers, remembered: Mutex::default() }
    }

    /// The addresses of a name, IPv4 first.
    pub async fn look_up(&self, name: &Host) -> Result<Vec<IpAddr>, LookupError> {
        if let Some(found) = self.recall(name) {
            return Ok(found);
        }
        let (v4, v6) = tokio::join!(self.ask(name, Kind::A), self.ask(name, Kind::Aaaa));
        let error = match (&v4, &v6) {
            (Err(LookupError::NoAnswer), _) | (_, Err(LookupError::NoAnswer)) => LookupError::NoAnswer,
            _ => LookupError::NotFound,
        };
        let mut shortest = LONGEST;
        let mut found = Vec::new();
        for answer in [v4, v6].into_iter().flatten() {
            shortest = shortest.min(Duration::from_secs(u64::from(answer.seconds)));
            found.extend(answer.addresses);
        }
        if found.is_empty() {
            return Err(error);
        }
        self.remember(name, &found, shortest);
        Ok(found)
    }

    fn recall(&self, name: &Host) -> Option<Vec<IpAddr>> {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, found) = remembered.get(name)?;
        if *until > Instant::now() {
            return Some(found.clone());
        }
        remembered.remove(name);
        None
    }

    fn remember(&self, name: &Host, found: &[IpAddr], how_long: Duration) {
        if how_long.is_zero() {
            return;
        }
        let now = Instant::now();
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= REMEMBERED {
            remembered.retain(|_, (until, _)| *until > now);
        }
        if remembered.len() < REMEMBERED {
            remembered.insert(name.clone(), (now + how_long, found.to_vec()));
        }
    }

    async fn ask(&self, name: &Host, kind: Kind) -> Result<upstream::Answer, LookupError> {
        let mut last = LookupError::NoAnswer;
        for server in self.servers.iter().cycle().take(self.servers.len() * ROUNDS) {
            match timeout(PATIENCE, exchange(*server, name, kind)).await {
                Ok(Ok(answer)) if answer.addresses.is_empty() => return Err(LookupError::NotFound),
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(_)) | Err(_) => last = LookupError::NoAnswer,
            }
        }
        Err(last)
    }
}

/// One question to one resolver, by UDP and where the answer is cut off by TCP.
async fn exchange(server: SocketAddr, name: &Host, kind: Kind) -> io::Result<upstream::Answer> {
    let mut id = [0_u8; 2];
    rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())?;
    let question = upstream::question(u16::from_be_bytes(id), name, kind);
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // A port of its own for each question, chosen by the kernel: an answer that is forged must guess it and the id.
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(&question).await?;
    let mut buffer = vec![0_u8; 4096];
    loop {
        let length = socket.recv(&mut buffer).await?;
        match upstream::answer(buffer.get(..length).unwrap_or_default(), u16::from_be_bytes(id), name, kind) {
            Ok(upstream::Heard::Answer(answer)) => return Ok(answer),
            Ok(upstream::Heard::CutOff) => {
                return exchange_tcp(server, &question, u16::from_be_bytes(id), name, kind).await;
            }
            // Not an answer to this question: somebody guesses, or it is late.
            Ok(upstream::Heard::Another) | Err(upstream::Broken) => {}
            Ok(upstream::Heard::Failure) => return Err(io::Error::other("the resolver failed")),
        }
    }
}

async fn exchange_tcp(
    server: SocketAddr,
    question: &[u8],
    id: u16,
    name: &Host,
    kind: Kind,
) -> io::Result<upstream::Answer> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), question].concat()).await?;
    let mut length = [0_u8; 2];
    stream.read_exact(&mut length).await?;
    let mut buffer = vec![0_u8; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut buffer).await?;
    match upstream::answer(&buffer, id, name, kind) {
        Ok(upstream::Heard::Answer(answer)) => Ok(answer),
        _ => Err(io::Error::other("the resolver answered something else")),
    }
}
