//! Templates that outlive their tests: a kind of machine that many tests ask for boots once.
//!
//! ```text
//! templates/<image>/<kernel>-<agent>/   *.template · *.note: what somebody asked for, and which templates there were then
//! ```
//! They lie beside the programs, as files of whoever runs the tests that every caller may read: nothing of anybody is in them. Each is bound
//! to everything that a machine of it relies on, and checked by whoever reads it.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::host::digest;
use crate::{Caller, programs};

/// Templates that are kept of one image, those that were used last: what they are bound to changes with the programs under test.
const KEPT: usize = 8;

/// Those of guests with the same image, kernel and agent.
#[derive(Debug)]
pub(super) struct Kept<'a> {
    caller: &'a Caller,
    /// Of the store that they are for.
    here: PathBuf,
    place: PathBuf,
}

impl<'a> Kept<'a> {
    /// Those of guests that this store's machines are, by a disk in it and by their first files.
    pub(super) fn of(caller: &'a Caller, store: &Path, first: &Path) -> Self {
        let disks = fs::read_dir(store.join("disks")).expect("list disks").flatten();
        let image = disks.map(|entry| entry.file_name()).min().expect("a disk");
        let kernel = first.parent().and_then(Path::file_name).expect("a kernel");
        let kind = [kernel, first.file_name().expect("first files")].map(|name| {
            let digest = name.to_str().and_then(|name| name.rsplit('-').next()).expect("a digest");
            digest.chars().take(16).collect::<String>()
        });
        let place = programs::built().with_file_name("templates").join(image).join(kind.join("-"));
        Self { caller, here: store.join("templates"), place }
    }

    /// Whoever has this turn makes what is missing; who comes meanwhile finds it afterwards. `None`: nothing can be kept.
    pub(super) fn turn(&self) -> Option<File> {
        fs::create_dir_all(&self.place).ok()?;
        let turn = File::create(self.place.join("lock")).ok()?;
        turn.lock().ok().map(|()| turn)
    }

    /// Puts them into the store.
    pub(super) fn take(&self) {
        if !self.here.exists() {
            fs::create_dir(&self.here).expect("make a directory");
            self.caller.own(&self.here);
        }
        for path in templates_in(&self.place) {
            let to = self.here.join(path.file_name().expect("a name"));
            // Whoever keeps them may throw one away meanwhile.
            if !to.exists() && fs::hard_link(&path, &to).is_err() && fs::copy(&path, &to).is_ok() {
                self.caller.own(&to);
            }
        }
    }

    /// Takes those that were made in the store.
    pub(super) fn keep(&self) {
        for path in templates_in(&self.here) {
            let (name, number) = (path.file_name().expect("a name"), crate::place::number());
            if self.place.join(name).exists() || fs::create_dir_all(&self.place).is_err() {
                continue;
            }
            let draft = self.place.join(format!("{}-{number}.draft", std::process::id()));
            let mode = fs::Permissions::from_mode(0o644);
            let copied = fs::copy(&path, &draft).and_then(|_| fs::set_permissions(&draft, mode));
            if copied.and_then(|()| fs::rename(&draft, self.place.join(name))).is_err() {
                fs::remove_file(draft).ok();
            }
        }
        self.make_place();
    }

    /// Of all those of the image.
    fn make_place(&self) {
        let image = self.place.parent().expect("a directory");
        let kinds = fs::read_dir(image).into_iter().flatten().flatten().map(|entry| entry.path());
        let used = |path: &PathBuf| fs::metadata(path).and_then(|found| found.modified()).ok();
        let all = kinds.flat_map(|kind| templates_in(&kind)).chain(templates_in(image));
        let mut all: Vec<_> = all.map(|path| (used(&path), path)).collect();
        all.sort();
        for (_, path) in all.iter().take(all.len().saturating_sub(KEPT)) {
            fs::remove_file(path).ok();
        }
    }

    /// Whether a template for this lies in the store: all that were there when it was noted do.
    pub(super) fn knows(&self, asked: &Asked) -> bool {
        let said = fs::read_to_string(self.note(asked)).unwrap_or_default();
        let names = said.strip_prefix(asked.head().as_str());
        names.is_some_and(|names| names.lines().all(|name| self.here.join(name).exists()))
    }

    /// One of those in the store is for this.
    pub(super) fn know(&self, asked: &Asked) {
        let names = templates_in(&self.here)
            .into_iter()
            .filter_map(|path| path.file_name()?.to_str().map(str::to_owned));
        let names: Vec<String> = names.collect();
        if !names.is_empty() {
            fs::write(self.note(asked), format!("{}{}\n", asked.head(), names.join("\n"))).ok();
        }
    }

    /// Called by who asks for what, so that one of other programs makes way for the next.
    fn note(&self, asked: &Asked) -> PathBuf {
        let mut name = DefaultHasher::new();
        asked.words.hash(&mut name);
        self.place.join(format!("{:016x}.note", name.finish()))
    }
}

/// What somebody asks for, of the programs under test.
#[derive(Debug)]
pub(super) struct Asked {
    words: String,
}

impl Asked {
    pub(super) fn by(caller: &Caller, words: &[String]) -> Self {
        // An ordinary user may have a machine of other words, where only root has KVM.
        let who = if caller.is_root() { "root" } else { "user" };
        Self { words: format!("{who}\n{}", words.join("\n")) }
    }

    /// How its note begins.
    fn head(&self) -> String {
        static PROGRAMS: OnceLock<String> = OnceLock::new();
        let programs = PROGRAMS.get_or_init(|| {
            let built = ["blastbox", "blastbox-full"].map(|name| programs::built().join(name));
            let all = built.iter().map(PathBuf::as_path).chain([Path::new(super::QEMU)]);
            all.filter_map(digest).collect::<Vec<_>>().join("\n")
        });
        format!("{programs}\n{}\n\n", self.words)
    }
}

fn templates_in(folder: &Path) -> Vec<PathBuf> {
    let list = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    list.filter(|path| path.extension().is_some_and(|end| end == "template")).collect()
}
