//! Ending a test program that hangs, with a word about where.

use std::io;
use std::path::Path;

use crate::run;

/// Ends a program with whatever it started, and prints what their threads waited for: libtest gives each the name of its test.
pub(super) fn end(program: u32) -> io::Result<()> {
    for id in [program].into_iter().chain(beneath(&processes()?, program)) {
        tell_threads(id);
        // Whoever is gone already needs no ending.
        run::kill(id).ok();
    }
    Ok(())
}

/// Whoever descends from this process.
fn beneath(all: &[(u32, u32)], process: u32) -> Vec<u32> {
    let mut found = vec![process];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(all.iter().filter(|(_, of)| *of == parent).map(|(id, _)| *id));
        next += 1;
    }
    found.split_off(1)
}

/// Every process and its parent.
fn processes() -> io::Result<Vec<(u32, u32)>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(Path::new("/proc").join(&name).join("stat")) else { continue };
        if let Some(parent) = parent(&stat) {
            all.push((id, parent));
        }
    }
    Ok(all)
}

/// The parent in a line of `/proc/PID/stat`; the name in front of it may hold anything.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn tell_threads(id: u32) {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{id}/task")) else { return };
    for thread in threads.flatten() {
        let part = |name: &str| std::fs::read_to_string(thread.path().join(name)).unwrap_or_default();
        println!(
            "hangs: process {id}: {}: waits in {:?}, call {}",
            part("comm").trim(),
            part("wchan"),
            part("syscall").trim()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_found_behind_whatever_name() {
        assert_eq!(parent("12 (a) b) S 7 12 12 0"), Some(7));
        assert_eq!(parent("12 (sh"), None);
        let us = std::process::id();
        assert!(processes().unwrap().iter().any(|(id, _)| *id == us));
    }

    #[test]
    fn whoever_descends_from_a_process_is_found_and_nobody_else() {
        assert_eq!(beneath(&[(5, 1), (6, 5), (7, 1), (9, 8), (8, 6)], 5), [6, 8, 9]);
        assert!(beneath(&[(5, 1)], 5).is_empty());
    }
}
