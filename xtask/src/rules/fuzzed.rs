//! Rule `fuzz`: a module that reads bytes from a box says so in its docs, and has a fuzz target of its name with seeds.

use super::Finding;
use crate::house::{File, House};

const MARK: &str = "Trust: guest";

pub(super) fn check(house: &House) -> Vec<Finding> {
    let manifest = house.file("fuzz/Cargo.toml").map_or("", |file| file.text.as_str());
    let mut findings = Vec::new();
    for file in house.rust() {
        let Some(line) = marked(&file.text) else { continue };
        let name = target(file);
        let target = format!("fuzz_targets/{name}.rs");
        if house.file(&format!("fuzz/{target}")).is_none() {
            let what = format!("reads bytes from a box: add fuzz/{target}");
            findings.push(Finding::new(&file.path, line, "fuzz", what));
        } else if !manifest.contains(&format!("\"{target}\"")) {
            let what = format!("fuzz/{target} is never built: add its [[bin]] to fuzz/Cargo.toml");
            findings.push(Finding::new(&file.path, line, "fuzz", what));
        }
        let seeds = format!("fuzz/corpus/{name}");
        if !house.holds(&seeds) {
            let what = format!("a fuzzer begins from seeds: put some into {seeds}/");
            findings.push(Finding::new(&file.path, line, "fuzz", what));
        }
    }
    findings
}

/// The line of the module's docs that carries the mark.
fn marked(text: &str) -> Option<usize> {
    let docs = text.lines().map_while(|line| line.strip_prefix("//!"));
    (1..).zip(docs).find(|(_, words)| words.trim_start().starts_with(MARK)).map(|(number, _)| number)
}

/// The module's name: the file, the folder of a `mod.rs`, or the crate of a `lib.rs` or `main.rs`.
fn target(file: &File) -> String {
    let mut folders = file.path.rsplit('/').skip(1);
    let name = match file.stem() {
        "mod" => folders.next(),
        "lib" | "main" => folders.nth(1),
        stem => Some(stem),
    };
    name.unwrap_or_default().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUEST: &str = "//! Frames.\n//!\n//! Trust: guest. Every byte is chosen by an attacker.\n";
    const BUILT: (&str, &str) = ("fuzz/Cargo.toml", "path = \"fuzz_targets/agent.rs\"\n");
    const TARGET: (&str, &str) = ("fuzz/fuzz_targets/agent.rs", "//! Frames.\n");
    const SEED: (&str, &str) = ("fuzz/corpus/agent/hello", "hello");

    #[test]
    fn a_guest_reader_without_its_target_is_found() {
        for path in ["crates/wire/src/agent.rs", "crates/wire/src/agent/mod.rs", "crates/agent/src/main.rs"] {
            let house = House::of(&[(path, GUEST), BUILT, SEED]);
            assert_eq!(
                check(&house),
                [Finding::new(path, 3, "fuzz", "reads bytes from a box: add fuzz/fuzz_targets/agent.rs")]
            );
        }
    }

    #[test]
    fn a_target_that_is_never_built_is_found() {
        let house = House::of(&[("crates/wire/src/agent.rs", GUEST), ("fuzz/Cargo.toml", ""), TARGET, SEED]);
        assert_eq!(check(&house).len(), 1);
    }

    #[test]
    fn a_guest_reader_with_its_target_passes() {
        let house = House::of(&[("crates/wire/src/agent.rs", GUEST), BUILT, TARGET, SEED]);
        assert_eq!(check(&house), []);
        let bare = House::of(&[("crates/wire/src/agent.rs", GUEST), BUILT, TARGET]);
        assert_eq!(check(&bare).len(), 1, "and one without seeds does not");
    }

    #[test]
    fn another_trust_and_talk_about_the_mark_pass() {
        let house = House::of(&[
            ("crates/wire/src/plan.rs", "//! Plans.\n//! Trust: the daemon.\n"),
            ("crates/wire/src/limits.rs", "//! Limits of modules that say `Trust: guest`.\n"),
            ("crates/wire/src/ids.rs", "//! Ids.\nfn a() {}\n//! Trust: guest\n"),
        ]);
        assert_eq!(check(&house), []);
    }
}
