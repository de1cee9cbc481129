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
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, unlinkat};

/// Longest bundle that is taken for one; Debian's has 220 kB. A longer one stays as it is.
const LONGEST: u64 = 2 << 20;

/// Directories in which Javas lie that may bring a store of their own: distributions', and where images put one.
const JAVAS: [&str; 5] = ["usr/lib/jvm", "usr/java", "usr/local", "opt/java", "opt"];
/// Where it lies in such a Java; the second until Java 8.
const STORES_OF_JAVA: [&str; 2] = ["lib/security/cacerts", "jre/lib/security/cacerts"];
/// Of an image that has more, the others stay as they are.
const MOST_IN_PLACE: usize = 64;
const MOST_OWN: usize = 6;

/// The directory of [`BUNDLE`], where nothing else lies in a box that has one.
const SHELF: &str = "run";

/// Puts the authority behind each bundle of the root, and the whole of it at [`BUNDLE`].
pub fn believe(root: &OwnedFd, authority: &str) -> io::Result<()> {
    let options = [("mode", Some("0755")), ("size", Some("32m")), ("nr_inodes", Some("32"))];
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
    // Written anew from nothing, a store would believe the gateway and nobody else.
    let own = own_stores(root).filter(|_| !largest.is_empty());
    let own = own.filter_map(|at| Some((java::with(&read(root, &at)?, &largest, authority)?, at)));
    for (store, at) in own.take(MOST_OWN) {
        lay(root, &shelf, &at, &store)?;
    }
    let name = BUNDLE.rsplit('/').next().unwrap_or_default();
    write(&shelf, name, &both(&largest, authority))?;
    mount::restrict(shelf.as_fd(), attributes.read_only(), Beneath::LeftOut)
}

/// The same in a copy of a guest that believed another one: what was laid over the bundles is taken away first. What cannot be is left, and
/// then programs believe both: the other one signs for the gateway of another box, and nobody here has its key.
pub fn believe_another(root: &OwnedFd, authority: &str) -> io::Result<()> {
    let laid = BUNDLE_FILES.iter().chain(JAVA_STORES).map(|at| (*at).to_owned());
    let own = own_stores(root).map(|at| format!("/{at}"));
    for at in laid.chain(own).chain([format!("/{SHELF}")]) {
        // Most of them are not there.
        mount::detach(&at).ok();
    }
    believe(root, authority)
}

/// Where stores may lie that Javas bring, whether there is one or not.
fn own_stores(root: &OwnedFd) -> impl Iterator<Item = String> {
    let names = |place: &'static str| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let found = openat2(root, place, flags, Mode::empty(), stay()).and_then(Dir::new);
        let names = found.into_iter().flat_map(|found| found.flatten().take(MOST_IN_PLACE));
        let names = names.filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
        let names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        names.into_iter().map(move |name| format!("{place}/{name}"))
    };
    let javas: Vec<String> = JAVAS.into_iter().flat_map(names).collect();
    javas.into_iter().flat_map(|java| STORES_OF_JAVA.map(|store| format!("{java}/{store}")))
}

/// What is an image's leads nowhere else.
fn stay() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS
}

/// A bundle of the root; `None` where there is none that can be taken for one.
fn read(root: &OwnedFd, at: &str) -> Option<Vec<u8>> {
    // Not to be kept waiting by a pipe.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat2(root, at, flags, Mode::empty(), stay()).ok()?;
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

    #[test]
    fn the_store_that_a_java_brings_is_found_and_a_link_is_not_followed() {
        let place = std::env::temp_dir().join(format!("javas-{}", std::process::id()));
        for home in ["usr/lib/jvm/brings", "usr/lib/jvm/links", "opt/java/openjdk", "usr/java/old/jre"] {
            std::fs::create_dir_all(place.join(home).join("lib/security")).unwrap();
        }
        let stores = ["usr/lib/jvm/brings", "usr/java/old/jre", "opt/java/openjdk"]
            .map(|home| format!("{home}/lib/security/cacerts"));
        for store in &stores {
            std::fs::write(place.join(store), "a store").unwrap();
        }
        let link = place.join("usr/lib/jvm/links/lib/security/cacerts");
        std::os::unix::fs::symlink("../../../brings/lib/security/cacerts", link).unwrap();
        std::os::unix::fs::symlink("brings", place.join("usr/lib/jvm/default")).unwrap();
        let root = OwnedFd::from(std::fs::File::open(&place).unwrap());
        let found: Vec<String> = own_stores(&root).filter(|at| read(&root, at).is_some()).collect();
        assert_eq!(found, stores);
        std::fs::remove_dir_all(&place).unwrap();
    }
}
