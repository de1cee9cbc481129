//! Secrets on their way to a gateway, and what the box must know of them.

use std::fmt;

use crate::codec::{CodecError, Reader, Writer};

/// Longest value of a secret.
pub const MAX_SECRET: usize = 8 * 1024 + 2;
/// Most stand-ins that a box has.
pub const MAX_STAND_INS: usize = 64;
/// Longest name or stand-in.
const LONGEST: usize = 512;

/// Bytes that have no text form and are wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Veiled(Vec<u8>);

impl Veiled {
    /// Covers these bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The one way out: whoever calls this holds a secret.
    #[must_use]
    pub fn unveil(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Veiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Veiled(…)")
    }
}

impl Drop for Veiled {
    fn drop(&mut self) {
        self.0.fill(0);
        // Or the compiler would find that nobody reads the zeros.
        std::hint::black_box(&self.0);
    }
}

/// One secret of a box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LentSecret {
    /// The binding, by its place in the policy.
    pub binding: u16,
    /// The value.
    pub value: Veiled,
    /// How many seconds it can be used; `None` for as long as the box lives.
    pub seconds: Option<u32>,
}

/// What the box must know, so that its programs believe the gateway and have stand-ins for secrets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trust {
    /// The certificate of the box's own authority, in the text form.
    pub authority: String,
    /// Variables and the stand-ins in them. No secret.
    pub variables: Vec<(String, String)>,
}

impl LentSecret {
    pub(super) fn encode(&self, to: &mut Writer) {
        to.u16(self.binding);
        to.bytes(self.value.unveil());
        // 0 cannot be used at all, so it can mean that there is no end.
        to.u32(self.seconds.unwrap_or(0));
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let binding = from.u16()?;
        let value = Veiled::new(from.bytes(MAX_SECRET)?.to_vec());
        let seconds = from.u32()?;
        Ok(Self { binding, value, seconds: (seconds > 0).then_some(seconds) })
    }
}

impl Trust {
    pub(super) fn encode(&self, to: &mut Writer) {
        to.bytes(self.authority.as_bytes());
        to.list(&self.variables, |to, (name, value)| {
            to.bytes(name.as_bytes());
            to.bytes(value.as_bytes());
        });
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self {
            authority: from.text(super::MAX_AUTHORITY)?.to_owned(),
            variables: from.list(MAX_STAND_INS, |from| {
                Ok((from.text(LONGEST)?.to_owned(), from.text(LONGEST)?.to_owned()))
            })?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FromGateway, ToGateway};
    use super::*;

    #[test]
    fn secrets_and_trust_read_back() {
        for seconds in [None, Some(60)] {
            let secret = LentSecret { binding: 3, value: Veiled::new(b"the value".to_vec()), seconds };
            let message = ToGateway::Secret(secret);
            assert_eq!(ToGateway::decode(&message.encode()), Ok(message));
        }
        let renewed = ToGateway::Renewed { binding: 1, seconds: 9 };
        assert_eq!(ToGateway::decode(&renewed.encode()), Ok(renewed));
        let variables = vec![("GH_TOKEN".to_owned(), "ghp_bbx00".to_owned())];
        let trust = FromGateway::Trust(Trust { authority: "-----BEGIN".to_owned(), variables });
        assert_eq!(FromGateway::decode(&trust.encode()), Ok(trust));
    }

    #[test]
    fn a_secret_has_no_text_form() {
        let value = Veiled::new(b"the value".to_vec());
        let message = ToGateway::Secret(LentSecret { binding: 0, value, seconds: None });
        assert!(!format!("{message:?}").contains("the value"));
    }
}
