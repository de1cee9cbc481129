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
use crate::oci::saved::{self, Unpacked};
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

/// Where an archive that is imported comes from.
struct Archive<'a> {
    from: &'a mut dyn Read,
    /// What is said of that.
    said: String,
    /// How many bytes it has, where that is known.
    of: Option<u64>,
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

    /// Imports an archive as it arrives, as [`Self::import`] does one that is a file; `what.path` is not looked at. `said`: where it
    /// comes from. On an error nothing stays of it.
    pub fn import_piped(
        &self,
        from: &mut dyn Read,
        said: &str,
        what: &Import<'_>,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<Kept, StoreError> {
        self.import_archive(Archive { from, said: said.to_owned(), of: None }, what, tell)
    }

    /// An archive is a root file system, or holds an image that was saved: its layers are unpacked then.
    fn import_archive(
        &self,
        archive: Archive<'_>,
        what: &Import<'_>,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<Kept, StoreError> {
        let Archive { from, said, of } = archive;
        let spool = self.begin()?;
        let mut writer = spool.writer(what.caps)?;
        let packed =
            unpack(&mut writer, from, Form::Whole, &mut |bytes| tell(Progress::Reading { bytes, of }))?;
        let made = writer.made();
        if saved::settle(spool.directory().as_fd())? == Unpacked::Tree {
            let source = Source::Archive { path: said, archive: packed.plain };
            let config = ImageConfig::default();
            return spool
                .keep(made, source, config, what.name, &mut |bytes| tell(Progress::Checking { bytes }));
        }
        let failed = |why: io::Error| StoreError::Source { path: said.clone().into(), why: why.to_string() };
        let layout = Layout::open(&spool.path()).map_err(failed)?;
        let layout = layout.ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
        self.import_layout(&layout, said, what, tell)
    }

    fn import_layout(
        &self,
        layout: &Layout,
        said: String,
        what: &Import<'_>,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<Kept, StoreError> {
        let draft = self.begin()?;
        let mut writer = draft.writer(what.caps)?;
        let images = layout.images(what.tag)?;
        let image = choose(&images, &what.platform)?;
        let made = assemble(&mut writer, layout, image, &what.platform, &mut |bytes| {
            tell(Progress::Reading { bytes, of: None });
        })?;
        let source = Source::OciLayout { path: said, manifest: made.manifest };
        draft.keep(writer.made(), source, made.config, what.name, &mut |bytes| {
            tell(Progress::Checking { bytes })
        })
    }

    /// Imports whatever it is. On an error nothing stays of it.
    pub fn import(&self, what: &Import<'_>, tell: &mut dyn FnMut(Progress)) -> Result<Kept, StoreError> {
        let path = what.path;
        let failed = |why: io::Error| StoreError::Source { path: path.to_owned(), why: why.to_string() };
        // Without waiting for the other end of a pipe.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let source = openat(CWD, path, flags, Mode::empty())
            .map_err(|errno| StoreError::Unread { path: path.to_owned(), source: errno.into() })?;
        let stat = fstat(&source).map_err(|errno| failed(errno.into()))?;
        let whole = std::path::absolute(path).map_err(failed)?;
        let said = whole.display().to_string();
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                if let Some(layout) = Layout::open(path).map_err(failed)? {
                    return self.import_layout(&layout, said, what, tell);
                }
                // What could not be used as it is could not be used as a copy either.
                DirectoryImage::open(path)?;
                let draft = self.begin()?;
                let mut writer = draft.writer(what.caps)?;
                copy::copy_directory(
                    &mut writer,
                    source.as_fd(),
                    &[],
                    &[],
                    copy::Content::Copied,
                    &mut |bytes| tell(Progress::Reading { bytes, of: None }),
                )?;
                let (made, source) = (writer.made(), Source::Directory { path: said });
                let config = ImageConfig::default();
                draft.keep(made, source, config, what.name, &mut |bytes| tell(Progress::Checking { bytes }))
            }
            FileType::RegularFile => {
                let (of, mut from) = (u64::try_from(stat.st_size).ok(), File::from(source));
                self.import_archive(Archive { from: &mut from, said, of }, what, tell)
            }
            _ => {
                let why =
                    "it is neither a directory nor an ordinary file; pipe an archive in as `-`".to_owned();
                Err(StoreError::Source { path: PathBuf::from(path), why })
            }
        }
    }
}
