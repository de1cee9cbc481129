//! What callers may ask for, as it stands in a body. Closed: a field that nobody knows is refused, because a misspelt
//! limit must never be silently off.

mod amount;
mod command;
mod new_box;

use serde::{Deserialize, Serialize};

pub use blastbox_policy::Seconds;
pub use command::{NewExec, StdinFrom, TerminalSize};
pub use new_box::{Forks, Limits, NewBox, WorkspaceAsk, WorkspaceUse};

pub(crate) use amount::optional as optional_amount;
pub(crate) use command::Checked;
pub(crate) use new_box::{checked_life, may_begin_again, open_stored, within};

/// `POST /v1/run`: a box, one command in it, and everything that it printed.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The box.
    #[serde(default, rename = "box")]
    pub new_box: NewBox,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Variables beside the few that every command has.
    #[serde(default)]
    pub env: std::collections::BTreeMap<String, String>,
    /// Where it starts.
    #[serde(default)]
    pub cwd: Option<String>,
    /// What it reads, in base64.
    #[serde(default)]
    pub stdin_base64: Option<String>,
}

/// `POST /v1/boxes/{id}/deadline`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deadline {
    /// How long the box may live from now on.
    #[serde(deserialize_with = "amount::required")]
    pub life: Seconds,
}

/// `POST /v1/boxes/{id}/network`.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleChanges {
    /// What may be reached from now on, as `HOST[:PORT]`.
    #[serde(default)]
    pub allow: Vec<String>,
    /// Which rules go, as `HOST[:PORT]`.
    #[serde(default)]
    pub deny: Vec<String>,
}

/// `POST /v1/boxes/{id}/execs/{exec}/signal`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signal {
    /// Its number, 1 to 64.
    pub signal: u8,
}

#[cfg(test)]
mod tests;
