//! A file that `--receipt` or `--console` names: written whole or not at all, and known to be writable before anything runs.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, fcntl_getfl, fcntl_setfl, open};
use rustix::io::Errno;

use crate::fresh_file::{self, give_name};

/// Where it will go.
#[derive(Debug)]
pub(crate) struct WholeFile {
    path: PathBuf,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// Written without a name, then named; where something has the name already, named beside it and moved over it.
    Replace { beside: PathBuf },
    /// A pipe or a device: written into.
    Into(File),
}

impl WholeFile {
    /// Makes sure that it can be written. Leaves nothing behind.
    pub(crate) fn prepare(path: &Path) -> io::Result<Self> {
        let way = match fs::metadata(path) {
            Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(found) if found.file_type().is_fifo() || found.file_type().is_char_device() => {
                Way::Into(open_stream(path)?)
            }
            Ok(_) | Err(_) => {
                let beside = beside(path).ok_or(io::ErrorKind::InvalidInput)?;
                if create_nameless(path)?.is_none() {
                    drop(create(&beside)?);
                    fs::remove_file(&beside)?;
                }
                Way::Replace { beside }
            }
        };
        Ok(Self { path: path.to_owned(), way })
    }

    /// Writes it.
    pub(crate) fn write(self, text: &[u8]) -> io::Result<()> {
        match self.way {
            Way::Into(mut file) => file.write_all(text),
            Way::Replace { beside } => replace(&self.path, &beside, text),
        }
    }
}

fn beside(path: &Path) -> Option<PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name()?);
    name.push(format!(".{}.tmp", std::process::id()));
    Some(path.with_file_name(name))
}

/// For the owner alone: it tells what was run.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// A file that nobody sees before it has a name, and that goes with this process if we are killed before. `None`: the
/// file system cannot do that.
fn create_nameless(path: &Path) -> io::Result<Option<File>> {
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        Some(_) | None => Path::new("."),
    };
    fresh_file::without_name(CWD, directory, Mode::from_raw_mode(0o600))
}

/// Opens a pipe or a device without waiting for somebody to read from it.
fn open_stream(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let stream = match open(path, flags, Mode::empty()) {
        Err(Errno::NXIO) => return Err(io::Error::other("nobody reads from this pipe")),
        opened => opened?,
    };
    fcntl_setfl(&stream, fcntl_getfl(&stream)? - OFlags::NONBLOCK)?;
    Ok(stream.into())
}

fn replace(path: &Path, beside: &Path, text: &[u8]) -> io::Result<()> {
    let Some(mut file) = create_nameless(path)? else { return replace_by_name(path, beside, text) };
    fill(&mut file, text)?;
    match give_name(&file, CWD, path) {
        Err(Errno::EXIST) => {
            give_name(&file, CWD, beside)?;
            rename(beside, path)
        }
        named => Ok(named?),
    }
}

fn replace_by_name(path: &Path, beside: &Path, text: &[u8]) -> io::Result<()> {
    let written = create(beside).and_then(|mut file| fill(&mut file, text));
    match written {
        Ok(()) => rename(beside, path),
        Err(error) => {
            fs::remove_file(beside).ok();
            Err(error)
        }
    }
}

fn fill(file: &mut File, text: &[u8]) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(text)
}

/// Whatever goes wrong, nothing is left lying about under another name.
fn rename(beside: &Path, path: &Path) -> io::Result<()> {
    fs::rename(beside, path).inspect_err(|_| drop(fs::remove_file(beside)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_and_a_missing_directory_are_refused_before_anything_runs() {
        assert!(WholeFile::prepare(Path::new("/")).is_err());
        assert!(WholeFile::prepare(Path::new("/nowhere/receipt.json")).is_err());
        assert!(WholeFile::prepare(Path::new("/dev/null")).is_ok());
    }

    #[test]
    fn preparing_leaves_nothing_and_writing_is_for_the_owner_alone() {
        let directory = std::env::temp_dir().join(format!("blastbox-receipt-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let path = directory.join("r.json");
        let file = WholeFile::prepare(&path).unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        let Way::Replace { beside } = &file.way else { panic!("a file is replaced") };
        for replace in [replace, replace, replace_by_name] {
            replace(&path, beside, b"{}").unwrap();
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        fs::remove_dir_all(&directory).unwrap();
    }
}
