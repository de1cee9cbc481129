//! Rule `walk`: every path that docs/walk.md names exists, so the guided tour never leads to a wall.

use super::Finding;
use crate::house::House;

const WALK: &str = "docs/walk.md";
const ENDINGS: [&str; 9] = [".rs", ".toml", ".md", ".sh", ".py", ".txt", ".json", ".yml", "/"];

pub(super) fn check(house: &House) -> Vec<Finding> {
    let Some(walk) = house.file(WALK) else {
        return vec![Finding::new(WALK, 1, "walk", "missing: write the walk of one request")];
    };
    let mut findings = Vec::new();
    let mut fenced = false;
    for (number, line) in (1..).zip(walk.text.lines()) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        for path in line.split('`').skip(1).step_by(2).filter(|_| !fenced).filter_map(path) {
            if !house.holds(path) {
                let what =
                    format!("`{path}` does not exist: name where it lives now, from the repository root");
                findings.push(Finding::new(WALK, number, "walk", what));
            }
        }
    }
    findings
}

/// The path in a quoted span, without the `:line`, `#anchor` or `::item` behind it; `None` when it is no path of ours.
fn path(span: &str) -> Option<&str> {
    let path = span.split([':', '#']).next().unwrap_or(span);
    let ours = path.contains('/') && !path.starts_with(['/', '~', '$', '.', '-']) && !span.contains("://");
    (ours && !path.contains(char::is_whitespace) && ENDINGS.iter().any(|ending| path.ends_with(ending)))
        .then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(walk: &str) -> Vec<usize> {
        let house = House::of(&[(WALK, walk), ("crates/cli/src/run.rs", "")]);
        check(&house).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_path_that_leads_nowhere_is_found() {
        assert_eq!(
            lines("`crates/cli/src/run.rs`\n`crates/cli/src/gone.rs`\nthen `crates/gone/`\n`cli/*.rs`\n"),
            [2, 3, 4]
        );
    }

    #[test]
    fn paths_that_exist_pass_with_what_stands_behind_them() {
        assert!(
            lines("`crates/cli/src/run.rs:12`, `crates/cli/src/run.rs::start`, `crates/cli/`\n").is_empty()
        );
    }

    #[test]
    fn other_code_is_not_taken_for_a_path() {
        assert!(
            lines(
                "`/etc/passwd.md` `a / b` `https://x.example/a.md` `and/or` `Vec<T>`\n```\n`no/way.rs`\n```\n"
            )
            .is_empty()
        );
    }

    #[test]
    fn a_missing_walk_is_found() {
        assert_eq!(check(&House::default()).len(), 1);
    }
}
