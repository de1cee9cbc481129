//! The only room that prints: the machine, a table for each promise, and whether it was kept.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the output room of a program that prints tables"
)]

use std::fs::File;
use std::io;
use std::path::Path;

use crate::machine::Machine;
use crate::sample::Summary;

/// Whatever keeps something from being measured. Said to whoever called, and to nobody else.
pub(crate) type Wrong = Box<dyn std::error::Error>;

/// One line of a table.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Row {
    /// What was measured.
    pub(crate) name: String,
    /// The command or the calls, so that anybody can do it again.
    pub(crate) how: String,
    /// What came out; `None`: it could not be run, and `note` says why.
    pub(crate) times: Option<Summary>,
    /// What there is to say besides.
    pub(crate) note: String,
}

/// A promise and what became of it.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Promise {
    /// The promise, in words.
    pub(crate) says: String,
    /// What was measured, in words.
    pub(crate) measured: String,
    /// Whether it was kept; `None`: it could not be seen.
    pub(crate) kept: Option<bool>,
}

/// What one benchmark has found.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Finding {
    /// Its title.
    pub(crate) title: &'static str,
    /// Its table.
    pub(crate) rows: Vec<Row>,
    /// What was promised.
    pub(crate) promises: Vec<Promise>,
}

/// Everything that was found.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Paper {
    machine: Machine,
    findings: Vec<Finding>,
}

impl Row {
    /// A line of times.
    pub(crate) fn times(name: &str, how: &str, times: Summary) -> Self {
        Self { name: name.to_owned(), how: how.to_owned(), times: Some(times), note: String::new() }
    }

    /// A line that is a sentence.
    pub(crate) fn said(name: &str, how: &str, note: String) -> Self {
        Self { name: name.to_owned(), how: how.to_owned(), times: None, note }
    }
}

impl Promise {
    /// A ratio that must not be above `most`. The fifth percentiles decide: other people's work on the machine only ever
    /// adds. That of the medians stands beside it.
    pub(crate) fn at_most(says: &str, most: f64, ours: Summary, theirs: Summary) -> Self {
        let (quiet, usual) = (ours.p5 / theirs.p5, ours.median / theirs.median);
        let measured = format!("{quiet:.2} by p5, {usual:.2} by median; at most {most}");
        Self { says: says.to_owned(), measured, kept: Some(quiet <= most) }
    }
}

impl Paper {
    /// Says what the machine is.
    pub(crate) fn begin(machine: Machine) -> Self {
        println!("blastbox-bench on {machine}");
        Self { machine, findings: Vec::new() }
    }

    /// Says what was found.
    pub(crate) fn add(&mut self, finding: Finding) {
        println!("\n{}", finding.title);
        println!("  {:<34} {:>5} {:>9} {:>9} {:>9} {:>9}", "milliseconds", "n", "p5", "median", "p95", "p99");
        for Row { name, how, times, note } in &finding.rows {
            match times {
                Some(Summary { count, p5, median, p95, p99 }) => {
                    println!("  {name:<34} {count:>5} {p5:>9.3} {median:>9.3} {p95:>9.3} {p99:>9.3}  {note}");
                }
                None => println!("  {name:<34} {note}"),
            }
            println!("      {how}");
        }
        finding.promises.iter().for_each(say);
        self.findings.push(finding);
    }

    /// Says once more what was promised.
    pub(crate) fn sum_up(&self) {
        println!("\nAll promises");
        self.findings.iter().flat_map(|finding| &finding.promises).for_each(say);
    }

    /// Keeps everything in a file.
    pub(crate) fn keep(&self, file: &Path) -> io::Result<()> {
        serde_json::to_writer_pretty(File::create(file)?, self)?;
        Ok(())
    }
}

fn say(promise: &Promise) {
    let word = match promise.kept {
        Some(true) => "kept  ",
        Some(false) => "MISSED",
        None => "unseen",
    };
    println!("  {word}  {}: {}", promise.says, promise.measured);
}

/// Says what went wrong.
pub(crate) fn complain(what: &str) {
    eprintln!("blastbox-bench: {what}");
}
