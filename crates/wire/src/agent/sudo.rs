//! What `sudo` inside a box asks of the agent: to run a command as another user of the box.
//!
//! Trust: guest. Any program of the box may ask, and say anything. What it can have is what the box's policy gives to
//! everybody in it, so there is nothing to check but the form: lengths are bounded before anything is kept.
//!
//! One request to a connection: four bytes of length, the body, and with its first byte the three standard streams. Then
//! every byte is a signal for the command, and the agent answers once, when it is over.

use crate::codec::{CodecError, Reader, Writer};
use crate::limits::{MAX_ARGUMENT, MAX_ARGUMENTS, MAX_PATH};

/// Where the agent of a box that has a root listens: an abstract name, in the box's own network namespace.
pub const SUDO_NAME: &[u8] = b"blastbox/sudo";
/// Where the program lies that asks, in the root of every box that has a root.
pub const SUDO_PROGRAM: &str = "/.blastbox/sudo";
/// Largest body of a request.
pub const MAX_SUDO: usize = 1024 * 1024;

/// A command to run as somebody else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SudoRequest {
    /// The user; 0 is the root of the box.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Program and arguments.
    pub arguments: Vec<Vec<u8>>,
    /// The whole environment, as `NAME=value`.
    pub environment: Vec<Vec<u8>>,
    /// The working directory.
    pub directory: Vec<u8>,
}

impl SudoRequest {
    /// Reads one request off the front. `Ok(None)`: more bytes are needed. The number is how many bytes it took.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, CodecError> {
        let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > MAX_SUDO {
            return Err(CodecError::TooLong(length));
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let mut from = Reader::new(body);
        let text = |from: &mut Reader<'_>| from.bytes(MAX_ARGUMENT).map(<[u8]>::to_vec);
        let request = Self {
            uid: from.u32()?,
            gid: from.u32()?,
            arguments: from.list(MAX_ARGUMENTS, text)?,
            environment: from.list(MAX_ARGUMENTS, text)?,
            directory: from.bytes(MAX_PATH)?.to_vec(),
        };
        from.end()?;
        // To the kernel the largest number means "as it is", which is root (CVE-2019-14287).
        if request.uid == u32::MAX || request.gid == u32::MAX {
            return Err(CodecError::Invalid("user"));
        }
        Ok(Some((request, length + 4)))
    }

    /// The request as bytes. `None`: it is over the limit.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut to = Writer::default();
        to.u32(self.uid);
        to.u32(self.gid);
        to.list(&self.arguments, |to, text| to.bytes(text));
        to.list(&self.environment, |to, text| to.bytes(text));
        to.bytes(&self.directory);
        let body = to.finish();
        let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= MAX_SUDO)?;
        Some([length.to_be_bytes().as_slice(), &body].concat())
    }
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SudoAnswer {
    /// With this code.
    Code(u8),
    /// By this signal.
    Signal(u8),
    /// It was not started: the errno.
    NotStarted(i32),
    /// The working directory could not be entered: the errno.
    NoDirectory(i32),
}

impl SudoAnswer {
    /// Five bytes.
    #[must_use]
    pub fn encode(self) -> [u8; 5] {
        let (kind, number) = match self {
            Self::Code(code) => (b'c', i32::from(code)),
            Self::Signal(signal) => (b's', i32::from(signal)),
            Self::NotStarted(errno) => (b'n', errno),
            Self::NoDirectory(errno) => (b'd', errno),
        };
        let [a, b, c, d] = number.to_be_bytes();
        [kind, a, b, c, d]
    }

    /// Reads them back.
    #[must_use]
    pub fn parse([kind, number @ ..]: [u8; 5]) -> Option<Self> {
        let number = i32::from_be_bytes(number);
        match kind {
            b'c' => u8::try_from(number).ok().map(Self::Code),
            b's' => u8::try_from(number).ok().map(Self::Signal),
            b'n' => Some(Self::NotStarted(number)),
            b'd' => Some(Self::NoDirectory(number)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> SudoRequest {
        SudoRequest {
            uid: 0,
            gid: 0,
            arguments: vec![b"id".to_vec(), b"-u".to_vec()],
            environment: vec![b"A=1".to_vec()],
            directory: b"/".to_vec(),
        }
    }

    #[test]
    fn a_request_reads_back_and_half_a_request_waits() {
        let bytes = request().encode().unwrap();
        assert_eq!(SudoRequest::parse(&bytes), Ok(Some((request(), bytes.len()))));
        let more = [bytes.as_slice(), b"\x0f"].concat();
        assert_eq!(SudoRequest::parse(&more), Ok(Some((request(), bytes.len()))));
        for cut in 0..bytes.len() {
            assert_eq!(SudoRequest::parse(&bytes[..cut]), Ok(None));
        }
    }

    #[test]
    fn the_number_that_means_as_it_is_names_nobody() {
        for (uid, gid) in [(u32::MAX, 0), (1000, u32::MAX)] {
            let bytes = SudoRequest { uid, gid, ..request() }.encode().unwrap();
            assert_eq!(SudoRequest::parse(&bytes), Err(CodecError::Invalid("user")));
        }
    }

    #[test]
    fn a_lying_length_is_refused_before_anything_is_kept() {
        assert_eq!(SudoRequest::parse(&u32::MAX.to_be_bytes()), Err(CodecError::TooLong(0xffff_ffff)));
        assert!(SudoRequest::parse(&[0, 0, 0, 1, 0]).is_err());
        let long = SudoRequest { arguments: vec![vec![b'x'; MAX_ARGUMENT]; 16], ..request() };
        assert_eq!(long.encode(), None);
    }

    #[test]
    fn every_answer_reads_back() {
        for answer in [
            SudoAnswer::Code(3),
            SudoAnswer::Signal(9),
            SudoAnswer::NotStarted(2),
            SudoAnswer::NoDirectory(13),
        ] {
            assert_eq!(SudoAnswer::parse(answer.encode()), Some(answer));
        }
        assert_eq!(SudoAnswer::parse(*b"c\0\0\x01\0"), None);
        assert_eq!(SudoAnswer::parse(*b"?\0\0\0\0"), None);
    }
}
