//! The conversation between the host and the agent inside a box: the same frames in every tier.
//!
//! A frame is one byte of kind, four bytes of length (big-endian) and a body. Kinds are append-only; the host adapts
//! to old agents, never the other way round. The agent speaks first (`Hello`), the host answers with `Begin`, and from
//! then on both speak freely. Output and standard input carry credit, so that one command whose reader stalls holds
//! up neither the other commands nor anybody's memory.

mod file_ask;
mod file_say;
mod files;
mod from_agent;
mod from_host;
mod standing;
mod sudo;
mod wake;

pub use file_ask::{Depth, Extent, FileAct, FileAsk, Links, Parents, Target, Writing};
pub use file_say::{Coverage, FileEnd, FileSay};
pub use files::{Beyond, Change, ChangeKind, Entry, EntryKind, Fault, Link, MAX_ENTRY};
pub use from_agent::{AgentFrame, BootFacts, Exit, Oddity, Stage, Usage, parse};
pub use from_host::{ExecSpec, HostFrame, Io, OnDenied, User};
pub use standing::StandingExec;
pub use sudo::{MAX_SUDO, SUDO_NAME, SUDO_PROGRAM, SudoAnswer, SudoRequest};
pub use wake::{ASLEEP, Morning, WAKE, Wake, introduce};

use crate::codec::CodecError;

/// Version of this protocol. Grows when a frame changes its meaning, not when a kind is added.
pub const VERSION: u16 = 1;

/// Why bytes are not a frame. The box that sent them is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The announced body is over the limit.
    #[error("a frame of {0} bytes is over the limit")]
    TooLong(usize),
    /// The kind is not one of ours.
    #[error("a frame of unknown kind {0}")]
    UnknownKind(u8),
    /// The body is not what its kind says.
    #[error("a frame of kind {kind} is malformed")]
    Malformed {
        /// The kind that the frame claims to be.
        kind: u8,
        /// What is wrong with its body.
        #[source]
        source: CodecError,
    },
}

/// Kind and body of a frame, and the whole length of both with their head.
type Split<'a> = (u8, &'a [u8], usize);

/// Splits a frame off the front. `Ok(None)`: more bytes are needed.
fn split(bytes: &[u8], most: usize) -> Result<Option<Split<'_>>, FrameError> {
    let Some((&[kind, a, b, c, d], rest)) = bytes.split_first_chunk::<5>() else { return Ok(None) };
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if length > most {
        return Err(FrameError::TooLong(length));
    }
    let Some(body) = rest.get(..length) else { return Ok(None) };
    Ok(Some((kind, body, length + 5)))
}

/// Wraps a body into a frame.
fn wrap(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(body.len() + 5);
    frame.push(kind);
    frame.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes());
    frame.extend_from_slice(body);
    frame
}
