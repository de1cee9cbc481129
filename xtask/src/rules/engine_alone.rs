//! Rule `engine`: Wasmtime is linked by `blastbox-wasm` and nobody else, by whatever way, and its worker takes nothing of it that makes
//! machine code. Whoever tricks the engine then has a jailed worker and never a daemon.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use crate::house::{File, House};

/// The one package that may.
const ROOM: &str = "blastbox-wasm";
const MANIFEST: &str = "crates/wasm/Cargo.toml";
/// How its packages, and those of its compilers, are called.
const ENGINE: [&str; 4] = ["wasmtime", "cranelift", "winch", "pulley"];
/// Features by which it makes machine code, or takes what was not compiled beforehand.
const MAKES_CODE: [&str; 7] =
    ["cranelift", "winch", "default", "parallel-compilation", "all-arch", "incremental-cache", "wat"];

pub(super) fn check(house: &House) -> Vec<Finding> {
    let locks = house.files().filter(|file| file.path.rsplit('/').next() == Some("Cargo.lock"));
    let worker = house.files().filter(|file| file.path == MANIFEST);
    locks.flat_map(linked).chain(worker.flat_map(made)).collect()
}

/// Packages of ours that come to the engine, as the lock file has it: through others, and for tests, too.
fn linked(file: &File) -> Vec<Finding> {
    let packages = packages(&file.text);
    let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in &packages {
        // Several versions of a name are taken for one: whichever of them comes to the engine.
        uses.entry(package.name).or_default().extend(package.uses.iter().copied());
    }
    let ours = packages.iter().filter(|package| package.ours && package.name != ROOM);
    ours.filter_map(|package| way(&uses, package.name).map(|way| (package, way)))
        .map(|(package, way)| {
            let what = format!(
                "only {ROOM} links the engine, and here it is {}: start the worker as a process instead",
                way.join(" → ")
            );
            Finding::new(&file.path, package.line, "engine", what)
        })
        .collect()
}

/// A way from a package to the engine, if there is one.
fn way<'a>(uses: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &'a str) -> Option<Vec<&'a str>> {
    let (mut seen, mut open) = (BTreeSet::from([from]), vec![vec![from]]);
    while let Some(way) = open.pop() {
        let last = *way.last()?;
        if ENGINE.iter().any(|name| last == *name || last.starts_with(&format!("{name}-"))) {
            return Some(way);
        }
        for next in uses.get(last).into_iter().flatten().filter(|next| seen.insert(next)) {
            open.push([way.as_slice(), &[next]].concat());
        }
    }
    None
}

struct Package<'a> {
    line: usize,
    name: &'a str,
    /// It has no source: it lies in this repository.
    ours: bool,
    uses: Vec<&'a str>,
}

/// What a lock file says, which Cargo writes in one form only.
fn packages(lock: &str) -> Vec<Package<'_>> {
    let mut packages: Vec<Package<'_>> = Vec::new();
    for (line, text) in (1..).zip(lock.lines()) {
        if text == "[[package]]" {
            packages.push(Package { line, name: "", ours: true, uses: Vec::new() });
        }
        let Some(package) = packages.last_mut() else { continue };
        if let Some(name) = text.strip_prefix("name = ") {
            (package.name, package.line) = (name.trim_matches('"'), line);
        } else if text.starts_with("source = ") {
            package.ours = false;
        } else if let Some(entry) = text.strip_prefix(" \"") {
            // `"name"`, `"name version"`
            package.uses.extend(entry.split(['"', ' ']).next());
        }
    }
    packages
}

/// What every worker has of the engine: the features that are named with the dependency, and those of ours that are always on.
fn made(file: &File) -> Vec<Finding> {
    let lines = (1..).zip(file.text.lines());
    lines
        .filter_map(|(number, line)| {
            let always = line.starts_with("wasmtime =") || line.starts_with("default =");
            let named = line.split('"').skip(1).step_by(2);
            let makes = |name: &&str| MAKES_CODE.contains(name) || *name == "compiler" || name.starts_with("wasmtime/");
            let found = always.then(|| named.into_iter().find(makes)).flatten()?;
            let what = format!("{found} would be in every worker, which runs only what was compiled: behind the feature `compiler`");
            Some(Finding::new(&file.path, number, "engine", what))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"blastbox-wasm\"\nversion = \"0.0.0\"\ndependencies = [\n \"wasmtime\",\n]\n\n\
        [[package]]\nname = \"wasmtime\"\nversion = \"48.0.8\"\nsource = \"registry\"\ndependencies = [\n \"cranelift-codegen 0.135.8\",\n]\n\n\
        [[package]]\nname = \"blastbox-engine\"\nversion = \"0.0.0\"\ndependencies = [\n \"serde\",\n]\n\n\
        [[package]]\nname = \"serde\"\nversion = \"1.0.0\"\nsource = \"registry\"\n";

    fn findings(path: &str, text: &str) -> Vec<String> {
        check(&House::of(&[(path, text)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_worker_links_the_engine_and_nobody_else_does() {
        assert!(findings("Cargo.lock", LOCK).is_empty());
    }

    #[test]
    fn whoever_comes_to_the_engine_is_found_by_whatever_way() {
        for (from, to, way) in [
            ("serde", "wasmtime", "blastbox-engine → wasmtime"),
            ("serde", "blastbox-wasm", "blastbox-engine → blastbox-wasm → wasmtime"),
            ("serde", "cranelift-codegen", "blastbox-engine → cranelift-codegen"),
            ("serde", "wasmtime-environ 48.0.8", "blastbox-engine → wasmtime-environ"),
        ] {
            let lock = LOCK.replace(&format!(" \"{from}\""), &format!(" \"{to}\""));
            let found = findings("fuzz/Cargo.lock", &lock);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(
                found.iter().all(|line| line.contains(way) && line.starts_with("fuzz/Cargo.lock:19: engine")),
                "{found:?}"
            );
        }
        // Through somebody else's package.
        let lock = format!("{LOCK}dependencies = [\n \"wasmtime\",\n]\n");
        assert_eq!(findings("Cargo.lock", &lock).len(), 1);
    }

    #[test]
    fn a_name_that_only_begins_alike_is_another_package() {
        assert!(findings("Cargo.lock", &LOCK.replace(" \"serde\"", " \"wasmtimes\"")).is_empty());
    }

    #[test]
    fn a_worker_with_a_compiler_is_found() {
        let manifest = |features: &str, default: &str| {
            format!(
                "[features]\n{default}compiler = [\"components\", \"wasmtime/cranelift\"]\n[dependencies]\nwasmtime = {{ workspace = true, features = [{features}] }}\n"
            )
        };
        assert!(findings(MANIFEST, &manifest("\"runtime\", \"std\"", "")).is_empty());
        assert_eq!(findings(MANIFEST, &manifest("\"runtime\", \"cranelift\"", "")).len(), 1);
        assert_eq!(findings(MANIFEST, &manifest("\"runtime\", \"winch\"", "")).len(), 1);
        assert_eq!(findings(MANIFEST, &manifest("\"runtime\"", "default = [\"compiler\"]\n")).len(), 1);
        assert_eq!(findings(MANIFEST, &manifest("\"runtime\"", "default = [\"wasmtime/winch\"]\n")).len(), 1);
        assert!(
            findings("crates/other/Cargo.toml", &manifest("\"cranelift\"", "")).is_empty(),
            "the lock file tells of it"
        );
    }
}
