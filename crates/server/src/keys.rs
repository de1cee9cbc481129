//! API keys: made once, shown once, kept as hashes.
//!
//! A key is 256 bits of randomness, so that one round of SHA-256 is enough to keep it: there is nothing to guess. The
//! file is written to a name beside it and moved into place, under a lock, so that a crash leaves the old one or the
//! new one. A daemon looks at the file before every request that brings a key: a key that was removed opens nothing any more. What was
//! handed out for it before (streams that are open, tokens of sandboxes) stays until it ends.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use blastbox_engine::keeper::Tenant;
use blastbox_wire::receipt::rfc3339;
use rustix::fs::{FlockOperation, flock};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// How every key begins, in either form. An `Authorization` header with a word that begins so does not reach a box.
pub(crate) const PREFIXES: [&str; 2] = ["bbx_", "e2b_"];
const FILE: &str = "keys.json";
const LOCK: &str = "keys.lock";
/// Longest file of keys that is read.
const MOST: u64 = 4 * 1024 * 1024;
/// Most keys.
const MOST_KEYS: usize = 10_000;

/// What can go wrong with keys.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read or written.
    #[error("cannot {tried} {path}")]
    File {
        /// What was tried.
        tried: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The file is not ours, or was changed by hand.
    #[error("{path} is not a file of keys")]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// There is one with this name.
    #[error("there is a key {0} already")]
    Taken(KeyName),
    /// There is none with this name.
    #[error("there is no key {0}")]
    Unknown(KeyName),
    /// It would open what belongs to whoever sits at the socket.
    #[error("`{0}` is the tenant of the unix socket, and no key opens it; name another one (--tenant)")]
    Reserved(Tenant),
    /// There are too many.
    #[error("there are {MOST_KEYS} keys already")]
    TooMany,
    /// The kernel gives no randomness.
    #[error("cannot get randomness for the key")]
    Randomness(#[source] io::Error),
}

/// The name of a key. It follows the rule for tenants, because it is the key's tenant where none is given.
pub type KeyName = Tenant;

/// A key as it is kept: everything but the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyCard {
    /// Its name.
    #[serde(deserialize_with = "tenant")]
    pub name: KeyName,
    /// Whose boxes it reaches.
    #[serde(deserialize_with = "tenant")]
    pub tenant: Tenant,
    /// When it was made, RFC 3339.
    pub created_at: String,
    /// SHA-256 of the key, in base64.
    sha256: String,
}

/// Tells one key from all others, also from a later one of its name. It opens nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyMark(String);

/// How a key is written. Both hold the same 256 bits of randomness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyForm {
    /// `bbx_` and base64: whoever finds it in a file knows whose it is.
    #[default]
    Ours,
    /// `e2b_` and hexadecimal digits: E2B's SDKs of some versions send nothing else.
    E2b,
}

impl KeyForm {
    fn write(self, random: &[u8; 32]) -> String {
        let [ours, e2b] = PREFIXES;
        match self {
            Self::Ours => format!("{ours}{}", URL_SAFE_NO_PAD.encode(random)),
            Self::E2b => random.iter().fold(e2b.to_owned(), |text, byte| format!("{text}{byte:02x}")),
        }
    }
}

/// A key that was just made. It is shown once and never again.
pub struct NewKey(String);

impl NewKey {
    /// The one place where a key becomes text: the answer to whoever made it.
    #[must_use]
    pub fn show_once(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewKey(…)")
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pages {
    version: u32,
    keys: Vec<KeyCard>,
}

/// The keys of one state directory.
#[derive(Debug)]
pub struct Keys {
    directory: PathBuf,
    seen: Mutex<Option<(Stamp, Arc<Vec<KeyCard>>)>>,
}

/// What changes when the file does: it is never written in place.
type Stamp = (u64, i64, i64);

impl Keys {
    /// The keys of this state directory, which may have none yet.
    #[must_use]
    pub fn in_directory(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), seen: Mutex::new(None) }
    }

    /// Makes a key.
    pub fn create(&self, name: KeyName, tenant: Option<Tenant>) -> Result<NewKey, KeyError> {
        self.create_as(KeyForm::Ours, name, tenant)
    }

    /// Makes a key of this form.
    pub fn create_as(
        &self,
        form: KeyForm,
        name: KeyName,
        tenant: Option<Tenant>,
    ) -> Result<NewKey, KeyError> {
        let tenant = tenant.unwrap_or_else(|| name.clone());
        if tenant == Tenant::local() {
            return Err(KeyError::Reserved(tenant));
        }
        let _lock = self.lock()?;
        let mut keys = self.read()?.1;
        if keys.iter().any(|key| key.name == name) {
            return Err(KeyError::Taken(name));
        }
        if keys.len() >= MOST_KEYS {
            return Err(KeyError::TooMany);
        }
        let mut random = [0_u8; 32];
        // 32 bytes come whole or not at all.
        getrandom(&mut random, GetRandomFlags::empty())
            .map_err(|errno| KeyError::Randomness(errno.into()))?;
        let key = NewKey(form.write(&random));
        let created_at =
            rfc3339(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
        keys.push(KeyCard { name, tenant, created_at, sha256: URL_SAFE_NO_PAD.encode(digest(&key.0)) });
        self.write(keys)?;
        Ok(key)
    }

    /// Removes a key: no request that brings it is let in from now on.
    pub fn remove(&self, name: &KeyName) -> Result<(), KeyError> {
        let _lock = self.lock()?;
        let mut keys = self.read()?.1;
        let before = keys.len();
        keys.retain(|key| key.name != *name);
        if keys.len() == before {
            return Err(KeyError::Unknown(name.clone()));
        }
        self.write(keys)
    }

    /// Every key, without the keys.
    pub fn list(&self) -> Result<Vec<KeyCard>, KeyError> {
        Ok(self.read()?.1)
    }

    /// Whose key this is.
    pub fn tenant_of(&self, key: &str) -> Result<Option<Tenant>, KeyError> {
        Ok(self.find(key)?.map(|(tenant, _)| tenant))
    }

    /// Whose key this is, and how it is told from others. Every key is compared in full, so that the time tells nothing.
    pub(crate) fn find(&self, key: &str) -> Result<Option<(Tenant, KeyMark)>, KeyError> {
        let given = URL_SAFE_NO_PAD.encode(digest(key));
        let mut found = None;
        for card in self.current()?.iter() {
            if same(card.sha256.as_bytes(), given.as_bytes()) {
                found = Some((card.tenant.clone(), KeyMark(card.sha256.clone())));
            }
        }
        Ok(found)
    }

    /// Whether there still is this key.
    pub(crate) fn has(&self, mark: &KeyMark) -> bool {
        self.current().is_ok_and(|all| all.iter().any(|card| card.sha256 == mark.0))
    }

    /// Whether anybody may come as this tenant: it has a key, or is the socket's.
    pub(crate) fn lets_in(&self, tenant: &Tenant) -> bool {
        let has_one = || self.current().is_ok_and(|all| all.iter().any(|card| card.tenant == *tenant));
        *tenant == Tenant::local() || has_one()
    }

    /// The keys as they are now; the file is read only when it has changed.
    fn current(&self) -> Result<Arc<Vec<KeyCard>>, KeyError> {
        let path = self.path(FILE);
        let stamp = match fs::metadata(&path) {
            Ok(found) => (found.ino(), found.mtime(), found.mtime_nsec()),
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => return Ok(Arc::default()),
            Err(source) => return Err(KeyError::File { tried: "look at", path, source }),
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((old, keys)) = seen.as_ref()
            && *old == stamp
        {
            return Ok(Arc::clone(keys));
        }
        let (stamp, keys) = self.read()?;
        let keys = Arc::new(keys);
        *seen = stamp.map(|stamp| (stamp, Arc::clone(&keys)));
        Ok(keys)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn lock(&self) -> Result<File, KeyError> {
        let path = self.path(LOCK);
        let failed = |source| KeyError::File { tried: "lock", path: path.clone(), source };
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(failed)?;
        flock(&file, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
        Ok(file)
    }

    fn read(&self) -> Result<(Option<Stamp>, Vec<KeyCard>), KeyError> {
        let path = self.path(FILE);
        let failed = |source| KeyError::File { tried: "read", path: path.clone(), source };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => return Ok((None, Vec::new())),
            Err(source) => return Err(failed(source)),
        };
        let found = file.metadata().map_err(failed)?;
        let mut text = String::new();
        file.take(MOST).read_to_string(&mut text).map_err(failed)?;
        let pages: Pages =
            serde_json::from_str(&text).map_err(|source| KeyError::Broken { path: path.clone(), source })?;
        Ok((Some((found.ino(), found.mtime(), found.mtime_nsec())), pages.keys))
    }

    fn write(&self, keys: Vec<KeyCard>) -> Result<(), KeyError> {
        let (path, fresh) = (self.path(FILE), self.path("keys.json.new"));
        let failed = |source| KeyError::File { tried: "write", path: path.clone(), source };
        let text = serde_json::to_vec_pretty(&Pages { version: 1, keys })
            .map_err(|source| KeyError::Broken { path: path.clone(), source })?;
        let mut file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)
            .map_err(failed)?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(failed)?;
        fs::rename(&fresh, &path).map_err(failed)?;
        File::open(&self.directory).and_then(|directory| directory.sync_all()).map_err(failed)
    }
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

/// Compares to the end, whatever is found on the way.
fn same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

fn tenant<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Tenant, D::Error> {
    String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests;
