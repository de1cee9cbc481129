//! The foot of the page: where attempts ran, what blastbox is made of, and whose word the report is.

use std::fmt::Write as _;

use crate::embedded::{embed, safe};
use crate::report::Report;
use crate::subject::Named;

/// The foot.
pub(crate) fn foot(report: &Report, out: &mut String) {
    out.push_str("<section>\n<h2>Where</h2>\n<table class=\"plain\">\n");
    for (column, count) in report.columns.iter().zip(report.count_columns()) {
        let mut gaps = if column.gaps.is_empty() { "none".to_owned() } else { column.gaps.join(", ") };
        if !column.accepted.is_empty() {
            // Writing to a string does not fail.
            write!(gaps, "; accepted for this campaign alone: {}", column.accepted.join(", ")).ok();
        }
        writeln!(
            out,
            "<tr><td>{}/{}</td><td>{}</td>\
             <td><code>{}</code></td><td>gaps: {}</td></tr>",
            column.tier,
            safe(&column.policy),
            count.told(),
            safe(&column.digest),
            safe(&gaps)
        )
        .ok();
    }
    for line in &report.missing {
        writeln!(
            out,
            "<tr><td>{}</td><td colspan=\"3\">not here: {}</td></tr>",
            safe(&line.what),
            safe(&line.why)
        )
        .ok();
    }
    for why in report.test_builds.iter().flat_map(|builds| &builds.unusable) {
        writeln!(out, "<tr><td>test builds</td><td colspan=\"3\">not shown: {}</td></tr>", safe(why)).ok();
    }
    if let Some(Named { path, says }) = &report.program {
        let (path, says) = (safe(path), safe(says));
        writeln!(out, "<tr><td>program</td><td colspan=\"3\"><code>{path}</code> says {says}</td></tr>").ok();
    }
    out.push_str("</table>\n<h2>Trusted core</h2>\n");
    if report.program.is_some() {
        out.push_str("<p>Not known of a program that was named.</p>\n");
    } else if report.trusted_core.is_empty() {
        out.push_str("<p>This build did not measure it: <code>cargo xtask tcb</code> does.</p>\n");
    } else {
        out.push_str("<table class=\"plain\">\n");
        for share in &report.trusted_core {
            let (part, lines, crates) = (safe(&share.part), share.lines, share.crates);
            writeln!(
                out,
                "<tr><td>{part}</td><td>{lines} lines of code</td><td>{crates} crates of others</td></tr>"
            )
            .ok();
        }
        out.push_str("</table>\n");
    }
    let fuzzed = report.fuzzed.map_or_else(
        || "This build did not count its fuzz targets.".to_owned(),
        |fuzzed| format!("{}. This report did not run them.", fuzzed.told()),
    );
    writeln!(out, "<h2>Fuzzing</h2>\n<p>{}</p>", safe(&fuzzed)).ok();
    writeln!(out, "<h2>Signature</h2>\n<p><code>{}</code></p>", safe(&report.signed())).ok();
    if let Some(seal) = &report.seal {
        writeln!(out, "<p><code>{}</code></p>", safe(&seal.signature)).ok();
    }
    out.push_str(&embed(report));
    out.push_str("</section>\n");
}
