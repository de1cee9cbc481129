//! Text that nobody prints.

use std::fmt;

use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

/// The value of a secret, or of a header that is one. Wiped when dropped; neither `Clone`, `Display` nor `Serialize`.
pub(in crate::e2b) struct Hidden(Zeroizing<String>);

impl Hidden {
    pub(in crate::e2b) fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The way to whoever may have it: the file of its tenant, or the gateway of a box.
    pub(in crate::e2b) fn expose(&self) -> &str {
        &self.0
    }

    /// The same for whoever wipes it from then on.
    pub(in crate::e2b) fn give_away(mut self) -> Vec<u8> {
        std::mem::take(&mut *self.0).into_bytes()
    }
}

impl<'de> Deserialize<'de> for Hidden {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(Self::new)
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}
