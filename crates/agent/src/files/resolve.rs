//! Opening by path, so that no link of /proc is a shortcut: by the one call that can say so, or step by step where the
//! kernel does not know it (gVisor's does not).
//!
//! Step by step means: every name is looked at before it is entered, and a link's text is walked like the rest of the
//! path. So a link of /proc is only ever text. Between look and entry the box may put something else there; then the
//! entry fails, because no step follows a link.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// How many links one path may lead over, as the kernel counts.
const LINKS: usize = 40;
/// How long all names of one path together may be, links included.
const TEXT: usize = 64 * 1024;
/// The kernel says "again" when a rename went on beside a `..`, and when somebody holds a lease.
const ATTEMPTS: usize = 8;

/// Something on the way, which is neither read nor written.
const STEP: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens `path` as if `root`, which is the agent's own root, were all there is.
pub(super) fn in_root(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    patiently(|| match rustix::fs::openat2(root, path, flags, mode, inside) {
        Err(Errno::NOSYS) => walk(root, root, path, flags, mode),
        done => done,
    })
}

/// Opens what `path`, seen from a directory, leads to; links go where they go in the agent's own root.
pub(super) fn from(at: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    match rustix::fs::openat2(at, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
        Err(Errno::NOSYS) => {
            let root = rustix::fs::open("/", STEP | OFlags::DIRECTORY, Mode::empty())?;
            walk(root.as_fd(), at, path, flags, Mode::empty())
        }
        done => done,
    }
}

/// Opens `path` beneath a directory: never out of it, never over a link.
pub(super) fn beneath(base: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    patiently(|| match rustix::fs::openat2(base, path, flags, Mode::empty(), inside) {
        Err(Errno::NOSYS) => descend(base, path, flags),
        done => done,
    })
}

fn walk(
    root: BorrowedFd<'_>,
    at: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    // A slash at the end asks for a directory, over a link too; opening never makes one.
    let flags = match path.ends_with(b"/") {
        true if flags.contains(OFlags::CREATE) => return Err(Errno::ISDIR),
        true => (flags | OFlags::DIRECTORY) - OFlags::NOFOLLOW,
        false => flags,
    };
    let start = if path.starts_with(b"/") { root } else { at };
    let mut here = rustix::io::fcntl_dupfd_cloexec(start, 3)?;
    let mut ahead = names(path);
    let (mut links, mut text) = (0_usize, path.len());
    while let Some(name) = ahead.pop_front() {
        let last = ahead.is_empty();
        let next = match rustix::fs::openat(&here, &*name, STEP, Mode::empty()) {
            Err(Errno::NOENT) if last && flags.contains(OFlags::CREATE) => {
                return rustix::fs::openat(&here, &*name, flags | OFlags::NOFOLLOW, mode);
            }
            next => next?,
        };
        if kind(next.as_fd())? != FileType::Symlink {
            if last {
                return rustix::fs::openat(&here, &*name, flags | OFlags::NOFOLLOW, mode);
            }
            here = next;
            continue;
        }
        if last && flags.contains(OFlags::NOFOLLOW) {
            return rustix::fs::openat(&here, &*name, flags, mode);
        }
        let target = rustix::fs::readlinkat(&here, &*name, Vec::new())?.into_bytes();
        (links, text) = (links.saturating_add(1), text.saturating_add(target.len()));
        if links > LINKS || text > TEXT {
            return Err(Errno::LOOP);
        }
        if target.starts_with(b"/") {
            here = rustix::io::fcntl_dupfd_cloexec(root, 3)?;
        }
        for name in names(&target).into_iter().rev() {
            ahead.push_front(name);
        }
    }
    // Nothing but slashes and dots, or a link to such.
    rustix::fs::openat(&here, ".", flags | OFlags::NOFOLLOW, mode)
}

fn descend(base: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    if path.starts_with(b"/") {
        return Err(Errno::XDEV);
    }
    let mut ahead = names(path);
    let mut here = rustix::io::fcntl_dupfd_cloexec(base, 3)?;
    let last = ahead.pop_back();
    if ahead.iter().chain(&last).any(|name| name == b"..") {
        return Err(Errno::XDEV);
    }
    for name in ahead {
        let next = rustix::fs::openat(&here, &*name, STEP, Mode::empty())?;
        if kind(next.as_fd())? == FileType::Symlink {
            return Err(Errno::LOOP);
        }
        here = next;
    }
    let last = last.unwrap_or_else(|| b".".to_vec());
    let found = rustix::fs::openat(&here, &*last, STEP, Mode::empty())?;
    if kind(found.as_fd())? == FileType::Symlink && !flags.contains(STEP) {
        return Err(Errno::LOOP);
    }
    rustix::fs::openat(&here, &*last, flags | OFlags::NOFOLLOW, Mode::empty())
}

fn kind(there: BorrowedFd<'_>) -> Result<FileType, Errno> {
    Ok(FileType::from_raw_mode(rustix::fs::statat(there, c"", AtFlags::EMPTY_PATH)?.st_mode))
}

/// The names of a path; `.` is none.
fn names(path: &[u8]) -> VecDeque<Vec<u8>> {
    let names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.map(<[u8]>::to_vec).collect()
}

fn patiently(mut open: impl FnMut() -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    let mut last = open();
    for _ in 1..ATTEMPTS {
        match last {
            Err(Errno::AGAIN | Errno::INTR) => last = open(),
            done => return done,
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::{Path, PathBuf};

    use super::*;

    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("resolve-{name}-{}", std::process::id()));
            std::fs::create_dir_all(path.join("a/b")).unwrap();
            std::fs::write(path.join("a/b/file"), "x").unwrap();
            symlink("b", path.join("a/short")).unwrap();
            symlink("../a/short/file", path.join("a/to-file")).unwrap();
            symlink(path.join("a"), path.join("far")).unwrap();
            symlink("loop", path.join("loop")).unwrap();
            symlink("nowhere", path.join("dead")).unwrap();
            Self(path)
        }
        fn hold(&self) -> OwnedFd {
            hold(&self.0)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn hold(path: &Path) -> OwnedFd {
        rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    fn same(one: Result<OwnedFd, Errno>, other: Result<OwnedFd, Errno>, what: &str) {
        match (one, other) {
            (Ok(one), Ok(other)) => {
                let identity = |fd: &OwnedFd| {
                    let stat = rustix::fs::fstat(fd).unwrap();
                    (stat.st_dev, stat.st_ino)
                };
                assert_eq!(identity(&one), identity(&other), "{what}");
            }
            (one, other) => assert_eq!(one.err(), other.err(), "{what}"),
        }
    }

    #[test]
    fn step_by_step_leads_where_the_kernel_leads() {
        let tree = Tree::new("same");
        let (root, at) = (hold(Path::new("/")), tree.hold());
        let base = tree.0.to_str().unwrap();
        let read = OFlags::RDONLY | OFlags::CLOEXEC;
        let flags =
            [read, read | OFlags::NOFOLLOW, read | OFlags::DIRECTORY, STEP, OFlags::PATH | OFlags::CLOEXEC];
        for path in [
            "",
            "/",
            "/a",
            "/a/b/file",
            "/a/b/file/",
            "/a/short",
            "/a/short/",
            "/a/short/file",
            "/a/to-file",
            "/far/b/file",
            "/far/../a",
            "/loop",
            "/loop/x",
            "/dead",
            "/dead/x",
            "/a/nothing",
            "/a/b/../../far/short/./file",
            "/../..",
            "/a/b/file/x",
        ] {
            let path = format!("{base}{path}");
            for flags in flags {
                let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
                let kernel = rustix::fs::openat2(&root, path.as_str(), flags, Mode::empty(), inside);
                let ours = walk(root.as_fd(), root.as_fd(), path.as_bytes(), flags, Mode::empty());
                same(ours, kernel, &format!("{path} {flags:?}"));
            }
        }
        for path in ["a/b", "a/b/file", "a/short", "a/short/file", ".", "a/nothing", "a/b/file/x", "loop"] {
            for flags in [read, read | OFlags::DIRECTORY, STEP] {
                let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
                let kernel = rustix::fs::openat2(&at, path, flags, Mode::empty(), inside);
                same(
                    descend(at.as_fd(), path.as_bytes(), flags),
                    kernel,
                    &format!("beneath: {path} {flags:?}"),
                );
            }
        }
        for out in ["..", "a/../..", "/etc"] {
            assert_eq!(descend(at.as_fd(), out.as_bytes(), STEP).err(), Some(Errno::XDEV), "{out}");
        }
    }

    #[test]
    fn a_file_is_made_where_the_last_name_is_missing_and_never_over_a_link_that_hangs() {
        let tree = Tree::new("make");
        let root = hold(Path::new("/"));
        let make = |name: &str| {
            let path = tree.0.join(name).into_os_string().into_encoded_bytes();
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
            walk(root.as_fd(), root.as_fd(), &path, flags, Mode::from_raw_mode(0o600))
        };
        make("far/new").unwrap();
        assert_eq!(std::fs::metadata(tree.0.join("a/new")).unwrap().mode() & 0o777, 0o600);
        // As Linux does it: the file is made where the link says.
        make("dead").unwrap();
        assert!(tree.0.join("nowhere").exists());
    }

    #[test]
    fn a_link_of_proc_is_text_and_no_shortcut() {
        let tree = Tree::new("magic");
        let held = std::fs::File::open(tree.0.join("a/b/file")).unwrap();
        std::fs::remove_file(tree.0.join("a/b/file")).unwrap();
        let root = hold(Path::new("/"));
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&held));
        assert!(std::fs::File::open(&path).is_ok());
        let read = OFlags::RDONLY | OFlags::CLOEXEC;
        let found = walk(root.as_fd(), root.as_fd(), path.as_bytes(), read, Mode::empty());
        assert_eq!(found.err(), Some(Errno::NOENT));
    }
}
