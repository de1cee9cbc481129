//! Frames that the host sends. The agent bounds them too: it must not fall over a broken host.

use super::file_ask::FileAsk;
use super::{FrameError, split, wrap};
use crate::codec::{CodecError, Reader, Writer};
use crate::limits::{
    MAX_ARGUMENT, MAX_ARGUMENTS, MAX_HOST_FRAME, MAX_PATH, MAX_STDIN_CHUNK, MAX_TOOL_ANSWER,
};

/// What the agent does about a denied system call, besides answering it with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDenied {
    /// Report it.
    Record,
    /// Report it and kill every process of the box.
    Kill,
}

/// Who a command runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum User {
    /// The box's ordinary user, uid 1000, without any capability.
    #[default]
    Payload,
    /// The root of the box, uid 0 in its own user namespace. Refused by an agent whose box has none.
    Root,
}

/// What a command's standard streams are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Io {
    /// Pipes, with nothing to read.
    Pipes,
    /// Pipes, with standard input from the host.
    PipesWithStdin,
    /// A pseudo-terminal of this size.
    Terminal {
        /// Lines.
        rows: u16,
        /// Characters in a line.
        columns: u16,
    },
}

/// A command to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecSpec {
    /// The number by which both sides call it.
    pub exec: u32,
    /// Program and arguments.
    pub arguments: Vec<Vec<u8>>,
    /// The whole environment, as `NAME=value`.
    pub environment: Vec<Vec<u8>>,
    /// The working directory inside the box.
    pub directory: Vec<u8>,
    /// Who it runs as.
    pub user: User,
    /// Its standard streams.
    pub io: Io,
    /// Bytes of output that it may send before the first credit.
    pub window: u32,
}

/// A frame from the host to the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostFrame {
    /// Answer to `Hello`; commands may follow.
    Begin {
        /// The protocol version that the host speaks.
        version: u16,
        /// What to do about denied system calls.
        on_denied: OnDenied,
        /// Whether another host may come after this one. It begins with a byte that carries a descriptor: what came before
        /// that byte and is not a whole frame was never said.
        heritable: bool,
    },
    /// Start a command.
    Exec(ExecSpec),
    /// Standard input of a command.
    Stdin {
        /// The command's number.
        exec: u32,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// No more standard input.
    StdinEnd {
        /// The command's number.
        exec: u32,
    },
    /// The terminal has another size.
    Resize {
        /// The command's number.
        exec: u32,
        /// Lines.
        rows: u16,
        /// Characters in a line.
        columns: u16,
    },
    /// Signal a command's process group.
    Signal {
        /// The command's number.
        exec: u32,
        /// The signal's number.
        signal: u8,
    },
    /// Output was consumed: the agent may send this much more.
    Credit {
        /// The command's number.
        exec: u32,
        /// How many bytes.
        bytes: u32,
    },
    /// Are you there?
    Ping {
        /// Comes back in the pong.
        token: u64,
    },
    /// End everything and exit.
    Shutdown,
    /// No other command follows: exit when the last one is over and all that was said of it is sent.
    Farewell,
    /// Something about a file operation.
    File {
        /// The operation's number.
        op: u32,
        /// What about it.
        ask: FileAsk,
    },
    /// What a function of the caller gave, or why it gave nothing.
    Answer {
        /// The command's number.
        exec: u32,
        /// The call's number.
        call: u32,
        /// Whether it gave something.
        good: bool,
        /// JSON: what it gave, or a text that says why not.
        bytes: Vec<u8>,
    },
    /// Another host is here: file operations end, every command has a whole window again, and `Standing` is the answer.
    Resync {
        /// Comes back in the answer: a host that was killed may have asked as well, and its answer be there still.
        token: u64,
    },
    /// Stop everything that runs and fall asleep, to be copied. `Asleep` is the answer and the last frame until a [`Morning`]
    /// has come, before which the host says nothing more.
    ///
    /// [`Morning`]: super::Morning
    Sleep,
}

impl HostFrame {
    /// Reads one frame off the front. `Ok(None)`: more bytes are needed. The number is how many bytes it took.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, FrameError> {
        let Some((kind, body, taken)) = split(bytes, MAX_HOST_FRAME)? else { return Ok(None) };
        match Self::decode(kind, body) {
            Ok(Some(frame)) => Ok(Some((frame, taken))),
            Ok(None) => Err(FrameError::UnknownKind(kind)),
            Err(source) => Err(FrameError::Malformed { kind, source }),
        }
    }

    fn decode(kind: u8, body: &[u8]) -> Result<Option<Self>, CodecError> {
        let mut from = Reader::new(body);
        let frame = match kind {
            129 => {
                let version = from.u16()?;
                let (on_denied, heritable) = match from.u8()? {
                    bits @ (0 | 2) => (OnDenied::Record, bits == 2),
                    bits @ (1 | 3) => (OnDenied::Kill, bits == 3),
                    other => return Err(CodecError::Unknown(u32::from(other), "reaction")),
                };
                Self::Begin { version, on_denied, heritable }
            }
            130 => Self::Exec(ExecSpec::decode(&mut from)?),
            131 => Self::Stdin { exec: from.u32()?, bytes: from.bytes(MAX_STDIN_CHUNK)?.to_vec() },
            132 => Self::StdinEnd { exec: from.u32()? },
            133 => Self::Resize { exec: from.u32()?, rows: from.u16()?, columns: from.u16()? },
            134 => Self::Signal { exec: from.u32()?, signal: from.u8()? },
            135 => Self::Credit { exec: from.u32()?, bytes: from.u32()? },
            137 => Self::Ping { token: from.u64()? },
            138 => Self::Shutdown,
            144 => Self::Farewell,
            146 => Self::Resync { token: from.u64()? },
            147 => Self::Sleep,
            148 => Self::Answer {
                exec: from.u32()?,
                call: from.u32()?,
                good: from.u8()? != 0,
                bytes: from.bytes(MAX_TOOL_ANSWER)?.to_vec(),
            },
            kind if FileAsk::KINDS.contains(&kind) => {
                Self::File { op: from.u32()?, ask: FileAsk::decode(kind, &mut from)? }
            }
            _ => return Ok(None),
        };
        from.end()?;
        Ok(Some(frame))
    }

    /// The frame as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        let kind = match self {
            Self::Begin { version, on_denied, heritable } => {
                to.u16(*version);
                let on_denied = match on_denied {
                    OnDenied::Record => 0,
                    OnDenied::Kill => 1,
                };
                to.u8(on_denied | u8::from(*heritable) << 1);
                129
            }
            Self::Exec(spec) => {
                spec.encode(&mut to);
                130
            }
            Self::Stdin { exec, bytes } => {
                to.u32(*exec);
                to.bytes(bytes);
                131
            }
            Self::StdinEnd { exec } => {
                to.u32(*exec);
                132
            }
            Self::Resize { exec, rows, columns } => {
                to.u32(*exec);
                to.u16(*rows);
                to.u16(*columns);
                133
            }
            Self::Signal { exec, signal } => {
                to.u32(*exec);
                to.u8(*signal);
                134
            }
            Self::Credit { exec, bytes } => {
                to.u32(*exec);
                to.u32(*bytes);
                135
            }
            Self::Ping { token } => {
                to.u64(*token);
                137
            }
            Self::Shutdown => 138,
            Self::Farewell => 144,
            Self::Resync { token } => {
                to.u64(*token);
                146
            }
            Self::Sleep => 147,
            Self::Answer { exec, call, good, bytes } => {
                to.u32(*exec);
                to.u32(*call);
                to.u8(u8::from(*good));
                to.bytes(bytes);
                148
            }
            Self::File { op, ask } => {
                to.u32(*op);
                ask.encode(&mut to)
            }
        };
        wrap(kind, &to.finish())
    }
}

impl ExecSpec {
    fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let text = |from: &mut Reader<'_>| from.bytes(MAX_ARGUMENT).map(<[u8]>::to_vec);
        Ok(Self {
            exec: from.u32()?,
            arguments: from.list(MAX_ARGUMENTS, text)?,
            environment: from.list(MAX_ARGUMENTS, text)?,
            directory: from.bytes(MAX_PATH)?.to_vec(),
            user: match from.u8()? {
                0 => User::Payload,
                1 => User::Root,
                other => return Err(CodecError::Unknown(u32::from(other), "user")),
            },
            io: match from.u8()? {
                0 => Io::Pipes,
                1 => Io::PipesWithStdin,
                2 => Io::Terminal { rows: from.u16()?, columns: from.u16()? },
                other => return Err(CodecError::Unknown(u32::from(other), "kind of streams")),
            },
            window: from.u32()?,
        })
    }

    fn encode(&self, to: &mut Writer) {
        to.u32(self.exec);
        to.list(&self.arguments, |to, text| to.bytes(text));
        to.list(&self.environment, |to, text| to.bytes(text));
        to.bytes(&self.directory);
        to.u8(match self.user {
            User::Payload => 0,
            User::Root => 1,
        });
        match self.io {
            Io::Pipes => to.u8(0),
            Io::PipesWithStdin => to.u8(1),
            Io::Terminal { rows, columns } => {
                to.u8(2);
                to.u16(rows);
                to.u16(columns);
            }
        }
        to.u32(self.window);
    }
}
