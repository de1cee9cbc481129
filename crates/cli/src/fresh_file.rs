//! A file that has no name before it is whole, so that nothing of it stays where we are killed under way. Only where the file system
//! has no such files it has a passing name meanwhile.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat, renameat, unlinkat};
use rustix::io::Errno;

/// A file in the making, in a directory that is held. Dropping it takes it away.
#[derive(Debug)]
pub(crate) struct FreshFile {
    file: File,
    directory: OwnedFd,
    /// `None`: it has none.
    passing: Option<String>,
}

impl FreshFile {
    /// Makes one. What the caller's mask keeps back is kept back.
    pub(crate) fn create(directory: BorrowedFd<'_>, mode: Mode) -> io::Result<Self> {
        match without_name(directory, Path::new("."), mode)? {
            Some(file) => Ok(Self { file, directory: directory.try_clone_to_owned()?, passing: None }),
            None => Self::with_passing_name(directory, mode),
        }
    }

    fn with_passing_name(directory: BorrowedFd<'_>, mode: Mode) -> io::Result<Self> {
        let passing = passing_name();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(directory, passing.as_str(), flags, mode)?);
        Ok(Self { file, directory: directory.try_clone_to_owned()?, passing: Some(passing) })
    }

    /// What is written to.
    pub(crate) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Gives it its name. It takes the place of a file or a link that has it, and is not written through that.
    pub(crate) fn settle(mut self, name: &[u8]) -> io::Result<()> {
        if self.passing.is_none() {
            match give_name(&self.file, self.directory.as_fd(), name) {
                Err(Errno::EXIST) => {}
                named => return Ok(named?),
            }
            let passing = passing_name();
            give_name(&self.file, self.directory.as_fd(), passing.as_bytes())?;
            self.passing = Some(passing);
        }
        if let Some(passing) = &self.passing {
            renameat(&self.directory, passing.as_str(), &self.directory, name)?;
        }
        self.passing = None;
        Ok(())
    }
}

impl Drop for FreshFile {
    fn drop(&mut self) {
        if let Some(passing) = self.passing.take() {
            unlinkat(&self.directory, passing.as_str(), AtFlags::empty()).ok();
        }
    }
}

fn passing_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!(".blastbox-{}-{}", std::process::id(), now.as_nanos())
}

/// A file without a name in a directory. `None`: the file system has none.
pub(crate) fn without_name(at: BorrowedFd<'_>, directory: &Path, mode: Mode) -> io::Result<Option<File>> {
    match openat(at, directory, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, mode) {
        Ok(file) => Ok(Some(file.into())),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Gives a file without a name one that is free.
pub(crate) fn give_name(file: &File, at: BorrowedFd<'_>, name: impl rustix::path::Arg) -> Result<(), Errno> {
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, own.as_str(), at, name, AtFlags::SYMLINK_FOLLOW)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    #[test]
    fn it_takes_its_name_in_either_way_and_leaves_nothing_where_it_does_not() {
        let place = std::env::temp_dir().join(format!("blastbox-fresh-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        let held = File::open(&place).unwrap();
        let mode = Mode::from_raw_mode(0o640);
        let count = || fs::read_dir(&place).unwrap().count();
        for create in [FreshFile::create, FreshFile::with_passing_name] {
            for content in ["one", "two"] {
                let mut fresh = create(held.as_fd(), mode).unwrap();
                fresh.file().write_all(content.as_bytes()).unwrap();
                fresh.settle(b"name").unwrap();
                assert_eq!((count(), fs::read_to_string(place.join("name")).unwrap().as_str()), (1, content));
            }
            drop(create(held.as_fd(), mode).unwrap());
            assert_eq!(count(), 1);
            // A directory keeps its name, and nothing stays beside it.
            fs::create_dir(place.join("d")).unwrap();
            create(held.as_fd(), mode).unwrap().settle(b"d").unwrap_err();
            assert_eq!(count(), 2);
            fs::remove_dir(place.join("d")).unwrap();
            fs::remove_file(place.join("name")).unwrap();
        }
        fs::remove_dir_all(&place).unwrap();
    }
}
