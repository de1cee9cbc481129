//! Why an image was not pulled.

use std::io;

use blastbox_images::StoreError;
use blastbox_images::oci::OciError;
use hyper::StatusCode;

use crate::outbound::BadTarget;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// Nothing is sent in the open to another machine.
    #[error("{address} would be asked without encryption")]
    Insecure {
        /// Which address.
        address: String,
    },
    /// Nobody answers there.
    #[error("cannot connect to {host}")]
    Connect {
        /// Which host.
        host: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It is not HTTP that answers, or it broke off.
    #[error("the answer of {host} cannot be read")]
    Talk {
        /// Which host.
        host: String,
        /// Why not.
        #[source]
        source: hyper::Error,
    },
    /// Nothing came in time.
    #[error("{host} says nothing any more")]
    TooSlow {
        /// Which host.
        host: String,
    },
    /// It says no.
    #[error("{host} answers {status} for {what}")]
    Status {
        /// Which host.
        host: String,
        /// What was asked for.
        what: String,
        /// The answer.
        status: StatusCode,
    },
    /// It asks for something that we do not have, or does not take what we have.
    #[error("{host} lets nobody in: {why}")]
    Auth {
        /// Which host.
        host: String,
        /// Why not.
        why: String,
    },
    /// It sends us elsewhere, too often or to where nothing is asked.
    #[error("{host} sends us on, and that is not followed: {why}")]
    Redirect {
        /// Which host.
        host: String,
        /// Why not.
        why: String,
    },
    /// What it sends is not what was asked for.
    #[error("what {host} sends for {what} is not it: {why}")]
    Answer {
        /// Which host.
        host: String,
        /// What was asked for.
        what: String,
        /// Why not.
        why: String,
    },
    /// The content is not what its digest says.
    #[error("{host} lies about {what}: {why}")]
    Lie {
        /// Which host.
        host: String,
        /// What was asked for.
        what: String,
        /// How.
        why: String,
    },
    /// TLS, or a file that was named for it.
    #[error(transparent)]
    Tls(#[from] BadTarget),
    /// What came is no image.
    #[error(transparent)]
    Oci(#[from] OciError),
    /// It cannot be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RegistryError {
    /// A stable word for it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Insecure { .. } => "registry_insecure",
            Self::Connect { .. } | Self::Talk { .. } | Self::TooSlow { .. } => "registry_unreachable",
            Self::Status { status, .. } if *status == StatusCode::NOT_FOUND => "registry_not_found",
            Self::Status { .. } | Self::Answer { .. } => "registry_bad_answer",
            Self::Auth { .. } => "registry_auth",
            Self::Redirect { .. } => "registry_redirect",
            Self::Lie { .. } => "image_digest_mismatch",
            Self::Tls(_) => "registry_tls",
            Self::Oci(error) => error.code(),
            Self::Store(error) => error.code(),
        }
    }

    /// Whether the same question may have another answer a moment later.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Talk { .. } | Self::TooSlow { .. } => true,
            Self::Status { status, .. } => {
                status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS
            }
            _ => false,
        }
    }
}
