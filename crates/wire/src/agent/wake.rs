//! What is said before the first frame of a machine that begins as a copy of another one.
//!
//! ```text
//! template: guest ── ASLEEP ──► host          the guest is whole, has done nothing yet, and waits
//! copy:     host  ── Wake ────► guest         what no two copies may have in common
//!           guest ── Hello ───► host          and from here on as in every other box
//! ```
//! A box that runs falls asleep in the same way to be copied, behind the frames `Sleep` and `Asleep`, and is then told one of two
//! things ([`Morning`]): that it is still itself, or what makes a copy another one.
//!
//! Where the gateway reads requests, whom programs of the box believe besides follows, in every machine ([`introduce`]).
//! The agent takes no frame before it was woken, so nothing runs in a copy that is still like the others.

use crate::codec::{CodecError, Reader, Writer};

/// What a guest says when it can be copied. The host takes these bytes and no others.
pub const ASLEEP: [u8; 16] = *b"blastbox-asleep\n";
/// Bytes of [`Wake`], always as many: who waits for it reads no byte of what follows.
pub const WAKE: usize = 192;
/// What a guest is told after that, where its gateway reads requests: the certificate of the box's own authority, behind its
/// length in four bytes.
#[must_use]
pub fn introduce(authority: &str) -> Vec<u8> {
    let mut to = Writer::default();
    to.bytes(authority.as_bytes());
    to.finish()
}

/// Longest host name.
const NAME: usize = 64;

/// What a copy is given before anything else.
#[derive(Clone, PartialEq, Eq)]
pub struct Wake {
    /// Randomness that nobody else has.
    pub fresh: [u8; 64],
    /// The time: seconds since 1970, and nanoseconds.
    pub time: (i64, u32),
    /// The host name.
    pub name: String,
}

impl std::fmt::Debug for Wake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // What a box draws its randomness from has no text form.
        f.debug_struct("Wake").field("time", &self.time).field("name", &self.name).finish_non_exhaustive()
    }
}

impl Wake {
    /// As bytes. A name that is too long is cut.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::after(ASLEEP.to_vec());
        to.rest(&self.fresh);
        to.i64(self.time.0);
        to.u32(self.time.1);
        let name = self.name.as_bytes();
        to.bytes(name.get(..name.len().min(NAME)).unwrap_or_default());
        let mut bytes = to.finish();
        bytes.resize(WAKE, 0);
        bytes
    }

    /// Reads it.
    pub fn parse(bytes: &[u8; WAKE]) -> Result<Self, CodecError> {
        let mut from = Reader::new(bytes);
        if from.exactly::<16>()? != ASLEEP {
            return Err(CodecError::Invalid("wake"));
        }
        let fresh = from.exactly::<64>()?;
        let time = (from.i64()?, from.u32()?);
        let name = from.text(NAME)?.to_owned();
        let padded = from.rest().iter().all(|byte| *byte == 0);
        if !padded || name.is_empty() || time.1 >= 1_000_000_000 || fresh == [0; 64] {
            return Err(CodecError::Invalid("wake"));
        }
        Ok(Self { fresh, time, name })
    }
}

/// What a machine that ran and fell asleep is told: as many bytes as a [`Wake`], so that who waits reads no byte of what follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Morning {
    /// It is the machine that fell asleep, and goes on.
    Same,
    /// It is a copy.
    Copy(Wake),
}

impl Morning {
    const SAME: [u8; 16] = *b"blastbox-go-on.\n";

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Same => {
                let mut bytes = Self::SAME.to_vec();
                bytes.resize(WAKE, 0);
                bytes
            }
            Self::Copy(wake) => wake.encode(),
        }
    }

    /// Reads it.
    pub fn parse(bytes: &[u8; WAKE]) -> Result<Self, CodecError> {
        match bytes.split_first_chunk::<16>() {
            Some((&Self::SAME, rest)) if rest.iter().all(|byte| *byte == 0) => Ok(Self::Same),
            _ => Wake::parse(bytes).map(Self::Copy),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wake() -> Wake {
        Wake { fresh: [7; 64], time: (1_800_000_000, 5), name: "bx-1".to_owned() }
    }

    #[test]
    fn what_is_said_comes_back_and_has_always_the_same_length() {
        let bytes = wake().encode();
        assert_eq!(Wake::parse(bytes.as_slice().try_into().unwrap()), Ok(wake()));
        let long = Wake { name: "x".repeat(200), ..wake() }.encode();
        assert_eq!(
            (long.len(), Wake::parse(long.as_slice().try_into().unwrap()).unwrap().name.len()),
            (WAKE, 64)
        );
        assert!(!format!("{:?}", wake()).contains('7'));
    }

    #[test]
    fn a_morning_is_told_apart_from_a_wake_and_from_nonsense() {
        for morning in [Morning::Same, Morning::Copy(wake())] {
            let bytes = morning.encode();
            assert_eq!(Morning::parse(bytes.as_slice().try_into().unwrap()), Ok(morning));
        }
        let mut more = Morning::Same.encode();
        *more.last_mut().unwrap() = 1;
        assert!(Morning::parse(more.as_slice().try_into().unwrap()).is_err());
    }

    #[test]
    fn what_would_leave_a_copy_like_the_others_is_refused() {
        let refused = |wake: Wake| Wake::parse(wake.encode().as_slice().try_into().unwrap()).is_err();
        assert!(refused(Wake { fresh: [0; 64], ..wake() }));
        assert!(refused(Wake { name: String::new(), ..wake() }));
        assert!(refused(Wake { time: (0, 1_000_000_000), ..wake() }));
        assert!(Wake::parse(&[0; WAKE]).is_err());
        let mut more = wake().encode();
        *more.last_mut().unwrap() = 1;
        assert!(Wake::parse(more.as_slice().try_into().unwrap()).is_err());
    }
}
