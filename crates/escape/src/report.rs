//! What a campaign found, as data: what `--json` prints and what the pages are made from.

use blastbox_policy::Tier;
use serde::Serialize;

use crate::attempt::{Attempt, Class, Issue};
use crate::layer::{Layer, Second};
use crate::subject::{Builds, CoreShare, Fuzzed, Host, Named};

/// Version of the document.
pub const VERSION: u32 = 1;

/// What became of one attempt in one column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It was stopped. Where the row's control fired, the same attempt succeeds without what stopped it; where it has none,
    /// or none that can be had here, that is not shown: [`Count::held_unproven`].
    Held,
    /// It succeeded.
    Escaped,
    /// It means nothing here, for the reason given.
    NotApplicable,
    /// It was refused, but what it goes for is not there on this host, in a box or out of one: nothing was held.
    Absent,
    /// It did not come to an end that says anything.
    CouldNotRun,
    /// It was stopped, but so was its control: the cell proves nothing.
    Broken,
}

impl Verdict {
    /// Every verdict, worst first.
    pub const ALL: [Self; 6] =
        [Self::Escaped, Self::Broken, Self::CouldNotRun, Self::NotApplicable, Self::Absent, Self::Held];

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Escaped => "ESCAPED",
            Self::NotApplicable => "not applicable",
            Self::Absent => "nothing there",
            Self::CouldNotRun => "could not run",
            Self::Broken => "BROKEN",
        }
    }

    /// The sign for it.
    #[must_use]
    pub fn sign(self) -> &'static str {
        match self {
            Self::Held => "✓",
            Self::Escaped => "✗",
            Self::NotApplicable => "–",
            Self::Absent => "○",
            Self::CouldNotRun => "?",
            Self::Broken => "!",
        }
    }
}

/// What became of the positive control.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state", content = "evidence")]
pub enum ControlState {
    /// The attempt succeeded there.
    Fired(String),
    /// This caller cannot do it here, for this reason.
    Unavailable(String),
    /// Nobody can: this host has no such thing.
    Absent(String),
    /// It did not succeed there either.
    Failed(String),
}

/// Whether the next layer holds alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state", content = "evidence")]
pub enum SecondState {
    /// The first layer was lifted, and the attempt was stopped nevertheless.
    Held(String),
    /// The first layer was lifted, and the attempt succeeded.
    Fell(String),
    /// There was no test build without the first layer, or it could not say.
    NotTried(String),
    /// This host has no such thing for it to hold.
    Absent(String),
    /// No build lifts the first control alone, for this reason.
    Unlifted(String),
    /// Nothing is behind it, for this reason.
    Nothing(String),
    /// Nothing is behind it but the kernel: what is gained is surface, not authority, for this reason.
    Surface(String),
}

/// One cell.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// The verdict.
    pub verdict: Verdict,
    /// What says so.
    pub evidence: String,
    /// System calls that the receipt names as denied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<String>,
    /// How long it took.
    pub millis: u64,
    /// Whether the same attempt was seen to succeed without what stopped it here: its control fired.
    pub proven: bool,
}

impl Cell {
    /// One that nothing is proven about yet.
    #[must_use]
    pub fn new(verdict: Verdict, evidence: String) -> Self {
        Self { verdict, evidence, denied: Vec::new(), millis: 0, proven: false }
    }

    /// Held, but nobody has seen it succeed anywhere.
    #[must_use]
    pub fn is_unproven(&self) -> bool {
        self.verdict == Verdict::Held && !self.proven
    }

    /// The sign for it.
    #[must_use]
    pub fn sign(&self) -> &'static str {
        if self.is_unproven() { "~" } else { self.verdict.sign() }
    }

    /// The word for it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        if self.is_unproven() { "held, unproven" } else { self.verdict.as_str() }
    }
}

/// One attempt and what became of it everywhere.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Its name.
    pub id: String,
    /// Its class.
    pub class: Class,
    /// What it tries.
    pub title: &'static str,
    /// Which boundary has to hold.
    pub boundary: &'static str,
    /// What a success would be called.
    pub issue: Issue,
    /// What it stands for.
    pub stands_for: &'static str,
    /// What a success looks like.
    pub success: &'static str,
    /// What stops it first.
    pub first: &'static str,
    /// What holds if that falls.
    pub second: &'static str,
    /// The layer that was lifted to prove it.
    pub lifted: Option<Layer>,
    /// Whether that was proven.
    pub second_state: SecondState,
    /// Its positive control.
    pub control: ControlState,
    /// One per column.
    pub cells: Vec<Cell>,
}

impl Row {
    /// What an attempt says about itself, and these cells; nothing about its control and its second layer yet.
    #[must_use]
    pub fn of(attempt: &Attempt, cells: Vec<Cell>) -> Self {
        let second_state = match attempt.second {
            Second::Behind(..) | Second::BehindUnless(..) => SecondState::NotTried(String::new()),
            Second::Unlifted(_, why) => SecondState::Unlifted(why.to_owned()),
            Second::Nothing(why) => SecondState::Nothing(why.to_owned()),
            Second::Surface(why) => SecondState::Surface(why.to_owned()),
        };
        Self {
            id: attempt.id(),
            class: attempt.class,
            title: attempt.title,
            boundary: attempt.boundary.as_str(),
            issue: attempt.issue,
            stands_for: attempt.stands_for,
            success: attempt.success(),
            first: attempt.first,
            second: attempt.second.control(),
            lifted: attempt.second.layer(),
            second_state,
            control: ControlState::Unavailable("it is tried in no column".to_owned()),
            cells,
        }
    }
}

/// Where attempts ran.
#[derive(Debug, Clone, Serialize)]
pub struct Column {
    /// The tier.
    pub tier: Tier,
    /// Profile or policy file.
    pub policy: String,
    /// The digest of the policy, as a receipt said it.
    pub digest: String,
    /// Gaps that this host has there.
    pub gaps: Vec<String>,
    /// Those that the policy does not accept, and the campaign did, to have the column at all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accepted: Vec<String>,
}

/// A column that this host does not have.
#[derive(Debug, Clone, Serialize)]
pub struct Missing {
    /// Tier and policy.
    pub what: String,
    /// Why.
    pub why: String,
}

/// Everything.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Always [`VERSION`].
    pub version: u32,
    /// The version of blastbox that was put to the proof; what it says itself, where it is another one than wrote the report.
    pub blastbox: String,
    /// That other one.
    pub program: Option<Named>,
    /// When it began: RFC 3339, UTC.
    pub started_at: String,
    /// How long it took.
    pub seconds: f64,
    /// Kernel and caller.
    pub host: Host,
    /// Where attempts ran.
    pub columns: Vec<Column>,
    /// What this host does not have.
    pub missing: Vec<Missing>,
    /// The attempts.
    pub rows: Vec<Row>,
    /// The test builds that were to show second layers and an agent that lies, if any were named.
    pub test_builds: Option<Builds>,
    /// Size of the trusted core of this build, where the build measured it and it is the one that was put to the proof.
    pub trusted_core: Vec<CoreShare>,
    /// What the checkout of this build fuzzes, in the same way.
    pub fuzzed: Option<Fuzzed>,
    /// Whose word this is; absent where nobody signed it.
    pub seal: Option<Seal>,
}

/// A signature under everything else in the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Seal {
    /// SHA-256 of the report as JSON with `seal` null, without spaces and with the keys of each object in order.
    pub digest: String,
    /// The public half of the ledger's key.
    pub key: String,
    /// The signature.
    pub signature: String,
    /// The ledger in which it is recorded.
    pub ledger: String,
    /// The record's number there.
    pub record: u64,
}

impl Report {
    /// Whose word it is, in a line.
    #[must_use]
    pub fn signed(&self) -> String {
        match &self.seal {
            Some(Seal { digest, key, signature: _, ledger, record }) => {
                format!("signed: {digest} · {key} · record {record} of ledger {ledger}")
            }
            None => "unsigned: nobody has put a key under this report (--state-dir)".to_owned(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A report with one cell.
    pub(crate) fn example() -> Report {
        let cell = Cell { proven: true, ..Cell::new(Verdict::Held, "<b>bold".to_owned()) };
        let row = Row {
            id: "kernel.x".to_owned(),
            class: Class::Kernel,
            title: "x",
            boundary: "kernel",
            issue: Issue::Escape,
            stands_for: "x",
            success: "x",
            first: "x",
            second: "x",
            lifted: None,
            second_state: SecondState::Nothing("x".to_owned()),
            control: ControlState::Fired("x".to_owned()),
            cells: vec![cell],
        };
        let column = Column {
            tier: Tier::Jail,
            policy: "default".to_owned(),
            digest: String::new(),
            gaps: vec![],
            accepted: vec![],
        };
        Report {
            version: VERSION,
            blastbox: String::new(),
            program: None,
            started_at: String::new(),
            seconds: 1.0,
            host: Host { kernel: "6".to_owned(), architecture: "x86_64", caller: "root" },
            columns: vec![column],
            missing: Vec::new(),
            rows: vec![row],
            test_builds: None,
            trusted_core: Vec::new(),
            fuzzed: Some(Fuzzed { targets: 19, seeds: 180 }),
            seal: None,
        }
    }
}
