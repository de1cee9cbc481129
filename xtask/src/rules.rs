//! `cargo xtask check`: every rule is a room of its own, a pure function from the house to findings.

mod arrows;
mod ceiling;
mod engine_alone;
mod fuzzed;
mod machine_paths;
mod names;
mod opening;
mod promises;
mod size;
mod tierless;
mod unsafe_room;
mod walk;

use std::fmt;
use std::io;
use std::path::Path;

use crate::house::{self, House};
use crate::{Outcome, tcb};

/// One broken rule. `what` tells the reader what to do about it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    file: String,
    line: usize,
    rule: &'static str,
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.rule, self.what)
    }
}

impl Finding {
    fn new(file: &str, line: usize, rule: &'static str, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, rule, what: what.into() }
    }
}

const RULES: [fn(&House) -> Vec<Finding>; 11] = [
    arrows::check,
    engine_alone::check,
    fuzzed::check,
    machine_paths::check,
    names::check,
    opening::check,
    promises::check,
    size::check,
    tierless::check,
    unsafe_room::check,
    walk::check,
];

/// Holds every rule against the checkout and prints what it found, sorted by file.
pub(crate) fn check() -> io::Result<Outcome> {
    let root = house::root()?;
    let house = House::open(&root)?;
    let findings = hold(&root, &house)?;
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("house rules: {} files, all held", house.files().count());
        return Ok(Outcome::Clean);
    }
    println!("house rules: {} broken", findings.len());
    Ok(Outcome::Findings)
}

/// What breaks a rule, sorted by file.
fn hold(root: &Path, house: &House) -> io::Result<Vec<Finding>> {
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(house)).collect();
    findings.extend(ceiling::check(&tcb::measure(root, house)?));
    findings.sort();
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So that `make test` holds them as well as `make check`.
    #[test]
    fn every_rule_holds_in_this_checkout() {
        let root = house::root().unwrap();
        let house = House::open(&root).unwrap();
        assert!(house.files().count() > 100, "there is hardly anything to look at");
        let findings: Vec<String> = hold(&root, &house).unwrap().iter().map(ToString::to_string).collect();
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }
}
