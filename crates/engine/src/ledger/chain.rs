//! The rule that makes a pile of lines a ledger, one line at a time. Pure.
//!
//! ```text
//! begin ──header──► running ──rotated──► rotated ──checkpoint──► turned ──header of the next file──► running
//!                    │  ▲──────────────── anything ◄─┐
//!                    └──closed──► closed ──checkpoint──► proven
//! ```

use std::fmt;

use blastbox_wire::event::ledger_text::{Line, Mark, VERSION};
use blastbox_wire::event::{Hash, LedgerId, PublicKey};
use serde::Serialize;

use super::key::signed_by;

/// A record by its number and its hash. Kept elsewhere, it proves that everything up to it is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Head {
    /// Its number.
    pub seq: u64,
    /// Its hash.
    pub hash: Hash,
}

/// What is wrong with a line. Closed and append-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum Fault {
    /// It is not a line of a ledger.
    Unreadable {
        /// Why.
        why: String,
    },
    /// Its bytes are not those that its hash was made from.
    Changed,
    /// Records before it are missing.
    Dropped {
        /// The first that is missing.
        missing: u64,
    },
    /// The record that should be here stands further down.
    Reordered {
        /// Its number.
        expected: u64,
    },
    /// A record with this or a later number came before.
    Repeated,
    /// It was written after another record than the one before it.
    Unlinked,
    /// It ends in the middle.
    Truncated,
    /// The signature is not that of the ledger's key over the record before.
    BadSignature,
    /// Another key than the ledger's, or than the one that was expected.
    WrongKey,
    /// Another ledger's.
    WrongLedger,
    /// It may not stand here.
    Misplaced,
    /// A form that this version does not know.
    UnknownVersion,
    /// A whole file is missing.
    FileMissing {
        /// Its number.
        number: u32,
    },
    /// No record has the expected hash: records at the end are missing, or it is another ledger.
    HeadMissing,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { why } => write!(f, "not a record: {why}"),
            Self::Changed => f.write_str("changed: its bytes do not have the hash that it claims"),
            Self::Dropped { missing } => {
                write!(f, "dropped: records from {missing} on are missing before it")
            }
            Self::Reordered { expected } => {
                write!(f, "reordered: record {expected} should be here and comes later")
            }
            Self::Repeated => f.write_str("repeated: a record with this number came before"),
            Self::Unlinked => {
                f.write_str("unlinked: it was written after another record than the one before it")
            }
            Self::Truncated => f.write_str("truncated: it ends in the middle of a record"),
            Self::BadSignature => {
                f.write_str("bad signature: the ledger's key did not sign what stands before it")
            }
            Self::WrongKey => f.write_str("wrong key: it names another signing key than the one expected"),
            Self::WrongLedger => f.write_str("wrong ledger: it belongs to another one"),
            Self::Misplaced => f.write_str("misplaced: such a record cannot stand here"),
            Self::UnknownVersion => f.write_str("unknown version: a newer blastbox wrote it"),
            Self::FileMissing { number } => write!(f, "file missing: {}", super::place::name(*number)),
            Self::HeadMissing => f.write_str("head missing: no record has the expected hash"),
        }
    }
}

/// Where the walk stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Before the first line of the ledger.
    Begin,
    /// Before the first line of some file.
    Middle,
    /// Within a file.
    Running,
    /// The file is over, but for its signature.
    Rotated { next: u32 },
    /// The file is over.
    Turned { next: u32 },
    /// The ledger is closed, but for its signature.
    Closed,
    /// The ledger is closed and signed.
    Proven,
}

/// The chain up to here.
#[derive(Debug, Clone)]
pub(super) struct Chain {
    expected: Option<PublicKey>,
    pub(super) stage: Stage,
    pub(super) origin: Option<(LedgerId, PublicKey)>,
    pub(super) file: u32,
    pub(super) last: Option<Head>,
    /// The last record under a signature, and the number of the checkpoint that signs it.
    pub(super) signed: Option<(Head, u64)>,
}

impl Chain {
    /// From the first line of the ledger; with the key that must have signed it, where it is known.
    pub(super) fn begin(expected: Option<PublicKey>) -> Self {
        Self { expected, stage: Stage::Begin, origin: None, file: 0, last: None, signed: None }
    }

    /// From the first line of any file.
    pub(super) fn middle() -> Self {
        Self { stage: Stage::Middle, ..Self::begin(None) }
    }

    /// The number that the next record must have.
    pub(super) fn next(&self) -> u64 {
        self.last.map_or(0, |last| last.seq.saturating_add(1))
    }

    /// Records after the last checkpoint.
    pub(super) fn unsigned(&self) -> u64 {
        let after = self.signed.map_or(0, |(_, checkpoint)| checkpoint.saturating_add(1));
        self.next().saturating_sub(after)
    }

    /// Takes the next line. After a fault the chain stays where it was.
    pub(super) fn step(&mut self, line: &Line) -> Result<(), Fault> {
        let (link, found) = (&line.link, Head { seq: line.link.seq, hash: line.claimed });
        if line.claimed != line.actual {
            return Err(Fault::Changed);
        }
        if self.stage != Stage::Middle {
            let expected = self.next();
            if found.seq > expected {
                return Err(Fault::Dropped { missing: expected });
            }
            if found.seq < expected {
                return Err(Fault::Repeated);
            }
            if link.prev != self.last.map_or(Hash::NOTHING, |last| last.hash) {
                return Err(Fault::Unlinked);
            }
        }
        self.stage = self.turn(&link.event, found)?;
        self.last = Some(found);
        Ok(())
    }

    fn turn(&mut self, mark: &Mark, found: Head) -> Result<Stage, Fault> {
        match (self.stage, mark) {
            (
                Stage::Begin | Stage::Middle | Stage::Turned { .. },
                Mark::Header { version, ledger, file, key },
            ) => {
                if *version != VERSION {
                    return Err(Fault::UnknownVersion);
                }
                self.header(ledger, *file, *key)?;
                Ok(Stage::Running)
            }
            (Stage::Begin | Stage::Middle | Stage::Turned { .. }, _) | (_, Mark::Header { .. }) => {
                Err(Fault::Misplaced)
            }
            (stage, Mark::Checkpoint { signed, signature }) => {
                let (Some(last), Some((ledger, key))) = (self.last, &self.origin) else {
                    return Err(Fault::Misplaced);
                };
                if *signed != last.seq || !signed_by(key, ledger, last.seq, &last.hash, signature) {
                    return Err(Fault::BadSignature);
                }
                self.signed = Some((last, found.seq));
                Ok(match stage {
                    Stage::Rotated { next } => Stage::Turned { next },
                    Stage::Closed => Stage::Proven,
                    _ => Stage::Running,
                })
            }
            (Stage::Rotated { .. }, _) => Err(Fault::Misplaced),
            (_, Mark::Rotated { next }) if self.file.checked_add(1) == Some(*next) => {
                Ok(Stage::Rotated { next: *next })
            }
            (_, Mark::Rotated { .. }) => Err(Fault::Misplaced),
            (_, Mark::Closed) => Ok(Stage::Closed),
            (_, Mark::Plain) => Ok(Stage::Running),
        }
    }

    fn header(&mut self, ledger: &LedgerId, file: u32, key: PublicKey) -> Result<(), Fault> {
        if self.expected.is_some_and(|expected| expected != key) {
            return Err(Fault::WrongKey);
        }
        match &self.origin {
            Some((known, _)) if known != ledger => return Err(Fault::WrongLedger),
            Some((_, known)) if *known != key => return Err(Fault::WrongKey),
            Some(_) | None => {}
        }
        let number = match self.stage {
            Stage::Begin => 1,
            Stage::Turned { next } => next,
            _ => file,
        };
        if file != number {
            return Err(Fault::Misplaced);
        }
        self.origin = Some((ledger.clone(), key));
        self.file = file;
        Ok(())
    }
}
