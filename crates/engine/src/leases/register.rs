//! What has to be revoked, on disk: one file for each lease, with ids and no secret.
//!
//! A file is there from before the gateway gets the secret until the lease is revoked. A daemon that finds files when it
//! starts has been killed: the boxes are gone, and each lease is revoked.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use blastbox_policy::SecretName;
use blastbox_wire::BoxId;
use serde::{Deserialize, Serialize};

/// Longest file of the register.
const LONGEST: u64 = 4096;
/// How a file of the register ends.
const SUFFIX: &str = ".lease";

/// The leases that are not revoked yet.
#[derive(Debug, Clone)]
pub struct Register {
    folder: PathBuf,
}

/// A lease that has to be revoked when its box ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocable {
    /// The box that it was minted for; no other ever has it.
    pub box_id: BoxId,
    /// The secret's name.
    pub secret: SecretName,
    /// What the source calls it.
    pub lease: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(rename = "box")]
    box_id: String,
    secret: String,
    lease: String,
}

impl Register {
    /// Opens the register in the daemon's state directory, and makes it where it is missing.
    pub fn open(state: &Path) -> io::Result<Self> {
        let folder = state.join("leases");
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            Ok(()) | Err(_) => Ok(Self { folder }),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Remembers a lease; it is on the disk when this returns.
    pub fn add(&self, lease: &Revocable) -> io::Result<()> {
        let Revocable { box_id, secret, lease: id } = lease;
        let line = Line { box_id: box_id.to_string(), secret: secret.to_string(), lease: id.clone() };
        let text = serde_json::to_vec(&line).map_err(io::Error::other)?;
        if text.len() > usize::try_from(LONGEST).unwrap_or(usize::MAX) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the lease's id is too long"));
        }
        let path = self.path(lease);
        let half = path.with_extension("half");
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&half)?;
        file.write_all(&text)?;
        file.sync_all()?;
        std::fs::rename(&half, &path)?;
        File::open(&self.folder)?.sync_all()
    }

    /// Forgets a lease that is revoked.
    pub fn remove(&self, lease: &Revocable) -> io::Result<()> {
        match std::fs::remove_file(self.path(lease)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Every lease that is not revoked. A file that cannot be read is left alone: somebody has to look at it.
    pub fn all(&self) -> io::Result<Vec<Revocable>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.to_str().is_some_and(|name| name.ends_with(SUFFIX))
                && let Some(lease) = read(&path)
            {
                found.push(lease);
            }
        }
        found.sort_by(|one, other| (&one.box_id, &one.secret).cmp(&(&other.box_id, &other.secret)));
        Ok(found)
    }

    /// One file for each secret of each box. Both names are safe as file names.
    fn path(&self, lease: &Revocable) -> PathBuf {
        self.folder.join(format!("{}.{}{SUFFIX}", lease.box_id, lease.secret))
    }
}

fn read(path: &Path) -> Option<Revocable> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(LONGEST).read_to_end(&mut text).ok()?;
    let Line { box_id, secret, lease } = serde_json::from_slice(&text).ok()?;
    Some(Revocable { box_id: box_id.parse().ok()?, secret: secret.parse().ok()?, lease })
}
