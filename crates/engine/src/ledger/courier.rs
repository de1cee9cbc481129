//! Copies of records to somewhere else, each at least once and in order.
//!
//! The ledger itself is the queue: a courier remembers the last record that its sink acknowledged and reads on from
//! there, so a sink that is down costs no memory and a new daemon goes on where a killed one stopped. It needs nothing but
//! the directory and may live on a thread of its own. The daemon's faces bring another [`Sink`] over HTTP.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use blastbox_wire::event::Hash;
use blastbox_wire::event::ledger_text;

use super::chain::Head;
use super::error::LedgerError;
use super::lines::{self, Found};
use super::place::{Place, name};

/// Most records that a sink is given at once.
const BATCH: usize = 256;
/// More than any cursor has.
const MAX_CURSOR: u64 = 256;

/// One record on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its number.
    pub seq: u64,
    /// The hash of the record before it.
    pub prev: Hash,
    /// Its hash.
    pub hash: Hash,
    /// Its line, without the line feed.
    pub line: Vec<u8>,
}

/// What an acknowledgement of a sink is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grade {
    /// What is acknowledged is on a disk.
    Durable,
    /// What is acknowledged was handed to somebody.
    HandedOver,
}

/// What a sink is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// `require_ack`: an end is not reported before this sink has it.
    MustAcknowledge,
    /// A copy, as soon as it can be had.
    BestEffort,
}

/// Where copies go.
pub trait Sink: fmt::Debug + Send {
    /// Its name: letters, digits and dashes.
    fn name(&self) -> &str;
    /// What its acknowledgement is worth.
    fn grade(&self) -> Grade;
    /// Looks whether what it has belongs to the ledger that begins with this record. Asked once, before anything is
    /// delivered; what cannot be seen there is refused when it is.
    ///
    /// # Errors
    /// Where it has records of another ledger.
    fn belongs(&mut self, _first: &Entry) -> Result<(), SinkError> {
        Ok(())
    }
    /// Takes records, in order; one that it has already may come again. Returns the last that it acknowledges.
    ///
    /// # Errors
    /// Where it acknowledges none of them.
    fn deliver(&mut self, batch: &[Entry]) -> Result<u64, SinkError>;
}

/// Why a sink does not have a record.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// It does not take anything.
    #[error("cannot reach it")]
    Unreachable(#[source] io::Error),
    /// It takes less than it is given.
    #[error("it acknowledged nothing new")]
    NoProgress,
    /// Its name cannot be part of a file's.
    #[error("its name is not made of 1 to 32 letters, digits and dashes")]
    BadName,
    /// It must acknowledge, and its acknowledgement is worth nothing.
    #[error("it cannot promise to keep what it acknowledges")]
    NotDurable,
    /// What it acknowledged is not what is in the ledger: records were lost here, or changed.
    #[error("it has acknowledged record {seq}, which is not in the ledger")]
    Ahead {
        /// The record.
        seq: u64,
    },
    /// It is a copy of another ledger, or of another history of this one.
    #[error(
        "it is not a copy of this ledger: record {seq} differs or is missing there; move it aside (it is evidence) or name \
         another path, and a new copy is begun"
    )]
    Foreign {
        /// The first record that is not the same.
        seq: u64,
    },
    /// The ledger cannot be read.
    #[error("cannot read the ledger for it")]
    Ledger(#[source] io::Error),
}

/// Carries the records of one ledger to one sink.
#[derive(Debug)]
pub struct Courier {
    place: Place,
    sink: Box<dyn Sink>,
    need: Need,
    acked: Option<Head>,
    /// The file and the place in it of the next record to send.
    file: u32,
    offset: u64,
}

impl Courier {
    /// A courier that goes on after the last record that was acknowledged.
    ///
    /// # Errors
    /// As in [`SinkError`].
    pub fn new(directory: &Path, sink: Box<dyn Sink>, need: Need) -> Result<Self, SinkError> {
        let clean = |name: &str| {
            matches!(name.len(), 1..=32) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        };
        if !clean(sink.name()) {
            return Err(SinkError::BadName);
        }
        if need == Need::MustAcknowledge && sink.grade() != Grade::Durable {
            return Err(SinkError::NotDurable);
        }
        let place = Place::look(directory).map_err(|error| match error {
            LedgerError::Directory { source, .. } => SinkError::Ledger(source),
            other => SinkError::Ledger(io::Error::other(other)),
        })?;
        let mut courier = Self { place, sink, need, acked: None, file: 1, offset: 0 };
        courier.resume()?;
        // A ledger without a record has no copies yet.
        let begin = courier.place.read(&name(1)).and_then(|open| batch(&open, 0, 1)).unwrap_or_default();
        if let Some(first) = begin.first() {
            courier.sink.belongs(first)?;
        }
        Ok(courier)
    }

    /// The sink's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.sink.name()
    }

    /// What the sink is needed for.
    #[must_use]
    pub fn need(&self) -> Need {
        self.need
    }

    /// The last record that the sink acknowledged.
    #[must_use]
    pub fn acked(&self) -> Option<Head> {
        self.acked
    }

    /// Sends what the sink does not have, up to this record at least.
    ///
    /// # Errors
    /// Where the sink has not acknowledged it in the end. What it did acknowledge is not sent again.
    pub fn deliver_until(&mut self, seq: u64) -> Result<(), SinkError> {
        while self.acked.is_none_or(|acked| acked.seq < seq) {
            let batch = self.read().map_err(SinkError::Ledger)?;
            let Some(first) = batch.first() else { return Err(SinkError::NoProgress) };
            let acked = self.sink.deliver(&batch)?;
            if acked < first.seq {
                return Err(SinkError::NoProgress);
            }
            for entry in batch.iter().take_while(|entry| entry.seq <= acked) {
                self.offset = self.offset.saturating_add(entry.line.len() as u64 + 1);
                self.acked = Some(Head { seq: entry.seq, hash: entry.hash });
            }
            self.remember(batch.iter().rfind(|entry| entry.seq <= acked)).map_err(SinkError::Ledger)?;
        }
        Ok(())
    }

    /// The next records, of one file. Half a line at the end is not looked at: it may still be written.
    fn read(&mut self) -> io::Result<Vec<Entry>> {
        loop {
            let batch = batch(&self.place.read(&name(self.file))?, self.offset, BATCH)?;
            if !batch.is_empty() {
                return Ok(batch);
            }
            let next = self.file.saturating_add(1);
            match self.place.read(&name(next)) {
                Ok(_) => (self.file, self.offset) = (next, 0),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                Err(error) => return Err(error),
            }
        }
    }

    fn cursor(&self) -> String {
        format!("sink-{}.cursor", self.sink.name())
    }

    /// Notes where the last acknowledged line begins. Lost in a crash, it costs a second delivery and nothing else.
    fn remember(&self, last: Option<&Entry>) -> io::Result<()> {
        let Some(Entry { seq, hash, line, .. }) = last else { return Ok(()) };
        let begin = self.offset.saturating_sub(line.len() as u64 + 1);
        self.place.replace(&self.cursor(), &format!("{seq} {hash} {} {begin}\n", self.file))
    }

    fn resume(&mut self) -> Result<(), SinkError> {
        let mut text = String::new();
        match self.place.read(&self.cursor()) {
            Ok(file) => file.take(MAX_CURSOR).read_to_string(&mut text).map_err(SinkError::Ledger)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(SinkError::Ledger(error)),
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let parsed = match *words.as_slice() {
            [seq, hash, file, begin] => {
                seq.parse().ok().zip(hash.parse().ok()).zip(file.parse().ok().zip(begin.parse().ok()))
            }
            _ => None,
        };
        let Some(((seq, hash), (file, begin))) = parsed else {
            // Written whole or not at all: not ours. From the beginning, then; the sink knows what it has.
            return Ok(());
        };
        let found = self.place.read(&name(file)).and_then(|open| batch(&open, begin, 1)).unwrap_or_default();
        match found.first() {
            Some(entry) if entry.seq == seq && entry.hash == hash => {
                self.acked = Some(Head { seq, hash });
                (self.file, self.offset) = (file, begin.saturating_add(entry.line.len() as u64 + 1));
                Ok(())
            }
            Some(_) | None => Err(SinkError::Ahead { seq }),
        }
    }
}

fn batch(file: &File, offset: u64, most: usize) -> io::Result<Vec<Entry>> {
    let mut from = BufReader::new(file);
    from.seek(SeekFrom::Start(offset))?;
    let (mut batch, mut line) = (Vec::new(), Vec::new());
    while batch.len() < most && lines::next(&mut from, &mut line)? == Found::Whole {
        let read = ledger_text::read(&line).map_err(io::Error::other)?;
        let (seq, prev) = (read.link.seq, read.link.prev);
        batch.push(Entry { seq, prev, hash: read.actual, line: std::mem::take(&mut line) });
    }
    Ok(batch)
}
