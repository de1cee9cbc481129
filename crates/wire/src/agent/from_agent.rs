//! Frames that the agent sends.
//!
//! Trust: guest. Every byte is chosen by an attacker: a payload that has taken over its agent speaks here.

use super::file_say::FileSay;
use super::standing::{StandingExec, standing};
use super::{FrameError, split, wrap};
use crate::codec::{CodecError, Reader, Writer};
use crate::limits::{
    MAX_AGENT_FRAME, MAX_AGENT_TEXT, MAX_OUTPUT_CHUNK, MAX_STANDING, MAX_TOOL_INPUT, MAX_TOOL_NAME,
    MAX_WRITE_PATH,
};

/// What the agent found when it started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootFacts {
    /// The agent's own process id in its namespace; 1 where it is init.
    pub pid: u32,
    /// The agent's user id inside the box.
    pub uid: u32,
    /// Effective capabilities of the agent, as the kernel's bit set.
    pub capabilities: u64,
    /// Whether denied system calls reach the agent and can be reported.
    pub sees_denials: bool,
    /// Release of the kernel that the agent runs on.
    pub kernel: String,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It returned this code.
    Code(u8),
    /// This signal ended it.
    Signal(u8),
    /// It did all the work that it was given.
    FuelSpent,
}

/// Where the start of a command failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The command is not there.
    Find,
    /// The working directory cannot be entered.
    Directory,
    /// Pipes or a terminal could not be made.
    Streams,
    /// No process could be made.
    Fork,
    /// The user could not be taken on.
    Identity,
    /// The kernel refused the program.
    Execute,
    /// The command number is in use, or too many commands run.
    Admission,
}

impl Stage {
    const ALL: [Self; 7] = [
        Self::Find,
        Self::Directory,
        Self::Streams,
        Self::Fork,
        Self::Identity,
        Self::Execute,
        Self::Admission,
    ];
    fn number(self) -> u8 {
        Self::ALL.iter().zip(0..).find(|(stage, _)| **stage == self).map_or(u8::MAX, |(_, number)| number)
    }
    fn from_number(number: u8) -> Result<Self, CodecError> {
        Self::ALL
            .get(usize::from(number))
            .copied()
            .ok_or(CodecError::Unknown(u32::from(number), "stage of a start"))
    }
}

/// What a command used, as the kernel counted it for its process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Microseconds in user mode.
    pub user_micros: u64,
    /// Microseconds in the kernel.
    pub system_micros: u64,
    /// Largest resident set in bytes.
    pub peak_bytes: u64,
    /// Its work, where it is counted. Told behind all else: agents that count none do not mention it.
    pub fuel: Option<u64>,
}

/// What is unexpected about a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Oddity {
    /// It lies where the box has no place to write.
    Outside,
    /// It lies in the caller's directory, and tools of the caller run, load or obey a file of that name.
    PoisonsTools,
    /// Its caller hides its memory, so nobody knows where it lies.
    Unreadable,
}

impl Oddity {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Outside, Self::PoisonsTools, Self::Unreadable];

    /// The stable word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Outside => "outside",
            Self::PoisonsTools => "poisons-tools",
            Self::Unreadable => "unreadable",
        }
    }

    fn number(self) -> u8 {
        Self::ALL.iter().zip(0..).find(|(one, _)| **one == self).map_or(u8::MAX, |(_, number)| number)
    }
}

/// A frame from the agent to the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentFrame<'a> {
    /// The agent is there. First frame.
    Hello {
        /// The protocol version that it speaks.
        version: u16,
        /// What it found.
        facts: BootFacts,
    },
    /// A command runs.
    Started {
        /// The command's number.
        exec: u32,
        /// Its process id inside the box.
        pid: u32,
    },
    /// A command could not be started. Last frame of that command.
    NotStarted {
        /// The command's number.
        exec: u32,
        /// What failed.
        stage: Stage,
        /// Why, as an errno.
        errno: i32,
    },
    /// A command wrote something.
    Output {
        /// The command's number.
        exec: u32,
        /// 1 standard output (and a terminal), 2 standard error.
        stream: u8,
        /// What it wrote.
        bytes: &'a [u8],
    },
    /// A command ended. Last frame of that command.
    Exited {
        /// The command's number.
        exec: u32,
        /// How.
        exit: Exit,
        /// What it used.
        usage: Usage,
    },
    /// System calls were denied since the last frame of this kind for the same number.
    Denied {
        /// Number of the call in the box's architecture.
        number: u32,
        /// How often.
        count: u64,
        /// The process that made the first of them, inside the box.
        pid: u32,
        /// The first three arguments of the first of them.
        arguments: [u64; 3],
    },
    /// The box opened, made, moved or removed something at an unexpected path, or tried to: how it ended, the kernel decided
    /// afterwards. Since the last frame of this kind for the same path.
    Wrote {
        /// What is unexpected about it.
        oddity: Oddity,
        /// Number of the call of the first of them.
        number: u32,
        /// How often.
        count: u64,
        /// The process that made the first of them, inside the box.
        pid: u32,
        /// The path, or as much of it as is told; empty where it is not known, and for all that are not told apart.
        path: &'a [u8],
    },
    /// Standard input was passed on: the host may send this much more.
    StdinTaken {
        /// The command's number.
        exec: u32,
        /// How many bytes.
        bytes: u32,
    },
    /// Answer to a ping.
    Pong {
        /// The number that the ping carried.
        token: u64,
    },
    /// What was met since somebody looked last: before the end of a command, and before a pong.
    Full {
        /// Nothing more can be written; no other file can be made; a guest's own kernel has killed for want of memory (a worker: refused it), or refused a process.
        met: [bool; 4],
    },
    /// The agent gives up. Last frame of all.
    Fault {
        /// Why, in the agent's words. Never shown without escaping.
        text: &'a str,
    },
    /// Something about a file operation.
    File {
        /// The operation's number.
        op: u32,
        /// What about it.
        say: FileSay<'a>,
    },
    /// A command calls a function of the caller, and waits for `Answer`.
    Call {
        /// The command's number.
        exec: u32,
        /// The call's number in the command, from 1.
        call: u32,
        /// The function that it wants.
        tool: &'a str,
        /// What it says to it: JSON, where it keeps to what was agreed.
        input: &'a [u8],
    },
    /// Answer to `Resync`: everything that runs, and the last of what has ended. Each command has a whole window again.
    Standing {
        /// The number that `Resync` carried.
        token: u64,
        /// Bytes that all commands have printed.
        printed: u64,
        /// The commands.
        execs: Vec<StandingExec>,
    },
    /// Answer to `Sleep`: nothing runs any more, and nothing is said until the morning. Or it could not be done, and all goes on.
    Asleep {
        /// Why not, as an errno; 0: it sleeps.
        errno: i32,
    },
}

/// Reads one frame off the front. `Ok(None)`: more bytes are needed. The number is how many bytes it took.
///
/// Never panics, and never allocates from a length that the guest sent.
pub fn parse(bytes: &[u8]) -> Result<Option<(AgentFrame<'_>, usize)>, FrameError> {
    let Some((kind, body, taken)) = split(bytes, MAX_AGENT_FRAME)? else { return Ok(None) };
    let frame = match decode(kind, body) {
        Ok(Some(frame)) => frame,
        Ok(None) => return Err(FrameError::UnknownKind(kind)),
        Err(source) => return Err(FrameError::Malformed { kind, source }),
    };
    Ok(Some((frame, taken)))
}

fn decode(kind: u8, body: &[u8]) -> Result<Option<AgentFrame<'_>>, CodecError> {
    let mut from = Reader::new(body);
    let frame = match kind {
        1 => AgentFrame::Hello {
            version: from.u16()?,
            facts: BootFacts {
                pid: from.u32()?,
                uid: from.u32()?,
                capabilities: from.u64()?,
                sees_denials: from.u8()? != 0,
                kernel: from.text(MAX_AGENT_TEXT)?.to_owned(),
            },
        },
        2 => AgentFrame::Started { exec: from.u32()?, pid: from.u32()? },
        3 => AgentFrame::NotStarted {
            exec: from.u32()?,
            stage: Stage::from_number(from.u8()?)?,
            errno: from.i32()?,
        },
        4 => {
            let exec = from.u32()?;
            let stream = match from.u8()? {
                stream @ (1 | 2) => stream,
                other => return Err(CodecError::Unknown(u32::from(other), "stream")),
            };
            let bytes = from.rest();
            if bytes.len() > MAX_OUTPUT_CHUNK {
                return Err(CodecError::TooLong(bytes.len()));
            }
            AgentFrame::Output { exec, stream, bytes }
        }
        5 => {
            let exec = from.u32()?;
            let exit = match (from.u8()?, from.u8()?) {
                (0, code) => Exit::Code(code),
                (1, signal) => Exit::Signal(signal),
                (2, 0) => Exit::FuelSpent,
                (other, _) => return Err(CodecError::Unknown(u32::from(other), "way to end")),
            };
            let (user_micros, system_micros, peak_bytes) = (from.u64()?, from.u64()?, from.u64()?);
            let fuel = if from.is_at_end() { None } else { Some(from.u64()?) };
            let usage = Usage { user_micros, system_micros, peak_bytes, fuel };
            AgentFrame::Exited { exec, exit, usage }
        }
        6 => AgentFrame::Denied {
            number: from.u32()?,
            count: from.u64()?,
            pid: from.u32()?,
            arguments: [from.u64()?, from.u64()?, from.u64()?],
        },
        19 => AgentFrame::Wrote {
            oddity: match from.u8()? {
                0 => Oddity::Outside,
                1 => Oddity::PoisonsTools,
                2 => Oddity::Unreadable,
                other => return Err(CodecError::Unknown(other.into(), "kind of write")),
            },
            number: from.u32()?,
            count: from.u64()?,
            pid: from.u32()?,
            path: from.bytes(MAX_WRITE_PATH)?,
        },
        7 => AgentFrame::StdinTaken { exec: from.u32()?, bytes: from.u32()? },
        9 => AgentFrame::Pong { token: from.u64()? },
        10 => AgentFrame::Fault { text: from.text(MAX_AGENT_TEXT)? },
        18 => match from.u8()? {
            parts @ 0..=15 => AgentFrame::Full { met: [1, 2, 4, 8].map(|bit| parts & bit != 0) },
            other => return Err(CodecError::Unknown(other.into(), "part of what is full")),
        },
        17 => AgentFrame::Standing { token: from.u64()?, printed: from.u64()?, execs: standing(&mut from)? },
        20 => AgentFrame::Asleep { errno: from.i32()? },
        21 => AgentFrame::Call {
            exec: from.u32()?,
            call: from.u32()?,
            tool: from.text(MAX_TOOL_NAME)?,
            input: from.bytes(MAX_TOOL_INPUT)?,
        },
        kind if FileSay::KINDS.contains(&kind) => {
            AgentFrame::File { op: from.u32()?, say: FileSay::decode(kind, &mut from)? }
        }
        _ => return Ok(None),
    };
    from.end()?;
    Ok(Some(frame))
}

impl AgentFrame<'_> {
    /// All of an `Output` frame except the output itself, of which `length` bytes follow: for a sender that reads the
    /// output right behind it and so never copies it.
    #[must_use]
    pub fn output_head(exec: u32, stream: u8, length: usize) -> [u8; 10] {
        let body = u32::try_from(length.saturating_add(5)).unwrap_or(u32::MAX);
        let ([a, b, c, d], [e, f, g, h]) = (body.to_be_bytes(), exec.to_be_bytes());
        [4, a, b, c, d, e, f, g, h, stream]
    }

    /// The frame as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        let kind = match self {
            Self::Hello { version, facts } => {
                to.u16(*version);
                to.u32(facts.pid);
                to.u32(facts.uid);
                to.u64(facts.capabilities);
                to.u8(u8::from(facts.sees_denials));
                to.bytes(facts.kernel.as_bytes());
                1
            }
            Self::Started { exec, pid } => {
                to.u32(*exec);
                to.u32(*pid);
                2
            }
            Self::NotStarted { exec, stage, errno } => {
                to.u32(*exec);
                to.u8(stage.number());
                to.i32(*errno);
                3
            }
            Self::Output { exec, stream, bytes } => {
                to.u32(*exec);
                to.u8(*stream);
                to.rest(bytes);
                4
            }
            Self::Exited { exec, exit, usage } => {
                to.u32(*exec);
                let (how, value) = match exit {
                    Exit::Code(code) => (0, *code),
                    Exit::Signal(signal) => (1, *signal),
                    Exit::FuelSpent => (2, 0),
                };
                to.u8(how);
                to.u8(value);
                to.u64(usage.user_micros);
                to.u64(usage.system_micros);
                to.u64(usage.peak_bytes);
                if let Some(fuel) = usage.fuel {
                    to.u64(fuel);
                }
                5
            }
            Self::Denied { number, count, pid, arguments } => {
                to.u32(*number);
                to.u64(*count);
                to.u32(*pid);
                for argument in arguments {
                    to.u64(*argument);
                }
                6
            }
            Self::Wrote { oddity, number, count, pid, path } => {
                to.u8(oddity.number());
                to.u32(*number);
                to.u64(*count);
                to.u32(*pid);
                to.bytes(path.get(..MAX_WRITE_PATH).unwrap_or(path));
                19
            }
            Self::StdinTaken { exec, bytes } => {
                to.u32(*exec);
                to.u32(*bytes);
                7
            }
            Self::Pong { token } => {
                to.u64(*token);
                9
            }
            Self::Full { met } => {
                to.u8(met.iter().rev().fold(0, |parts, one| parts << 1 | u8::from(*one)));
                18
            }
            Self::Fault { text } => {
                to.bytes(text.as_bytes());
                10
            }
            Self::File { op, say } => {
                to.u32(*op);
                say.encode(&mut to)
            }
            Self::Call { exec, call, tool, input } => {
                to.u32(*exec);
                to.u32(*call);
                to.bytes(tool.as_bytes());
                to.bytes(input);
                21
            }
            Self::Standing { token, printed, execs } => {
                to.u64(*token);
                to.u64(*printed);
                let execs = execs.get(..MAX_STANDING).unwrap_or(execs);
                to.u16(u16::try_from(execs.len()).unwrap_or(0));
                for StandingExec { exec, pid, ended, printed, unread, takes_input } in execs {
                    to.u32(*exec);
                    to.u32(*pid);
                    to.u8(u8::from(*ended) | u8::from(*takes_input) << 1);
                    to.u64(*printed);
                    to.u32(*unread);
                }
                17
            }
            Self::Asleep { errno } => {
                to.i32(*errno);
                20
            }
        };
        wrap(kind, &to.finish())
    }
}
