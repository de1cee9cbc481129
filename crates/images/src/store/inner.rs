//! Paths as a program in the image would mean them: links lead on inside its tree, and never out of it.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::readlinkat;

use super::{StoreError, StoredImage};
use crate::tree::Caps;
use crate::tree::beneath::{hold, names};

impl StoredImage {
    /// How much it is.
    #[must_use]
    pub fn measure(&self) -> Caps {
        Caps { bytes: self.facts().bytes, entries: self.facts().entries }
    }

    /// Whether the image has a directory there.
    pub fn has_directory(&self, path: &str) -> Result<bool, StoreError> {
        is_directory(self.directory().as_fd(), path)
    }
}

pub(super) fn is_directory(root: BorrowedFd<'_>, path: &str) -> Result<bool, StoreError> {
    let real = real(root, path)?;
    Ok(hold(root, &names(real.as_bytes())?).is_ok())
}

/// A path of the image without links in it, as far as it is there: `/bin/x` is `/usr/bin/x` in most images.
pub(super) fn real(root: BorrowedFd<'_>, path: &str) -> Result<String, StoreError> {
    let mut parts: Vec<String> = Vec::new();
    let mut left: Vec<String> =
        path.split('/').filter(|part| !part.is_empty()).rev().map(ToOwned::to_owned).collect();
    let mut links = 0;
    while let Some(part) = left.pop() {
        match part.as_str() {
            "." => continue,
            ".." => {
                parts.pop();
                continue;
            }
            _ => {}
        }
        let above: Vec<&[u8]> = parts.iter().map(String::as_bytes).collect();
        let link = hold(root, &above).and_then(|above| readlinkat(above, part.as_str(), Vec::new()));
        match link.ok().and_then(|text| text.into_string().ok()) {
            Some(text) if links < 40 => {
                links += 1;
                if text.starts_with('/') {
                    parts.clear();
                }
                left.extend(text.split('/').filter(|part| !part.is_empty()).rev().map(ToOwned::to_owned));
            }
            Some(_) => {
                return Err(StoreError::Source {
                    path: path.into(),
                    why: "too many links on the way".into(),
                });
            }
            None => parts.push(part),
        }
    }
    Ok(parts.join("/"))
}
