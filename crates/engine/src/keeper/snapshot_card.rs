//! What is told of a snapshot, and how many are kept.

use std::fmt;
use std::path::PathBuf;

use blastbox_policy::ThreatLevel;
use blastbox_wire::BoxId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::snapshot_id::SnapshotId;

/// How many snapshots a keeper keeps, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotLimits {
    /// A directory that lets nobody else in; `None`: none are kept.
    pub place: Option<PathBuf>,
    /// Of each tenant.
    pub count: usize,
    /// Bytes on disk, of each tenant.
    pub tenant_bytes: u64,
    /// Bytes on disk, of all of them.
    pub bytes: u64,
}

impl Default for SnapshotLimits {
    fn default() -> Self {
        Self { place: None, count: 8, tenant_bytes: 8 << 30, bytes: 32 << 30 }
    }
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SnapshotCard {
    /// Its name.
    pub id: SnapshotId,
    /// Whose it is.
    pub tenant: String,
    /// The box that it was taken of.
    #[serde(rename = "box")]
    pub of: BoxId,
    /// Whether it is that box, which is paused to disk: nobody else begins with it.
    pub paused: bool,
    /// When, RFC 3339.
    pub created_at: String,
    /// The image of that box.
    pub image: String,
    /// Its policy, by digest.
    pub policy: String,
    /// The level of that.
    pub level: ThreatLevel,
    /// Bytes of the machine's memory.
    pub memory: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// What whoever took it wrote on it; for that one alone.
    #[serde(skip)]
    pub caption: Option<Caption>,
}

/// A file that nobody can say of whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// Its name.
    pub id: SnapshotId,
    /// Bytes on disk.
    pub bytes: u64,
    /// Why: `snapshot_truncated`, `snapshot_altered`, …
    pub why: &'static str,
}

/// What whoever takes a snapshot wants to know of it again. It may hold variables, and those may be secrets: it is never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Caption(pub Value);

impl fmt::Debug for Caption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Caption(…)")
    }
}
