//! Rule `tcb`: what runs with privilege stays small enough to read in a day.

use super::Finding;
use crate::tcb::Share;

/// Lines of code in the warden and the unsafe room together.
const LINES: usize = 7482;
/// Lines of code of what both programs read hostile bytes with; neither links all of it.
const WIRE: usize = 4743;
/// Crates of others that the warden links.
const CRATES: usize = 20;

pub(super) fn check(shares: &[Share]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines: usize =
        shares.iter().filter(|share| ["warden", "sys"].contains(&share.name)).map(|share| share.lines).sum();
    if lines > LINES {
        let what = format!(
            "warden and sys have {lines} lines of code, {LINES} are the limit: move out what needs no privilege"
        );
        findings.push(Finding::new("crates/warden/Cargo.toml", 1, "tcb", what));
    }
    let read: usize = shares.iter().filter(|share| share.name == "wire").map(|share| share.lines).sum();
    if read > WIRE {
        let what =
            format!("wire has {read} lines of code, {WIRE} are the limit: it is linked into the warden");
        findings.push(Finding::new("crates/wire/Cargo.toml", 1, "tcb", what));
    }
    let crates =
        shares.iter().filter(|share| share.name == "warden").map(|share| share.crates.len()).sum::<usize>();
    if crates > CRATES {
        let what = format!(
            "the warden links {crates} crates of others, {CRATES} are the limit: see `cargo xtask tcb`"
        );
        findings.push(Finding::new("crates/warden/Cargo.toml", 1, "tcb", what));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(name: &'static str, lines: usize, crates: usize) -> Share {
        Share { name, lines, crates: vec![String::new(); crates] }
    }

    #[test]
    fn too_many_lines_are_found_in_the_sum() {
        assert_eq!(check(&[share("warden", 3000, 0), share("sys", LINES - 2999, 0)]).len(), 1);
    }

    #[test]
    fn wire_has_a_limit_of_its_own() {
        assert_eq!(check(&[share("wire", WIRE, 0)]), []);
        assert_eq!(check(&[share("wire", WIRE + 1, 0)]).len(), 1);
    }

    #[test]
    fn too_many_crates_are_found_in_the_warden() {
        assert_eq!(check(&[share("warden", 0, CRATES + 1)]).len(), 1);
    }

    #[test]
    fn a_core_at_its_limits_passes_whatever_the_agent_weighs() {
        assert_eq!(
            check(&[
                share("warden", 3000, CRATES),
                share("sys", LINES - 3000, CRATES + 9),
                share("agent", 9999, 99)
            ]),
            []
        );
    }
}
