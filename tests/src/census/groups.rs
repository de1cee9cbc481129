//! Control groups that a warden has left.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::mounts;

/// How the directories of wardens, boxes and moved callers are called.
const OURS: [&str; 3] = ["blastbox-warden-", "blastbox-caller", "bx_"];
/// Levels of cgroups that are searched; nobody nests deeper.
const DEEPEST: u32 = 8;

/// Groups of this caller that no living stranger has locked.
pub(super) fn unclaimed_groups(caller: u32, strangers: &[u32]) -> Vec<PathBuf> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let locked = |path: &Path| {
        let Ok(inode) = fs::metadata(path).map(|about| about.ino().to_string()) else { return true };
        locks.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let pid = words.get(4).and_then(|pid| pid.parse().ok());
            words.get(5).and_then(|place| place.rsplit(':').next()) == Some(inode.as_str())
                && pid.is_some_and(|pid| strangers.contains(&pid))
        })
    };
    let mut found = Vec::new();
    let mounts = mounts();
    for line in mounts.iter().filter(|line| line.contains(" - cgroup")) {
        if let Some(at) = line.split(' ').nth(4) {
            search(Path::new(at), 0, &mut found);
        }
    }
    found.retain(|path| fs::metadata(path).is_ok_and(|about| about.uid() == caller));
    // A warden locks its own directory, in which the groups of its boxes lie.
    found.retain(|path| !locked(path) && !path.parent().is_some_and(locked));
    found
}

fn search(directory: &Path, depth: u32, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        let name = entry.file_name();
        if OURS.iter().any(|ours| name.to_string_lossy().starts_with(ours)) {
            found.push(entry.path());
        }
        if depth < DEEPEST {
            search(&entry.path(), depth + 1, found);
        }
    }
}
