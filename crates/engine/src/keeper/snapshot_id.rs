//! What snapshots are called. A name that exists is safe as that of a file.

use std::fmt;
use std::str::FromStr;

use blastbox_wire::BoxId;

const PREFIX: &str = "sn_";

/// The name of a snapshot, such as `sn_c3f7k2m5q6r7s2t3u4v5`: as that of a box, but for how it begins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId(String);

/// The text is not the name of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a snapshot id: expected `sn_` and 20 letters or digits in lower case")]
pub struct BadSnapshotId;

impl SnapshotId {
    /// A name made from 100 bits of the given randomness.
    #[must_use]
    pub fn from_random(random: [u8; 20]) -> Self {
        Self::of_box(&BoxId::from_random(random))
    }

    /// What the machine of a box is called that lies on disk.
    pub(crate) fn of_box(id: &BoxId) -> Self {
        let (_, tail) = id.as_str().split_once('_').unwrap_or_default();
        Self(format!("{PREFIX}{tail}"))
    }

    /// The whole name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SnapshotId {
    type Err = BadSnapshotId;
    fn from_str(text: &str) -> Result<Self, BadSnapshotId> {
        let tail = text.strip_prefix(PREFIX).ok_or(BadSnapshotId)?;
        // What is safe in the name of a box is safe here.
        format!("bx_{tail}").parse::<BoxId>().map_err(|_| BadSnapshotId)?;
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl serde::Serialize for SnapshotId {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for SnapshotId {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text: String = serde::Deserialize::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_could_leave_its_directory_or_is_that_of_a_box_is_none() {
        let id = SnapshotId::from_random([7; 20]);
        assert_eq!(id.as_str().parse::<SnapshotId>(), Ok(id));
        for bad in
            ["", "sn_", "sn_../../../../etc/pas", "bx_aaaaaaaaaaaaaaaaaaaa", "sn_aaaaaaaaaaaaaaaaaaaa/"]
        {
            assert_eq!(bad.parse::<SnapshotId>(), Err(BadSnapshotId), "{bad}");
        }
    }
}
