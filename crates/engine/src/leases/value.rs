//! A secret between its source and the gateway.

use std::time::Duration;

use zeroize::Zeroizing;

use super::error::MintError;

/// Longest value that is taken from a source: what fits into a header, and a line end.
pub(super) const LONGEST_VALUE: usize = 8 * 1024 + 2;

/// The value of a secret. Neither `Debug`, `Display`, `Clone` nor `Serialize`; wiped when dropped.
#[expect(missing_debug_implementations, reason = "a secret has no text form")]
pub struct SecretValue(Zeroizing<Vec<u8>>);

impl SecretValue {
    pub(super) fn new(bytes: Zeroizing<Vec<u8>>) -> Self {
        Self(bytes)
    }

    /// The one way out: into the message for the box's gateway.
    #[must_use]
    pub fn expose_to_gateway(&self) -> &[u8] {
        &self.0
    }
}

/// What a source gave.
pub(super) struct Minted {
    pub(super) value: SecretValue,
    /// How long it can be used, where the source says so.
    pub(super) ttl: Option<Duration>,
    /// What it is called where it can be revoked.
    pub(super) lease: Option<String>,
    /// Whether its life can be made longer.
    pub(super) renewable: bool,
}

impl Minted {
    pub(super) fn plain(bytes: Zeroizing<Vec<u8>>) -> Self {
        Self { value: SecretValue::new(bytes), ttl: None, lease: None, renewable: false }
    }
}

/// Why a source gave nothing that can be used, and what it made all the same: a lease that nobody will ever use has to be
/// revoked like any other.
pub(super) struct NotMinted {
    pub(super) error: MintError,
    pub(super) lease: Option<String>,
}

impl From<MintError> for NotMinted {
    fn from(error: MintError) -> Self {
        Self { error, lease: None }
    }
}
