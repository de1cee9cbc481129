//! Secrets that lie ready: in a file, in a variable of the daemon.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use blastbox_policy::SecretName;
use zeroize::Zeroizing;

use super::error::MintError;
use super::value::{LONGEST_VALUE, Minted};

/// Reads a file, not on a thread that others wait for: it may be on a network.
pub(super) async fn file(secret: SecretName, path: PathBuf) -> Result<Minted, MintError> {
    let failed = MintError::Size(secret.clone());
    tokio::task::spawn_blocking(move || read(secret, path)).await.unwrap_or(Err(failed))
}

fn read(secret: SecretName, path: PathBuf) -> Result<Minted, MintError> {
    let failed = |source| MintError::File { secret: secret.clone(), path: path.clone(), source };
    // Not to be kept waiting by a pipe.
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = File::options().read(true).custom_flags(flags).open(&path).map_err(failed)?;
    if file.metadata().map_err(failed)?.mode() & 0o007 != 0 {
        return Err(MintError::Exposed { secret, path });
    }
    let mut value = Zeroizing::new(Vec::with_capacity(LONGEST_VALUE + 1));
    let most = u64::try_from(LONGEST_VALUE + 1).unwrap_or(u64::MAX);
    file.take(most).read_to_end(&mut value).map_err(failed)?;
    sized(secret, value)
}

pub(super) fn environment(secret: &SecretName, variable: &str) -> Result<Minted, MintError> {
    let missing = || MintError::Variable { secret: secret.clone(), variable: variable.to_owned() };
    let value = std::env::var_os(variable).ok_or_else(missing)?;
    sized(secret.clone(), Zeroizing::new(value.into_vec()))
}

/// A value that is neither nothing nor more than a header holds.
pub(super) fn sized(secret: SecretName, value: Zeroizing<Vec<u8>>) -> Result<Minted, MintError> {
    match value.len() {
        1..=LONGEST_VALUE => Ok(Minted::plain(value)),
        _ => Err(MintError::Size(secret)),
    }
}
