//! The closed list of what the warden can be asked, and of what it answers.
//!
//! One message is one packet of a sequenced socket; descriptors travel beside it. There is no verb for "run this as
//! root": the most a caller can get is a box.

use crate::BoxId;
use crate::codec::{CodecError, Reader, Writer};
use crate::limits::MAX_AGENT_TEXT;
use crate::plan::Plan;

/// The language that callers and wardens of this version speak. It changes whenever what they say does: whoever comes after
/// a caller of another version must not guess.
pub const PROTOCOL: u32 = 2;

/// What the warden can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// Make a box. Beside it: the agent's end of the control channel, then the directories that the plan names.
    Launch(Box<Plan>),
    /// End a box with everything in it.
    Kill(BoxId),
    /// Release whatever wardens that were killed have left behind.
    Sweep,
    /// Stop every process of a box where it stands.
    Pause(BoxId),
    /// Let them go on.
    Resume(BoxId),
    /// End a box when this time is over, by the warden's own clock: a caller that hangs, or that somebody has stopped, does
    /// not lengthen its life. Each one takes the place of the one before.
    Until {
        /// The box.
        box_id: BoxId,
        /// From now on.
        millis: u64,
    },
    /// Keep a box for whoever comes after this caller. Beside it: the caller's own end of its control channel, which the
    /// warden holds and never reads.
    Keep(BoxId),
    /// Here comes whoever comes after this caller. Beside it: a socket that listens.
    Listen,
    /// Tell what a box has used so far. One that is not there any more has told it with its end.
    Count(BoxId),
}

/// What the warden answers, each once per thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The warden is ready. First message.
    Ready(Powers),
    /// The box exists and its agent runs.
    Launched {
        /// The box.
        box_id: BoxId,
        /// The agent's process id on the host.
        pid: u32,
    },
    /// The box could not be made; nothing is left of it.
    Failed {
        /// The box.
        box_id: BoxId,
        /// What was tried last.
        tried: String,
        /// Why it did not work, as an errno; 0 where the message says it all.
        errno: i32,
    },
    /// The box is gone: no process, mount or cgroup is left.
    Ended {
        /// The box.
        box_id: BoxId,
        /// What it used, and which limits it met.
        spent: Spent,
    },
    /// So many boxes of dead wardens were released.
    Swept {
        /// How many.
        boxes: u32,
    },
    /// Nothing runs in the box any more.
    Paused {
        /// The box.
        box_id: BoxId,
    },
    /// Everything in the box runs again.
    Resumed {
        /// The box.
        box_id: BoxId,
    },
    /// A pause or its end could not be had; the box is as it was.
    NotPaused {
        /// The box.
        box_id: BoxId,
        /// What was tried last.
        tried: String,
        /// Why it did not work, as an errno; 0 where the message says it all.
        errno: i32,
    },
    /// What a box has used so far.
    Counted {
        /// The box.
        box_id: BoxId,
        /// Its numbers; nothing of its end.
        spent: Spent,
    },
    /// A box was kept for this caller. Before `Ready`; beside it, the end of its control channel.
    Held {
        /// The box.
        box_id: BoxId,
    },
}

/// What a warden found that it can do on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Powers {
    /// Whether it has ids to give to boxes (root).
    pub own_ranges: bool,
    /// The cgroup interface: 0 none, 1 the old one, 2 the unified one, 3 both.
    pub cgroups: u8,
    /// The memory controller works.
    pub memory: bool,
    /// The cpu controller works.
    pub cpu: bool,
    /// The pids controller works.
    pub pids: bool,
}

/// What a box used, as the kernel counted it for the whole box.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Microseconds of processor time; 0 where nobody counted.
    pub cpu_micros: u64,
    /// Largest memory in bytes; 0 where nobody counted.
    pub memory_peak: u64,
    /// Processes that the kernel killed because memory ran out.
    pub oom_kills: u64,
    /// Times that a process could not be made because of the limit.
    pub pids_refused: u64,
    /// The signal that ended the agent, or 0.
    pub agent_signal: u8,
}

impl Ask {
    /// The message as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        match self {
            Self::Launch(plan) => {
                to.u8(1);
                plan.encode(&mut to);
            }
            Self::Kill(id) => {
                to.u8(2);
                to.bytes(id.as_str().as_bytes());
            }
            Self::Sweep => to.u8(3),
            Self::Pause(id) => {
                to.u8(4);
                to.bytes(id.as_str().as_bytes());
            }
            Self::Resume(id) => {
                to.u8(5);
                to.bytes(id.as_str().as_bytes());
            }
            Self::Until { box_id, millis } => {
                to.u8(6);
                to.bytes(box_id.as_str().as_bytes());
                to.u64(*millis);
            }
            Self::Keep(id) => {
                to.u8(7);
                to.bytes(id.as_str().as_bytes());
            }
            Self::Listen => to.u8(8),
            Self::Count(id) => {
                to.u8(9);
                to.bytes(id.as_str().as_bytes());
            }
        }
        to.finish()
    }

    /// Reads a message.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut from = Reader::new(bytes);
        let ask = match from.u8()? {
            1 => Self::Launch(Box::new(Plan::decode(&mut from)?)),
            2 => Self::Kill(box_id(&mut from)?),
            3 => Self::Sweep,
            4 => Self::Pause(box_id(&mut from)?),
            5 => Self::Resume(box_id(&mut from)?),
            6 => Self::Until { box_id: box_id(&mut from)?, millis: from.u64()? },
            7 => Self::Keep(box_id(&mut from)?),
            8 => Self::Listen,
            9 => Self::Count(box_id(&mut from)?),
            other => return Err(CodecError::Unknown(u32::from(other), "verb")),
        };
        from.end()?;
        Ok(ask)
    }
}

impl Answer {
    /// The message as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        match self {
            Self::Ready(Powers { own_ranges, cgroups, memory, cpu, pids }) => {
                to.u8(1);
                to.u8(u8::from(*own_ranges));
                to.u8(*cgroups);
                to.u8(u8::from(*memory) | u8::from(*cpu) << 1 | u8::from(*pids) << 2);
            }
            Self::Launched { box_id, pid } => {
                to.u8(2);
                to.bytes(box_id.as_str().as_bytes());
                to.u32(*pid);
            }
            Self::Failed { box_id, tried, errno } => {
                to.u8(3);
                trouble(&mut to, box_id, tried, *errno);
            }
            Self::Ended { box_id, spent } => {
                to.u8(4);
                write_spent(&mut to, box_id, spent);
            }
            Self::Counted { box_id, spent } => {
                to.u8(10);
                write_spent(&mut to, box_id, spent);
            }
            Self::Swept { boxes } => {
                to.u8(5);
                to.u32(*boxes);
            }
            Self::Paused { box_id } => {
                to.u8(6);
                to.bytes(box_id.as_str().as_bytes());
            }
            Self::Resumed { box_id } => {
                to.u8(7);
                to.bytes(box_id.as_str().as_bytes());
            }
            Self::NotPaused { box_id, tried, errno } => {
                to.u8(8);
                trouble(&mut to, box_id, tried, *errno);
            }
            Self::Held { box_id } => {
                to.u8(9);
                to.bytes(box_id.as_str().as_bytes());
            }
        }
        to.finish()
    }

    /// Reads a message.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut from = Reader::new(bytes);
        let answer = match from.u8()? {
            1 => {
                let own_ranges = from.u8()? != 0;
                let cgroups = from.u8()?;
                let bits = from.u8()?;
                Self::Ready(Powers {
                    own_ranges,
                    cgroups,
                    memory: bits & 1 != 0,
                    cpu: bits & 2 != 0,
                    pids: bits & 4 != 0,
                })
            }
            2 => Self::Launched { box_id: box_id(&mut from)?, pid: from.u32()? },
            3 => {
                let (box_id, tried, errno) = read_trouble(&mut from)?;
                Self::Failed { box_id, tried, errno }
            }
            4 => Self::Ended { box_id: box_id(&mut from)?, spent: read_spent(&mut from)? },
            10 => Self::Counted { box_id: box_id(&mut from)?, spent: read_spent(&mut from)? },
            5 => Self::Swept { boxes: from.u32()? },
            6 => Self::Paused { box_id: box_id(&mut from)? },
            7 => Self::Resumed { box_id: box_id(&mut from)? },
            8 => {
                let (box_id, tried, errno) = read_trouble(&mut from)?;
                Self::NotPaused { box_id, tried, errno }
            }
            9 => Self::Held { box_id: box_id(&mut from)? },
            other => return Err(CodecError::Unknown(u32::from(other), "answer")),
        };
        from.end()?;
        Ok(answer)
    }
}

fn box_id(from: &mut Reader<'_>) -> Result<BoxId, CodecError> {
    from.text(64)?.parse().map_err(|_| CodecError::Invalid("box id"))
}

fn write_spent(to: &mut Writer, box_id: &BoxId, spent: &Spent) {
    to.bytes(box_id.as_str().as_bytes());
    let Spent { cpu_micros, memory_peak, oom_kills, pids_refused, agent_signal } = *spent;
    [cpu_micros, memory_peak, oom_kills, pids_refused].into_iter().for_each(|number| to.u64(number));
    to.u8(agent_signal);
}

fn read_spent(from: &mut Reader<'_>) -> Result<Spent, CodecError> {
    Ok(Spent {
        cpu_micros: from.u64()?,
        memory_peak: from.u64()?,
        oom_kills: from.u64()?,
        pids_refused: from.u64()?,
        agent_signal: from.u8()?,
    })
}

fn trouble(to: &mut Writer, box_id: &BoxId, tried: &str, errno: i32) {
    to.bytes(box_id.as_str().as_bytes());
    to.bytes(tried.as_bytes().get(..MAX_AGENT_TEXT).unwrap_or(tried.as_bytes()));
    to.i32(errno);
}

fn read_trouble(from: &mut Reader<'_>) -> Result<(BoxId, String, i32), CodecError> {
    let id = box_id(from)?;
    Ok((id, String::from_utf8_lossy(from.bytes(MAX_AGENT_TEXT)?).into_owned(), from.i32()?))
}
