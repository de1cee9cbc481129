//! What large files of a guest looked like when they were last held against their hashes. To hash Python's code takes longer than a box
//! takes to begin, so that it is done once for each state of a file: whatever writes to it, cuts it off or replaces it changes the
//! moment of its last change, which nobody can set, and a worker that finds another hashes the whole file.
//!
//! Trust: the host's own files, beside the manifest, which says what the hashes have to be. A seal that is missing, old or nonsense costs
//! time and nothing else.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use crate::manifest::{HASHED_ALWAYS, Hash, Hasher, MOST};

/// First line of every seal.
const FIRST: &str = "blastbox seal 1";
/// What is hashed at once.
const PIECE: usize = 256 * 1024;

/// How a file looks from outside: another one, or one that was changed, looks different.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Of an open file.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub fn of(file: &File) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt as _;
        let about = file.metadata()?;
        Ok(Self {
            inode: about.ino(),
            size: about.size(),
            modified: (about.mtime(), about.mtime_nsec()),
            changed: (about.ctime(), about.ctime_nsec()),
        })
    }

    /// Its bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether it is large enough for a seal to be worth it.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.size > HASHED_ALWAYS
    }

    fn parse(words: &[&str]) -> Option<Self> {
        let [inode, size, modified, changed] = words else { return None };
        let moment = |text: &str| {
            let (seconds, nanos) = text.split_once('.')?;
            Some((seconds.parse().ok()?, nanos.parse().ok()?))
        };
        let (inode, size) = (inode.parse().ok()?, size.parse().ok()?);
        Some(Self { inode, size, modified: moment(modified)?, changed: moment(changed)? })
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inode, size, modified, changed } = self;
        write!(f, "{inode} {size} {}.{} {}.{}", modified.0, modified.1, changed.0, changed.1)
    }
}

/// Files that had these hashes when they looked like this.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seal(pub Vec<(Hash, Stamp)>);

impl Seal {
    /// The file that the seal of a guest lies in.
    #[must_use]
    pub fn file(stem: &str) -> String {
        format!("{stem}.seal")
    }

    /// Reads one. What cannot be read vouches for nothing.
    #[must_use]
    pub fn read(shelf: &Path, stem: &str) -> Self {
        let mut text = String::new();
        let most = u64::try_from(MOST).unwrap_or(u64::MAX);
        let read = File::open(shelf.join(Self::file(stem)))
            .and_then(|file| file.take(most).read_to_string(&mut text));
        read.ok().and_then(|_| Self::parse(&text)).unwrap_or_default()
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        lines.next().filter(|line| *line == FIRST)?;
        let line = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let (hash, stamp) = words.split_first()?;
            Some((Hash::parse(hash)?, Stamp::parse(stamp)?))
        };
        lines.map(line).collect::<Option<Vec<_>>>().map(Self)
    }

    /// Whether a file that looks like this is known to have that hash.
    #[must_use]
    pub fn knows(&self, hash: Hash, stamp: Stamp) -> bool {
        self.0.contains(&(hash, stamp))
    }
}

impl fmt::Display for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{FIRST}")?;
        self.0.iter().try_for_each(|(hash, stamp)| writeln!(f, "{hash} {stamp}"))
    }
}

/// Whether a file has this hash: a large one that still looks as it did when it was last hashed has.
pub(crate) fn is_whole(file: &File, wanted: Hash, seal: &Seal) -> io::Result<bool> {
    let stamp = Stamp::of(file)?;
    if stamp.is_large() && seal.knows(wanted, stamp) {
        return Ok(true);
    }
    Ok(hash(file, stamp.size())? == wanted)
}

/// The hash of a file, as far as its size goes: one that grows meanwhile is another.
///
/// # Errors
/// When it cannot be read.
pub fn hash(file: &File, size: u64) -> io::Result<Hash> {
    let (mut hasher, mut piece) = (Hasher::default(), vec![0; PIECE]);
    let mut file = file.take(size);
    loop {
        let got = file.read(&mut piece)?;
        if got == 0 {
            return Ok(hasher.finish());
        }
        hasher.add(piece.get(..got).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt as _;

    use super::*;

    /// A file that is just large enough for a seal, with no bytes on the disk.
    fn large(name: &str) -> (std::path::PathBuf, File) {
        let path = std::env::temp_dir().join(format!("blastbox-{name}-{}", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        file.set_len(HASHED_ALWAYS + 1).unwrap();
        (path, file)
    }

    #[test]
    fn a_file_that_looks_otherwise_is_hashed_and_one_that_does_not_is_believed() {
        let (path, file) = large("sealed");
        let wrong = Hash::of(b"something else");
        let seal = Seal(vec![(wrong, Stamp::of(&file).unwrap())]);
        assert!(is_whole(&file, wrong, &seal).unwrap(), "a seal is believed");
        assert!(!is_whole(&file, Hash::of(b"another"), &seal).unwrap(), "of this hash only");
        let before = file.metadata().unwrap().modified().unwrap();
        // Until the clock of files has gone on.
        std::thread::sleep(std::time::Duration::from_millis(50));
        file.write_all_at(b"x", HASHED_ALWAYS / 2).unwrap();
        file.set_modified(before).unwrap();
        assert!(
            !is_whole(&File::open(&path).unwrap(), wrong, &seal).unwrap(),
            "also where its time was set back"
        );
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_is_small_is_hashed_whatever_a_seal_says() {
        let (path, file) = large("small");
        file.set_len(HASHED_ALWAYS).unwrap();
        let wrong = Hash::of(b"something else");
        let seal = Seal(vec![(wrong, Stamp::of(&file).unwrap())]);
        assert!(!is_whole(&file, wrong, &seal).unwrap());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_seal_that_is_nonsense_vouches_for_nothing() {
        let (path, file) = large("nonsense");
        let seal = Seal(vec![(Hash::of(b""), Stamp::of(&file).unwrap())]);
        std::fs::remove_file(path).unwrap();
        let text = seal.to_string();
        assert_eq!(Seal::parse(&text), Some(seal));
        for bad in [
            "",
            "x",
            &text[1..],
            &text.replace('.', ","),
            &format!("{text}more\n"),
            &text.replace("seal 1", "seal 2"),
        ] {
            assert_eq!(Seal::parse(bad), None, "{bad}");
        }
    }
}
