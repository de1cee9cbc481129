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
/// How a file ends that is being written.
const HALF: &str = ".half";

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
    /// Which binding of the box it is for: one secret can be bound twice, and is then minted twice.
    pub binding: u16,
    /// What the source calls it.
    pub lease: String,
}

/// What is in the register.
#[derive(Debug, Default)]
pub struct Found {
    /// The leases that are not revoked.
    pub leases: Vec<Revocable>,
    /// Files that cannot be read as leases, and why. They are left alone: somebody has to look at them.
    pub unreadable: Vec<(PathBuf, io::Error)>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(rename = "box")]
    box_id: String,
    secret: String,
    binding: u16,
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
        let Revocable { box_id, secret, binding, lease: id } = lease;
        let (box_id, secret) = (box_id.to_string(), secret.to_string());
        let line = Line { box_id, secret, binding: *binding, lease: id.clone() };
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
        let path = self.path(lease);
        for path in [path.with_extension("half"), path] {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Everything that is in it.
    pub fn all(&self) -> io::Result<Found> {
        let mut found = Found::default();
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let name = path.file_name().and_then(std::ffi::OsStr::to_str).unwrap_or_default();
            // A half is what a daemon left that was killed while it wrote: the lease may be there all the same.
            if !name.ends_with(SUFFIX) && !name.ends_with(HALF) {
                continue;
            }
            match read(&path) {
                Ok(lease) => found.leases.push(lease),
                Err(why) => found.unreadable.push((path, why)),
            }
        }
        let order = |lease: &Revocable| (lease.box_id.clone(), lease.secret.clone(), lease.binding);
        found.leases.sort_by_key(order);
        found.leases.dedup();
        found.unreadable.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(found)
    }

    /// One file for each binding of each box. All parts are safe in a file name.
    fn path(&self, lease: &Revocable) -> PathBuf {
        self.folder.join(format!("{}.{}.{}{SUFFIX}", lease.box_id, lease.secret, lease.binding))
    }
}

fn read(path: &Path) -> io::Result<Revocable> {
    let mut text = Vec::new();
    File::open(path)?.take(LONGEST).read_to_end(&mut text)?;
    let Line { box_id, secret, binding, lease } = serde_json::from_slice(&text).map_err(io::Error::other)?;
    let no_name = |_| io::Error::new(io::ErrorKind::InvalidData, "it names no box or no secret");
    let (box_id, secret) =
        (box_id.parse().map_err(|_| no_name(()))?, secret.parse().map_err(|_| no_name(()))?);
    Ok(Revocable { box_id, secret, binding, lease })
}
