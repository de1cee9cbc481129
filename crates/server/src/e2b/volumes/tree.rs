//! What lies in a volume, by descriptor: every way begins at the volume's directory, stays beneath it, and follows no link.
//!
//! Nothing in it is believed: a box may have made every name, link and mode, and may change them while they are looked at.

mod measure;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat, chmod, fstat, mkdirat, open,
    openat2, readlinkat, renameat_with, unlinkat,
};
use rustix::io::Errno;

pub(super) use self::measure::Amount;

/// Directories within directories. More are nobody's project.
const DEEPEST: usize = 128;
/// Entries of one answer, and of a volume.
const MOST_LISTED: usize = 10_000;
pub(super) const MOST_ENTRIES: u64 = 200_000;
/// One path, and one name in it.
const LONGEST: usize = 4_096;
const LONGEST_NAME: usize = 255;

/// A volume's directory.
#[derive(Debug)]
pub(super) struct Tree(OwnedFd);

/// Where something lies in it: plain names, outermost first. None: the volume itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place(Vec<String>);

/// What was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) place: Place,
    pub(super) stat: Stat,
    /// Where a link leads.
    pub(super) target: Option<String>,
}

impl Place {
    /// Reads a path of a caller. It begins at the volume, with a slash or without.
    pub(super) fn read(text: &str) -> Option<Self> {
        let parts: Vec<String> =
            text.split('/').filter(|part| !matches!(*part, "" | ".")).map(str::to_owned).collect();
        let plain = |part: &String| part != ".." && part.len() <= LONGEST_NAME && !part.contains('\0');
        (text.len() <= LONGEST && parts.len() <= DEEPEST && parts.iter().all(plain)).then_some(Self(parts))
    }

    pub(super) fn text(&self) -> String {
        format!("/{}", self.0.join("/"))
    }

    pub(super) fn name(&self) -> &str {
        self.0.last().map_or("/", String::as_str)
    }

    /// How many names lead there.
    pub(super) fn depth(&self) -> u64 {
        u64::try_from(self.0.len()).unwrap_or(u64::MAX)
    }

    fn relative(&self) -> String {
        if self.0.is_empty() { ".".to_owned() } else { self.0.join("/") }
    }

    /// The one above, and the name in it.
    fn split(&self) -> Option<(Self, &str)> {
        let (name, above) = self.0.split_last()?;
        Some((Self(above.to_vec()), name))
    }

    fn with(&self, name: &str) -> Self {
        let mut parts = self.0.clone();
        parts.push(name.to_owned());
        Self(parts)
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Tree {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let readable = DIRECTORY | OFlags::NOFOLLOW;
        if let Ok(opened) = open(path, readable, Mode::empty()) {
            return Ok(Self(opened));
        }
        // Its box may have closed it: to be measured no more, or to be in the way for ever.
        let found = open(path, readable | OFlags::PATH, Mode::empty())?;
        let_us_in(found.as_fd(), Mode::RUSR | Mode::XUSR)?;
        Ok(Self(open(path, readable, Mode::empty())?))
    }

    pub(super) fn into_directory(self) -> OwnedFd {
        self.0
    }

    fn at(&self, place: &Place, flags: OFlags) -> io::Result<OwnedFd> {
        let stay = ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat2(&self.0, place.relative(), flags, Mode::empty(), stay)?)
    }

    pub(super) fn look(&self, place: &Place) -> io::Result<Found> {
        let found = self.at(place, OFlags::PATH)?;
        let stat = fstat(&found)?;
        let link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        let target = link.then(|| readlinkat(&found, "", Vec::new())).transpose()?;
        let target = target.map(|target| target.to_string_lossy().into_owned());
        Ok(Found { place: place.clone(), stat, target })
    }

    /// What lies in a directory, so many levels of it.
    pub(super) fn list(&self, place: &Place, depth: usize) -> io::Result<Vec<Found>> {
        let mut all = Vec::new();
        let mut left = vec![(place.clone(), 1)];
        while let Some((place, level)) = left.pop() {
            let directory = self.at(&place, DIRECTORY)?;
            for name in names(directory.as_fd())? {
                let Some(name) = name.to_str() else { continue };
                let place = place.with(name);
                // Gone meanwhile, or deeper than anybody asks.
                let Ok(found) = self.look(&place) else { continue };
                if all.len() >= MOST_LISTED {
                    return Err(Errno::TOOBIG.into());
                }
                if FileType::from_raw_mode(found.stat.st_mode) == FileType::Directory && level < depth {
                    left.push((place, level + 1));
                }
                all.push(found);
            }
        }
        all.sort_by(|one, other| one.place.0.cmp(&other.place.0));
        Ok(all)
    }

    /// Makes a directory, and those above it where that is wanted.
    pub(super) fn make(&self, place: &Place, mode: u32, parents: bool) -> io::Result<Found> {
        let Some((above, name)) = place.split() else { return Err(Errno::EXIST.into()) };
        if parents && !above.0.is_empty() && self.at(&above, OFlags::PATH).is_err() {
            self.make(&above, 0o755, true)?;
        }
        let above = self.at(&above, OFlags::PATH | OFlags::DIRECTORY)?;
        match mkdirat(&above, name, plain(mode)) {
            Err(Errno::EXIST) if parents => {}
            made => made?,
        }
        self.look(place)
    }

    pub(super) fn read(&self, place: &Place) -> io::Result<(File, u64)> {
        // Not blocking, should it be a pipe.
        let opened = self.at(place, OFlags::RDONLY | OFlags::NONBLOCK)?;
        let stat = fstat(&opened)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok((opened.into(), u64::try_from(stat.st_size).unwrap_or(0))),
            FileType::Directory => Err(Errno::ISDIR.into()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    /// Gives a finished file of ours its place. It lies beside volumes until then, where no box sees it.
    pub(super) fn put(&self, draft: &Path, place: &Place, replace: bool) -> io::Result<Found> {
        let Some((above, name)) = place.split() else { return Err(Errno::ISDIR.into()) };
        let above = self.at(&above, OFlags::PATH | OFlags::DIRECTORY)?;
        let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        renameat_with(rustix::fs::CWD, draft, &above, name, flags)?;
        self.look(place)
    }

    pub(super) fn set_mode(&self, place: &Place, mode: u32) -> io::Result<Found> {
        let found = self.at(place, OFlags::PATH)?;
        if FileType::from_raw_mode(fstat(&found)?.st_mode) == FileType::Symlink {
            return Err(Errno::INVAL.into());
        }
        by_descriptor(found.as_fd(), plain(mode))?;
        self.look(place)
    }

    pub(super) fn remove(&self, place: &Place) -> io::Result<()> {
        let Some((above, name)) = place.split() else { return self.empty() };
        let above = self.at(&above, DIRECTORY)?;
        remove(self.0.as_fd(), above.as_fd(), Path::new(name), 0)
    }

    /// Takes away everything in it, also what could not be reached from outside.
    pub(super) fn empty(&self) -> io::Result<()> {
        let_us_in(self.0.as_fd(), Mode::RWXU)?;
        // What lay too deep comes up to the top, and is there the next time.
        for _ in 0..MOST_ENTRIES {
            let listing = openat2(&self.0, ".", DIRECTORY, Mode::empty(), ResolveFlags::BENEATH)?;
            let all = names(listing.as_fd())?;
            if all.is_empty() {
                return Ok(());
            }
            for name in all {
                remove(self.0.as_fd(), self.0.as_fd(), Path::new(&name), 0)?;
            }
        }
        Err(Errno::NOTEMPTY.into())
    }
}

fn plain(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o777)
}

/// Also of what may be neither read nor written.
fn by_descriptor(found: BorrowedFd<'_>, mode: Mode) -> io::Result<()> {
    Ok(chmod(format!("/proc/self/fd/{}", found.as_raw_fd()), mode)?)
}

/// Opens a directory again that its box has closed for us, who are its owner.
fn let_us_in(directory: BorrowedFd<'_>, needed: Mode) -> io::Result<()> {
    let mode = Mode::from_raw_mode(fstat(directory)?.st_mode & 0o777);
    if mode.contains(needed) { Ok(()) } else { by_descriptor(directory, mode | needed) }
}

fn names(directory: BorrowedFd<'_>) -> io::Result<Vec<std::ffi::OsString>> {
    use std::os::unix::ffi::OsStrExt;
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(std::ffi::OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(names)
}

fn enter(above: BorrowedFd<'_>, name: &Path) -> io::Result<OwnedFd> {
    let stay = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    Ok(openat2(above, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty(), stay)?)
}

fn remove(top: BorrowedFd<'_>, above: BorrowedFd<'_>, name: &Path, depth: usize) -> io::Result<()> {
    match unlinkat(above, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM | Errno::ACCESS) => {}
        done => return Ok(done?),
    }
    if depth >= DEEPEST {
        // Never out of the volume: a box that is in there could climb from it to where it lies.
        let random = crate::e2b::token::Token::new().ok_or(Errno::NOSYS)?;
        let up = format!(".deep-{}", random.show_to_owner());
        return Ok(renameat_with(above, name, top, up, RenameFlags::NOREPLACE)?);
    }
    let stay = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = openat2(above, name, flags, Mode::empty(), stay)?;
    by_descriptor(found.as_fd(), Mode::RWXU)?;
    let directory = enter(above, name)?;
    for name in names(directory.as_fd())? {
        remove(top, directory.as_fd(), Path::new(&name), depth + 1)?;
    }
    Ok(unlinkat(above, name, AtFlags::REMOVEDIR)?)
}

#[cfg(test)]
mod tests;
