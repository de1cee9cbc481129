//! The box's own authority, in every bundle of authorities that programs of the box read.
//!
//! What lies in the root may be an image's: it is opened without following a link, must be an ordinary file, and is read
//! to a bound. The root itself is not changed; a file of ours lies over the bundle, read-only, in this box alone.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use blastbox_sys::mount::{self, Attributes, Beneath};
use blastbox_wire::egress::{BUNDLE, BUNDLE_FILES};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};

use crate::trouble::{Trouble, Trying};

/// Longest bundle that is read; Debian's has 220 kB.
const LONGEST: u64 = 2 << 20;

/// Puts the authority behind each bundle of the root, and the whole of it at [`BUNDLE`].
pub(crate) fn believe(root: &OwnedFd, authority: &str) -> Result<(), Trouble> {
    let options = [("mode", Some("0755")), ("size", Some("16m")), ("nr_inodes", Some("32"))];
    let attributes = Attributes::PLAIN.no_programs();
    let shelf = mount::create("tmpfs", &options, attributes).tried("make room for the box's authorities")?;
    let mut largest = Vec::new();
    for (number, at) in BUNDLE_FILES.iter().map(|at| at.trim_start_matches('/')).enumerate() {
        let Some(theirs) = read(root, at) else { continue };
        lay(root, &shelf, number, at, &theirs, authority)?;
        if theirs.len() > largest.len() {
            largest = theirs;
        }
    }
    let at = BUNDLE.trim_start_matches('/');
    lay(root, &shelf, BUNDLE_FILES.len(), at, &largest, authority)
}

/// A bundle of the root; `None` where there is none that can be taken for one.
fn read(root: &OwnedFd, at: &str) -> Option<Vec<u8>> {
    let stay = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    // Not to be kept waiting by a pipe.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat2(root, at, flags, Mode::empty(), stay).ok()?;
    let found = fstat(&file).ok()?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return None;
    }
    let mut text = Vec::new();
    std::fs::File::from(file).take(LONGEST).read_to_end(&mut text).ok()?;
    Some(text)
}

/// Lays a file with both over the one that is there.
fn lay(
    root: &OwnedFd,
    shelf: &OwnedFd,
    number: usize,
    at: &str,
    theirs: &[u8],
    authority: &str,
) -> Result<(), Trouble> {
    let name = number.to_string();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(shelf, name.as_str(), flags, Mode::from_raw_mode(0o444))
        .tried_with(|| format!("make /{at}"))?;
    let mut file = std::fs::File::from(file);
    for part in [theirs, b"\n", authority.as_bytes()] {
        file.write_all(part).tried_with(|| format!("write /{at}"))?;
    }
    drop(file);
    let file =
        mount::copy(shelf, &name, Beneath::LeftOut).tried_with(|| format!("copy what lies over /{at}"))?;
    mount::restrict(file.as_fd(), Attributes::PLAIN.no_programs().read_only(), Beneath::LeftOut)
        .tried_with(|| format!("make /{at} read-only"))?;
    mount::attach(file.as_fd(), root.as_fd(), at)
        .tried_with(|| format!("lay the box's authorities over /{at}"))
}
