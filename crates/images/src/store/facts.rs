//! What is known of a stored image beside its files.

use std::collections::BTreeMap;

use blastbox_wire::event::Hash;
use serde::{Deserialize, Serialize};

/// What is known of an image. Written once, when it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The digest of its tree.
    pub digest: Hash,
    /// Bytes of content.
    pub bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
    /// Entries of the source that were left out: pipes, sockets, and what lies where a box has its own.
    pub left_out: u64,
    /// When it was stored, in seconds since 1970.
    pub made_at: u64,
    /// Where it comes from.
    pub source: Source,
    /// What it says about how its programs are to be run.
    #[serde(default)]
    pub config: ImageConfig,
}

/// Where an image comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Source {
    /// A directory of this host.
    Directory {
        /// Its path.
        path: String,
    },
    /// A tar archive.
    Archive {
        /// Its path.
        path: String,
        /// The digest of the archive, without its compression.
        archive: Hash,
    },
    /// A directory in the form of an OCI layout.
    OciLayout {
        /// Its path.
        path: String,
        /// The digest of the manifest.
        manifest: Hash,
    },
    /// A registry.
    Registry {
        /// As it was asked for, without any credential.
        reference: String,
        /// The digest of the manifest.
        manifest: Hash,
    },
    /// Packages of Debian.
    Debian {
        /// The release.
        suite: String,
        /// What was asked for beside the essential ones.
        packages: Vec<String>,
    },
    /// A recipe.
    Recipe {
        /// The digest of its text.
        recipe: Hash,
        /// What it starts from.
        from: Hash,
    },
}

impl Source {
    /// In a few words.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Directory { path } => format!("directory {path}"),
            Self::Archive { path, .. } => format!("archive {path}"),
            Self::OciLayout { path, .. } => format!("layout {path}"),
            Self::Registry { reference, .. } => reference.clone(),
            Self::Debian { suite, packages } => format!("debian {suite}, {} packages", packages.len()),
            Self::Recipe { from, .. } => format!("recipe on {}", short(from)),
        }
    }
}

/// The first twelve digits of a digest, for people.
#[must_use]
pub fn short(digest: &Hash) -> String {
    digest.to_string().chars().skip("sha256:".len()).take(12).collect()
}

/// What an image says about how its programs are to be run. The user is told and not followed: a box has one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageConfig {
    /// Variables.
    pub env: BTreeMap<String, String>,
    /// The working directory.
    pub workdir: Option<String>,
    /// The user.
    pub user: Option<String>,
    /// What its maker would run.
    pub command: Vec<String>,
}
