//! What a report is about: the program that was put to the proof, where it ran, and what it is made of.

use std::path::Path;

use serde::Serialize;

use crate::ask::words;
use crate::process::{Input, Kind, Start, start};
use crate::stop::Stop;

/// No program takes longer to say who it is, and none has more to say.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(10);
const MOST: usize = 200;

/// What it ran on.
#[derive(Debug, Clone, Serialize)]
pub struct Host {
    /// Kernel release.
    pub kernel: String,
    /// Processor architecture.
    pub architecture: &'static str,
    /// `root` or `user`.
    pub caller: &'static str,
}

/// A program that is not the one that wrote the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Named {
    /// Its path, as it was named.
    pub path: String,
    /// What it says when it is asked for its version: its own words, which nobody has checked.
    pub says: String,
}

impl Named {
    /// Asks a program who it is.
    pub(crate) fn ask(program: &Path, tether: &Path, stop: &Stop) -> std::io::Result<Self> {
        let (arguments, variables) = (words(["--version"]).collect(), Vec::new());
        let what = Start {
            tether,
            kind: Kind::Blastbox,
            program,
            arguments,
            variables,
            input: Input::Text(""),
            stop,
        };
        let ended = start(what, LIMIT)?.end()?;
        let says = ended.stdout.lines().next().unwrap_or_default().chars().take(MOST).collect();
        Ok(Self { path: program.display().to_string(), says })
    }
}

/// The test builds that were named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Builds {
    /// Those that an attempt needs and that are missing, or do not say themselves what they lack; one line each.
    pub unusable: Vec<String>,
}

/// One part of the trusted core.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CoreShare {
    /// The crate.
    pub part: String,
    /// Lines of code without blanks, comments and tests.
    pub lines: u32,
    /// Crates of others that it links.
    pub crates: u32,
}

/// Parsers of foreign bytes that have a fuzz target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Fuzzed {
    /// Fuzz targets.
    pub targets: u32,
    /// Committed seeds of all of them.
    pub seeds: u32,
}

impl Fuzzed {
    /// In a line. A campaign runs none of them.
    #[must_use]
    pub fn told(self) -> String {
        let Self { targets, seeds } = self;
        format!(
            "{targets} parsers of foreign bytes with {seeds} committed seeds; `make fuzz` runs each for 60 s"
        )
    }
}
