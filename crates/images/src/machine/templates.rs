//! Templates on disk: a directory of the image store, one file for each, called by what it is bound to.
//!
//! ```text
//! "blastbox template 1\n" · what it is bound to (32) · bytes of memory (8) · bytes of state (4) · state
//! · { place (8) · length (4) · bytes }… · u64::MAX, 0 · SHA-256 of all of it (32)
//! ```
//! It is bound to everything that a copy relies on (image, kernel, agent, the machine's words, the engine and its build, the host's
//! processor): whatever of it changes has another name. One that is cut short, altered or another's is refused by name, and
//! made anew. It is trusted as kernels and disks of the store are: who may write there may choose what boxes begin with.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use blastbox_wire::event::Hash;
use rustix::fs::{Mode, OFlags, open};
use sha2::{Digest as _, Sha256};

use super::fresh;
use super::template::{MOST_STATE, PAGE, Template, blank};

/// The directory in the store.
pub(crate) const TEMPLATES: &str = "templates";
const END: &str = "template";
/// Of an empty file beside a template whose last copy has ended without a word.
const DOUBTED: &str = "doubted";
const MAGIC: &[u8; 20] = b"blastbox template 1\n";
/// Longest stretch of memory.
pub(super) const RUN: usize = 1 << 20;
/// Templates that are kept; each is as large as what a kernel and its first files use of memory. The one that was not used for
/// the longest makes place.
const MOST: usize = 8;

/// Why a template cannot be used or kept.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// Bytes are missing, or there are too many.
    #[error("the template {path} is cut short or has grown")]
    Truncated {
        /// Which.
        path: PathBuf,
    },
    /// It is not what was written.
    #[error("the template {path} was altered: its checksum does not hold")]
    Altered {
        /// Which.
        path: PathBuf,
    },
    /// Of another machine, or of another version of blastbox.
    #[error("the template {path} is bound to another machine or was written by another version")]
    Foreign {
        /// Which.
        path: PathBuf,
    },
    /// A file.
    #[error("cannot {tried} the template {path}")]
    Place {
        /// What was tried.
        tried: &'static str,
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// The templates of a store.
#[derive(Debug, Clone)]
pub struct Templates {
    path: PathBuf,
}

impl Templates {
    /// Those of the image store at this path.
    #[must_use]
    pub fn of_store(store: &Path) -> Self {
        Self { path: store.join(TEMPLATES) }
    }

    fn file(&self, bound: &Hash) -> PathBuf {
        self.path.join(format!("{}.{END}", bound.to_string().replacen(':', "-", 1)))
    }

    /// The one that is bound to this, whole and checked. It is read into memory; a changed file changes nothing afterwards.
    pub fn find(&self, bound: &Hash, bytes: u64) -> Result<Option<Template>, TemplateError> {
        let path = self.file(bound);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match open(&path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(TemplateError::Place { tried: "open", path, source: errno.into() }),
        };
        let found =
            read(BufReader::with_capacity(RUN, &file), bound, bytes).map_err(|wrong| wrong.at(path))?;
        // Best effort: it only says which one is the oldest.
        file.set_modified(SystemTime::now()).ok();
        if self.mark(bound).exists() {
            found.doubt();
        }
        Ok(Some(found))
    }

    /// Keeps one for the next process. Whole or not at all: what does not fit on the disk leaves nothing.
    pub fn keep(&self, bound: &Hash, template: &Template) -> Result<(), TemplateError> {
        let path = self.file(bound);
        let failed = |source| TemplateError::Place { tried: "keep", path: path.clone(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.path).map_err(failed)?;
        fresh::sweep(&self.path);
        self.make_place(&path);
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        fresh::file(&self.path, name, |file| write(file, bound, template)).map_err(failed)?;
        self.trust(bound);
        Ok(())
    }

    /// Takes one away, if it is there.
    pub fn forget(&self, bound: &Hash) {
        remove(&self.file(bound));
    }

    /// A copy of this one has ended without a word: should the next one, too, whichever process has it, it is useless. Best effort: where
    /// nothing can be written, only this process knows.
    pub fn doubt(&self, bound: &Hash) {
        if self.file(bound).exists() {
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(self.mark(bound))
                .ok();
        }
    }

    /// A copy of it has spoken since.
    pub fn trust(&self, bound: &Hash) {
        fs::remove_file(self.mark(bound)).ok();
    }

    fn mark(&self, bound: &Hash) -> PathBuf {
        self.file(bound).with_extension(DOUBTED)
    }

    /// Takes all of them away.
    pub(crate) fn clear(&self) {
        self.list().for_each(|path| remove(&path));
    }

    fn list(&self) -> impl Iterator<Item = PathBuf> {
        let list = fs::read_dir(&self.path).into_iter().flatten().flatten().map(|entry| entry.path());
        list.filter(|path| path.extension().is_some_and(|end| end == END))
    }

    fn make_place(&self, ours: &Path) {
        let others = self.list().filter(|path| path != ours);
        let used = |path: &PathBuf| fs::metadata(path).and_then(|found| found.modified()).ok();
        let mut others: Vec<_> = others.map(|path| (used(&path), path)).collect();
        others.sort();
        for (_, path) in others.iter().take((others.len() + 1).saturating_sub(MOST)) {
            remove(path);
        }
    }
}

/// A template, and what was thought of it.
fn remove(template: &Path) {
    fs::remove_file(template).ok();
    fs::remove_file(template.with_extension(DOUBTED)).ok();
}

/// What is wrong with a file, before it is said with which.
pub(super) enum Wrong {
    Truncated,
    Altered,
    Foreign,
    Read(io::Error),
}

impl Wrong {
    fn at(self, path: PathBuf) -> TemplateError {
        match self {
            Self::Truncated => TemplateError::Truncated { path },
            Self::Altered => TemplateError::Altered { path },
            Self::Foreign => TemplateError::Foreign { path },
            Self::Read(source) => TemplateError::Place { tried: "read", path, source },
        }
    }
}

impl From<io::Error> for Wrong {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof { Self::Truncated } else { Self::Read(error) }
    }
}

fn write(file: &File, bound: &Hash, template: &Template) -> io::Result<()> {
    let mut to = Hashed::new(BufWriter::with_capacity(RUN, file));
    to.write_all(MAGIC)?;
    write_machine(to, bound, template)
}

/// Writes everything but what comes first, which is in the digest as well.
pub(super) fn write_machine(
    mut to: Hashed<BufWriter<&File>>,
    bound: &Hash,
    template: &Template,
) -> io::Result<()> {
    to.write_all(bound.as_bytes())?;
    to.write_all(&template.bytes().to_be_bytes())?;
    to.write_all(&u32::try_from(template.state().len()).unwrap_or(u32::MAX).to_be_bytes())?;
    to.write_all(template.state())?;
    template.each_run(&mut vec![0; RUN], |place, bytes| {
        to.write_all(&place.to_be_bytes())?;
        to.write_all(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes())?;
        to.write_all(bytes)
    })?;
    to.write_all(&u64::MAX.to_be_bytes())?;
    to.write_all(&0_u32.to_be_bytes())?;
    let digest = to.hasher.finalize();
    to.inner.write_all(&digest)?;
    to.inner.flush()
}

fn read(file: impl Read, bound: &Hash, bytes: u64) -> Result<Template, Wrong> {
    let mut from = Hashed::new(file);
    if from.exactly::<20>()? != *MAGIC {
        return Err(Wrong::Foreign);
    }
    read_machine(from, bound, bytes)
}

/// Reads everything but what comes first.
pub(super) fn read_machine(mut from: Hashed<impl Read>, bound: &Hash, bytes: u64) -> Result<Template, Wrong> {
    if from.exactly::<32>()? != *bound.as_bytes() {
        return Err(Wrong::Foreign);
    }
    if u64::from_be_bytes(from.exactly()?) != bytes {
        return Err(Wrong::Foreign);
    }
    let length = usize::try_from(u32::from_be_bytes(from.exactly()?)).unwrap_or(usize::MAX);
    if length == 0 || length > MOST_STATE {
        return Err(Wrong::Altered);
    }
    let mut state = vec![0; length];
    from.read_exact(&mut state)?;
    let memory = blank(bytes)?;
    let (mut buffer, mut next) = (vec![0; RUN], 0);
    loop {
        let place = u64::from_be_bytes(from.exactly()?);
        let length = usize::try_from(u32::from_be_bytes(from.exactly()?)).unwrap_or(usize::MAX);
        if (place, length) == (u64::MAX, 0) {
            break;
        }
        let end = place.checked_add(length as u64).filter(|end| *end <= bytes);
        let (Some(end), Some(run)) = (end, buffer.get_mut(..length)) else { return Err(Wrong::Altered) };
        if length == 0 || place < next || !place.is_multiple_of(PAGE as u64) {
            return Err(Wrong::Altered);
        }
        from.read_exact(run)?;
        let mut written = 0;
        while written < run.len() {
            let at = place.saturating_add(written as u64);
            let left = run.get(written..).unwrap_or_default();
            written += rustix::io::pwrite(memory.as_fd(), left, at).map_err(io::Error::from)?;
        }
        next = end;
    }
    let digest = from.so_far();
    let said = from.exactly::<32>()?;
    if digest != said {
        return Err(Wrong::Altered);
    }
    if from.inner.read(&mut [0])? != 0 {
        return Err(Wrong::Truncated);
    }
    Ok(Template::seal_own(memory, state)?)
}

/// Passes bytes on and remembers their digest.
pub(super) struct Hashed<T> {
    inner: T,
    hasher: Sha256,
}

impl<T> Hashed<T> {
    pub(super) fn new(inner: T) -> Self {
        Self { inner, hasher: Sha256::new() }
    }

    /// The digest of all that has passed.
    pub(super) fn so_far(&self) -> [u8; 32] {
        self.hasher.clone().finalize().into()
    }
}

impl<T: Write> Write for Hashed<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hasher.update(bytes.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Hashed<T> {
    pub(super) fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.inner.read_exact(bytes)?;
        self.hasher.update(bytes);
        Ok(())
    }

    pub(super) fn exactly<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}
