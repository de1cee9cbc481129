//! What happened to leases, for the ledger.

use std::path::PathBuf;
use std::time::Duration;

use blastbox_policy::SecretName;
use blastbox_wire::event::{Event, Label};
use tokio::sync::mpsc;

/// Where it is told.
pub type Tell = mpsc::UnboundedSender<Told>;
/// Where it is heard. Ends when nothing can happen to any lease of the box any more.
pub type News = mpsc::UnboundedReceiver<Told>;

/// What happened to a lease, for the ledger. Told before its effect where there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// It was minted and is about to be sent to the gateway.
    Minted {
        /// The secret.
        secret: SecretName,
        /// How long it lives, where its source says so.
        ttl: Option<Duration>,
    },
    /// It lives longer now.
    Renewed {
        /// The secret.
        secret: SecretName,
        /// Which binding of the box it is for.
        binding: u16,
        /// How long.
        ttl: Duration,
    },
    /// It could not be renewed; when its time is over, requests fail. Whether it is tried again until then is in `why`.
    NotRenewed {
        /// The secret.
        secret: SecretName,
        /// Why.
        why: String,
    },
    /// It was revoked.
    Revoked {
        /// The secret.
        secret: SecretName,
    },
    /// It could not be revoked; it stays in the register, and this daemon and the next try again.
    NotRevoked {
        /// The secret.
        secret: SecretName,
        /// Why.
        why: String,
    },
    /// A file of the register cannot be read, so nobody knows what is to be revoked. It is left where it is.
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        why: String,
    },
}

impl Told {
    /// What the ledger says of it.
    #[must_use]
    pub fn event(&self) -> Event {
        let label = |secret: &SecretName| Label::new(secret.as_str());
        match self {
            Self::Minted { secret, ttl } => {
                Event::SecretMinted { secret: label(secret), seconds: ttl.map(|ttl| ttl.as_secs()) }
            }
            Self::Renewed { secret, ttl, .. } => {
                Event::SecretMinted { secret: label(secret), seconds: Some(ttl.as_secs()) }
            }
            Self::Revoked { secret } => Event::SecretRevoked { secret: label(secret) },
            Self::NotRenewed { .. } | Self::NotRevoked { .. } | Self::Unreadable { .. } => {
                let (secret, why) = self.trouble().unwrap_or_default();
                Event::SecretTrouble { secret: Label::new(&secret), why: Label::new(&why) }
            }
        }
    }

    /// Which secret somebody has to look after, and why, where this is such news. A file stands for the secret that it
    /// does not tell.
    #[must_use]
    pub fn trouble(&self) -> Option<(String, String)> {
        match self {
            Self::NotRenewed { secret, why } => Some((secret.to_string(), format!("not renewed: {why}"))),
            Self::NotRevoked { secret, why } => Some((secret.to_string(), format!("not revoked: {why}"))),
            Self::Unreadable { file, why } => {
                let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
                Some((name, format!("not revoked, because this file of the register cannot be read: {why}")))
            }
            Self::Minted { .. } | Self::Renewed { .. } | Self::Revoked { .. } => None,
        }
    }
}
