//! The matrix as text, for a terminal and for the log of a CI job.

use std::fmt::Write as _;

use crate::attempt::Class;
use crate::findings::{findings, worst};
use crate::report::{Column, ControlState, Report, Row, SecondState};

/// The colour of a sign on the page, the sign, and what it means.
type Sign = (&'static str, &'static str, &'static str);

/// What the signs mean: of a cell and its control, then of a second layer. On the page each has the colour of its kind.
#[rustfmt::skip]
pub(crate) const LEGEND: [(&str, &[Sign]); 2] = [
    ("", &[
        ("held", "✓", "held, or its control succeeded"),
        ("na", "~", "held, unproven: no control was seen to succeed"),
        ("escaped", "✗", "escaped"),
        ("broken", "!", "broken: its control failed"),
        ("unrun", "?", "could not run"),
        ("na", "–", "not applicable or not to be had"),
        ("na", "○", "nothing there: this host does not have what it goes for"),
    ]),
    ("2nd: ", &[
        ("held", "✓", "the next layer held alone"),
        ("escaped", "✗", "it fell"),
        ("na", "–", "not tried"),
        ("na", "·", "named, and no build lifts the first alone: its row says why"),
        ("na", "∅", "none: its row says why"),
    ]),
];

/// Text from elsewhere, safe to show.
pub(crate) fn plain(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

pub(crate) fn head(column: &Column) -> String {
    format!("{}/{}", column.tier, column.policy)
}

/// The sign for a control.
#[must_use]
pub fn control_sign(control: &ControlState) -> &'static str {
    match control {
        ControlState::Fired(_) => "✓",
        ControlState::Unavailable(_) => "–",
        ControlState::Absent(_) => "○",
        ControlState::Failed(_) => "!",
    }
}

/// The sign for a second layer.
#[must_use]
pub fn second_sign(second: &SecondState) -> &'static str {
    match second {
        SecondState::Held(_) => "✓",
        SecondState::Fell(_) => "✗",
        SecondState::NotTried(_) => "–",
        SecondState::Absent(_) => "○",
        SecondState::Unlifted(_) => "·",
        SecondState::Nothing(_) | SecondState::Surface(_) => "∅",
    }
}

/// The whole report.
#[must_use]
pub fn matrix(report: &Report) -> String {
    let mut out = String::new();
    let heads: Vec<String> = report.columns.iter().map(head).collect();
    let width = report.rows.iter().map(|row| row.id.len()).max().unwrap_or(0);
    let title = report.rows.iter().map(|row| row.title.chars().count().min(60)).max().unwrap_or(0);
    for class in Class::ALL {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| row.class == class).collect();
        if rows.is_empty() {
            continue;
        }
        // Writing to a string does not fail.
        writeln!(out, "{}  (docs/attacks/{})", class.title(), class.page()).ok();
        writeln!(out, "  {:width$}  {:title$}  {}  control  2nd", "", "", heads.join("  ")).ok();
        for row in rows {
            let name: String = row.title.chars().take(60).collect();
            write!(out, "  {:width$}  {name:title$}", row.id).ok();
            for (cell, head) in row.cells.iter().zip(&heads) {
                let wide = head.chars().count();
                write!(out, "  {:wide$}", cell.sign()).ok();
            }
            let (control, second) = (control_sign(&row.control), second_sign(&row.second_state));
            writeln!(out, "  {control:7}  {second}").ok();
        }
        out.push('\n');
    }
    out.push_str(&findings(report));
    summary(report, &mut out);
    out.push_str(&worst(report));
    out
}

/// Why controls cannot be had, one line for each reason.
fn unproven(report: &Report, out: &mut String) {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in &report.rows {
        let ControlState::Unavailable(why) = &row.control else { continue };
        match reasons.iter_mut().find(|(one, _)| one == why) {
            Some((_, names)) => names.push(&row.id),
            None => reasons.push((why, vec![&row.id])),
        }
    }
    for (why, names) in reasons {
        writeln!(out, "unproven       {}: {}", names.join(", "), plain(why)).ok();
    }
}

fn summary(report: &Report, out: &mut String) {
    let count = report.count();
    for column in report.columns.iter().filter(|column| !column.accepted.is_empty()) {
        let gaps = column.accepted.join(", ");
        writeln!(
            out,
            "accepted       {}: {gaps} (the tier's own; the profile itself does not accept it)",
            head(column)
        )
        .ok();
    }
    for line in &report.missing {
        writeln!(out, "not here       {}: {}", line.what, plain(&line.why)).ok();
    }
    out.push('\n');
    for (column, count) in report.columns.iter().zip(report.count_columns()) {
        writeln!(out, "{:<18} {}", head(column), count.told()).ok();
    }
    writeln!(
        out,
        "\n{} attempts in {:.1} s as {} on Linux {}: {}",
        report.rows.len(),
        report.seconds,
        report.host.caller,
        plain(&report.host.kernel),
        count.told()
    )
    .ok();
    let fired = report.rows.iter().filter(|row| matches!(row.control, ControlState::Fired(_))).count();
    writeln!(
        out,
        "controls: {fired} succeeded where they should, {} cannot be had by this caller here, {} go for what this host does not have",
        count.control_unavailable, count.control_absent
    )
    .ok();
    unproven(report, out);
    let lifted = report.rows.iter().filter(|row| row.lifted.is_some()).count();
    writeln!(
        out,
        "second layer: {} of {lifted} stopped by the next layer alone, {} fell, {} have nothing to hold on this host (builds without the first: make escape); \
         {} name one that no build shows alone, {} have none, each with its reason (--list, --json, --html)",
        count.second_held, count.second_fell, count.second_absent, count.second_unlifted, count.second_none
    )
    .ok();
    for row in report.rows.iter().filter(|row| report.test_builds.is_some() && row.lifted.is_some()) {
        if let SecondState::NotTried(why) = &row.second_state {
            writeln!(out, "2nd not tried  {}: {}", row.id, plain(why)).ok();
        }
    }
    for why in report.test_builds.iter().flat_map(|builds| &builds.unusable) {
        writeln!(out, "not shown: {}", plain(why)).ok();
    }
    if let Some(program) = &report.program {
        writeln!(out, "program: {} says {}", plain(&program.path), plain(&program.says)).ok();
    }
    writeln!(out, "{}", report.signed()).ok();
    for share in &report.trusted_core {
        let (part, lines, crates) = (&share.part, share.lines, share.crates);
        writeln!(out, "trusted core: {part} {lines} lines, {crates} crates of others").ok();
    }
    if let Some(fuzzed) = report.fuzzed {
        writeln!(out, "fuzzed: {}", fuzzed.told()).ok();
    }
    for (what, signs) in LEGEND {
        let signs: Vec<String> = signs.iter().map(|(_, sign, word)| format!("{sign} {word}")).collect();
        writeln!(out, "{what}{}", signs.join("   ")).ok();
    }
}
