//! Ending a test program that hangs, with a word about where.

use std::io;
use std::path::Path;

use crate::run;

/// The names of the test programs that `cargo` runs now; none while it compiles.
pub(super) fn test_programs_of(cargo: u32) -> io::Result<Vec<String>> {
    let program = |id: u32| test_program(&std::fs::read_link(format!("/proc/{id}/exe")).ok()?);
    Ok(beneath(&processes()?, cargo).into_iter().filter_map(program).collect())
}

/// Ends the programs that `cargo` runs, with whatever they started, and prints what their threads waited for: libtest gives each the
/// name of its test.
pub(super) fn end_programs_of(cargo: u32) -> io::Result<()> {
    for id in beneath(&processes()?, cargo) {
        tell_threads(id);
        // Whoever is gone already needs no ending.
        run::kill(id).ok();
    }
    Ok(())
}

/// The name of the test program that this file is: cargo puts them into a directory of their own, and documentation is tested by
/// rustdoc. Neither the compiler nor what it starts is one.
fn test_program(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let is_test = file.parent()?.ends_with("deps") || name == "rustdoc";
    is_test.then(|| name.to_owned())
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

    #[test]
    fn a_test_program_is_told_from_a_compiler() {
        let told = |file: &str| test_program(Path::new(file));
        for test in ["/x/target/debug/deps/jail-0f3a", "/x/target/debug/deps/jail-0f3a (deleted)"] {
            assert!(told(test).is_some_and(|name| name.starts_with("jail-0f3a")), "{test}");
        }
        assert!(told("/toolchain/bin/rustdoc").is_some());
        for other in
            ["/toolchain/bin/rustc", "/x/target/debug/build/ring-1/build-script-build", "/usr/bin/cc"]
        {
            assert_eq!(told(other), None, "{other}");
        }
        // This one, by its own process.
        let parent = std::os::unix::process::parent_id();
        let us = std::env::current_exe().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
        assert!(test_programs_of(parent).unwrap().contains(&us));
    }
}
