//! An OCI image as a directory: `oci-layout`, `index.json`, and blobs by digest.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use blastbox_wire::event::Hash;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};

use super::oci_text::{self, Descriptor, Document, MOST_DOCUMENT};
use super::{Blobs, OciError};

/// Tags in one message.
const SHOWN: usize = 10;

/// A layout, opened.
#[derive(Debug)]
pub struct Layout {
    root: OwnedFd,
}

impl Layout {
    /// Opens a directory, if it is a layout.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        let root = openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let layout = Self { root };
        match layout.file("oci-layout") {
            Ok(_) => Ok(Some(layout)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn file(&self, path: &str) -> io::Result<File> {
        let stay = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = openat2(&self.root, path, flags, Mode::empty(), stay)?;
        if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(File::from(file))
    }

    /// The images in it, or the one with this tag.
    pub fn images(&self, tag: Option<&str>) -> Result<Vec<Descriptor>, OciError> {
        let unreadable = |error: io::Error| OciError::Document {
            what: "index.json of the layout".to_owned(),
            why: error.to_string(),
        };
        let mut text = Vec::new();
        let file = self.file("index.json").map_err(unreadable)?;
        file.take(MOST_DOCUMENT.saturating_add(1)).read_to_end(&mut text).map_err(unreadable)?;
        let Document::Index(all) = oci_text::document(&text)? else {
            return Err(unreadable(io::ErrorKind::InvalidData.into()));
        };
        let tags: Vec<&str> = all.iter().filter_map(Descriptor::tag).collect();
        let Some(tag) = tag else { return Ok(all) };
        let found: Vec<Descriptor> = all.iter().filter(|image| image.tag() == Some(tag)).cloned().collect();
        if found.is_empty() {
            let why = format!("it has no image with the tag {tag:?}; {}", known(&tags));
            return Err(OciError::Document { what: "the layout".to_owned(), why });
        }
        Ok(found)
    }
}

/// A few of the tags, and how many more there are: a layout may have a thousand, of any length.
fn known(tags: &[&str]) -> String {
    let shown = |tag: &&str| format!("{:?}", tag.chars().take(64).collect::<String>());
    let first: Vec<String> = tags.iter().take(SHOWN).map(shown).collect();
    match (tags.len(), tags.len().saturating_sub(SHOWN)) {
        (0, _) => "its images have no tags: leave out --ref".to_owned(),
        (_, 0) => format!("it has {}", first.join(", ")),
        (_, more) => format!("it has {} and {more} more", first.join(", ")),
    }
}

impl Blobs for Layout {
    fn open(&self, digest: &Hash) -> io::Result<File> {
        self.file(&format!("blobs/{}", digest.to_string().replacen(':', "/", 1)))
    }
}
