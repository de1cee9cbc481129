//! A stream that is held against its size and digest.

use std::io::{self, Read};

use blastbox_wire::event::Hash;
use sha2::{Digest as _, Sha256};

use super::OciError;
use super::oci_text::Descriptor;
use crate::tree::TreeError;

/// Passes bytes on, counts them and hashes them. Never passes on more than was promised.
#[derive(Debug)]
pub struct Verified<R> {
    from: R,
    hasher: Sha256,
    left: u64,
}

impl<R: Read> Verified<R> {
    /// A stream that must become this blob.
    #[must_use]
    pub fn new(from: R, blob: &Descriptor) -> Self {
        Self { from, hasher: Sha256::new(), left: blob.size }
    }

    /// Reads what is left and says whether the whole of it is what was promised.
    pub fn finish(mut self, blob: &Descriptor) -> Result<(), OciError> {
        let failed = |source| OciError::Blob { digest: blob.digest.to_string(), source };
        let mut piece = vec![0; 64 * 1024];
        while self.read(&mut piece).map_err(failed)? > 0 {}
        let more = self.from.read(&mut [0]).map_err(failed)? > 0;
        let found = Hash::from_bytes(self.hasher.finalize().into());
        let found = match (self.left, more) {
            (0, false) => found.to_string(),
            (0, true) => format!("more than the promised {} bytes", blob.size),
            (missing, _) => format!("{missing} bytes less than promised"),
        };
        if found == blob.digest.to_string() {
            return Ok(());
        }
        let expected = blob.digest.to_string();
        Err(TreeError::Mismatch { what: "a blob of the image".to_owned(), expected, found }.into())
    }
}

impl<R: Read> Read for Verified<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(to.len());
        let Some(to) = to.get_mut(..most).filter(|to| !to.is_empty()) else { return Ok(0) };
        let count = self.from.read(to)?;
        self.hasher.update(to.get(..count).unwrap_or_default());
        self.left = self.left.saturating_sub(u64::try_from(count).unwrap_or(0));
        Ok(count)
    }
}
