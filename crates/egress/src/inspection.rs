//! What reading requests needs, made once for each box: its authority, whom it believes, its secrets.

use std::sync::Arc;

use crate::credentials::{BadKeyring, Handed, Keyring};
use crate::tls::{BoxCa, CaError, Roots};

/// What reading requests needs.
#[derive(Debug)]
pub struct Inspection {
    ca: BoxCa,
    roots: Roots,
    keyring: Arc<Keyring>,
}

/// Why requests cannot be read; then there is no network.
#[derive(Debug, thiserror::Error)]
pub enum BadInspection {
    /// No authority.
    #[error(transparent)]
    Authority(#[from] CaError),
    /// No secrets.
    #[error(transparent)]
    Keyring(#[from] BadKeyring),
    /// Nobody to believe.
    #[error("cannot use the authorities of this host")]
    Roots(#[from] rustls::Error),
}

impl Inspection {
    /// For a box of this name, with servers believed by the usual authorities and those of `bundle`.
    pub fn new(box_name: &str, bundle: &[u8], secrets: Vec<Handed>) -> Result<Self, BadInspection> {
        Self::with(box_name, Roots::new(bundle)?, secrets)
    }

    /// The same with authorities of one's own.
    pub fn with(box_name: &str, roots: Roots, secrets: Vec<Handed>) -> Result<Self, BadInspection> {
        Ok(Self { ca: BoxCa::new(box_name)?, roots, keyring: Arc::new(Keyring::new(secrets)?) })
    }

    /// The box's authority.
    #[must_use]
    pub fn ca(&self) -> &BoxCa {
        &self.ca
    }

    /// Whom the gateway believes.
    #[must_use]
    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// The box's secrets.
    #[must_use]
    pub fn keyring(&self) -> &Arc<Keyring> {
        &self.keyring
    }
}
