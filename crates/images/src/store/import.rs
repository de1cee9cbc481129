//! From a directory, an archive or an OCI layout to an image of the store.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};

use super::StoreError;
use super::draft::Kept;
use super::facts::{ImageConfig, Source};
use super::name::ImageName;
use super::place::Store;
use crate::DirectoryImage;
use crate::oci::{Layout, Platform, assemble, choose};
use crate::tree::{Caps, Form, copy, unpack};

/// What is to be imported.
#[derive(Debug, Clone)]
pub struct Import<'a> {
    /// A directory, an archive, or a layout.
    pub path: &'a Path,
    /// The name that it shall have.
    pub name: Option<&'a ImageName>,
    /// Which image of a layout, by tag.
    pub tag: Option<&'a str>,
    /// For which machine.
    pub platform: Platform,
    /// How much it may be.
    pub caps: Caps,
}

/// An archive that is imported as it arrives.
#[derive(Debug)]
pub struct Stream<'a> {
    /// Where it comes from.
    pub source: Source,
    /// The name that it shall have.
    pub name: Option<&'a ImageName>,
    /// How much it may be.
    pub caps: Caps,
    /// Files and directories of it that do not become part of the image.
    pub without: &'a [&'a str],
}

/// How far an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Bytes that were read of what is to be imported.
    Reading {
        /// So many.
        bytes: u64,
        /// Of so many, where that is known.
        of: Option<u64>,
    },
    /// Bytes whose digest is known.
    Checking {
        /// So many.
        bytes: u64,
    },
}

impl Store {
    /// Imports an archive as it arrives, such as one that another program writes. On an error nothing stays of it.
    pub fn import_stream(
        &self,
        from: &mut dyn Read,
        what: Stream<'_>,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<Kept, StoreError> {
        let Stream { source, name, caps, without } = what;
        let config = ImageConfig::default();
        let draft = self.begin()?;
        let mut writer = draft.writer(caps)?;
        unpack(&mut writer, from, Form::Whole, &mut |bytes| tell(Progress::Reading { bytes, of: None }))?;
        for path in without {
            writer.take_away(path.as_bytes())?;
        }
        let made = writer.made();
        draft.keep(made, source, config, name, &mut |bytes| tell(Progress::Checking { bytes }))
    }

    /// Imports whatever it is. On an error nothing stays of it.
    pub fn import(&self, what: &Import<'_>, tell: &mut dyn FnMut(Progress)) -> Result<Kept, StoreError> {
        let path = what.path;
        let failed = |why: io::Error| StoreError::Source { path: path.to_owned(), why: why.to_string() };
        // Without waiting for the other end of a pipe.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let source = openat(CWD, path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        let stat = fstat(&source).map_err(|errno| failed(errno.into()))?;
        let whole = std::path::absolute(path).map_err(failed)?;
        let said = whole.display().to_string();
        let draft = self.begin()?;
        let mut writer = draft.writer(what.caps)?;
        let (source, config) = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => match Layout::open(path).map_err(failed)? {
                Some(layout) => {
                    let images = layout.images(what.tag)?;
                    let image = choose(&images, &what.platform)?;
                    let made = assemble(&mut writer, &layout, image, &what.platform, &mut |bytes| {
                        tell(Progress::Reading { bytes, of: None });
                    })?;
                    (Source::OciLayout { path: said, manifest: made.manifest }, made.config)
                }
                None => {
                    // What could not be used as it is could not be used as a copy either.
                    DirectoryImage::open(path)?;
                    copy::copy_directory(
                        &mut writer,
                        source.as_fd(),
                        &[],
                        &[],
                        copy::Content::Copied,
                        &mut |bytes| {
                            tell(Progress::Reading { bytes, of: None });
                        },
                    )?;
                    (Source::Directory { path: said }, ImageConfig::default())
                }
            },
            FileType::RegularFile => {
                let of = u64::try_from(stat.st_size).ok();
                let packed = unpack(&mut writer, File::from(source), Form::Whole, &mut |bytes| {
                    tell(Progress::Reading { bytes, of });
                })?;
                (Source::Archive { path: said, archive: packed.plain }, ImageConfig::default())
            }
            _ => {
                let why = "it is neither a directory nor an ordinary file".to_owned();
                return Err(StoreError::Source { path: PathBuf::from(path), why });
            }
        };
        let made = writer.made();
        draft.keep(made, source, config, what.name, &mut |bytes| tell(Progress::Checking { bytes }))
    }
}
