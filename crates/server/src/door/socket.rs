//! The unix socket: for its own user and root. One that a dead daemon left is taken over, one that answers is not.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

use crate::DoorError;

/// The longest path that the kernel takes for a socket.
const LONGEST: usize = 107;

/// A socket that is listened on.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    held: Held,
}

/// The name of the socket. Dropping it removes it, if it is still the same.
#[derive(Debug)]
pub(super) struct Held {
    path: PathBuf,
    inode: (u64, u64),
}

impl Socket {
    /// Makes the directory that it will lie in.
    pub fn prepare(path: &Path) -> Result<(), DoorError> {
        let failed = |tried, source| DoorError::Socket { tried, path: path.to_owned(), source };
        if path.as_os_str().len() > LONGEST {
            return Err(DoorError::LongSocket { path: path.to_owned(), most: LONGEST });
        }
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            let mut private = fs::DirBuilder::new();
            private
                .recursive(true)
                .mode(0o700)
                .create(parent)
                .map_err(|e| failed("make the directory of", e))?;
        }
        Ok(())
    }

    /// Listens. Inside a tokio runtime.
    pub fn open(path: &Path) -> Result<Self, DoorError> {
        let failed = |tried, source| DoorError::Socket { tried, path: path.to_owned(), source };
        Self::prepare(path)?;
        let listener = match UnixListener::bind(path) {
            Err(taken) if taken.kind() == io::ErrorKind::AddrInUse => {
                clear(path)?;
                UnixListener::bind(path)
            }
            other => other,
        };
        let listener = listener.map_err(|source| failed("listen on", source))?;
        // Whoever connects before this is asked for its user like everybody else.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(|e| failed("close", e))?;
        let found = fs::symlink_metadata(path).map_err(|source| failed("look at", source))?;
        let held = Held { path: path.to_owned(), inode: (found.dev(), found.ino()) };
        Ok(Self { listener, held })
    }

    pub(super) fn into_parts(self) -> (UnixListener, Held) {
        (self.listener, self.held)
    }
}

/// Removes a socket that nobody answers on, and nothing else.
fn clear(path: &Path) -> Result<(), DoorError> {
    let failed = |tried, source| DoorError::Socket { tried, path: path.to_owned(), source };
    let found = fs::symlink_metadata(path).map_err(|source| failed("look at", source))?;
    if !found.file_type().is_socket() {
        return Err(DoorError::NotASocket { path: path.to_owned() });
    }
    match StdStream::connect(path) {
        Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|source| failed("remove the old", source))
        }
        // A backlog that is full answers with EAGAIN: somebody is there, and busy.
        Ok(_) | Err(_) => Err(DoorError::Taken { path: path.to_owned() }),
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let same = fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == self.inode && found.file_type().is_socket());
        if same {
            // A directory that became read-only keeps a socket that nobody answers on: the next daemon takes it over.
            fs::remove_file(&self.path).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[tokio::test]
    async fn a_socket_is_private_and_gone_afterwards() {
        let scratch = Scratch::new("socket");
        let path = scratch.path().join("deep/er/b.sock");
        let socket = Socket::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_socket_that_answers_is_left_alone_and_one_that_does_not_is_taken_over() {
        let scratch = Scratch::new("stale");
        let path = scratch.path().join("b.sock");
        let alive = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(matches!(Socket::open(&path), Err(DoorError::Taken { .. })));
        drop(alive);
        assert!(path.exists());
        let socket = Socket::open(&path).unwrap();
        assert!(StdStream::connect(&path).is_ok());
        drop(socket);
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_never_removed() {
        let scratch = Scratch::new("file");
        let path = scratch.path().join("precious");
        fs::write(&path, "x").unwrap();
        assert!(matches!(Socket::open(&path), Err(DoorError::NotASocket { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "x");
        let long = scratch.path().join("a".repeat(120));
        assert!(matches!(Socket::open(&long), Err(DoorError::LongSocket { .. })));
    }
}
