//! A machine that has booted, in a file: its whole state as QEMU wrote it, beside its digest.
//!
//! The file's name says what it was made of, so that one of another kernel, other first files or another QEMU is never found; what was cut
//! short or altered is not what its digest says. Whatever is not whole is taken away, and made anew by whoever needs it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::host::digest;

/// Where one lies, if it is there.
#[derive(Debug)]
pub(super) struct Kept {
    state: PathBuf,
}

impl Kept {
    /// Of a machine that is made of these files and words. `place` is where such machines lie.
    pub(super) fn of(place: &Path, files: &[&Path], words: &str) -> Self {
        fs::create_dir_all(place).expect("make a directory");
        let said: Vec<String> = files.iter().map(|file| digest(file).expect("read a file")).collect();
        let named = place.join(format!("{}.words", std::process::id()));
        fs::write(&named, format!("{words}\n{}", said.join("\n"))).expect("write words down");
        let name = digest(&named).expect("read words");
        fs::remove_file(named).expect("take them away");
        Self { state: place.join(format!("{name}.state")) }
    }

    /// Where it is written before it is [`Kept::keep`]t.
    pub(super) fn draft(&self) -> PathBuf {
        self.state.with_extension("draft")
    }

    /// The state, where all of it is there as it was written; otherwise nothing of it.
    pub(super) fn find(&self) -> Option<&Path> {
        let said = fs::read_to_string(self.digest()).ok();
        if said.is_some() && said == digest(&self.state) {
            return Some(&self.state);
        }
        self.forget();
        None
    }

    /// The draft is whole: where the state is now. Others go: they were made of something that is not there any more.
    pub(super) fn keep(&self) -> &Path {
        let digest = digest(&self.draft()).expect("read what was written");
        let place = self.state.parent().expect("a directory");
        for other in fs::read_dir(place).expect("list it").flatten().map(|entry| entry.path()) {
            if other != self.draft() {
                fs::remove_file(other).ok();
            }
        }
        fs::rename(self.draft(), &self.state).expect("name it");
        fs::write(self.digest(), digest).expect("write its digest down");
        &self.state
    }

    /// Takes it away.
    pub(super) fn forget(&self) {
        fs::remove_file(&self.state).ok();
        fs::remove_file(self.digest()).ok();
    }

    fn digest(&self) -> PathBuf {
        self.state.with_extension("sha256")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_found_whole_or_not_at_all_and_never_for_another_machine() {
        let place = std::env::temp_dir().join(format!("blastbox-tests-kept-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        let (kernel, states) = (place.join("kernel"), place.join("states"));
        fs::write(&kernel, "a kernel").unwrap();
        let kept = || Kept::of(&states, &[&kernel], "QEMU 7");
        let write = |text: &str| {
            fs::write(kept().draft(), text).unwrap();
            kept().keep();
        };
        assert!(kept().find().is_none());
        fs::write(kept().draft(), "half").unwrap();
        assert!(kept().find().is_none(), "one that was not finished");
        write("a state");
        assert_eq!(fs::read(kept().find().unwrap()).unwrap(), b"a state");
        for broken in ["a stat", "a Ztate", "a state and more", ""] {
            write("a state");
            fs::write(kept().find().unwrap(), broken).unwrap();
            assert!(kept().find().is_none(), "{broken}");
        }
        write("a state");
        assert!(Kept::of(&states, &[&kernel], "QEMU 8").find().is_none());
        assert!(kept().find().is_some());
        fs::write(&kernel, "another kernel").unwrap();
        assert!(kept().find().is_none());
        write("another state");
        assert_eq!(fs::read_dir(&states).unwrap().count(), 2, "one, and its digest");
        fs::remove_dir_all(&place).unwrap();
    }
}
