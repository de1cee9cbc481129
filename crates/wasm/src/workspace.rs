//! The caller's directory, copied into the box's memory before anything runs. Nothing ever goes back by itself.
//!
//! Trust: the directory is the caller's, and a stranger may have filled it. It is shown read-only and read once: links are
//! refused, sizes are counted, and what does not fit keeps the box from starting.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::files::{Ino, Tree, Trouble};

/// Where it is shown to the worker, and where it lies in the box.
const PLACE: &str = "/workspace";
/// Levels of directories.
const DEEPEST: u32 = 256;
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
        "workspace_unfit: {} of the workspace is a link or something else that is neither file nor directory, and the \
         files of a Wasm box have none; give a copy without it, or use another tier",
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
    let root = Path::new(PLACE);
    let at = tree.make_all(PLACE.as_bytes()).map_err(|_| WorkspaceTrouble::TooLarge(root.to_owned()))?;
    copy(tree, root, at, DEEPEST)?;
    if access == Workspace::ReadOnly {
        tree.close(at);
    }
    Ok(())
}

fn copy(tree: &mut Tree, from: &Path, to: Ino, deep: u32) -> Result<(), WorkspaceTrouble> {
    let unread = |source| WorkspaceTrouble::Read { path: from.to_owned(), source };
    let mut entries = fs::read_dir(from).map_err(unread)?.collect::<io::Result<Vec<_>>>().map_err(unread)?;
    // A directory says them in any order; the box's own order is by name, and numbers follow it.
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name());
        let unread = |source| WorkspaceTrouble::Read { path: path.clone(), source };
        let about = entry.metadata().map_err(unread)?;
        let full = |trouble: Trouble| match trouble {
            Trouble::BadPath => WorkspaceTrouble::Unfit(path.clone()),
            _ => WorkspaceTrouble::TooLarge(path.clone()),
        };
        let mode = about.permissions().mode() & 0o777;
        let ino = if about.is_dir() && deep > 0 {
            let ino = tree.make_directory(to, name.as_bytes(), mode).map_err(full)?;
            copy(tree, &path, ino, deep.saturating_sub(1))?;
            ino
        } else if about.is_file() {
            let ino = tree.make_file(to, name.as_bytes(), mode).map_err(full)?;
            fill(tree, &path, ino)?;
            ino
        } else {
            return Err(WorkspaceTrouble::Unfit(path));
        };
        tree.date(ino, modified(&about)).map_err(full)?;
    }
    Ok(())
}

fn fill(tree: &mut Tree, path: &Path, ino: Ino) -> Result<(), WorkspaceTrouble> {
    let unread = |source| WorkspaceTrouble::Read { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(unread)?;
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

fn modified(about: &Metadata) -> i64 {
    about.mtime().saturating_mul(1_000_000_000).saturating_add(about.mtime_nsec())
}
