//! The ledger as its one writer holds it.
//!
//! Whatever fails, a record is there whole or not at all, and the error says so before the effect could happen. Only
//! where not even that is certain (a failed `fsync`, half a line that cannot be removed) the ledger takes nothing more.

use std::fs::File;
use std::path::Path;

use blastbox_wire::event::ledger_text::{self, Draft, VERSION};
use blastbox_wire::event::{About, Event, Hash, LedgerId, PublicKey, Signature};
use blastbox_wire::receipt::rfc3339;
use rustix::rand::{GetRandomFlags, getrandom};

use super::chain::{Head, Stage};
use super::courier::{Courier, Need, Sink, SinkError};
use super::disk::{Disk, PutError, put};
use super::error::LedgerError;
use super::key::Key;
use super::options::{Options, Sync};
use super::place::{Place, name};
use super::recover::{Standing, pending, stand};

/// What has to be written before the next event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Nothing,
    Header,
    /// The signature under the last record of a file.
    Signature,
    NextFile,
}

/// An open ledger. Dropping it without [`Ledger::close`] is what a crash does: nothing is lost, and nothing proves it.
#[derive(Debug)]
pub struct Ledger {
    options: Options,
    place: Place,
    key: Key,
    id: LedgerId,
    pub(super) file: File,
    number: u32,
    length: u64,
    last: Option<Head>,
    unsigned: u64,
    due: Due,
    stuck: bool,
    couriers: Vec<Courier>,
}

impl Ledger {
    /// As after a disk that failed.
    #[cfg(test)]
    pub(crate) fn jam_for_test(&mut self, stuck: bool) {
        self.stuck = stuck;
    }

    /// Opens the ledger, or begins one. What was half written is moved aside and recorded; what was changed is an error.
    ///
    /// # Errors
    /// Where it is in use, damaged, exposed to others, without its key, or cannot be written.
    pub fn open(options: Options) -> Result<Self, LedgerError> {
        let place = Place::claim(&options.directory)?;
        let standing = stand(&place)?;
        let origin = standing.as_ref().and_then(|standing| standing.chain.origin.clone());
        let loaded = Key::load(&options.key)?;
        let fresh = loaded.is_none();
        let (key, id) = match (loaded, origin) {
            (Some(key), Some((id, public))) if key.public() == public => (key, id),
            (_, Some(_)) => return Err(LedgerError::KeyLost { path: options.key }),
            (Some(key), None) => (key, random_id()?),
            (None, None) => (Key::create(&options.key)?, random_id()?),
        };
        let mut ledger = match standing {
            Some(Standing { chain, file, number, length }) => {
                let due = match (length, chain.stage) {
                    (0, _) => Due::Header,
                    (_, Stage::Rotated { .. }) => Due::Signature,
                    (_, Stage::Turned { .. }) => Due::NextFile,
                    _ => Due::Nothing,
                };
                let (last, unsigned) = (chain.last, chain.unsigned());
                Self { last, unsigned, due, ..Self::blank(options, place, key, id, file, number, length) }
            }
            None => {
                let file = place
                    .create(1)
                    .map_err(|source| LedgerError::Directory { path: options.directory.clone(), source })?;
                Self::blank(options, place, key, id, file, 1, 0)
            }
        };
        ledger.settle()?;
        if fresh {
            ledger.record(None, &Event::KeyCreated { key: ledger.key.public() })?;
        }
        for (kept, event) in pending(&ledger.place)? {
            ledger.record(None, &event)?;
            ledger.flush()?;
            kept.told(&ledger.place)?;
        }
        ledger.flush()?;
        Ok(ledger)
    }

    fn blank(
        options: Options,
        place: Place,
        key: Key,
        id: LedgerId,
        file: File,
        number: u32,
        length: u64,
    ) -> Self {
        let couriers = Vec::new();
        let (last, unsigned, due, stuck) = (None, 0, Due::Header, false);
        Self { options, place, key, id, file, number, length, last, unsigned, due, stuck, couriers }
    }

    /// Writes an event, before the effect that it announces. On an error the effect must not happen.
    ///
    /// # Errors
    /// Where it cannot be written; then nothing of it is in the ledger.
    pub fn append(&mut self, about: Option<&About>, event: &Event) -> Result<Head, LedgerError> {
        if is_own(event) {
            return Err(LedgerError::Reserved);
        }
        self.settle()?;
        let head = self.record(about, event)?;
        if self.options.sync == Sync::EveryRecord {
            self.flush()?;
        }
        // The event stands. A signature or a new file that fails now is tried again, and reported, before the next one.
        self.settle().ok();
        Ok(head)
    }

    /// The signature under a report whose digest is in this record.
    #[must_use]
    pub fn sign_report(&self, record: u64, digest: &Hash) -> Signature {
        self.key.sign_report(&self.id, record, digest)
    }

    /// Signs what is there, so that not even its end can be cut off unseen by who kept the answer. For quiet hours.
    ///
    /// # Errors
    /// Where the signature cannot be written.
    pub fn checkpoint(&mut self) -> Result<Head, LedgerError> {
        self.settle()?;
        match self.last {
            Some(last) if self.unsigned == 0 => Ok(last),
            Some(_) | None => self.sign(),
        }
    }

    /// Closes the ledger: the last record and the signature under it prove that nothing before is missing.
    ///
    /// # Errors
    /// Where they cannot be written.
    pub fn close(mut self) -> Result<Head, LedgerError> {
        self.settle()?;
        self.record(None, &Event::Closed)?;
        self.sign()
    }

    /// The last record. Kept elsewhere, it is what `audit verify --head` wants.
    #[must_use]
    pub fn head(&self) -> Head {
        self.last.unwrap_or(Head { seq: 0, hash: Hash::NOTHING })
    }

    /// The name of this ledger.
    #[must_use]
    pub fn id(&self) -> &LedgerId {
        &self.id
    }

    /// Where it lies.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.options.directory
    }

    /// What checks its signatures.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        self.key.public()
    }

    /// Sends copies to a sink, from where it stopped the last time.
    ///
    /// # Errors
    /// Where the sink cannot be what it is needed for, or what it acknowledged is no longer in the ledger.
    pub fn add_sink(&mut self, sink: Box<dyn Sink>, need: Need) -> Result<(), SinkError> {
        self.couriers.push(Courier::new(&self.options.directory, sink, need)?);
        Ok(())
    }

    /// Sends what the sinks do not have yet. Each that failed is named: whether that is an event is the caller's to say.
    pub fn ship(&mut self) -> Vec<(String, SinkError)> {
        let head = self.head().seq;
        let failed = |courier: &mut Courier| {
            courier.deliver_until(head).err().map(|error| (courier.name().to_owned(), error))
        };
        self.couriers.iter_mut().filter_map(failed).collect()
    }

    /// Returns when every sink that must acknowledge has this record. Tries once; waiting is the caller's.
    ///
    /// # Errors
    /// Where one has not.
    pub fn flush_until_acked(&mut self, seq: u64) -> Result<(), LedgerError> {
        for courier in self.couriers.iter_mut().filter(|courier| courier.need() == Need::MustAcknowledge) {
            courier.deliver_until(seq).map_err(|source| LedgerError::Unacknowledged {
                sink: courier.name().to_owned(),
                seq,
                source,
            })?;
        }
        Ok(())
    }

    /// Brings the file into the state in which an event may follow.
    fn settle(&mut self) -> Result<(), LedgerError> {
        if self.due == Due::Nothing && self.length >= self.options.rotate_at {
            self.record(None, &Event::Rotated { next: self.number.saturating_add(1) })?;
            self.due = Due::Signature;
        }
        if self.due == Due::Signature {
            self.sign()?;
            self.due = Due::NextFile;
        }
        if self.due == Due::NextFile {
            let number = self.number.saturating_add(1);
            self.file = self
                .place
                .create(number)
                .map_err(|source| LedgerError::Write { file: name(number), source })?;
            (self.number, self.length, self.due) = (number, 0, Due::Header);
        }
        if self.due == Due::Header {
            let (ledger, key) = (self.id.clone(), self.key.public());
            self.record(None, &Event::Header { version: VERSION, ledger, file: self.number, key })?;
            self.due = Due::Nothing;
        }
        if self.unsigned >= u64::from(self.options.checkpoint_every) {
            self.sign()?;
        }
        Ok(())
    }

    fn sign(&mut self) -> Result<Head, LedgerError> {
        let Head { seq, hash } = self.head();
        let signature = self.key.sign(&self.id, seq, &hash);
        let head = self.record(None, &Event::Checkpoint { signed: seq, signature })?;
        self.unsigned = 0;
        self.flush()?;
        Ok(head)
    }

    fn flush(&mut self) -> Result<(), LedgerError> {
        self.file.sync().map_err(|errno| {
            // After a failed fsync the kernel may have thrown the pages away: nobody knows what is on the disk.
            self.stuck = true;
            LedgerError::Write { file: name(self.number), source: errno.into() }
        })
    }

    fn record(&mut self, about: Option<&About>, event: &Event) -> Result<Head, LedgerError> {
        if self.stuck {
            return Err(LedgerError::Stuck);
        }
        let moment = (self.options.clock)();
        let draft = Draft {
            seq: self.last.map_or(0, |last| last.seq.saturating_add(1)),
            prev: self.head().hash,
            time: &rfc3339(moment.since_1970),
            boot_micros: u64::try_from(moment.since_boot.as_micros()).unwrap_or(u64::MAX),
            about,
            event,
        };
        let (line, hash) = ledger_text::write(&draft).map_err(LedgerError::Line)?;
        let file = || name(self.number);
        match put(&self.file, self.length, &line) {
            Ok(()) => {}
            Err(PutError::Full) => return Err(LedgerError::DiskFull { file: file() }),
            Err(PutError::Failed(errno)) => {
                return Err(LedgerError::Write { file: file(), source: errno.into() });
            }
            Err(PutError::Stuck(errno)) => {
                self.stuck = true;
                return Err(LedgerError::Write { file: file(), source: errno.into() });
            }
        }
        let head = Head { seq: draft.seq, hash };
        self.length = self.length.saturating_add(line.len() as u64);
        self.unsigned = self.unsigned.saturating_add(1);
        self.last = Some(head);
        Ok(head)
    }
}

fn is_own(event: &Event) -> bool {
    matches!(
        event,
        Event::Header { .. }
            | Event::KeyCreated { .. }
            | Event::Checkpoint { .. }
            | Event::Recovered { .. }
            | Event::Rotated { .. }
            | Event::Closed
            | Event::Unrecognized
    )
}

fn random_id() -> Result<LedgerId, LedgerError> {
    let mut random = [0; 20];
    getrandom(&mut random, GetRandomFlags::empty()).map_err(|errno| LedgerError::Randomness(errno.into()))?;
    Ok(LedgerId::from_random(random))
}
