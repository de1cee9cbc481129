//! `cargo xtask tcb`: how much code must be right for a box to hold, in lines and in crates of others.

use std::io;
use std::path::Path;

use crate::Outcome;
use crate::house::{self, House};
use crate::run;

/// One crate of the trusted core.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) name: &'static str,
    /// Lines of code: neither blank, comment nor test.
    pub(crate) lines: usize,
    /// Crates of others that are linked in, as `name version`.
    pub(crate) crates: Vec<String>,
}

/// `wire` is in it because both programs read hostile bytes with it, though neither links all of it.
const CORE: [&str; 4] = ["warden", "agent", "sys", "wire"];

/// Counts the trusted core as it is in the checkout.
pub(crate) fn measure(root: &Path, house: &House) -> io::Result<Vec<Share>> {
    CORE.into_iter()
        .map(|name| {
            let tree = run::output(run::cargo(root).args([
                "tree",
                "--quiet",
                "--package",
                &format!("blastbox-{name}"),
                "--edges",
                "normal,no-proc-macro",
                "--prefix",
                "none",
                "--format",
                "{p}",
            ]))?;
            Ok(Share { name, lines: lines(house, name), crates: linked(&tree) })
        })
        .collect()
}

fn lines(house: &House, name: &str) -> usize {
    let folder = format!("crates/{name}/src/");
    // What only builds for the layer proof have is in no program that anybody is given.
    let only_in_test_builds = format!("{folder}test_build.rs");
    let shipped = house
        .rust()
        .filter(|file| file.path.starts_with(&folder) && !file.is_test() && file.path != only_in_test_builds);
    shipped.map(|file| file.source().shipped()).sum()
}

/// Crates of others in the output of `cargo tree`, each once; our own end with their folder in parentheses.
fn linked(tree: &str) -> Vec<String> {
    let mut crates: Vec<String> = tree
        .lines()
        .filter(|line| !line.starts_with("blastbox"))
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some(format!("{} {}", words.next()?, words.next()?.trim_start_matches('v')))
        })
        .collect();
    crates.sort();
    crates.dedup();
    crates
}

/// Prints the table.
pub(crate) fn print() -> io::Result<Outcome> {
    let root = house::root()?;
    let shares = measure(&root, &House::open(&root)?)?;
    println!("{:<8} {:>6} {:>7}  linked", "crate", "lines", "crates");
    for Share { name, lines, crates } in &shares {
        println!("{name:<8} {lines:>6} {:>7}  {}", crates.len(), crates.join(", "));
    }
    println!(
        "lines: code without blanks, comments and tests; crates: those of others, procedural macros left out"
    );
    Ok(Outcome::Clean)
}

/// Prints `crate:lines:crates` for each and `fuzz:targets:seeds`, in one line: what a build of `blastbox escape` is told.
pub(crate) fn print_line() -> io::Result<Outcome> {
    let root = house::root()?;
    let shares = measure(&root, &House::open(&root)?)?;
    let mut words: Vec<String> =
        shares.iter().map(|share| format!("{}:{}:{}", share.name, share.lines, share.crates.len())).collect();
    // Whoever builds from an archive without its history has no list to count.
    let listed = run::git(&root, &["ls-files", "-z", "fuzz"]).unwrap_or_default();
    let beneath = |folder: &str| listed.split('\0').filter(|path| path.starts_with(folder)).count();
    words.push(format!("fuzz:{}:{}", beneath("fuzz/fuzz_targets/"), beneath("fuzz/corpus/")));
    println!("{}", words.join(" "));
    Ok(Outcome::Clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_others_are_listed_once_and_ours_never() {
        let tree = "blastbox-warden v0.0.0 (crates/warden)\nlibc v0.2.1\n\nrustix v1.1.6\nblastbox-sys v0.0.0 (crates/sys)\nlibc v0.2.1 (*)\n";
        assert_eq!(linked(tree), ["libc 0.2.1", "rustix 1.1.6"]);
    }

    #[test]
    fn lines_are_counted_in_the_crate_and_without_its_tests() {
        let house = House::of(&[
            ("crates/sys/src/lib.rs", "//! Doc.\nfn a() {}\n"),
            ("crates/sys/src/seccomp/tests.rs", "fn b() {}\n"),
            ("crates/sys/tests/c.rs", "fn c() {}\n"),
            ("crates/sys/src/test_build.rs", "fn e() {}\n"),
            ("crates/wire/src/lib.rs", "fn d() {}\n"),
        ]);
        assert_eq!(lines(&house, "sys"), 1);
    }
}
