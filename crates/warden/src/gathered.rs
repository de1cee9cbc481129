//! What came as descriptors and is shown in the box's root: gathered while the caller's mounts are in reach.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use blastbox_sys::mount::{self, Beneath};
use blastbox_wire::plan::{GuestPath, Step};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, readlinkat, statat};

use crate::standing::Standing;
use crate::trouble::{Trouble, Trying};

/// What an image may not bring along, because the box makes it itself.
const OURS: [&str; 7] = ["dev", "proc", "sys", "tmp", "run", "home", "workspace"];

/// One thing that is shown.
#[derive(Debug)]
pub(crate) enum Entry {
    /// A file or directory, as a copy of its mount.
    Tree { at: GuestPath, tree: OwnedFd },
    /// A link, as it is: it can lead nowhere but to other places in the box.
    Link { at: GuestPath, to: CString },
}

/// What came as descriptors and is to be shown, step by step. Done while the caller's mounts are in reach.
pub(crate) fn gather(
    standing: &Standing,
    steps: &[Step],
    directories: &[OwnedFd],
) -> Result<Vec<Vec<Entry>>, Trouble> {
    let gathered = steps.iter().filter_map(|step| match step {
        Step::Image { slot } => Some(gather_image(standing, slot.0, directories)),
        Step::Show { slot, at } => Some(gather_one(standing, slot.0, at, directories).map(|one| vec![one])),
        _ => None,
    });
    gathered.collect()
}

fn gather_one(
    standing: &Standing,
    slot: u8,
    at: &GuestPath,
    directories: &[OwnedFd],
) -> Result<Entry, Trouble> {
    let host = standing.local(directory(directories, slot)?)?;
    let tree = mount::copy(&host, "", Beneath::LeftOut).tried_with(|| format!("copy {at}"))?;
    Ok(Entry::Tree { at: at.clone(), tree })
}

/// Every entry at the top of the image, except what the box makes itself.
fn gather_image(standing: &Standing, slot: u8, directories: &[OwnedFd]) -> Result<Vec<Entry>, Trouble> {
    let mut entries = Vec::new();
    let image = standing.local(directory(directories, slot)?)?;
    let listing = openat(&image, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .tried("open the image's directory")?;
    for entry in Dir::read_from(&listing).tried("list the image's directory")? {
        let entry = entry.tried("list the image's directory")?;
        let Ok(name) = entry.file_name().to_str() else {
            return Err(Trouble::plain("show the image: a name at its top is not UTF-8"));
        };
        if matches!(name, "." | "..") || OURS.contains(&name) {
            continue;
        }
        let Ok(at) = format!("/{name}").parse::<GuestPath>() else {
            return Err(Trouble::plain("show the image: a name at its top is not a plain name"));
        };
        let stat =
            statat(&listing, name, AtFlags::SYMLINK_NOFOLLOW).tried_with(|| format!("look at {at}"))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => {
                let to =
                    readlinkat(&listing, name, Vec::new()).tried_with(|| format!("read the link {at}"))?;
                entries.push(Entry::Link { at, to });
            }
            FileType::Directory | FileType::RegularFile => {
                let tree =
                    mount::copy(&listing, name, Beneath::LeftOut).tried_with(|| format!("copy {at}"))?;
                entries.push(Entry::Tree { at, tree });
            }
            // Sockets, devices and pipes of an image are not shown.
            _ => {}
        }
    }
    Ok(entries)
}

/// A directory that came with the plan. Slot 0 is the control channel and not among them.
pub(crate) fn directory(directories: &[OwnedFd], slot: u8) -> Result<BorrowedFd<'_>, Trouble> {
    let index = usize::from(slot).checked_sub(1);
    index
        .and_then(|index| directories.get(index))
        .map(AsFd::as_fd)
        .ok_or_else(|| Trouble::plain(format!("find the directory in slot {slot}")))
}
