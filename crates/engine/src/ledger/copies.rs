//! A sink that is another file: on another disk, a network mount, or where a log shipper looks.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use blastbox_wire::event::ledger_text;
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::courier::{Entry, Grade, Sink, SinkError};
use super::disk::{Disk, put};
use super::lines::{self, Found};

/// All lines of a ledger in one file, which [`super::verify`] reads as well.
#[derive(Debug)]
pub struct FileSink {
    name: String,
    file: File,
    length: u64,
    last: Option<u64>,
}

impl FileSink {
    /// Opens the copy, or begins one. Half a line at its end is removed: the ledger has the whole.
    ///
    /// # Errors
    /// Where it cannot be opened, or holds something else.
    pub fn open(name: &str, path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(CWD, path, flags | OFlags::NONBLOCK, Mode::RUSR | Mode::WUSR)?);
        if !file.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut from = BufReader::with_capacity(1 << 16, &file);
        let (mut length, mut last, mut line) = (0, None, Vec::new());
        loop {
            match lines::next(&mut from, &mut line)? {
                Found::Whole => {
                    last = Some(ledger_text::read(&line).map_err(io::Error::other)?.link.seq);
                    length += line.len() as u64 + 1;
                }
                Found::End => break,
                Found::Torn => {
                    file.cut(length)?;
                    break;
                }
                Found::Long => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        Ok(Self { name: name.to_owned(), file, length, last })
    }
}

impl Sink for FileSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn grade(&self) -> Grade {
        Grade::Durable
    }

    fn deliver(&mut self, batch: &[Entry]) -> Result<u64, SinkError> {
        let mut bytes = Vec::new();
        let mut last = self.last;
        for entry in batch.iter().filter(|entry| self.last.is_none_or(|last| entry.seq > last)) {
            bytes.extend_from_slice(&entry.line);
            bytes.push(b'\n');
            last = Some(entry.seq);
        }
        put(&self.file, self.length, &bytes).map_err(|error| SinkError::Unreachable(error.into()))?;
        self.length = self.length.saturating_add(bytes.len() as u64);
        self.last = last;
        self.file.sync().map_err(|errno| SinkError::Unreachable(errno.into()))?;
        last.ok_or(SinkError::NoProgress)
    }
}
