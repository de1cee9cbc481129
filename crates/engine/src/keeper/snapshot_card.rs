//! What is told of a snapshot, and how many are kept.

use std::path::PathBuf;

use blastbox_policy::ThreatLevel;
use blastbox_wire::BoxId;
use serde::Serialize;

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
    /// The box that it was taken of.
    #[serde(rename = "box")]
    pub of: BoxId,
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
}
