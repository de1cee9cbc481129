//! What the first process of a box becomes.

use super::{GuestPath, Slot};
use crate::codec::{CodecError, Reader, Writer};
use crate::limits::{MAX_MONITOR_INHERITS, MAX_MONITOR_TEXT, MAX_MONITOR_TEXTS, MAX_PATH};

/// What the first process of a box becomes, once every layer is on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "text", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum First {
    /// The agent: the payload runs on the host's kernel.
    Agent,
    /// A program that stands between the payload and the host's kernel.
    Monitor(Monitor),
}

/// A program that stands between the payload and the host's kernel, and carries or speaks the agent's frames.
///
/// It runs as the payload's user without any capability, under every layer of the jail and a filter of its own, with the
/// control channel as descriptor 3, what the plan names from 4 on, and no other one. Whoever breaks out of the kernel that it plays is in a jail.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "text", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub struct Monitor {
    /// Which kind: chooses its filter.
    pub kind: MonitorKind,
    /// Where it lies in the box's root.
    pub program: GuestPath,
    /// Its arguments, its own name first.
    pub arguments: Vec<String>,
    /// Its whole environment.
    pub environment: Vec<String>,
    /// What came with the plan and it inherits, from descriptor 4 on.
    pub inherits: Vec<Slot>,
}

/// The kinds of monitors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "text", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum MonitorKind {
    /// A runtime for WebAssembly.
    Wasm,
    /// gVisor's kernel in user space.
    Gvisor,
    /// A virtual machine in QEMU.
    Qemu,
}

impl MonitorKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Wasm, Self::Gvisor, Self::Qemu];
}

impl First {
    pub(super) fn encode(&self, to: &mut Writer) {
        let Self::Monitor(Monitor { kind, program, arguments, environment, inherits }) = self else {
            return to.u8(0);
        };
        to.u8(match kind {
            MonitorKind::Wasm => 1,
            MonitorKind::Gvisor => 2,
            MonitorKind::Qemu => 3,
        });
        to.bytes(program.as_str().as_bytes());
        for texts in [arguments, environment] {
            to.list(texts, |to, text| to.bytes(text.as_bytes()));
        }
        to.list(inherits, |to, slot| to.u8(slot.0));
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let kind = match from.u8()? {
            0 => return Ok(Self::Agent),
            1 => MonitorKind::Wasm,
            2 => MonitorKind::Gvisor,
            3 => MonitorKind::Qemu,
            other => return Err(CodecError::Unknown(u32::from(other), "first process")),
        };
        let program = from.text(MAX_PATH)?.parse().map_err(|_| CodecError::Invalid("path"))?;
        let mut texts = || from.list(MAX_MONITOR_TEXTS, |from| Ok(from.text(MAX_MONITOR_TEXT)?.to_owned()));
        let (arguments, environment) = (texts()?, texts()?);
        let inherits = from.list(MAX_MONITOR_INHERITS, |from| Ok(Slot(from.u8()?)))?;
        Ok(Self::Monitor(Monitor { kind, program, arguments, environment, inherits }))
    }
}
