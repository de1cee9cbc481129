//! How the commands of a box stand, as an agent tells another host: a part of its frames, and fuzzed with them (`from_agent`).

use crate::codec::{CodecError, Reader};
use crate::limits::MAX_STANDING;

/// A command as the agent has it when another host has taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StandingExec {
    /// The command's number.
    pub exec: u32,
    /// Its process inside the box; 0 where it has ended, or has not begun.
    pub pid: u32,
    /// Whether it has ended. Its last frame is before this one, or was read by the host that is gone.
    pub ended: bool,
    /// Bytes that it has printed since its start: those of all frames before this one.
    pub printed: u64,
    /// Standard input that it has not read.
    pub unread: u32,
    /// Whether it can be given more.
    pub takes_input: bool,
}

/// Reads a list of them. The list grows with what is there, not with what was announced.
pub(super) fn standing(from: &mut Reader<'_>) -> Result<Vec<StandingExec>, CodecError> {
    let count = usize::from(from.u16()?);
    if count > MAX_STANDING {
        return Err(CodecError::TooLong(count));
    }
    let mut execs = Vec::new();
    for _ in 0..count {
        let (exec, pid, bits) = (from.u32()?, from.u32()?, from.u8()?);
        let (printed, unread) = (from.u64()?, from.u32()?);
        execs.push(StandingExec {
            exec,
            pid,
            ended: bits & 1 != 0,
            printed,
            unread,
            takes_input: bits & 2 != 0,
        });
    }
    Ok(execs)
}
