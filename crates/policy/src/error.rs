//! Why a policy could not be read or sealed. All of it is for the person who wrote the policy.

use std::fmt;

use crate::words::{did_you_mean, one_of};
use crate::{BadAmount, BadBinding, BadGuest, BadRule, Gap, ThreatLevel, Tier, UnknownWord, Workspace};

/// A place in a policy text; both numbers start at 1, columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The character in the line.
    pub column: usize,
}

impl Place {
    /// The place of a byte of this text.
    pub(crate) fn in_text(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line = before.rsplit('\n').next().unwrap_or(before);
        Self { line: before.matches('\n').count() + 1, column: line.chars().count() + 1 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Why a policy could not be read or sealed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The text is longer than any honest policy.
    #[error("the policy has {length} bytes; at most {most} are read")]
    TooLong {
        /// Bytes given.
        length: usize,
        /// Bytes permitted.
        most: usize,
    },
    /// The text is not TOML.
    #[error("{at}: {problem}")]
    Syntax {
        /// Where.
        at: Place,
        /// What the TOML parser says.
        problem: String,
    },
    /// A key or section that no policy has.
    #[error("{at}: unknown key {key:?} {section}{}", hint(*nearest, valid))]
    UnknownKey {
        /// Where.
        at: Place,
        /// The key as written.
        key: String,
        /// The section it stands in.
        section: Section,
        /// The key that was probably meant.
        nearest: Option<&'static str>,
        /// Every key that the section knows.
        valid: Vec<&'static str>,
    },
    /// A word that the key does not know.
    #[error("{at}: {key}: {problem}")]
    UnknownWord {
        /// Where.
        at: Place,
        /// The key, with its section.
        key: &'static str,
        /// The word, the valid ones and the nearest.
        problem: UnknownWord,
    },
    /// A value of another kind than the key takes.
    #[error("{at}: {key}: expected {expected}, found {found}")]
    WrongKind {
        /// Where.
        at: Place,
        /// The key, with its section.
        key: &'static str,
        /// The kind that the key takes.
        expected: &'static str,
        /// The kind that was found.
        found: &'static str,
    },
    /// An amount that cannot be read.
    #[error("{at}: {key}: {problem}")]
    BadAmount {
        /// Where.
        at: Place,
        /// The key, with its section.
        key: &'static str,
        /// What is wrong with it.
        problem: BadAmount,
    },
    /// Text that is no guest's name.
    #[error("{at}: {key}: {problem}")]
    BadGuest {
        /// Where.
        at: Place,
        /// The key, with its section.
        key: &'static str,
        /// What is wrong with it.
        problem: BadGuest,
    },
    /// A rule of the network section that means nothing, or too much.
    #[error("{at}: {key}: {problem}")]
    BadRule {
        /// Where.
        at: Place,
        /// The key, with its section.
        key: &'static str,
        /// What is wrong with it.
        problem: BadRule,
    },
    /// A binding of the credentials section that means nothing, or too much.
    #[error("{at}: {key}: {problem}")]
    BadBinding {
        /// Where.
        at: Place,
        /// The key, with its section.
        key: &'static str,
        /// What is wrong with it.
        problem: BadBinding,
    },
    /// Bindings that do not fit together, or not with the rules of the network.
    #[error("credentials.bind: {0}")]
    Credentials(BadBinding),
    /// Rules of the network section that do not fit together.
    #[error("network.allow: {0}")]
    Network(BadRule),
    /// What is wrong only beside the rest of the policy, and where in the text it stands.
    #[error("{at}: {problem}")]
    At {
        /// Where.
        at: Place,
        /// What is wrong there.
        problem: Box<PolicyError>,
    },
    /// A limit that no box can have.
    #[error("{key} = {value} is out of range; permitted is {least} to {most}")]
    OutOfRange {
        /// The key, with its section.
        key: &'static str,
        /// The value as it would be written.
        value: String,
        /// The least permitted value.
        least: String,
        /// The largest permitted value.
        most: String,
    },
    /// A tier that is too weak for the level.
    #[error("kernel.tier = {tier} is not permitted at threat level {level}; permitted is {}", tiers_at(*level))]
    TierNotAtLevel {
        /// The tier.
        tier: Tier,
        /// The level.
        level: ThreatLevel,
    },
    /// A workspace that shows host files at a level that forbids it.
    #[error(
        "files.workspace = {workspace} is not permitted at threat level {level}, which shows no host files; \
         permitted is {}",
        workspaces_at(*level)
    )]
    WorkspaceNotAtLevel {
        /// The workspace.
        workspace: Workspace,
        /// The level.
        level: ThreatLevel,
    },
    /// A network without a boundary at a level that forbids it.
    #[error(
        "network.mode = \"dangerously-open\" is not permitted at threat level {level}; write mode = \"allow\" and name hosts"
    )]
    OpenNotAtLevel {
        /// The level.
        level: ThreatLevel,
    },
    /// Root of the box at a level that forbids it.
    #[error("kernel.root = \"allowed\" is not permitted at threat level {level}; write root = \"none\"")]
    RootNotAtLevel {
        /// The level.
        level: ThreatLevel,
    },
    /// A gap that no policy of this level may accept.
    #[error("accept: gap {gap} cannot be accepted at threat level {level}; {}", gap.fix())]
    GapNotAtLevel {
        /// The gap.
        gap: Gap,
        /// The level.
        level: ThreatLevel,
    },
}

impl PolicyError {
    /// What is wrong, without where.
    #[must_use]
    pub fn problem(&self) -> &Self {
        match self {
            Self::At { problem, .. } => problem,
            _ => self,
        }
    }
}

/// Where in a policy a key stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// Before the first section.
    Top,
    /// In the section of this name.
    Named(&'static str),
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Top => f.write_str("at the top level"),
            Self::Named(name) => write!(f, "in [{name}]"),
        }
    }
}

/// The key that was probably meant, or else all of them.
fn hint(nearest: Option<&str>, valid: &[&'static str]) -> String {
    match nearest {
        Some(_) => did_you_mean(nearest),
        None => format!("; expected {}", one_of(valid)),
    }
}

fn tiers_at(level: ThreatLevel) -> String {
    let permitted: Vec<&str> =
        Tier::ALL.iter().filter(|tier| tier.allowed_at(level)).map(Tier::as_str).collect();
    permitted.join(", ")
}

fn workspaces_at(level: ThreatLevel) -> String {
    let permitted = Workspace::ALL.iter().filter(|workspace| workspace.allowed_at(level));
    permitted.map(Workspace::as_str).collect::<Vec<&str>>().join(", ")
}
