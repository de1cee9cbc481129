//! The matrix as text, for a terminal and for the log of a CI job.

use std::fmt::Write as _;

use crate::attempt::Class;
use crate::count::Count;
use crate::report::{Column, ControlState, Report, Row, SecondState, Verdict};

/// Text from elsewhere, safe to show.
fn plain(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

fn head(column: &Column) -> String {
    format!("{}/{}", column.tier, column.policy)
}

/// The sign for a control.
#[must_use]
pub fn control_sign(control: &ControlState) -> &'static str {
    match control {
        ControlState::Fired(_) => "✓",
        ControlState::Unavailable(_) => "–",
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
        SecondState::Named => "·",
        SecondState::Surface => "∅",
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
    findings(report, &mut out);
    summary(report, &mut out);
    out
}

/// Every cell that is not held, with its evidence.
fn findings(report: &Report, out: &mut String) {
    for row in &report.rows {
        for (cell, column) in row.cells.iter().zip(&report.columns) {
            if cell.verdict == Verdict::Held {
                continue;
            }
            let (word, place) = (cell.verdict.as_str(), head(column));
            writeln!(out, "{word:<14} {}  {place}: {}", row.id, plain(&cell.evidence)).ok();
        }
        if let SecondState::Fell(evidence) = &row.second_state {
            writeln!(out, "{:<14} {}  {}", "2nd fell", row.id, plain(evidence)).ok();
        }
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
        let Count { held, held_unproven, escaped, broken, could_not_run, not_applicable, .. } = count;
        writeln!(
            out,
            "{:<18} {held} held ({held_unproven} unproven), {escaped} escaped, {broken} broken, {could_not_run} could not run, {not_applicable} not applicable",
            head(column)
        )
        .ok();
    }
    writeln!(
        out,
        "\n{} attempts in {:.1} s as {} on Linux {}: {} held ({} of them unproven: no control was seen to succeed), {} escaped, {} broken, {} could not run, {} not applicable",
        report.rows.len(),
        report.seconds,
        report.host.caller,
        plain(&report.host.kernel),
        count.held,
        count.held_unproven,
        count.escaped,
        count.broken,
        count.could_not_run,
        count.not_applicable
    )
    .ok();
    let fired = report.rows.iter().filter(|row| matches!(row.control, ControlState::Fired(_))).count();
    writeln!(
        out,
        "controls: {fired} succeeded where they should, {} cannot be had by this caller here",
        count.control_unavailable
    )
    .ok();
    let proven = report.rows.iter().filter(|row| row.lifted.is_some()).count();
    writeln!(
        out,
        "second layer: {} of {proven} stopped by the next layer alone, {} fell (a build without the first layer: make escape)",
        count.second_held, count.second_fell
    )
    .ok();
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
    out.push_str(
        "✓ held   ~ held, unproven: no control was seen to succeed   ✗ escaped   ! broken: its control failed   ? could not run   \
         – not applicable or not to be had\n2nd: · named, not lifted   ∅ none of its own: what is gained is surface\n",
    );
}
