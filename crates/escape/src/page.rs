//! The report as one page: no script, no font, nothing from anywhere else. Everything that is not ours is escaped.

use std::fmt::Write as _;

use crate::attempt::Class;
use crate::embedded::safe;
use crate::foot::foot;
use crate::head::head;
use crate::report::{Cell, ControlState, Report, Row, SecondState, Verdict};

const STYLE: &str = include_str!("page.css");

/// The colour of a cell.
pub(crate) fn kind(cell: &Cell) -> &'static str {
    match cell.verdict {
        Verdict::Held if cell.is_unproven() => "na",
        Verdict::Held => "held",
        Verdict::Escaped => "escaped",
        Verdict::NotApplicable | Verdict::Absent => "na",
        Verdict::CouldNotRun => "unrun",
        Verdict::Broken => "broken",
    }
}

/// The page.
#[must_use]
pub fn page(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>blastbox escape</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    )
    .ok();
    head(report, &mut out);
    for class in Class::ALL {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| row.class == class).collect();
        if !rows.is_empty() {
            section(report, class, &rows, &mut out);
        }
    }
    foot(report, &mut out);
    for class in Class::ALL.into_iter().filter(|class| report.rows.iter().any(|row| row.class == *class)) {
        about(class, &mut out);
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

/// The page of a class as it was when this program was built, so that whoever keeps the report has it.
fn about(class: Class, out: &mut String) {
    writeln!(out, "<section id=\"about-{}\">", class.as_str()).ok();
    for (name, text) in class.pages() {
        let text = text.lines().map(safe).collect::<Vec<_>>().join("\n");
        writeln!(out, "<h2 id=\"{name}\">docs/attacks/{name}</h2>\n<pre>{text}</pre>").ok();
    }
    out.push_str("</section>\n");
}

fn section(report: &Report, class: Class, rows: &[&Row], out: &mut String) {
    writeln!(
        out,
        "<section>\n<h2 id=\"{}\">{}</h2>\n<p class=\"page\">read: {}</p>\n<table>\n<thead><tr><th>attempt</th>",
        class.as_str(),
        class.title(),
        class
            .pages()
            .iter()
            .map(|(name, _)| format!("<a href=\"#{name}\">docs/attacks/{name}</a>"))
            .collect::<Vec<_>>()
            .join(", ")
    )
    .ok();
    for column in &report.columns {
        writeln!(out, "<th>{}<small>{}</small></th>", column.tier, safe(&column.policy)).ok();
    }
    out.push_str("<th>control</th><th>2nd layer</th></tr></thead>\n<tbody>\n");
    for row in rows {
        line(report, row, out);
    }
    out.push_str("</tbody>\n</table>\n</section>\n");
}

fn line(report: &Report, row: &Row, out: &mut String) {
    write!(
        out,
        "<tr><td><details><summary>{} <code>{}</code></summary><dl><dt>stands for</dt><dd>{}</dd><dt>success would be</dt><dd>{} ({:?})</dd>\
         <dt>stopped by</dt><dd>{}</dd><dt>then by</dt><dd>{}</dd>",
        safe(row.title),
        safe(&row.id),
        safe(row.stands_for),
        safe(row.success),
        row.issue,
        safe(row.first),
        safe(row.second)
    )
    .ok();
    for (cell, column) in row.cells.iter().zip(&report.columns) {
        let denied = if cell.denied.is_empty() {
            String::new()
        } else {
            format!(" · denied in the receipt: {}", cell.denied.join(", "))
        };
        write!(
            out,
            "<dt>{}/{}: {} ({} ms)</dt><dd>{}{}</dd>",
            column.tier,
            safe(&column.policy),
            cell.word(),
            cell.millis,
            safe(&cell.evidence),
            safe(&denied)
        )
        .ok();
    }
    let (control, control_text) = match &row.control {
        ControlState::Fired(text) => ("held", format!("succeeded where it should: {text}")),
        ControlState::Unavailable(text) => ("na", format!("not to be had here: {text}")),
        ControlState::Absent(text) => ("na", format!("nothing there: {text}")),
        ControlState::Failed(text) => ("broken", format!("failed: {text}")),
    };
    let (second, second_text) = match &row.second_state {
        SecondState::Held(text) => ("held", format!("first layer lifted, held: {text}")),
        SecondState::Fell(text) => ("escaped", format!("first layer lifted, fell: {text}")),
        SecondState::NotTried(text) => ("na", format!("not tried: {text}")),
        SecondState::Absent(text) => ("na", format!("nothing there to hold: {text}")),
        SecondState::Unlifted(text) => ("na", format!("not shown: {text}")),
        SecondState::Nothing(text) => ("na", format!("none: {text}")),
        SecondState::Surface(text) => ("na", format!("none, what is gained is surface: {text}")),
    };
    write!(
        out,
        "<dt>control</dt><dd>{}</dd><dt>2nd layer</dt><dd>{}</dd></dl></details></td>",
        safe(&control_text),
        safe(&second_text)
    )
    .ok();
    for cell in &row.cells {
        write!(
            out,
            "<td class=\"cell {}\" title=\"{}\">{}</td>",
            kind(cell),
            safe(&cell.evidence),
            cell.sign()
        )
        .ok();
    }
    let signs = [
        (control, crate::text::control_sign(&row.control), control_text),
        (second, crate::text::second_sign(&row.second_state), second_text),
    ];
    for (class, sign, text) in signs {
        write!(out, "<td class=\"cell {class}\" title=\"{}\">{sign}</td>", safe(&text)).ok();
    }
    out.push_str("</tr>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_asks_nobody_for_anything() {
        let page = page(&crate::report::tests::example());
        for word in ["<script", "http://", "https://", "<link", "<img", "url(", "@import", "<b>bold"] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.contains("&lt;b&gt;bold"), "evidence is shown, escaped");
        assert!(page.contains("default-src 'none'"));
        assert!(page.contains("19 parsers of foreign bytes"));
        assert!(
            page.contains("href=\"#terminal.md\"") && page.contains("id=\"terminal.md\""),
            "the pages of its class are in it"
        );
    }
}
