//! The head of the page: the verdict, what it rests on in numbers, every class in one line, and what the signs mean.

use std::fmt::Write as _;

use crate::attempt::Class;
use crate::count::Count;
use crate::embedded::safe;
use crate::page::kind;
use crate::report::{ControlState, Report};
use crate::text::LEGEND;

/// The head.
pub(crate) fn head(report: &Report, out: &mut String) {
    let count = report.count();
    let (class, sign, verdict) = verdict(report, &count);
    // Writing to a string does not fail.
    writeln!(
        out,
        "<header class=\"{class}\">\n<span class=\"seal\" aria-hidden=\"true\">{sign}</span>\n<div>\n<h1>blastbox escape</h1>\n\
         <p class=\"verdict\">{verdict}</p>\n<p>{} attempts as {} on Linux {} ({}) · {} · {:.1} s</p>\n</div>\n</header>",
        report.rows.len(),
        report.host.caller,
        safe(&report.host.kernel),
        report.host.architecture,
        safe(&report.started_at),
        report.seconds
    )
    .ok();
    cards(report, &count, out);
    glance(report, out);
    for (what, signs) in LEGEND {
        write!(out, "<p class=\"legend\">{what}").ok();
        for (class, sign, word) in signs {
            write!(out, "<span><b class=\"{class}\">{sign}</b> {word}</span>").ok();
        }
        out.push_str("</p>\n");
    }
}

fn verdict(report: &Report, count: &Count) -> (&'static str, &'static str, String) {
    match count {
        Count { escaped: 0, broken: 0, could_not_run: 0, held: 1.., second_fell: 0, .. } => {
            match report.shows_too_little(count) {
                true => (
                    "doubt",
                    "!",
                    "Nothing came out, but test builds do not show what they are for.".to_owned(),
                ),
                false => ("good", "✓", "Nothing came out.".to_owned()),
            }
        }
        Count { escaped: 0, second_fell: 0, held: 0, .. } => {
            ("doubt", "!", "Nothing came out, and nothing was held.".to_owned())
        }
        Count { escaped: 0, second_fell: 0, broken, could_not_run, .. } => {
            ("doubt", "!", format!("Nothing came out, but {} cells prove nothing.", broken + could_not_run))
        }
        Count { escaped, second_fell, .. } => {
            ("bad", "✗", format!("{escaped} cells escaped, {second_fell} second layers fell."))
        }
    }
}

fn cards(report: &Report, count: &Count, out: &mut String) {
    let fired = report.rows.iter().filter(|row| matches!(row.control, ControlState::Fired(_))).count();
    let groups = [
        (
            "Attempts in boxes",
            vec![
                ("held", count.held - count.held_unproven, "held, and seen to succeed elsewhere"),
                ("escaped", count.escaped, "escaped"),
                ("broken", count.broken, "broken: the control failed"),
                ("unrun", count.could_not_run, "could not run"),
                ("na", count.held_unproven, "held, unproven"),
                ("na", count.not_applicable, "not applicable"),
                ("na", count.absent, "nothing there to hold"),
            ],
        ),
        (
            "Controls: the same without the box",
            vec![
                ("held", fired, "succeeded, as they should"),
                ("na", count.control_unavailable, "not to be had by this caller"),
                ("na", count.control_absent, "go for what is not on this host"),
            ],
        ),
        (
            "Second layers: the first one lifted",
            vec![
                ("held", count.second_held, "held alone"),
                ("escaped", count.second_fell, "fell"),
                ("na", count.second_absent, "nothing there to hold"),
                ("na", count.second_unlifted, "named, with the reason why no build shows it"),
                ("na", count.second_none, "none, with the reason why"),
            ],
        ),
    ];
    out.push_str("<section class=\"groups\">\n");
    for (title, cards) in groups {
        writeln!(out, "<div class=\"group\">\n<h3>{title}</h3>\n<div class=\"cards\">").ok();
        for (class, number, what) in cards {
            let class = if number == 0 { "zero" } else { class };
            writeln!(out, "<div class=\"card {class}\"><b>{number}</b><span>{what}</span></div>").ok();
        }
        out.push_str("</div>\n</div>\n");
    }
    out.push_str("</section>\n");
}

/// Every class in one line: how much of it each column held.
fn glance(report: &Report, out: &mut String) {
    out.push_str("<table class=\"glance\">\n<thead><tr><th>class</th>");
    for column in &report.columns {
        write!(out, "<th>{}<small>{}</small></th>", column.tier, safe(&column.policy)).ok();
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for class in Class::ALL {
        let rows: Vec<_> = report.rows.iter().filter(|row| row.class == class).collect();
        if rows.is_empty() {
            continue;
        }
        write!(out, "<tr><td><a href=\"#{}\">{}</a></td>", class.as_str(), class.title()).ok();
        for place in 0..report.columns.len() {
            let cells = rows.iter().filter_map(|row| row.cells.get(place));
            bar(cells.map(kind), out);
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n");
}

/// One column of one class: a bar of the kinds of its cells, and how many of them were held or came out.
fn bar<'a>(kinds: impl Iterator<Item = &'a str>, out: &mut String) {
    let kinds: Vec<&str> = kinds.collect();
    let many = |kind: &str| kinds.iter().filter(|one| **one == kind).count();
    let (held, escaped) = (many("held"), many("escaped"));
    let text = if escaped == 0 { format!("{held} ✓") } else { format!("{escaped} ✗") };
    write!(out, "<td><span class=\"bar\">").ok();
    for kind in ["held", "escaped", "broken", "unrun", "na"] {
        let share = many(kind) * 100 / kinds.len().max(1);
        if many(kind) > 0 {
            // Never so thin that what came out is not seen.
            write!(out, "<i class=\"{kind}\" style=\"flex-grow:{}\"></i>", share.max(2)).ok();
        }
    }
    write!(out, "</span><small>{text}</small></td>").ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Verdict;

    #[test]
    fn a_cell_that_says_nothing_is_a_doubt_at_the_head() {
        let mut report = crate::report::tests::example();
        assert_eq!(verdict(&report, &report.count()).0, "good");
        let silent = crate::Cell { verdict: Verdict::CouldNotRun, ..report.rows[0].cells[0].clone() };
        report.rows[0].cells.push(silent);
        assert_eq!(
            verdict(&report, &report.count()),
            ("doubt", "!", "Nothing came out, but 1 cells prove nothing.".to_owned())
        );
    }

    #[test]
    fn a_class_in_which_something_came_out_does_not_look_as_if_it_held() {
        let told = |kinds: &[&str]| {
            let mut out = String::new();
            bar(kinds.iter().copied(), &mut out);
            out
        };
        assert!(told(&["held", "na", "held"]).ends_with("<small>2 ✓</small></td>"));
        let mut kinds = vec!["held"; 400];
        kinds.push("escaped");
        let out = told(&kinds);
        assert!(
            out.contains("escaped\" style=\"flex-grow:2\"") && out.ends_with("<small>1 ✗</small></td>"),
            "{out}"
        );
    }
}
