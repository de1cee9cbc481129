//! Tests that cannot run on this host say so, where `cargo xtask test` finds and counts it.

use std::fs::OpenOptions;
use std::io::Write as _;

/// Reports that the test `name` cannot run here. The test then returns; `BLASTBOX_SKIPS` names the file of reports.
#[expect(clippy::print_stderr, reason = "whoever runs a single test by hand sees it too")]
pub fn skip(name: &str, reason: &str) {
    let line = format!("SKIPPED: {name}: {reason}\n");
    eprint!("{line}");
    let Some(file) = std::env::var_os("BLASTBOX_SKIPS") else { return };
    // One write in append mode: lines of tests that run at the same time do not mix.
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&file)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    written.expect("the file of skips cannot be written, and a skip must not pass silently");
}
