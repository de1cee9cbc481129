//! The box's own authority, in every bundle of authorities that programs of the box read.
//!
//! What lies in the root may be an image's: it is opened without following a link, must be an ordinary file, and is read
//! to a bound. The root itself is not changed; a file of ours lies over the bundle, read-only, in this box alone.

mod java;
mod sha1;

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use blastbox_sys::mount::{self, Attributes, Beneath};
use blastbox_wire::egress::{BUNDLE, BUNDLE_FILES, JAVA_STORES};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, unlinkat};

/// Longest bundle that is taken for one; Debian's has 220 kB. A longer one stays as it is.
const LONGEST: u64 = 2 << 20;

/// The directory of [`BUNDLE`], where nothing else lies in a box that has one.
const SHELF: &str = "run";

/// Puts the authority behind each bundle of the root, and the whole of it at [`BUNDLE`].
pub fn believe(root: &OwnedFd, authority: &str) -> io::Result<()> {
    let options = [("mode", Some("0755")), ("size", Some("20m")), ("nr_inodes", Some("32"))];
    let attributes = Attributes::PLAIN.no_programs();
    let shelf = mount::create("tmpfs", &options, attributes)?;
    // First: kernels before 6.15 copy nothing of a mount that is attached nowhere.
    mount::attach(shelf.as_fd(), root.as_fd(), SHELF)?;
    let mut largest = Vec::new();
    for at in BUNDLE_FILES.iter().map(|at| at.trim_start_matches('/')) {
        let Some(theirs) = read(root, at) else { continue };
        lay(root, &shelf, at, &both(&theirs, authority))?;
        if theirs.len() > largest.len() {
            largest = theirs;
        }
    }
    for at in JAVA_STORES.iter().map(|at| at.trim_start_matches('/')) {
        let store = read(root, at).and_then(|theirs| java::with(&theirs, &largest, authority));
        store.map_or(Ok(()), |store| lay(root, &shelf, at, &store))?;
    }
    let name = BUNDLE.rsplit('/').next().unwrap_or_default();
    write(&shelf, name, &both(&largest, authority))?;
    mount::restrict(shelf.as_fd(), attributes.read_only(), Beneath::LeftOut)
}

/// The same in a copy of a guest that believed another one: what was laid over the bundles is taken away first. What cannot be is left, and
/// then programs believe both: the other one signs for the gateway of another box, and nobody here has its key.
pub fn believe_another(root: &OwnedFd, authority: &str) -> io::Result<()> {
    let laid = BUNDLE_FILES.iter().chain(JAVA_STORES).map(|at| (*at).to_owned());
    for at in laid.chain([format!("/{SHELF}")]) {
        // Most of them are not there.
        mount::detach(&at).ok();
    }
    believe(root, authority)
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
    std::fs::File::from(file).take(LONGEST + 1).read_to_end(&mut text).ok()?;
    // Of a part no program would believe anything: a certificate, or Java's list, ends in the middle, and ours comes after it.
    (text.len() as u64 <= LONGEST).then_some(text)
}

/// A bundle with the authority behind it.
fn both(bundle: &[u8], authority: &str) -> Vec<u8> {
    [bundle, authority.as_bytes()].join(&b'\n')
}

fn write(shelf: &OwnedFd, name: &str, text: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(shelf, name, flags, Mode::from_raw_mode(0o444))?;
    std::fs::File::from(file).write_all(text)
}

/// Lays a file with this text over the one that is there.
fn lay(root: &OwnedFd, shelf: &OwnedFd, at: &str, text: &[u8]) -> io::Result<()> {
    let over = || {
        let name = "bundle";
        write(shelf, name, text)?;
        let file = mount::copy(shelf, name, Beneath::LeftOut)?;
        mount::restrict(file.as_fd(), Attributes::PLAIN.no_programs().read_only(), Beneath::LeftOut)?;
        mount::attach(file.as_fd(), root.as_fd(), at)?;
        // Afterwards: kernels as old as 6.1 attach nothing whose name is gone.
        io::Result::Ok(unlinkat(shelf, name, AtFlags::empty())?)
    };
    over().map_err(|error| io::Error::new(error.kind(), format!("lay authorities over /{at}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_read_whole_or_not_at_all() {
        let place = std::env::temp_dir().join(format!("trust-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let root = OwnedFd::from(std::fs::File::open(&place).unwrap());
        let longest = usize::try_from(LONGEST).unwrap();
        for (length, whole) in [(0, true), (longest, true), (longest + 1, false)] {
            std::fs::write(place.join("bundle"), vec![b'x'; length]).unwrap();
            assert_eq!(read(&root, "bundle").map(|text| text.len()), whole.then_some(length));
        }
        assert_eq!(read(&root, "nothing"), None);
        std::fs::remove_dir_all(&place).unwrap();
    }
}
