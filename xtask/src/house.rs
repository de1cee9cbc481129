//! The house as the rules see it: every text file that git tracks or would track.

use std::io;
use std::path::{Path, PathBuf};

use crate::lexer::Source;
use crate::run;

/// One text file, named relative to the repository root with `/` between the parts.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// A file that holds nothing but tests: `tests.rs`, or anything beneath a folder `tests`.
    pub(crate) fn is_test(&self) -> bool {
        self.stem() == "tests" || self.path.split('/').rev().skip(1).any(|part| part == "tests")
    }

    /// The file's name without folder and extension.
    pub(crate) fn stem(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        name.split_once('.').filter(|(stem, _)| !stem.is_empty()).map_or(name, |(stem, _)| stem)
    }

    pub(crate) fn source(&self) -> Source {
        Source::read(&self.text)
    }
}

/// All files that the rules look at.
#[derive(Debug, Default)]
pub(crate) struct House {
    files: Vec<File>,
}

impl House {
    /// Reads the checkout. New files that are not ignored count, so a finding comes before the commit.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let listed = run::git(root, &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
        let mut files = Vec::new();
        for path in listed.split('\0').filter(|path| !path.is_empty()) {
            // Tracked and yet gone: deleted in the working tree and not committed. Nothing to check.
            let bytes = match std::fs::read(root.join(path)) {
                Ok(bytes) => bytes,
                Err(gone) if gone.kind() == io::ErrorKind::NotFound => continue,
                Err(source) => {
                    return Err(io::Error::new(source.kind(), format!("cannot read {path}: {source}")));
                }
            };
            if let Ok(text) = String::from_utf8(bytes)
                && !text.contains('\0')
            {
                files.push(File { path: path.to_owned(), text });
            } else if path.starts_with("fuzz/corpus/") {
                // Seeds are bytes: that they are there counts, and nothing in them.
                files.push(File { path: path.to_owned(), text: String::new() });
            }
        }
        files.sort_by(|left, right| left.path.cmp(&right.path));
        Ok(Self { files })
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| File { path: (*path).into(), text: (*text).into() });
        Self { files: files.collect() }
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &File> {
        self.files.iter()
    }

    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is_rust())
    }

    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// A file, or a folder with something in it.
    pub(crate) fn holds(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let beneath = |file: &File| file.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
        self.file(path).is_some() || self.files.iter().any(beneath)
    }
}

/// The repository root: the folder above xtask's manifest.
pub(crate) fn root() -> io::Result<PathBuf> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let root = manifest.parent().map(Path::to_owned);
    root.ok_or_else(|| io::Error::other("xtask has no folder above it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_exists_when_a_file_lies_beneath_it() {
        let house = House::of(&[("crates/sys/src/lib.rs", "")]);
        assert!(house.holds("crates/sys/"));
        assert!(house.holds("crates/sys/src/lib.rs"));
        assert!(!house.holds("crates/sy"));
    }

    #[test]
    fn a_stem_has_neither_folder_nor_extension() {
        let stem = |path: &str| File { path: path.into(), text: String::new() }.stem().to_owned();
        assert_eq!(stem("crates/wire/src/agent.rs"), "agent");
        assert_eq!(stem("tools/need.sh"), "need");
        assert_eq!(stem(".gitignore"), ".gitignore");
    }

    #[test]
    fn test_files_are_known_by_name_or_folder() {
        let is_test = |path: &str| File { path: path.into(), text: String::new() }.is_test();
        assert!(is_test("crates/wire/src/plan/tests.rs"));
        assert!(is_test("crates/wire/tests/round_trip.rs"));
        assert!(!is_test("crates/wire/src/testing.rs"));
    }
}
