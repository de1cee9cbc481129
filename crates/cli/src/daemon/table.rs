//! Tables for people, and what the daemon's cards look like from here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::output::plain;

/// A box, as far as it is printed.
#[derive(Debug, Deserialize)]
pub(crate) struct BoxView {
    pub(crate) id: String,
    pub(crate) tenant: String,
    pub(crate) phase: String,
    pub(crate) tier: String,
    pub(crate) level: String,
    pub(crate) policy: String,
    pub(crate) image: String,
    pub(crate) gaps: Vec<String>,
    pub(crate) created_at: String,
    pub(crate) ends_at: String,
    pub(crate) idle_seconds: u64,
    pub(crate) on_timeout: String,
    /// Older daemons have none there.
    #[serde(default)]
    pub(crate) on_disk: bool,
    pub(crate) warm: bool,
    pub(crate) metadata: BTreeMap<String, String>,
}

impl BoxView {
    /// Where it is in its life, for people.
    pub(crate) fn phase(&self) -> String {
        if self.on_disk { format!("{}, on disk", plain(&self.phase)) } else { plain(&self.phase) }
    }
}

/// A command, as far as it is printed.
#[derive(Debug, Deserialize)]
pub(crate) struct ExecView {
    pub(crate) exec: u32,
    pub(crate) command: Vec<String>,
    pub(crate) started_at: String,
    pub(crate) terminal: bool,
    pub(crate) ended: Option<EndedView>,
}

/// How a command ended.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", tag = "how")]
pub(crate) enum EndedView {
    Exited { code: u8 },
    Signalled { signal: u8 },
    FuelSpent { fuel: u64 },
    NotStarted { code: String, message: String },
    BoxEnded { code: String, message: String },
}

/// The same as the last event of a command tells it.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(crate) struct EndView {
    #[serde(flatten)]
    pub(crate) how: EndedView,
    /// Its own time was over. Older daemons do not say it.
    #[serde(default)]
    pub(crate) timed_out: bool,
}

impl EndedView {
    /// In a few words.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Exited { code } => format!("exited {code}"),
            Self::Signalled { signal } => format!("signal {signal}"),
            Self::FuelSpent { .. } => "fuel spent".to_owned(),
            Self::NotStarted { code, .. } | Self::BoxEnded { code, .. } => plain(code),
        }
    }
}

/// A table, with columns as wide as they need to be.
pub(crate) fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(heads.get(column).map(|head| head.len())).max().unwrap_or(0)
    };
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().enumerate().map(|(column, cell)| format!("{cell:<0$}", width(column)));
        format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    let mut text = line(heads.to_vec());
    for row in rows {
        text.push_str(&line(row.iter().map(String::as_str).collect()));
    }
    text
}

/// A moment without its fraction: `2026-01-31 12:00:00Z`.
pub(crate) fn moment(rfc3339: &str) -> String {
    let whole = rfc3339.split('.').next().unwrap_or(rfc3339).trim_end_matches('Z');
    format!("{}Z", plain(whole).replacen('T', " ", 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_need_to_be() {
        let rows =
            vec![vec!["a".to_owned(), "long enough".to_owned()], vec!["bbbb".to_owned(), "c".to_owned()]];
        assert_eq!(table(&["ID", "X"], &rows), "ID    X\na     long enough\nbbbb  c\n");
    }

    #[test]
    fn a_moment_loses_its_fraction() {
        assert_eq!(moment("2026-01-31T12:00:00.123Z"), "2026-01-31 12:00:00Z");
    }
}
