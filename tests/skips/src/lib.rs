//! Tests that cannot run on this host say so, where `cargo xtask test` finds and counts it: libtest swallows what a passing
//! test prints. Lines go to the file that `BLASTBOX_SKIPS` names.
#![expect(clippy::expect_used, reason = "only tests; a skip that cannot be written down must fail at once")]

use std::fs::OpenOptions;
use std::io::Write as _;
use std::panic::Location;

/// Reports that the test `name` cannot run here. The test then returns.
pub fn skip(name: &str, reason: &str) {
    write(&format!("SKIPPED: {}: {reason}", whole(name)));
}

/// The same for the test that runs on this thread, by libtest's name for it.
#[track_caller]
pub fn skip_this(reason: &str) {
    let thread = std::thread::current();
    // With a single thread libtest runs tests on its own, which has not their name.
    match thread.name().filter(|name| *name != "main") {
        Some(name) => skip(name, reason),
        None => skip(&Location::caller().to_string(), reason),
    }
}

/// Reports that the test `name` runs here without one of its parts, which counts as skipped beside it.
pub fn left_out(name: &str, part: &str, reason: &str) {
    write(&format!("LEFT OUT: {}: {part}: {reason}", whole(name)));
}

/// The name with that of the test program in front, less what cargo appends to it: tests of two programs may have one name.
fn whole(name: &str) -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let program = stem.rsplit_once('-').map_or(&*stem, |(program, _)| program);
    match name.strip_prefix(program) {
        Some(rest) if rest.starts_with("::") => name.to_owned(),
        _ => format!("{program}::{name}"),
    }
}

#[expect(clippy::print_stderr, reason = "whoever runs a single test by hand sees it too")]
fn write(line: &str) {
    let line = format!("{}\n", line.replace('\n', " "));
    eprint!("{line}");
    let Some(file) = std::env::var_os("BLASTBOX_SKIPS") else { return };
    // One write in append mode: lines of tests that run at the same time do not mix.
    let opened = OpenOptions::new().create(true).append(true).open(&file);
    let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
    written.expect("the file of skips cannot be written, and a skip must not pass silently");
}
