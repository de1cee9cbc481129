//! A guest while it is made: in a directory of its own beside its last place, which goes with whoever made it.
//!
//! Whoever is killed meanwhile leaves that directory. It is locked by its maker, so the next one knows that nobody is there
//! any more, and removes it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use blastbox_wasm::engine::Metering;
use blastbox_wasm::manifest::{Begins, Hash, Kind, Manifest};
use blastbox_wasm::pages::Pages;
use blastbox_wasm::seal;
use rustix::fs::{FlockOperation, flock};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::effort::Effort;
use crate::translate::have_translated;
use crate::trouble::Trouble;

/// How the names of such directories begin.
const PREFIX: &str = ".making-";
/// Python's library.
pub(crate) const LIBRARY: &str = "python315.zip";

/// A directory that something is made in. What is left in it goes with this.
pub(crate) struct Making {
    home: PathBuf,
    directory: PathBuf,
    _lock: File,
}

impl Making {
    /// A new one in `home`. Removes those that nobody holds any more.
    pub(crate) fn begin(home: &Path) -> Result<Self, Trouble> {
        let broken = |source| Trouble::File { what: "make a directory in", path: home.to_owned(), source };
        let begin = || {
            let _alone = alone(home)?;
            for entry in fs::read_dir(home)?.filter_map(Result::ok) {
                if entry.file_name().to_string_lossy().starts_with(PREFIX) && is_left(&entry.path()) {
                    // What cannot be removed now is tried again by the next one.
                    fs::remove_dir_all(entry.path()).ok();
                }
            }
            // By chance: in another pid namespace somebody else has the same number.
            let mut chance = [0; 8];
            getrandom(&mut chance, GetRandomFlags::empty())?;
            let directory = home.join(format!("{PREFIX}{:016x}", u64::from_ne_bytes(chance)));
            // Whatever the caller's mask is: what lies in it is run, and nobody else writes there.
            fs::DirBuilder::new().mode(0o755).create(&directory)?;
            let lock = File::open(&directory)?;
            flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
            Ok(Self { home: home.to_owned(), directory, _lock: lock })
        };
        begin().map_err(broken)
    }

    /// Where it is made.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Puts there what guests of this kind find beside themselves.
    pub(crate) fn furnish(&self, kind: Kind, shelf: &Path) -> Result<(), Trouble> {
        match kind {
            Kind::Python | Kind::PythonData => self.link(shelf, LIBRARY),
            Kind::Js | Kind::Module | Kind::Component => Ok(()),
        }
    }

    /// The hash of what such a guest finds beside itself.
    pub(crate) fn library(&self, kind: Kind) -> Result<Option<Hash>, Trouble> {
        library_of(&self.home, kind)
    }

    fn link(&self, shelf: &Path, file: &str) -> Result<(), Trouble> {
        let (from, to) = (shelf.join(file), self.directory.join(file));
        let broken = |source| Trouble::File { what: "link", path: from.clone(), source };
        fs::hard_link(&from, to).map_err(broken)
    }

    /// Compiles a module, and writes code and manifest, which says what it was made of.
    pub(crate) fn make(
        &self,
        (kind, metering): (Kind, Metering),
        effort: Effort,
        wasm: &[u8],
        name: &str,
    ) -> Result<Manifest, Trouble> {
        let path = self.directory.join(format!("{}.cwasm", metering.stem(name)));
        let mut file = fresh(&path).map_err(unwritten(&path))?;
        let (code, size) = have_translated((kind, metering, effort), wasm, &mut file)?;
        file.sync_all().map_err(unwritten(&path))?;
        let (begins, wasm, writes) = (Begins::Bare, Hash::of(wasm), Pages::default());
        let library = self.library(kind)?;
        self.tell(Manifest { kind, begins, wasm, code, size, metering, library, writes }, name)
    }

    /// Takes over what lies on a shelf already.
    pub(crate) fn take_over(&self, shelf: &Path, metering: Metering, name: &str) -> Result<(), Trouble> {
        for ending in ["cwasm", "guest"] {
            self.link(shelf, &format!("{}.{ending}", metering.stem(name)))?;
        }
        Ok(())
    }

    /// Writes code that carries an image, in the place of what there is, and its manifest.
    pub(crate) fn write(
        &self,
        (kind, metering): (Kind, Metering),
        code: &[u8],
        origin: Hash,
        name: &str,
    ) -> Result<Manifest, Trouble> {
        let path = self.directory.join(format!("{}.cwasm", metering.stem(name)));
        let write = || {
            gone(&path)?;
            let mut file = fresh(&path)?;
            file.write_all(code)?;
            file.sync_all()
        };
        write().map_err(unwritten(&path))?;
        let (size, writes) = (u64::try_from(code.len()).unwrap_or(u64::MAX), Pages::default());
        let (begins, wasm, code) = (Begins::FromImage, origin, Hash::of(code));
        let library = self.library(kind)?;
        self.tell(Manifest { kind, begins, wasm, code, size, metering, library, writes }, name)
    }

    /// Writes a manifest, in the place of what there is.
    pub(crate) fn tell(&self, manifest: Manifest, name: &str) -> Result<Manifest, Trouble> {
        let path = self.directory.join(format!("{}.guest", manifest.metering.stem(name)));
        let write = || {
            gone(&path)?;
            let mut file = fresh(&path)?;
            file.write_all(manifest.to_string().as_bytes())?;
            file.sync_all()
        };
        write().map_err(unwritten(&path))?;
        Ok(manifest)
    }

    /// Puts the guest on the shelf that it was made in: the manifest last, a guest with a manifest is whole.
    pub(crate) fn shelve(self, metering: Metering, name: &str) -> Result<(), Trouble> {
        let stem = metering.stem(name);
        for ending in ["cwasm", "guest"] {
            let file = format!("{stem}.{ending}");
            let path = self.home.join(&file);
            let broken = |source| Trouble::File { what: "write", path: path.clone(), source };
            fs::rename(self.directory.join(&file), &path).map_err(broken)?;
        }
        Ok(())
    }

    /// Becomes this directory, in the place of what `is_whole` does not say to be whole.
    pub(crate) fn become_one(self, place: &Path, is_whole: impl Fn() -> bool) -> Result<(), Trouble> {
        let broken = |source| Trouble::File { what: "make", path: place.to_owned(), source };
        // Another one may have made the same meanwhile: nobody removes what is whole.
        let _alone = alone(&self.home).map_err(broken)?;
        if is_whole() {
            return Ok(());
        }
        match fs::remove_dir_all(place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(broken(error)),
            _ => {}
        }
        fs::rename(&self.directory, place).map_err(broken)
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        // It may have got its last name.
        fs::remove_dir_all(&self.directory).ok();
    }
}

/// The hash of the library that a guest of this kind finds beside itself, if it needs one.
pub(crate) fn library_of(shelf: &Path, kind: Kind) -> Result<Option<Hash>, Trouble> {
    match kind {
        Kind::Python | Kind::PythonData => {
            let path = shelf.join(LIBRARY);
            let hash = File::open(&path).and_then(|file| seal::hash(&file, file.metadata()?.len()));
            hash.map(Some).map_err(|source| Trouble::File { what: "read", path, source })
        }
        Kind::Js | Kind::Module | Kind::Component => Ok(None),
    }
}

/// Nobody else begins or ends there while this is held.
fn alone(home: &Path) -> io::Result<File> {
    let lock = File::open(home)?;
    flock(&lock, FlockOperation::LockExclusive)?;
    Ok(lock)
}

/// Whether nobody holds it.
fn is_left(directory: &Path) -> bool {
    let operation = FlockOperation::NonBlockingLockExclusive;
    File::open(directory).is_ok_and(|file| flock(&file, operation).is_ok())
}

fn unwritten(path: &Path) -> impl FnOnce(io::Error) -> Trouble {
    let path = path.to_owned();
    move |source| Trouble::File { what: "write", path, source }
}

/// Removes a file of ours, if it is there: what is written anew may be a link to what somebody runs.
fn gone(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn fresh(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o444).open(path)
}
