//! Errands for the process of a guest that has kept the powers which its agent gave up: to stop everything that runs before the
//! machine is copied, and to make a copy another machine before anything in it runs on.
//!
//! It takes messages of one length over a line that the agent alone holds, and can do nothing else with its powers. Where programs of the
//! box believe a gateway, the message to a copy is followed by whom they believe there, as the host said it.

use std::io;
use std::os::fd::OwnedFd;

use blastbox_wire::agent::{WAKE, Wake};

use crate::arguments::NurseLine;

/// Bytes of an errand: its kind, and what a copy is given.
pub const ERRAND: usize = 1 + WAKE;
/// Bytes of the answer: an errno, 0 where it is done; of a count, what was counted.
pub const ANSWER: usize = 4;

/// Something that the agent cannot do itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Errand {
    /// Stop every process of the box where it stands.
    Freeze,
    /// Let them go on.
    Thaw,
    /// Make this copy unlike every other one, and let its processes go on.
    Rise(Wake),
    /// Say what the guest's kernel has counted since this was asked last: 1 where it has killed for want of memory, 2 where it has
    /// refused a process.
    Count,
}

impl Errand {
    /// As bytes, always as many.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = match self {
            Self::Freeze => vec![1],
            Self::Thaw => vec![2],
            Self::Rise(wake) => [vec![3], wake.encode()].concat(),
            Self::Count => vec![4],
        };
        bytes.resize(ERRAND, 0);
        bytes
    }

    /// Reads it; `None`: it is none.
    #[must_use]
    pub fn parse(bytes: &[u8; ERRAND]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match kind {
            1 => Some(Self::Freeze),
            2 => Some(Self::Thaw),
            3 => Wake::parse(rest.try_into().ok()?).ok().map(Self::Rise),
            4 => Some(Self::Count),
            _ => None,
        }
    }
}

/// The agent's line to it.
#[derive(Debug)]
pub(crate) struct Nurse {
    line: OwnedFd,
    told: NurseLine,
}

impl Nurse {
    pub(crate) fn new(line: OwnedFd, told: NurseLine) -> Self {
        Self { line, told }
    }

    /// Whether others begin as copies of this guest.
    pub(crate) fn is_a_templates(&self) -> bool {
        self.told.asleep
    }

    /// Whether a copy is told whom its programs believe, behind its wake.
    pub(crate) fn needs_authority(&self) -> bool {
        self.told.authority
    }

    /// Whether memory and processes have run out since this was asked last. One that cannot say has counted nothing.
    pub(crate) fn count(&self) -> [bool; 2] {
        let counted = self.ask(&Errand::Count.encode()).unwrap_or(0);
        [1, 2].map(|bit| counted > 0 && counted & bit != 0)
    }

    /// Has an errand done, and waits for that.
    pub(crate) fn send(&self, errand: &Errand) -> io::Result<()> {
        self.send_with(errand, &[])
    }

    /// The same with what follows the errand.
    pub(crate) fn send_with(&self, errand: &Errand, more: &[u8]) -> io::Result<()> {
        match self.ask(&[&errand.encode(), more].concat())? {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// The answer, as a number.
    fn ask(&self, bytes: &[u8]) -> io::Result<i32> {
        // A line with nothing in it takes so little at once.
        if rustix::io::retry_on_intr(|| rustix::io::write(&self.line, bytes))? != bytes.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let mut answer = [0; ANSWER];
        let mut got = 0;
        while got < answer.len() {
            let room = answer.get_mut(got..).unwrap_or_default();
            match rustix::io::retry_on_intr(|| rustix::io::read(&self.line, &mut *room))? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => got = got.saturating_add(more),
            }
        }
        Ok(i32::from_be_bytes(answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errand_comes_back_and_has_always_the_same_length() {
        let wake = Wake { fresh: [7; 64], time: (1_800_000_000, 5), name: "bx-1".to_owned() };
        for errand in [Errand::Freeze, Errand::Thaw, Errand::Rise(wake)] {
            let bytes: [u8; ERRAND] = errand.encode().try_into().unwrap();
            assert_eq!(Errand::parse(&bytes), Some(errand));
        }
        assert_eq!(Errand::parse(&[0; ERRAND]), None);
        let mut nothing = [0; ERRAND];
        nothing[0] = 3;
        assert_eq!(Errand::parse(&nothing), None, "a copy that would be like the others");
    }
}
