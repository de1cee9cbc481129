//! Rule `promises`: every test and every file that SPECIFICATION.md names as the keeper of a promise exists.

use super::Finding;
use crate::house::House;

const SPECIFICATION: &str = "SPECIFICATION.md";

pub(super) fn check(house: &House) -> Vec<Finding> {
    let Some(text) = house.file(SPECIFICATION).map(|file| file.text.as_str()) else {
        return vec![Finding::new(
            SPECIFICATION,
            1,
            "promises",
            "missing: say what is promised and what holds it",
        )];
    };
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let Some(keepers) = keepers(line) else { continue };
        // Names and the file that they are in stand between two semicolons.
        for clause in keepers.split(';') {
            let spans: Vec<&str> = clause.split('`').skip(1).step_by(2).collect();
            let places: Vec<&str> = spans.iter().copied().filter(|span| is_place(span)).collect();
            for place in places.iter().filter(|place| !house.holds(place)) {
                let what = format!("`{place}` does not exist: name where the test lives now");
                findings.push(Finding::new(SPECIFICATION, number, "promises", what));
            }
            for name in spans.into_iter().filter(|span| is_name(span)) {
                if !is_there(house, name, &places) {
                    let what = format!("no test `{name}` {}: name the one that holds it", whither(&places));
                    findings.push(Finding::new(SPECIFICATION, number, "promises", what));
                }
            }
        }
    }
    findings
}

/// The last cell of a row of two; headings of tables and other lines have none.
fn keepers(line: &str) -> Option<&str> {
    let row = line.strip_prefix("| ")?.strip_suffix('|')?;
    let (_, keepers) = row.rsplit_once(" | ")?;
    keepers.contains('`').then_some(keepers)
}

fn is_place(span: &str) -> bool {
    span.contains('/') && span.ends_with(".rs") && !span.contains(char::is_whitespace)
}

/// Tests are called in sentences; shorter words are something else. A star at the end stands for all that begin so.
fn is_name(span: &str) -> bool {
    let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    match span.strip_suffix('*') {
        Some(beginning) => beginning.ends_with('_') && beginning.bytes().all(letters),
        None => span.bytes().filter(|byte| *byte == b'_').count() >= 2 && span.bytes().all(letters),
    }
}

/// In one of the files that are named with it, or in the folder of the same name beside one; anywhere, where none is.
fn is_there(house: &House, name: &str, places: &[&str]) -> bool {
    let (sought, open) = match name.strip_suffix('*') {
        Some(beginning) => (format!("fn {beginning}"), true),
        None => (format!("fn {name}"), false),
    };
    let defines = |text: &str| {
        text.match_indices(&sought).any(|(at, _)| {
            open || text.get(at + sought.len()..).is_some_and(|rest| rest.starts_with(['(', '<']))
        })
    };
    house.rust().any(|file| {
        let named = |place: &&str| {
            let folder = place.trim_end_matches(".rs").trim_end_matches("/mod").trim_end_matches("/main");
            file.path == **place || file.path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
        };
        (places.is_empty() || places.iter().any(named)) && defines(&file.text)
    })
}

fn whither(places: &[&str]) -> String {
    if places.is_empty() { "anywhere".to_owned() } else { format!("in {}", places.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> usize {
        let house = House::of(&[
            (SPECIFICATION, line),
            ("crates/a/src/b.rs", "#[test]\nfn it_holds_well() {}\nfn it_holds_wellnigh() {}\n"),
            ("crates/a/src/b/tests.rs", "#[test]\nfn it_holds_in_a_folder() {}\n"),
        ]);
        check(&house).len()
    }

    #[test]
    fn a_test_that_is_there_passes() {
        assert_eq!(found("| It holds. | `it_holds_well` in `crates/a/src/b.rs` |"), 0);
        assert_eq!(
            found("| It holds. | `it_holds_in_a_folder` in `crates/a/src/b.rs`; `it_holds_well` |"),
            0
        );
        assert_eq!(
            found("| It holds. | `it_holds_*` in `crates/a/src/b.rs`; fuzz target `policy_text` |"),
            0
        );
        assert_eq!(found("| promise | held by |\n|---|---|\n`it_is_no_row`\n"), 0);
    }

    #[test]
    fn one_that_is_not_or_is_elsewhere_is_found() {
        assert_eq!(found("| It holds. | `it_holds_badly` in `crates/a/src/b.rs` |"), 1);
        assert_eq!(found("| It holds. | `it_holds_wel` |"), 1, "half a name is another");
        assert_eq!(found("| It holds. | `crates/a/src/gone.rs` |"), 1);
        assert_eq!(found("| It holds. | `it_fell_*` in `crates/a/src/b.rs` |"), 1);
        assert_eq!(check(&House::default()).len(), 1);
    }
}
