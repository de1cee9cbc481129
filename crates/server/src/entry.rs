//! Entries and changes as callers see them. Names of files are bytes: text where they are text, base64 where they are
//! not, and never half of them.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blastbox_engine::{FileError, Listing};
use blastbox_wire::agent::{Beyond, Change, ChangeKind, Coverage, Entry, EntryKind};
use blastbox_wire::receipt::rfc3339;
use serde::Serialize;

/// A name: one of the two.
#[derive(Debug, Serialize)]
pub(crate) struct Name {
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_base64: Option<String>,
}

impl From<Vec<u8>> for Name {
    fn from(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(path) => Self { path: Some(path), path_base64: None },
            Err(bad) => Self { path: None, path_base64: Some(STANDARD.encode(bad.as_bytes())) },
        }
    }
}

/// One entry.
#[derive(Debug, Serialize)]
pub(crate) struct EntryView {
    #[serde(flatten)]
    name: Name,
    kind: &'static str,
    size: u64,
    mode: String,
    uid: u32,
    gid: u32,
    modified_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<LinkView>,
}

#[derive(Debug, Serialize)]
struct LinkView {
    #[serde(flatten)]
    text: Name,
    /// What following it finds; absent where that is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    beyond: Option<BeyondView>,
}

#[derive(Debug, Serialize)]
struct BeyondView {
    #[serde(flatten)]
    name: Name,
    kind: &'static str,
    mode: String,
}

const fn kind(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Link => "link",
        EntryKind::Other => "other",
    }
}

fn octal(mode: u32) -> String {
    format!("{mode:04o}")
}

impl From<Entry> for EntryView {
    fn from(entry: Entry) -> Self {
        let Entry { path, kind: what, size, mode, uid, gid, modified_nanos, link } = entry;
        // A guest may date a file before 1970; that is not worth more than the first day.
        let modified = Duration::from_nanos(u64::try_from(modified_nanos).unwrap_or(0));
        let link = link.map(|link| LinkView {
            text: link.text.into(),
            beyond: link.beyond.map(|Beyond { kind: what, mode, path }| BeyondView {
                name: path.into(),
                kind: kind(what),
                mode: octal(mode),
            }),
        });
        Self {
            name: path.into(),
            kind: kind(what),
            size,
            mode: octal(mode),
            uid,
            gid,
            modified_at: rfc3339(modified),
            link,
        }
    }
}

/// Everything of a list that is held in memory at once: entries, how complete they are, and whether they fit.
#[derive(Debug)]
pub(crate) enum Gathered {
    /// All that the box sent.
    Fits(Vec<Entry>, Coverage),
    /// More bytes than whoever asked can be given.
    TooLong,
}

/// What an entry costs beside its names.
const OF_AN_ENTRY: usize = 256;

/// Collects a list, up to so many bytes of what is shown of it. How many entries there are is bounded elsewhere; names
/// and links are the guest's, and each may be four thousand bytes long. `prefix` is shown with each.
pub(crate) async fn gather(mut listing: Listing, prefix: usize, most: usize) -> Result<Gathered, FileError> {
    let (mut all, mut bytes) = (Vec::new(), 0_usize);
    while let Some(entries) = listing.next().await? {
        for entry in &entries {
            bytes = bytes.saturating_add(shown_bytes(entry, prefix));
        }
        if bytes > most {
            return Ok(Gathered::TooLong);
        }
        all.extend(entries);
    }
    let summary = listing.summary().await?;
    Ok(Gathered::Fits(all, summary.coverage))
}

fn shown_bytes(entry: &Entry, prefix: usize) -> usize {
    let link = entry
        .link
        .as_ref()
        .map_or(0, |link| link.text.len() + link.beyond.as_ref().map_or(0, |beyond| beyond.path.len()));
    OF_AN_ENTRY + prefix + entry.path.len() + link
}

/// One change.
#[derive(Debug, Serialize)]
pub(crate) struct ChangeView {
    kind: &'static str,
    #[serde(flatten)]
    name: Name,
    #[serde(skip_serializing_if = "Option::is_none")]
    cookie: Option<u32>,
}

impl From<Change> for ChangeView {
    fn from(Change { kind, cookie, path }: Change) -> Self {
        let kind = match kind {
            ChangeKind::Created => "created",
            ChangeKind::Written => "written",
            ChangeKind::Removed => "removed",
            ChangeKind::MovedFrom => "moved_from",
            ChangeKind::MovedTo => "moved_to",
            ChangeKind::Attributes => "attributes",
            ChangeKind::Lost => "lost",
            ChangeKind::Unwatched => "unwatched",
            ChangeKind::Ended => "ended",
        };
        Self { kind, name: path.into(), cookie: (cookie != 0).then_some(cookie) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_text_or_base64_and_never_both() {
        let shown = |path: &[u8]| serde_json::to_value(Name::from(path.to_vec())).unwrap();
        assert_eq!(shown(b"a\nb"), serde_json::json!({ "path": "a\nb" }));
        assert_eq!(shown(b"\xff"), serde_json::json!({ "path_base64": "/w==" }));
    }
}
