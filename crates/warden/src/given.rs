//! Directories of the host that a caller gives to a box: copies of their mounts, with owners that the box may be.

use std::os::fd::{AsFd, OwnedFd};

use blastbox_sys::channel;
use blastbox_sys::fork::{self, Side, Unshare};
use blastbox_sys::mount::{self, Attributes, Beneath};
use blastbox_sys::namespaces::{self, DenyGroups, IdRow};
use blastbox_wire::plan::{Exec, Plan, Step, VOLUMES};
use rustix::fs::{AtFlags, FileType, statat};
use rustix::process::{Signal, WaitOptions, geteuid, kill_process, waitpid};

use crate::gathered::directory;
use crate::ids::Slot;
use crate::standing::Standing;
use crate::template::Templates;
use crate::trouble::{Trouble, Trying};

const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();

/// Copies of the mounts of the caller's directories, made where the caller's mounts are in reach: of workspaces read-only.
pub(crate) fn copy_given(
    standing: &Standing,
    templates: &mut Templates,
    plan: &Plan,
    directories: &[OwnedFd],
    slot: Option<Slot>,
) -> Result<Vec<OwnedFd>, Trouble> {
    let mut given = Vec::new();
    for step in &plan.own {
        let (number, attributes) = match step {
            Step::Workspace { slot, .. } => (slot.0, Attributes::PLAIN.read_only()),
            Step::Volume { slot, exec: Exec::Allowed, .. } => (slot.0, Attributes::PLAIN),
            Step::Volume { slot, exec: Exec::Denied, .. } => (slot.0, Attributes::PLAIN.no_programs()),
            _ => continue,
        };
        templates.leave(standing)?;
        let host = standing.local(directory(directories, number)?)?;
        let is_volume = matches!(step, Step::Volume { .. });
        if is_volume {
            // Whoever sends plans may be broken, and reads more than it writes: a box writes only where the sender could, since
            // it has put this file there: our own user, who started us. Others may put theirs beside what is not theirs (in /tmp).
            let mark = statat(&host, format!("../{VOLUMES}"), AtFlags::SYMLINK_NOFOLLOW)
                .tried("find the mark of a place for volumes")?;
            if !FileType::from_raw_mode(mark.st_mode).is_file() || mark.st_uid != geteuid().as_raw() {
                return Err(Trouble::plain("the mark of a place for volumes is no file of our own user"));
            }
        }
        let copy = mount::copy(&host, "", Beneath::LeftOut);
        // The kernel shows what lies under a mount to nobody who could not take that mount away.
        let hidden = slot.is_none() && copy.as_ref().is_err_and(|error| error.raw_os_error() == Some(EINVAL));
        let copy = copy.tried(if hidden {
            "copy the caller's directory without what is mounted beneath it, as root alone can; give one without mounts"
        } else {
            "copy the caller's directory"
        })?;
        mount::restrict(copy.as_fd(), attributes, Beneath::LeftOut).tried("restrict the given directory")?;
        if let Some(slot) = slot {
            let stat = rustix::fs::fstat(&host).tried("look at the caller's directory")?;
            // The owner becomes the payload. In a workspace everybody else stays who they are (and is nobody in the box); in a
            // volume nobody else owns anything, so that no other id of the host ever stands behind what a box writes.
            let row = |owner| match is_volume {
                true => vec![IdRow { inside: owner, outside: slot.payload, count: 1 }],
                false => all_but_one(owner, slot.payload),
            };
            let owners = table_of_owners(standing, &row(stat.st_uid), &row(stat.st_gid))?;
            let mapped = mount::map_owners(copy.as_fd(), owners.as_fd());
            // A file system that cannot do this shows the box less of a workspace, never more: the owners stay foreign to it. A
            // volume would be nobody's.
            if is_volume {
                mapped.tried("show the volume's owner as the payload (a file system that maps owners)")?;
            }
        }
        given.push(copy);
    }
    Ok(given)
}

/// A user namespace that is nothing but a table: how owners of files are shown.
pub(crate) fn table_of_owners(
    standing: &Standing,
    users: &[IdRow],
    groups: &[IdRow],
) -> Result<OwnedFd, Trouble> {
    let (ours, theirs) = channel::pair().tried("make a line to a helper process")?;
    match fork::fork(&standing.proof, Unshare::USERS, None).tried("make a table of owners")? {
        Side::Child => {
            drop(ours);
            // Waits until the parent has what it wants, or is gone.
            channel::receive(&theirs, &mut [0_u8; 1]).ok();
            fork::leave(0)
        }
        Side::Parent(pid) => {
            let process = pid.as_raw_nonzero().to_string();
            let opened =
                namespaces::write_maps(standing.proc.as_fd(), &process, users, groups, DenyGroups::No)
                    .and_then(|()| namespaces::open(standing.proc.as_fd(), &process, "user"));
            kill_process(pid, Signal::KILL).tried("end a helper process")?;
            waitpid(Some(pid), WaitOptions::empty()).tried("collect a helper process")?;
            opened.tried("write the table of owners")
        }
    }
}

/// Every id as itself, except that `owner` becomes `payload`. The payload's own number shows nothing.
fn all_but_one(owner: u32, payload: u32) -> Vec<IdRow> {
    let mut rows = vec![IdRow { inside: owner, outside: payload, count: 1 }];
    let (low, high) = (owner.min(payload), owner.max(payload));
    for (first, end) in [(0, low), (low.saturating_add(1), high), (high.saturating_add(1), u32::MAX - 1)] {
        if first < end {
            rows.push(IdRow { inside: first, outside: first, count: end - first });
        }
    }
    rows
}
