//! `cargo xtask licences`: whose code the programs link, under which licence, with the texts that must be kept with it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::{Outcome, house, run};

/// What is shipped.
const PROGRAMS: [&str; 6] =
    ["blastbox", "blastbox-warden", "blastbox-agent", "blastbox-egress", "blastbox-gvisor", "blastbox-wasm"];
/// How files with such texts are called.
const TEXTS: [&str; 4] = ["LICENSE", "LICENCE", "COPYING", "NOTICE"];

/// Prints the list, and then every text.
pub(crate) fn print() -> io::Result<Outcome> {
    let root = house::root()?;
    let mut found = BTreeSet::new();
    for program in PROGRAMS {
        let tree = run::output(run::cargo(&root).args([
            "tree",
            "--quiet",
            "--package",
            program,
            // The compiler of the tier wasm is one.
            "--all-features",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}|{l}",
        ]))?;
        found.extend(tree.lines().filter_map(foreign));
    }
    println!("Crates of others that blastbox links, each with its licence. The texts follow.\n");
    for (name, version, licence) in &found {
        println!("{name} {version}: {licence}");
    }
    for (name, version, _) in &found {
        for text in texts(name, version) {
            let Ok(content) = fs::read_to_string(&text) else { continue };
            let called = text.file_name().unwrap_or_default().to_string_lossy();
            println!("\n==== {name} {version}: {called} ====\n\n{}", content.trim_end());
        }
    }
    Ok(Outcome::Clean)
}

/// `name vVERSION|LICENCE` of somebody else's crate; ours are named after us.
fn foreign(line: &str) -> Option<(String, String, String)> {
    let (package, licence) = line.split_once('|')?;
    let mut words = package.split_whitespace();
    let (name, version) = (words.next()?, words.next()?.trim_start_matches('v'));
    let licence = licence.trim_end_matches(" (*)");
    (!name.starts_with("blastbox")).then(|| (name.to_owned(), version.to_owned(), licence.to_owned()))
}

/// Files beside the source as cargo has unpacked it.
fn texts(name: &str, version: &str) -> Vec<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    let list = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let registries = home.into_iter().flat_map(|home| list(home.join("registry/src")));
    let mut texts: Vec<PathBuf> = registries
        .flat_map(|registry| list(registry.join(format!("{name}-{version}"))))
        .filter(|path| {
            let called = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
            TEXTS.iter().any(|text| called.starts_with(text))
        })
        .collect();
    texts.sort();
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_are_not_foreign() {
        assert_eq!(foreign("blastbox-sys v0.0.0 (/x)|Apache-2.0"), None);
        let serde = ("serde".to_owned(), "1.0.1".to_owned(), "MIT OR Apache-2.0".to_owned());
        assert_eq!(foreign("serde v1.0.1|MIT OR Apache-2.0 (*)"), Some(serde));
    }
}
