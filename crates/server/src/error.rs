//! Why there is no door.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::KeyError;

/// Why callers cannot be let in.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// The socket cannot be made.
    #[error("cannot {tried} the socket {path}")]
    Socket {
        /// What was tried.
        tried: &'static str,
        /// The socket.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Another daemon answers there.
    #[error("a daemon answers on {path} already")]
    Taken {
        /// The socket.
        path: PathBuf,
    },
    /// Something else has that name.
    #[error("{path} is not a socket, and is left as it is")]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// The kernel takes no such path.
    #[error("the path of the socket {path} is longer than {most} bytes")]
    LongSocket {
        /// The socket.
        path: PathBuf,
        /// How long it may be.
        most: usize,
    },
    /// The port cannot be had.
    #[error("cannot listen on {address}")]
    Port {
        /// The address.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Everybody who reaches the address could come in.
    #[error(
        "refused to listen on {address}: it can be reached from other hosts, and there is no API key that would keep them out"
    )]
    NoKeys {
        /// The address.
        address: SocketAddr,
    },
    /// The keys cannot be read.
    #[error(transparent)]
    Keys(KeyError),
    /// The state directory cannot be used.
    #[error("cannot {tried} the state directory {path}")]
    State {
        /// What was tried.
        tried: &'static str,
        /// The directory.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The certificate of the door with TLS cannot be used.
    #[error("cannot use {path} for e2b.https: {why}")]
    Certificate {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// Another daemon has it.
    #[error("another daemon uses the state directory {path}")]
    StateTaken {
        /// The directory.
        path: PathBuf,
    },
}

impl DoorError {
    /// What to do about it.
    #[must_use]
    pub fn fix(&self) -> Option<&'static str> {
        match self {
            Self::Taken { .. } => Some("use that one, or name another socket with --socket"),
            Self::NotASocket { .. } | Self::LongSocket { .. } | Self::Socket { .. } => {
                Some("name another socket with --socket")
            }
            Self::NoKeys { .. } => Some("make a key first: blastbox key create NAME; or listen on 127.0.0.1"),
            Self::Port { .. } => Some("name another address with --listen"),
            Self::State { .. } => Some("name another directory with --state-dir"),
            Self::StateTaken { .. } => Some(
                "name another directory with --state-dir, or end the daemon first: one process at a time writes a ledger",
            ),
            Self::Certificate { .. } => Some(
                "name a chain and its key as PEM, the key closed to others; or neither, for an authority of our own",
            ),
            Self::Keys(_) => None,
        }
    }
}
