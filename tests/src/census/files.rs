//! Files that a run has left: in the caller's own directory, and where programs put such things.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Where a program leaves files that nobody asked for.
const PLACES: [&str; 4] = ["/tmp", "/var/tmp", "/run", "/dev/shm"];
/// What a file of ours, or of a program that we start, has in its name.
const WORDS: [&str; 5] = ["blastbox", "bx_", "runsc", "qemu", ".kernel-"];
/// How directories of tests and benchmarks begin, which run beside this one; the number of their process follows somewhere.
/// Nothing that is shipped begins like one of them.
const OF_TESTS: [&str; 20] = [
    "blastbox-agent-",
    "blastbox-api-",
    "blastbox-bench-",
    "blastbox-cgroups-",
    "blastbox-compiled-",
    "blastbox-cp-",
    "blastbox-egress-",
    "blastbox-freeze-",
    "blastbox-fuzz-",
    "blastbox-landlock-",
    "blastbox-leases-",
    "blastbox-ledger-",
    "blastbox-pen-",
    "blastbox-program-",
    "blastbox-receipt-",
    "blastbox-recorded-",
    "blastbox-roots-",
    "blastbox-server-",
    "blastbox-store-",
    "blastbox-tests-",
];

/// What a daemon keeps for ever, and where a store of images keeps what the next machine begins with.
const KEPT: [&str; 4] = ["boxes.db", "ledger", "ledger.key", "keys.json"];
const ROOMS: [&str; 2] = ["disks", "templates"];
/// What is whole there. What is half made has another name.
const WHOLE: [(&str, &str); 4] =
    [("sha256-", ".squashfs"), ("sha256-", ".template"), ("sha256-", ".doubted"), ("first-sha256-", ".cpio")];
/// How deep is looked: a state directory and what lies in its directories.
const DEPTH: usize = 4;

fn is_kept(name: &str) -> bool {
    KEPT.contains(&name)
        || name.starts_with("boxes.db-")
        || WHOLE.iter().any(|(begin, end)| name.starts_with(begin) && name.ends_with(end))
}

/// Everything beneath a directory, by its path from there, but for what is kept.
pub(super) fn within(directory: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let listed = fs::read_dir(directory).expect("list the caller's directory");
    let mut waiting = vec![(1, listed)];
    while let Some((depth, entries)) = waiting.pop() {
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let room = ROOMS.contains(&name.as_str());
            if depth > 1 && is_kept(&name) {
                continue;
            }
            if !room {
                found.extend(path.strip_prefix(directory).map(|path| path.display().to_string()));
            }
            // Links lead nowhere. What is gone by now, or closed, is not looked into.
            if depth < DEPTH
                && entry.file_type().is_ok_and(|kind| kind.is_dir())
                && let Ok(listed) = fs::read_dir(&path)
            {
                waiting.push((depth + 1, listed));
            }
        }
    }
    found
}

/// The files of a caller that lie in [`PLACES`].
#[derive(Debug)]
pub(super) struct Elsewhere {
    caller: u32,
    before: BTreeSet<PathBuf>,
}

impl Elsewhere {
    pub(super) fn look(caller: u32) -> Self {
        Self { caller, before: found(caller).collect() }
    }

    /// What is new there, one line each. A stranger may be the same user, and makes what is not ours to count.
    pub(super) fn left(&self, alone: bool) -> Vec<String> {
        if !alone && !is_invented(self.caller) {
            return Vec::new();
        }
        let new = found(self.caller).filter(|path| !self.before.contains(path));
        new.map(|path| format!("file {}", path.display())).collect()
    }
}

/// Nobody but one test is an invented user, so all that belongs to it is that test's. Of others only what has our name.
fn found(caller: u32) -> impl Iterator<Item = PathBuf> {
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let places = PLACES.iter().map(PathBuf::from).chain(session);
    let entries = places.flat_map(|place| fs::read_dir(place).into_iter().flatten().flatten());
    let ours = move |entry: &fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owned = entry.metadata().is_ok_and(|about| about.uid() == caller);
        owned && !is_of_tests(&name) && (is_invented(caller) || WORDS.iter().any(|word| name.contains(word)))
    };
    entries.filter(ours).map(|entry| entry.path())
}

fn is_invented(uid: u32) -> bool {
    uid >= crate::caller::INVENTED
}

/// `blastbox-tests-12-3`, and not `.blastbox-12-3`, which a copy that was killed leaves.
fn is_of_tests(name: &str) -> bool {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    // One of them is a file with an ending.
    let rest = OF_TESTS.iter().find_map(|begin| name.strip_prefix(begin));
    rest.is_some_and(|rest| rest.split(['-', '.']).any(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_tests_are_passed_over() {
        for name in [
            "blastbox-tests-12-3",
            "blastbox-cgroups-old-12",
            "blastbox-bench-12.toml",
            "blastbox-egress-12-x",
        ] {
            assert!(is_of_tests(name), "{name}");
        }
        for name in [".blastbox-12-3", ".kernel-12-3", "blastbox-12-3", "blastbox-escape-bbx0", "bx_a-12"] {
            assert!(!is_of_tests(name), "{name}");
        }
    }
}
