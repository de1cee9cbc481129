//! The caller's directory, copied into the box's memory before anything runs. Nothing ever goes back by itself.
//!
//! Trust: the directory is the caller's, and a stranger may have filled it. It is shown read-only and read once: links are
//! refused, sizes are counted, and what does not fit keeps the box from starting.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

use crate::files::{Ino, Tree, Trouble};

/// Where it is shown to the worker, and where it lies in the box.
const PLACE: &str = "/workspace";
/// Levels of directories. Each takes one of the worker's 256 descriptors while it is copied.
const DEEPEST: u32 = 128;
/// To read what only its name is known of.
const ENTER: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);
/// Read at once.
const GULP: usize = 256 * 1024;

/// What guests may do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workspace {
    /// Whatever they want with their copy.
    Copied,
    /// Read it.
    ReadOnly,
}

impl Workspace {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        match word {
            "cow" => Some(Self::Copied),
            "ro" => Some(Self::ReadOnly),
            _ => None,
        }
    }
}

/// Why the box does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkspaceTrouble {
    #[error("workspace_unreadable: cannot read {} of the workspace: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(
        "workspace_unfit: {} of the workspace is a link, something else that is neither file nor directory, or deeper than \
         {DEEPEST} directories, and the files of a Wasm box have no such; give a copy without it, or use another tier",
        .0.display()
    )]
    Unfit(PathBuf),
    #[error(
        "workspace_too_large: the workspace does not fit at {}; raise files.disk, files.inodes or files.file_size and with \
         them kernel.memory, which holds the files, or give a smaller directory",
        .0.display()
    )]
    TooLarge(PathBuf),
}

/// Copies it.
pub(crate) fn load(tree: &mut Tree, access: Workspace) -> Result<(), WorkspaceTrouble> {
    load_from(tree, Path::new(PLACE), access)
}

fn load_from(tree: &mut Tree, root: &Path, access: Workspace) -> Result<(), WorkspaceTrouble> {
    let at = tree.make_all(PLACE.as_bytes()).map_err(|_| WorkspaceTrouble::TooLarge(root.to_owned()))?;
    let unread = |errno: Errno| WorkspaceTrouble::Read { path: root.to_owned(), source: errno.into() };
    let here = openat(CWD, root, ENTER | OFlags::DIRECTORY, Mode::empty()).map_err(unread)?;
    copy(tree, &here, root, at, DEEPEST)?;
    if access == Workspace::ReadOnly {
        tree.close(at);
    }
    Ok(())
}

/// Everything by its name in a directory that is open: whoever may write there can put something else in its place at any
/// moment, but nothing that is followed or waited for.
fn copy(tree: &mut Tree, here: &OwnedFd, from: &Path, to: Ino, deep: u32) -> Result<(), WorkspaceTrouble> {
    let names =
        list(here).map_err(|errno| WorkspaceTrouble::Read { path: from.to_owned(), source: errno.into() })?;
    for name in names {
        let path = from.join(OsStr::from_bytes(&name));
        let unread = |errno: Errno| WorkspaceTrouble::Read { path: path.clone(), source: errno.into() };
        let full = |trouble: Trouble| match trouble {
            Trouble::BadPath => WorkspaceTrouble::Unfit(path.clone()),
            _ => WorkspaceTrouble::TooLarge(path.clone()),
        };
        // Looked at before it is opened: to open a device or a pipe may do something.
        let seen = statat(here, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW).map_err(unread)?;
        let kind = FileType::from_raw_mode(seen.st_mode);
        let fits = kind == FileType::RegularFile || (kind == FileType::Directory && deep > 0);
        if !fits {
            return Err(WorkspaceTrouble::Unfit(path));
        }
        let opened = match openat(here, name.as_slice(), ENTER, Mode::empty()) {
            Err(Errno::LOOP) => return Err(WorkspaceTrouble::Unfit(path)),
            opened => opened.map_err(unread)?,
        };
        let about = fstat(&opened).map_err(unread)?;
        if FileType::from_raw_mode(about.st_mode) != kind {
            return Err(WorkspaceTrouble::Unfit(path));
        }
        let mode = about.st_mode & 0o777;
        let ino = if kind == FileType::Directory {
            let ino = tree.make_directory(to, &name, mode).map_err(full)?;
            copy(tree, &opened, &path, ino, deep.saturating_sub(1))?;
            ino
        } else {
            let ino = tree.make_file(to, &name, mode).map_err(full)?;
            fill(tree, File::from(opened), &path, ino)?;
            ino
        };
        tree.date(ino, modified(&about)).map_err(full)?;
    }
    Ok(())
}

/// The names in a directory. It says them in any order; the box's own order is by name, and numbers follow it.
fn list(here: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(here)? {
        let entry = entry?;
        match entry.file_name().to_bytes() {
            b"." | b".." => {}
            name => names.push(name.to_owned()),
        }
    }
    names.sort();
    Ok(names)
}

fn fill(tree: &mut Tree, mut file: File, path: &Path, ino: Ino) -> Result<(), WorkspaceTrouble> {
    let unread = |source| WorkspaceTrouble::Read { path: path.to_owned(), source };
    let mut piece = vec![0; GULP];
    let mut at: u64 = 0;
    loop {
        // As much as is there now: a file that grows meanwhile ends at its limit.
        let got = file.read(&mut piece).map_err(unread)?;
        let bytes = piece.get(..got).unwrap_or_default();
        if bytes.is_empty() {
            return Ok(());
        }
        tree.write(ino, at, bytes).map_err(|_| WorkspaceTrouble::TooLarge(path.to_owned()))?;
        at = at.saturating_add(u64::try_from(got).unwrap_or(u64::MAX));
    }
}

fn modified(about: &Stat) -> i64 {
    let nanos = i64::try_from(about.st_mtime_nsec).unwrap_or(0);
    about.st_mtime.saturating_mul(1_000_000_000).saturating_add(nanos)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::budget::Budget;
    use crate::files::Caps;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("wasm-workspace-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn load(&self) -> Result<Tree, WorkspaceTrouble> {
            let caps = Caps { bytes: 1 << 20, entries: 1_000, file: 1 << 20 };
            let mut tree = Tree::new(caps, Budget::new(1 << 24));
            load_from(&mut tree, &self.0, Workspace::Copied)?;
            Ok(tree)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    #[test]
    fn files_and_directories_are_copied_with_their_bytes() {
        let place = Place::new("plain");
        fs::create_dir_all(place.0.join("a/b")).unwrap();
        fs::write(place.0.join("a/b/c"), "content").unwrap();
        let tree = place.load().unwrap();
        let root = tree.find(crate::files::ROOT, b"/workspace/a/b/c").unwrap();
        let mut bytes = [0; 16];
        let count = tree.read(root, 0, &mut bytes).unwrap();
        assert_eq!(bytes.get(..count), Some(b"content".as_slice()));
    }

    #[test]
    fn links_and_pipes_are_refused_and_nobody_waits_for_them() {
        let place = Place::new("links");
        symlink("/etc/passwd", place.0.join("link")).unwrap();
        assert!(matches!(place.load(), Err(WorkspaceTrouble::Unfit(_))));
        fs::remove_file(place.0.join("link")).unwrap();
        rustix::fs::mknodat(CWD, place.0.join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0)
            .unwrap();
        assert!(matches!(place.load(), Err(WorkspaceTrouble::Unfit(_))));
    }

    #[test]
    fn what_is_deeper_than_the_worker_has_descriptors_is_refused() {
        let place = Place::new("deep");
        let deep: PathBuf = (0..=DEEPEST).map(|_| "d").collect();
        fs::create_dir_all(place.0.join(&deep)).unwrap();
        assert!(matches!(place.load(), Err(WorkspaceTrouble::Unfit(_))));
        fs::remove_dir(place.0.join(&deep)).unwrap();
        assert!(place.load().is_ok());
    }
}
