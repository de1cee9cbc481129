//! The first message of a TLS client, read once for both ways on: inspection and passthrough.
//!
//! Trust: guest. Every byte is chosen by an attacker.
//!
//! rustls reads it (fragments over records and segments included); nothing here parses a name. The one thing that
//! rustls does not tell is whether the hello carries an encrypted second one; that is looked up in a message which
//! rustls has found well-formed before.

use std::io;
use std::time::Duration;

use blastbox_policy::Host;
use blastbox_wire::egress::Reason;
use rustls::server::{Accepted, Acceptor};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// A hello has a few hundred bytes; with post-quantum keys and padding a few thousand.
pub const LARGEST_HELLO: usize = 32 * 1024;
/// How long a client may take to send it.
const DEADLINE: Duration = Duration::from_secs(10);
/// `encrypted_client_hello`
const ECH: u16 = 0xfe0d;

/// Why a TLS flow has no usable beginning.
#[derive(Debug, thiserror::Error)]
pub enum BadHello {
    /// It sent too little in the time it had.
    #[error("no TLS hello within {} seconds", DEADLINE.as_secs())]
    TooSlow,
    /// It sent too much.
    #[error("the TLS hello is larger than {LARGEST_HELLO} bytes")]
    TooLarge,
    /// The connection ended first.
    #[error("the connection ended before a whole TLS hello")]
    Ended,
    /// Reading failed.
    #[error("cannot read the TLS hello")]
    Read(#[source] io::Error),
    /// These bytes are not TLS.
    #[error("not a TLS hello")]
    NotTls(#[source] rustls::Error),
    /// A connection for nobody in particular.
    #[error("the TLS hello names no server")]
    NoName,
    /// A name that is none.
    #[error("the TLS hello names a server by something that is not a host name")]
    BadName,
}

impl BadHello {
    /// Why the connection is denied; `None` where its client went away first.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::NoName => Some(Reason::NameMissing),
            Self::BadName => Some(Reason::BadName),
            Self::TooSlow => Some(Reason::Timeout),
            Self::TooLarge | Self::NotTls(_) => Some(Reason::NotTls),
            Self::Ended | Self::Read(_) => None,
        }
    }
}

/// A hello, read and held against nothing yet.
pub struct Hello {
    /// The server that the client names.
    pub name: Host,
    /// Whether an encrypted second hello is in it, real or for show: nobody can tell, which is its purpose.
    pub encrypted_inner: bool,
    /// The bytes as they came, for whoever passes them on unread.
    pub raw: Vec<u8>,
    /// For whoever answers.
    pub(super) accepted: Accepted,
}

impl std::fmt::Debug for Hello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hello")
            .field("name", &self.name)
            .field("encrypted_inner", &self.encrypted_inner)
            .finish()
    }
}

/// Reads a hello. Nothing behind it is consumed that is not in `raw`.
pub async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Hello, BadHello> {
    timeout(DEADLINE, read_whole(stream)).await.unwrap_or(Err(BadHello::TooSlow))
}

async fn read_whole<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Hello, BadHello> {
    let mut reader = Reader::default();
    let mut piece = [0; 4096];
    loop {
        let got = stream.read(&mut piece).await.map_err(BadHello::Read)?;
        let bytes = piece.get(..got).unwrap_or_default();
        if bytes.is_empty() {
            return Err(BadHello::Ended);
        }
        if let Some(hello) = reader.feed(bytes)? {
            return Ok(hello);
        }
    }
}

/// The same without a stream.
#[derive(Default)]
pub struct Reader {
    acceptor: Acceptor,
    raw: Vec<u8>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reader({} bytes)", self.raw.len())
    }
}

impl Reader {
    /// Takes the next bytes. `Ok(None)`: more are needed.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<Option<Hello>, BadHello> {
        if self.raw.len() + bytes.len() > LARGEST_HELLO {
            return Err(BadHello::TooLarge);
        }
        self.raw.extend_from_slice(bytes);
        while !bytes.is_empty() {
            self.acceptor.read_tls(&mut bytes).map_err(BadHello::Read)?;
            match self.acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => return self.found(accepted).map(Some),
                // The alert that rustls would send says no more than a closed connection.
                Err((error, _alert)) => return Err(BadHello::NotTls(error)),
            }
        }
        Ok(None)
    }

    fn found(&mut self, accepted: Accepted) -> Result<Hello, BadHello> {
        let name = accepted.client_hello().server_name().ok_or(BadHello::NoName)?.to_owned();
        let name = Host::from_bytes(name.as_bytes()).map_err(|_| BadHello::BadName)?;
        let raw = std::mem::take(&mut self.raw);
        // What cannot be walked is taken to hide something.
        let encrypted_inner = extensions(&raw).is_none_or(|found| found.contains(&ECH));
        Ok(Hello { name, encrypted_inner, raw, accepted })
    }
}

/// The kinds of the extensions of a hello.
fn extensions(raw: &[u8]) -> Option<Vec<u16>> {
    let message = handshake(raw)?;
    // Handshake kind and length, version, random.
    let rest = message.get(4 + 2 + 32..)?;
    let rest = skip(rest, 1)?; // session id
    let rest = skip(rest, 2)?; // cipher suites
    let rest = skip(rest, 1)?; // compression methods
    let (length, rest) = number(rest, 2)?;
    let mut rest = rest.get(..length)?;
    let mut kinds = Vec::new();
    while !rest.is_empty() {
        let (kind, after) = number(rest, 2)?;
        rest = skip(after, 2)?;
        kinds.push(u16::try_from(kind).ok()?);
    }
    Some(kinds)
}

/// The first handshake message, put together from its records.
fn handshake(mut raw: &[u8]) -> Option<Vec<u8>> {
    let mut message = Vec::new();
    loop {
        let (&[22, _, _, high, low], rest) = raw.split_first_chunk::<5>()? else { return None };
        let length = usize::from(u16::from_be_bytes([high, low]));
        message.extend_from_slice(rest.get(..length)?);
        raw = rest.get(length..)?;
        if let Some((length, _)) = message.get(1..).and_then(|rest| number(rest, 3))
            && let Some(whole) = message.get(..4 + length)
        {
            return Some(whole.to_vec());
        }
    }
}

/// A big-endian number of `width` bytes, and what follows.
fn number(bytes: &[u8], width: usize) -> Option<(usize, &[u8])> {
    let (digits, rest) = bytes.split_at_checked(width)?;
    Some((digits.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)), rest))
}

/// What follows a field that is preceded by its length.
fn skip(bytes: &[u8], width: usize) -> Option<&[u8]> {
    let (length, rest) = number(bytes, width)?;
    rest.get(length..)
}

#[cfg(test)]
#[path = "hello_tests.rs"]
mod tests;
