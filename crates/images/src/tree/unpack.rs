//! Archives, unpacked into a tree.
//!
//! Trust: guest. An image is as foreign as what will run on it: every byte of the archive is taken to be chosen by an
//! attacker. Headers are read by `wire::untar`; what they ask for is done by [`TreeWriter`] or refused.

use std::cell::Cell;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};

use blastbox_wire::event::Hash;
use blastbox_wire::tar::Header;
use blastbox_wire::untar::{Part, Untar};
use flate2::bufread::MultiGzDecoder;
use sha2::{Digest as _, Sha256};

use super::beneath::names;
use super::error::shown;
use super::writer::{finish, hidden};
use super::{TreeError, TreeWriter};

const PIECE: usize = 64 * 1024;
/// An archive may grow to so many times its size …
const MOST_GROWTH: u64 = 200;
/// … or to this, whatever its size: small archives of empty files compress well.
const HARMLESS: u64 = 64 << 20;

/// What the archive is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A layer of an OCI image: names that begin with `.wh.` take something away.
    Layer,
    /// A root file system as it is.
    Whole,
}

/// What was unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed {
    /// The digest of the archive without its compression (OCI's "diff id").
    pub plain: Hash,
    /// Bytes that were read, compressed.
    pub read: u64,
}

/// Counts what passes, for whoever decompresses it.
struct Counted<'a, R> {
    from: R,
    read: &'a Cell<u64>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let count = self.from.read(to)?;
        self.read.set(self.read.get().saturating_add(u64::try_from(count).unwrap_or(0)));
        Ok(count)
    }
}

/// Unpacks a tar archive, plain or compressed with gzip, over what the tree has already. `tell` hears how many bytes of
/// the archive were read so far.
pub fn unpack(
    writer: &mut TreeWriter,
    from: impl Read,
    form: Form,
    tell: &mut dyn FnMut(u64),
) -> Result<Packed, TreeError> {
    let read = Cell::new(0);
    let mut from = BufReader::with_capacity(PIECE, Counted { from, read: &read });
    let head = from.fill_buf().map_err(broken)?;
    let plain = match head {
        [0x1f, 0x8b, ..] => all(writer, MultiGzDecoder::new(from), form, b"", &read, tell),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Err(TreeError::Compression { with: "zstd" }),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Err(TreeError::Compression { with: "xz" }),
        [b'B', b'Z', b'h', ..] => Err(TreeError::Compression { with: "bzip2" }),
        _ => all(writer, from, form, b"", &read, tell),
    }?;
    Ok(Packed { plain, read: read.get() })
}

/// Unpacks a plain tar archive beneath a directory of the tree.
pub(crate) fn unpack_at(writer: &mut TreeWriter, from: impl Read, at: &[u8]) -> Result<Packed, TreeError> {
    let read = Cell::new(0);
    let from = BufReader::with_capacity(PIECE, Counted { from, read: &read });
    let plain = all(writer, from, Form::Whole, at, &read, &mut |_| {})?;
    Ok(Packed { plain, read: read.get() })
}

fn all(
    writer: &mut TreeWriter,
    mut from: impl Read,
    form: Form,
    at: &[u8],
    read: &Cell<u64>,
    tell: &mut dyn FnMut(u64),
) -> Result<Hash, TreeError> {
    let mut piece = vec![0; PIECE];
    let (mut hasher, mut out) = (Sha256::new(), 0_u64);
    writer.begin_layer();
    let mut layer = Layer { writer, form, at, untar: Untar::new(), file: None };
    loop {
        let count = from.read(&mut piece).map_err(broken)?;
        let Some(piece @ [_, ..]) = piece.get(..count) else { break };
        out = out.saturating_add(u64::try_from(count).unwrap_or(0));
        if out > HARMLESS && out > read.get().saturating_mul(MOST_GROWTH) {
            return Err(TreeError::Bomb { most: MOST_GROWTH });
        }
        layer.writer.unpacked(count)?;
        hasher.update(piece);
        layer.take(piece)?;
        tell(read.get());
    }
    // A layer is held against its digest. Of any other archive only its end mark says that nothing was cut off between
    // two entries.
    let whole = match form {
        Form::Layer => layer.untar.is_whole() && out > 0,
        Form::Whole => layer.untar.has_ended(),
    };
    if !whole {
        return Err(TreeError::BadArchive);
    }
    Ok(Hash::from_bytes(hasher.finalize().into()))
}

/// A stream that does not decompress is a damaged archive; anything else is the disk's or the network's trouble.
fn broken(source: std::io::Error) -> TreeError {
    use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    match source.kind() {
        InvalidData | InvalidInput | UnexpectedEof => TreeError::BadArchive,
        _ => TreeError::Read { what: "the archive".to_owned(), source },
    }
}

struct Layer<'a> {
    writer: &'a mut TreeWriter,
    form: Form,
    /// What every path is beneath.
    at: &'a [u8],
    untar: Untar,
    file: Option<Half>,
}

/// A file that is not whole yet.
struct Half {
    file: File,
    path: Vec<u8>,
    mode: u32,
    modified_seconds: i64,
}

impl Layer<'_> {
    fn take(&mut self, piece: &[u8]) -> Result<(), TreeError> {
        let mut rest = piece;
        while let Some(part) = self.untar.next(&mut rest).map_err(|_| TreeError::BadArchive)? {
            match part {
                Part::Entry(header) => self.begin(&header)?,
                Part::Content(content) => {
                    if let Some(Half { file, path, .. }) = &mut self.file {
                        file.write_all(content).map_err(|source| TreeError::write(path, source))?;
                    }
                }
                Part::EntryEnd => {
                    if let Some(Half { file, path, mode, modified_seconds }) = self.file.take() {
                        finish(&file, &path, mode, modified_seconds)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A path of the archive as one of the tree.
    fn beneath(&self, path: &[u8]) -> Vec<u8> {
        if self.at.is_empty() { path.to_owned() } else { [self.at, b"/", path].concat() }
    }

    fn begin(&mut self, header: &Header) -> Result<(), TreeError> {
        self.writer.count()?;
        let whole = self.beneath(&header.path);
        let path = names(&whole)?;
        if hidden(&path) {
            self.writer.leave_out();
            return Ok(());
        }
        if self.form == Form::Layer && self.writer.whiteout(&path)? {
            return Ok(());
        }
        match header.kind {
            // Before ustar a directory was a file whose name ends with a slash.
            b'0' | 0 | b'7' if header.path.ends_with(b"/") => self.writer.directory(&path, header.mode),
            b'0' | 0 | b'7' => {
                let file = self.writer.file(&path, header.size)?;
                let (mode, modified_seconds) = (header.mode, header.modified_seconds);
                self.file = Some(Half { file, path: path.join(&b'/'), mode, modified_seconds });
                Ok(())
            }
            // A second name is for what is in the same archive.
            b'1' => {
                let first = self.beneath(&header.link);
                self.writer.hard_link(&path, &first)
            }
            b'2' => self.writer.link(&path, &header.link),
            b'3' | b'4' => Err(TreeError::Device { path: shown(&header.path) }),
            b'5' => self.writer.directory(&path, header.mode),
            // A pipe has no content, and nobody would be at its other end.
            b'6' => {
                self.writer.leave_out();
                Ok(())
            }
            other => Err(TreeError::Kind { path: shown(&header.path), kind: char::from(other) }),
        }
    }
}

#[cfg(test)]
mod tests;
