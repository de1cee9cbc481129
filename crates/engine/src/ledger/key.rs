//! The signing key: made once, for the owner alone, wiped from memory, never printed.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use blastbox_wire::event::ledger_text::{checkpoint_message, report_message};
use blastbox_wire::event::{Hash, LedgerId, PublicKey, Signature};
use ed25519_dalek::{Signer, SigningKey, VerifyingKey};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with};
use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};
use zeroize::Zeroizing;

use super::error::LedgerError;

const SEED: usize = 32;

/// What signs checkpoints. Wiped when it is dropped.
pub(super) struct Key(SigningKey);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.public())
    }
}

impl Key {
    /// The key in this file; `None` where there is no such file.
    pub(super) fn load(path: &Path) -> Result<Option<Self>, LedgerError> {
        let failed = |source| LedgerError::Key { path: path.to_owned(), source };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut file = match openat(CWD, path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(failed(errno.into())),
        };
        let found = file.metadata().map_err(failed)?;
        let exposed = |why| LedgerError::Exposed { path: path.to_owned(), why };
        if !found.is_file() || found.len() != SEED as u64 {
            return Err(exposed("it is not a key"));
        }
        if found.uid() != geteuid().as_raw() {
            return Err(exposed("it belongs to another user"));
        }
        if found.mode() & 0o077 != 0 {
            return Err(exposed("others may read or write it"));
        }
        let mut seed = Zeroizing::new([0; SEED]);
        file.read_exact(seed.as_mut()).map_err(failed)?;
        Ok(Some(Self(SigningKey::from_bytes(&seed))))
    }

    /// A new key, on the disk before it is used. Never over another one.
    pub(super) fn create(path: &Path) -> Result<Self, LedgerError> {
        let failed = |source| LedgerError::Key { path: path.to_owned(), source };
        let mut seed = Zeroizing::new([0; SEED]);
        getrandom(seed.as_mut_slice(), GetRandomFlags::empty())
            .map_err(|errno| LedgerError::Randomness(errno.into()))?;
        let beside = beside(path);
        // A daemon that died here left half a key that nothing was signed with.
        match std::fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        write_seed(&beside, &seed).map_err(failed)?;
        renameat_with(CWD, &beside, CWD, path, RenameFlags::NOREPLACE)
            .map_err(|errno| failed(errno.into()))?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new("."))).and_then(|open| open.sync_all()).map_err(failed)?;
        Ok(Self(SigningKey::from_bytes(&seed)))
    }

    /// The public half.
    pub(super) fn public(&self) -> PublicKey {
        PublicKey::from_bytes(self.0.verifying_key().to_bytes())
    }

    /// Signs a record, and with it everything before.
    pub(super) fn sign(&self, ledger: &LedgerId, seq: u64, hash: &Hash) -> Signature {
        self.sign_text(&checkpoint_message(ledger, seq, hash))
    }

    /// Signs that a record is about a report.
    pub(super) fn sign_report(&self, ledger: &LedgerId, record: u64, digest: &Hash) -> Signature {
        self.sign_text(&report_message(ledger, record, digest))
    }

    fn sign_text(&self, message: &str) -> Signature {
        Signature::from_bytes(self.0.sign(message.as_bytes()).to_bytes())
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

fn write_seed(path: &Path, seed: &[u8; SEED]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut file = File::from(openat(CWD, path, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(seed)?;
    file.sync_all()
}

/// Whether this key signed this record. Strict: weak keys and second spellings of a signature are refused.
pub(super) fn signed_by(
    key: &PublicKey,
    ledger: &LedgerId,
    seq: u64,
    hash: &Hash,
    signature: &Signature,
) -> bool {
    holds(key, &checkpoint_message(ledger, seq, hash), signature)
}

/// Whether this key signed that this record of this ledger is about a report of this digest.
#[must_use]
pub fn report_signed_by(
    key: &PublicKey,
    ledger: &LedgerId,
    record: u64,
    digest: &Hash,
    signature: &Signature,
) -> bool {
    holds(key, &report_message(ledger, record, digest), signature)
}

fn holds(key: &PublicKey, message: &str, signature: &Signature) -> bool {
    let Ok(key) = VerifyingKey::from_bytes(key.as_bytes()) else { return false };
    let signature = ed25519_dalek::Signature::from_bytes(signature.as_bytes());
    key.verify_strict(message.as_bytes(), &signature).is_ok()
}
