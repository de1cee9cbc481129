//! A plan as bytes, for the way to the warden.

use super::{
    Cgroups, Denials, DeviceName, Exec, First, Grant, GrantAccess, GuestPath, Ids, Landlock, Limits, Network,
    Owner, Plan, Slot, Step, WorkspaceAccess,
};
use crate::codec::{CodecError, Reader, Writer};
use crate::egress::MAX_AUTHORITY;
use crate::limits::{MAX_FILE_TEXT, MAX_GRANTS, MAX_PATH, MAX_STEPS};

impl Plan {
    /// Writes the plan.
    pub fn encode(&self, to: &mut Writer) {
        to.bytes(self.box_id.as_str().as_bytes());
        to.list(&self.template, |to, step| step.encode(to));
        to.list(&self.own, |to, step| step.encode(to));
        to.u8(match self.ids {
            Ids::OwnRange => 0,
            Ids::CallerOnly => 1,
            Ids::OwnBlock => 2,
        });
        match self.network {
            Network::Empty => to.u8(0),
            Network::Loopback => to.u8(1),
            Network::Gateway { slot, loopback } => {
                to.u8(if loopback { 3 } else { 2 });
                to.u8(slot.0);
            }
            Network::Card { slot } => {
                to.u8(4);
                to.u8(slot.0);
            }
        }
        to.u8(match self.cgroups {
            Cgroups::Absent => 0,
            Cgroups::Enforce { memory, cpu, pids } => {
                8 | u8::from(memory) | u8::from(cpu) << 1 | u8::from(pids) << 2
            }
        });
        let Limits { millicpus, memory, pids, open_files, file_size } = self.limits;
        to.u32(millicpus);
        to.u64(memory);
        to.u32(pids);
        to.u32(open_files);
        to.u64(file_size);
        to.u32(self.landlock.least_abi);
        to.list(&self.landlock.grants, |to, Grant { at, access }| {
            path(to, at);
            to.u8(number(&ACCESSES, *access));
        });
        to.u8(match self.denials {
            Denials::Reported => 0,
            Denials::Silent => 1,
            Denials::WithWrites => 2,
        });
        self.first.encode(to);
    }

    /// Reads a plan. It is not checked yet.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self {
            box_id: from.text(64)?.parse().map_err(|_| CodecError::Invalid("box id"))?,
            template: from.list(MAX_STEPS, Step::decode)?,
            own: from.list(MAX_STEPS, Step::decode)?,
            ids: choice(from, &[Ids::OwnRange, Ids::CallerOnly, Ids::OwnBlock], "kind of ids")?,
            network: match from.u8()? {
                0 => Network::Empty,
                1 => Network::Loopback,
                kind @ 2..=3 => Network::Gateway { slot: Slot(from.u8()?), loopback: kind == 3 },
                4 => Network::Card { slot: Slot(from.u8()?) },
                other => return Err(CodecError::Unknown(u32::from(other), "network")),
            },
            cgroups: match from.u8()? {
                0 => Cgroups::Absent,
                bits @ 8..=15 => {
                    Cgroups::Enforce { memory: bits & 1 != 0, cpu: bits & 2 != 0, pids: bits & 4 != 0 }
                }
                other => return Err(CodecError::Unknown(u32::from(other), "use of cgroups")),
            },
            limits: Limits {
                millicpus: from.u32()?,
                memory: from.u64()?,
                pids: from.u32()?,
                open_files: from.u32()?,
                file_size: from.u64()?,
            },
            landlock: Landlock {
                least_abi: from.u32()?,
                grants: from.list(MAX_GRANTS, |from| {
                    Ok(Grant { at: read_path(from)?, access: choice(from, &ACCESSES, "access")? })
                })?,
            },
            denials: choice(
                from,
                &[Denials::Reported, Denials::Silent, Denials::WithWrites],
                "kind of denial",
            )?,
            first: First::decode(from)?,
        })
    }
}

const ACCESSES: [GrantAccess; 7] = [
    GrantAccess::Read,
    GrantAccess::ReadExecute,
    GrantAccess::ReadWrite,
    GrantAccess::ReadWriteExecute,
    GrantAccess::Devices,
    GrantAccess::Terminals,
    GrantAccess::Shared,
];
const EXECS: [Exec; 2] = [Exec::Allowed, Exec::Denied];
const OWNERS: [Owner; 3] = [Owner::Payload, Owner::Everybody, Owner::Root];
const WORKSPACES: [WorkspaceAccess; 2] = [WorkspaceAccess::ReadOnly, WorkspaceAccess::CopyOnWrite];

impl Step {
    /// Writes the step. Also the identity of a template: equal bytes, equal template.
    pub fn encode(&self, to: &mut Writer) {
        match self {
            Self::Directory { at } => {
                to.u8(1);
                path(to, at);
            }
            Self::File { at, text } => {
                to.u8(2);
                path(to, at);
                to.bytes(text.as_bytes());
            }
            Self::Link { at, to: target } => {
                to.u8(3);
                path(to, at);
                to.bytes(target.as_bytes());
            }
            Self::HostView { path: at } => {
                to.u8(4);
                path(to, at);
            }
            Self::Image { slot } => {
                to.u8(5);
                to.u8(slot.0);
            }
            Self::Show { slot, at } => {
                to.u8(14);
                to.u8(slot.0);
                path(to, at);
            }
            Self::Device { name } => {
                to.u8(6);
                to.u8(number(&DeviceName::ALL, *name));
            }
            Self::Scratch { bytes, inodes } => {
                to.u8(7);
                to.u64(*bytes);
                to.u64(*inodes);
            }
            Self::ScratchDirectory { at, owner, exec } => {
                to.u8(8);
                path(to, at);
                to.u8(number(&OWNERS, *owner));
                to.u8(number(&EXECS, *exec));
            }
            Self::Processes => to.u8(9),
            Self::ProcessesAt { at } => {
                to.u8(15);
                path(to, at);
            }
            Self::Terminals => to.u8(10),
            Self::Trust { authority } => {
                to.u8(13);
                to.bytes(authority.as_bytes());
            }
            Self::Workspace { slot, at, access, exec } => {
                to.u8(11);
                to.u8(slot.0);
                path(to, at);
                to.u8(number(&WORKSPACES, *access));
                to.u8(number(&EXECS, *exec));
            }
            Self::Writable { at } => {
                to.u8(16);
                path(to, at);
            }
            Self::Volume { slot, at, exec } => {
                to.u8(17);
                to.u8(slot.0);
                path(to, at);
                to.u8(number(&EXECS, *exec));
            }
            Self::Cover { at, text } => {
                to.u8(12);
                path(to, at);
                to.bytes(text.as_bytes());
            }
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(match from.u8()? {
            1 => Self::Directory { at: read_path(from)? },
            2 => Self::File { at: read_path(from)?, text: from.text(MAX_FILE_TEXT)?.to_owned() },
            3 => Self::Link { at: read_path(from)?, to: from.text(MAX_PATH)?.to_owned() },
            4 => Self::HostView { path: read_path(from)? },
            5 => Self::Image { slot: Slot(from.u8()?) },
            6 => Self::Device { name: choice(from, &DeviceName::ALL, "device")? },
            7 => Self::Scratch { bytes: from.u64()?, inodes: from.u64()? },
            8 => Self::ScratchDirectory {
                at: read_path(from)?,
                owner: choice(from, &OWNERS, "owner")?,
                exec: choice(from, &EXECS, "exec")?,
            },
            9 => Self::Processes,
            10 => Self::Terminals,
            11 => Self::Workspace {
                slot: Slot(from.u8()?),
                at: read_path(from)?,
                access: choice(from, &WORKSPACES, "access to a workspace")?,
                exec: choice(from, &EXECS, "exec")?,
            },
            12 => Self::Cover { at: read_path(from)?, text: from.text(MAX_FILE_TEXT)?.to_owned() },
            16 => Self::Writable { at: read_path(from)? },
            17 => Self::Volume {
                slot: Slot(from.u8()?),
                at: read_path(from)?,
                exec: choice(from, &EXECS, "exec")?,
            },
            15 => Self::ProcessesAt { at: read_path(from)? },
            14 => Self::Show { slot: Slot(from.u8()?), at: read_path(from)? },
            13 => Self::Trust { authority: from.text(MAX_AUTHORITY)?.to_owned() },
            other => return Err(CodecError::Unknown(u32::from(other), "step")),
        })
    }
}

fn path(to: &mut Writer, path: &GuestPath) {
    to.bytes(path.as_str().as_bytes());
}

fn read_path(from: &mut Reader<'_>) -> Result<GuestPath, CodecError> {
    from.text(MAX_PATH)?.parse().map_err(|_| CodecError::Invalid("path"))
}

fn number<T: PartialEq>(all: &[T], one: T) -> u8 {
    all.iter().zip(0..).find(|(other, _)| **other == one).map_or(u8::MAX, |(_, number)| number)
}

fn choice<T: Copy>(from: &mut Reader<'_>, all: &[T], what: &'static str) -> Result<T, CodecError> {
    let number = from.u8()?;
    all.get(usize::from(number)).copied().ok_or(CodecError::Unknown(u32::from(number), what))
}
