//! What a matrix says beneath itself: every cell that is not held, with its evidence, said once.

use std::fmt::Write as _;

use crate::report::{Report, SecondState, Verdict};
use crate::text::{head, plain};

/// So many attempts with one reason are named; more are counted, and the matrix shows which.
const NAMED: usize = 8;

/// Cells that say the same.
#[derive(Debug, PartialEq, Eq)]
struct Finding<'a> {
    verdict: Verdict,
    names: Vec<&'a str>,
    places: Vec<String>,
    evidence: &'a str,
}

/// The findings, a line each.
pub(crate) fn findings(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    for Finding { verdict, names, places, evidence } in gathered(report) {
        let who = match names.len() {
            ..=NAMED => names.join(", "),
            many => format!("{many} attempts"),
        };
        let (word, places) = (verdict.as_str(), places.join(", "));
        writeln!(out, "{word:<14} {who}  {places}: {}", plain(evidence)).ok();
    }
    out.push_str(&fell(report));
    out
}

/// What makes a campaign fail, once more and last of all: the log of a CI job is often kept by its end alone.
pub(crate) fn worst(report: &Report) -> String {
    let escaped = gathered(report).into_iter().filter(|found| found.verdict == Verdict::Escaped);
    let told = escaped.map(|Finding { verdict, names, places, evidence }| {
        format!("{:<14} {}  {}: {}\n", verdict.as_str(), names.join(", "), places.join(", "), plain(evidence))
    });
    told.chain([fell(report)]).collect()
}

fn fell(report: &Report) -> String {
    let fallen = report.rows.iter().filter_map(|row| match &row.second_state {
        SecondState::Fell(evidence) => Some(format!("{:<14} {}  {}\n", "2nd fell", row.id, plain(evidence))),
        _ => None,
    });
    fallen.collect()
}

/// Columns of one row that say the same, and rows of which the same is said in the same columns. What came out, or proves nothing, is
/// never one of many.
fn gathered(report: &Report) -> Vec<Finding<'_>> {
    let mut all: Vec<Finding<'_>> = Vec::new();
    for row in &report.rows {
        let mut of_row: Vec<Finding<'_>> = Vec::new();
        for (cell, column) in row.cells.iter().zip(&report.columns) {
            if cell.verdict == Verdict::Held {
                continue;
            }
            let (verdict, evidence) = (cell.verdict, cell.evidence.as_str());
            match of_row.iter_mut().find(|one| one.verdict == verdict && one.evidence == evidence) {
                Some(one) => one.places.push(head(column)),
                None => of_row.push(Finding {
                    verdict,
                    names: vec![&row.id],
                    places: vec![head(column)],
                    evidence,
                }),
            }
        }
        for found in of_row {
            let alike = |one: &&mut Finding<'_>| {
                matches!(found.verdict, Verdict::NotApplicable | Verdict::Absent)
                    && (one.verdict, one.evidence, &one.places)
                        == (found.verdict, found.evidence, &found.places)
            };
            match all.iter_mut().find(alike) {
                Some(one) => one.names.extend(found.names),
                None => all.push(found),
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::example;

    /// A report of so many rows, each with this verdict in two columns.
    fn report(rows: usize, verdict: Verdict) -> Report {
        let mut report = example();
        let (mut row, mut column) = (report.rows[0].clone(), report.columns[0].clone());
        row.cells = vec![crate::Cell::new(verdict, "why".to_owned()); 2];
        column.policy = "low".to_owned();
        report.columns.push(column);
        report.rows = vec![row; rows];
        report
    }

    #[test]
    fn what_many_cells_say_is_said_once_and_what_came_out_never_hides_among_them() {
        assert_eq!(findings(&report(3, Verdict::Held)), "");
        let told = findings(&report(2, Verdict::Absent));
        assert_eq!(told, "nothing there  kernel.x, kernel.x  jail/default, jail/low: why\n");
        let many = findings(&report(NAMED + 1, Verdict::NotApplicable));
        assert_eq!(many, "not applicable 9 attempts  jail/default, jail/low: why\n");
        for verdict in [Verdict::Escaped, Verdict::Broken, Verdict::CouldNotRun] {
            assert_eq!(findings(&report(9, verdict)).lines().count(), 9, "{verdict:?}");
        }
    }

    #[test]
    fn what_makes_a_campaign_fail_is_its_last_word() {
        let mut one = report(1, Verdict::Escaped);
        one.rows[0].second_state = SecondState::Fell("below".to_owned());
        let last = "ESCAPED        kernel.x  jail/default, jail/low: why\n2nd fell       kernel.x  below\n";
        let told = crate::text::matrix(&one);
        assert!(told.ends_with(last), "{told}");
        assert_eq!(worst(&report(1, Verdict::Broken)), "");
    }
}
