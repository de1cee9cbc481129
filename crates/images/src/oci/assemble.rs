//! From a manifest to a tree. Every document and every layer is held against its digest before it is believed.

use std::fs::File;
use std::io::{self, Read};

use blastbox_wire::event::Hash;

use super::oci_text::{self, Config, Descriptor, Document, MOST_DOCUMENT, Manifest};
use super::{OciError, Platform, Verified};
use crate::store::ImageConfig;
use crate::tree::{Form, TreeError, TreeWriter, unpack};

/// How many indexes may lead to each other.
const MOST_INDEXES: usize = 4;

/// Where blobs come from.
pub trait Blobs {
    /// Opens the blob of this digest. Nobody believes that it is.
    fn open(&self, digest: &Hash) -> io::Result<File>;
}

/// What an image was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assembled {
    /// The digest of its manifest.
    pub manifest: Hash,
    /// How its programs are to be run.
    pub config: ImageConfig,
}

/// Chooses one of several images by platform. `None`: there is one that names no platform, which must be looked at.
pub fn choose<'a>(all: &'a [Descriptor], wanted: &Platform) -> Result<&'a Descriptor, OciError> {
    if let [only] = all
        && only.platform.is_none()
    {
        return Ok(only);
    }
    let fits = |image: &&Descriptor| image.platform.as_ref().is_some_and(|platform| wanted.takes(platform));
    let mut fitting = all.iter().filter(fits);
    match (fitting.next(), fitting.next()) {
        (Some(one), None) => Ok(one),
        // Two for one platform differ in their variant, and the first is the plain one; tags are somebody's choice.
        (Some(one), Some(_)) if one.tag().is_none() => Ok(one),
        (Some(_), Some(_)) => {
            let known: Vec<&str> = all.iter().filter_map(Descriptor::tag).take(20).collect();
            Err(OciError::Ambiguous { known: known.join(", ") })
        }
        (None, _) if all.iter().all(|image| image.platform.is_none()) && !all.is_empty() => {
            let known: Vec<&str> = all.iter().filter_map(Descriptor::tag).take(20).collect();
            Err(OciError::Ambiguous { known: known.join(", ") })
        }
        (None, _) => {
            let known: Vec<String> = all
                .iter()
                .filter_map(|image| image.platform.as_ref())
                .map(Platform::to_string)
                .take(20)
                .collect();
            Err(OciError::Platform { wanted: wanted.to_string(), known: known.join(", ") })
        }
    }
}

/// Follows indexes to a manifest, and reads that with its configuration.
fn follow(
    blobs: &dyn Blobs,
    start: &Descriptor,
    wanted: &Platform,
) -> Result<(Hash, Manifest, Config), OciError> {
    let mut at = start.clone();
    for _ in 0..MOST_INDEXES {
        match oci_text::document(&small(blobs, &at)?)? {
            Document::Index(all) => at = choose(&all, wanted)?.clone(),
            Document::Manifest(manifest) => {
                let config = oci_text::config(&small(blobs, &manifest.config)?)?;
                check(&manifest, &config, wanted)?;
                return Ok((at.digest, manifest, config));
            }
        }
    }
    Err(OciError::TooLong { what: "the chain of indexes".to_owned(), most: 4 })
}

/// Whether a manifest and its configuration speak of the same image, and one that runs here.
pub(crate) fn check(manifest: &Manifest, config: &Config, wanted: &Platform) -> Result<(), OciError> {
    if !wanted.takes(&config.platform) {
        let known = config.platform.to_string();
        return Err(OciError::Platform { wanted: wanted.to_string(), known });
    }
    if manifest.layers.len() != config.layers.len() {
        return Err(OciError::Document {
            what: "the configuration".to_owned(),
            why: format!(
                "it speaks of {} layers, and there are {}",
                config.layers.len(),
                manifest.layers.len()
            ),
        });
    }
    match manifest.layers.iter().find(|layer| !is_layer(&layer.media_type)) {
        Some(layer) => Err(OciError::NotALayer {
            digest: layer.digest.to_string(),
            media: layer.media_type.chars().take(100).collect(),
        }),
        None => Ok(()),
    }
}

fn is_layer(media: &str) -> bool {
    media.is_empty()
        || media.starts_with("application/vnd.oci.image.layer.")
        || media.starts_with("application/vnd.docker.image.rootfs.")
}

/// Makes the tree of an image.
pub fn assemble(
    writer: &mut TreeWriter,
    blobs: &dyn Blobs,
    start: &Descriptor,
    wanted: &Platform,
    tell: &mut dyn FnMut(u64),
) -> Result<Assembled, OciError> {
    let (digest, manifest, config) = follow(blobs, start, wanted)?;
    let mut before = 0_u64;
    for (layer, plain) in manifest.layers.iter().zip(&config.layers) {
        let file = blobs.open(&layer.digest).map_err(unreadable(layer))?;
        let mut from = Verified::new(file, layer);
        let packed = unpack(writer, &mut from, Form::Layer, &mut |read| tell(before.saturating_add(read)));
        // A layer that is not the one that was promised is worth this word more than what is wrong with it.
        from.finish(layer)?;
        let packed = packed?;
        if packed.plain != *plain {
            return Err(TreeError::Mismatch {
                what: format!("the layer {}, uncompressed,", layer.digest),
                expected: plain.to_string(),
                found: packed.plain.to_string(),
            }
            .into());
        }
        before = before.saturating_add(layer.size);
    }
    Ok(Assembled { manifest: digest, config: config.run })
}

/// A document, whole and checked.
fn small(blobs: &dyn Blobs, blob: &Descriptor) -> Result<Vec<u8>, OciError> {
    if blob.size > MOST_DOCUMENT {
        return Err(OciError::TooLong { what: "a document of the image".to_owned(), most: MOST_DOCUMENT });
    }
    let file = blobs.open(&blob.digest).map_err(unreadable(blob))?;
    let mut from = Verified::new(file, blob);
    let mut text = Vec::new();
    from.read_to_end(&mut text).map_err(unreadable(blob))?;
    from.finish(blob)?;
    Ok(text)
}

fn unreadable(blob: &Descriptor) -> impl Fn(io::Error) -> OciError + '_ {
    |source| OciError::Blob { digest: blob.digest.to_string(), source }
}
