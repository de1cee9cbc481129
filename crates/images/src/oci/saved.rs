//! A saved image in its older form (`manifest.json`, as `podman save` and Docker before 25 write it), unpacked into a directory of
//! ours, becomes an OCI layout: the same files, by their digests.
//!
//! What its documents say is read by [`oci_text`]. Every file that they name is looked for beneath the directory and over no
//! link; whether a layer is what its digest says is found out when it is unpacked, as with every layout.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use blastbox_wire::event::Hash;
use rustix::fs::{FileType, Mode, OFlags, fstat, mkdirat, openat, renameat, statat};
use rustix::io::Errno;
use serde_json::{Value, json};

use super::OciError;
use super::oci_text::{self, MOST_DOCUMENT, REF_NAME, SavedImage};
use crate::tree::beneath::{hold, kind, names};

/// Bytes of all configurations together.
const MOST_CONFIGURED: usize = 32 << 20;
const LIST: &str = "manifest.json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// What has been unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unpacked {
    /// A layout, which it was or has become.
    Layout,
    /// A root file system.
    Tree,
}

/// Looks at what was unpacked, and makes a layout of a saved image.
pub(crate) fn settle(root: BorrowedFd<'_>) -> Result<Unpacked, OciError> {
    let has = |name: &str| matches!(kind(root, name.as_bytes()), Ok(Some(_)));
    if has("oci-layout") {
        return Ok(Unpacked::Layout);
    }
    if !has(LIST) || has("usr") || has("bin") {
        return Ok(Unpacked::Tree);
    }
    let images = oci_text::saved(&text(root, LIST)?)?;
    let blobs = room(root).map_err(|errno| unreadable("the saved image", errno.into()))?;
    let (mut index, mut configured) = (Vec::new(), 0_usize);
    for image in &images {
        let manifest = manifest(root, &blobs, image, &mut configured)?;
        for tag in image.tags.iter().map(Some).chain(image.tags.is_empty().then_some(None)) {
            let mut entry = manifest.clone();
            if let (Some(tag), Some(entry)) = (tag, entry.as_object_mut()) {
                entry.insert("annotations".to_owned(), json!({ REF_NAME: tag }));
            }
            index.push(entry);
        }
    }
    let index = json!({ "schemaVersion": 2, "manifests": index });
    write(root, "index.json", &index)?;
    write(root, "oci-layout", &json!({ "imageLayoutVersion": "1.0.0" }))?;
    Ok(Unpacked::Layout)
}

/// The directory of blobs, made where it is missing.
fn room(root: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let mut at = hold(root, &[])?;
    for name in ["blobs", "sha256"] {
        match mkdirat(&at, name, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        at = hold(at.as_fd(), &[name.as_bytes()])?;
    }
    Ok(at)
}

/// Gives the files of one image the names of blobs, writes its manifest, and says what that is.
/// `configured`: what those before have had of configurations, which many may share.
fn manifest(
    root: BorrowedFd<'_>,
    blobs: &OwnedFd,
    image: &SavedImage,
    configured: &mut usize,
) -> Result<Value, OciError> {
    let configuration = text(root, &image.config)?;
    *configured = configured.saturating_add(configuration.len());
    oci_text::bounded("all configurations", *configured, MOST_CONFIGURED)?;
    let config = oci_text::config(&configuration)?;
    if config.layers.len() != image.layers.len() {
        let (said, found) = (config.layers.len(), image.layers.len());
        let why = format!("its configuration speaks of {said} layers, and there are {found}");
        return Err(OciError::Document { what: "the saved image".to_owned(), why });
    }
    let mut layers = Vec::new();
    for (path, digest) in image.layers.iter().zip(&config.layers) {
        let size = claim(root, blobs, path, digest)?;
        layers.push(json!({ "mediaType": LAYER, "digest": digest.to_string(), "size": size }));
    }
    let config = blob(blobs, CONFIG, &configuration)?;
    let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers });
    blob(blobs, MANIFEST, manifest.to_string().as_bytes())
}

/// Gives a layer the name of a blob, and says how long it is. One that several images have is there already.
fn claim(root: BorrowedFd<'_>, blobs: &OwnedFd, path: &str, digest: &Hash) -> Result<u64, OciError> {
    let failed = |errno: Errno| unreadable(path, errno.into());
    let name = file_name(digest);
    let found = match statat(blobs, name.as_str(), rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => {
            let parts = names(path.as_bytes())?;
            let (last, above) = parts.split_last().ok_or_else(|| failed(Errno::INVAL))?;
            let above = hold(root, above).map_err(failed)?;
            if kind(above.as_fd(), last).map_err(failed)? != Some(FileType::RegularFile) {
                return Err(failed(Errno::INVAL));
            }
            renameat(&above, *last, blobs, name.as_str()).map_err(failed)?;
            statat(blobs, name.as_str(), rustix::fs::AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?
        }
        found => found.map_err(failed)?,
    };
    Ok(u64::try_from(found.st_size).unwrap_or(0))
}

/// Writes a blob, and says what it is.
fn blob(blobs: &OwnedFd, media: &str, bytes: &[u8]) -> Result<Value, OciError> {
    let digest = Hash::of([bytes]);
    fresh(blobs.as_fd(), &file_name(&digest), bytes)?;
    Ok(json!({ "mediaType": media, "digest": digest.to_string(), "size": bytes.len() }))
}

fn write(root: BorrowedFd<'_>, name: &str, value: &Value) -> Result<(), OciError> {
    fresh(root, name, value.to_string().as_bytes())
}

fn fresh(at: BorrowedFd<'_>, name: &str, bytes: &[u8]) -> Result<(), OciError> {
    let flags = OFlags::WRONLY
        | OFlags::CREATE
        | OFlags::TRUNC
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::CLOEXEC;
    let made = openat(at, name, flags, Mode::from_raw_mode(0o600)).map_err(io::Error::from);
    made.and_then(|file| File::from(file).write_all(bytes)).map_err(|error| unreadable(name, error))
}

/// A document that the archive brought.
fn text(root: BorrowedFd<'_>, path: &str) -> Result<Vec<u8>, OciError> {
    let parts = names(path.as_bytes())?;
    let failed = |error: io::Error| unreadable(path, error);
    let (last, above) = parts.split_last().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
    let above = hold(root, above).map_err(|errno| failed(errno.into()))?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(&above, *last, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
    let found = fstat(&file).map_err(|errno| failed(errno.into()))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(failed(io::ErrorKind::InvalidInput.into()));
    }
    let mut text = Vec::new();
    File::from(file).take(MOST_DOCUMENT.saturating_add(1)).read_to_end(&mut text).map_err(failed)?;
    Ok(text)
}

fn file_name(digest: &Hash) -> String {
    digest.to_string().replacen("sha256:", "", 1)
}

fn unreadable(what: &str, error: io::Error) -> OciError {
    let what = what.chars().take(200).collect::<String>();
    OciError::Document { what: format!("{what:?} of the saved image"), why: error.to_string() }
}
