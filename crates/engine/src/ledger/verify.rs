//! Whether a ledger is what was written: walks every line and names the first that is wrong.
//!
//! Trust: whoever held the files. Nothing is believed but the key and the head that the caller knows from elsewhere.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use blastbox_wire::event::ledger_text::{self, Line};
use blastbox_wire::event::{Hash, LedgerId, PublicKey};
use serde::Serialize;

use super::chain::{Chain, Fault, Head, Stage};
use super::error::LedgerError;
use super::lines::{self, Found};
use super::place::{Place, name};

/// What the caller knows from elsewhere.
#[derive(Debug, Clone, Copy, Default)]
pub struct Trust {
    /// The key that must have signed it. Without it a ledger that was written anew from its first line passes.
    pub key: Option<PublicKey>,
    /// The hash of a record that must be in it: everything up to there is complete.
    pub head: Option<Hash>,
}

/// Whether records could be missing at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Completeness {
    /// It ends in the expected head.
    HeadMatches,
    /// It ends where it was closed and signed. (Opened again and cut back to here would look the same.)
    Closed,
    /// Somebody writes it at this moment: it has no end yet.
    BeingWritten,
    /// It ends somewhere, and nobody writes it: whether something was cut off after that cannot be proven.
    Unproven,
}

/// The first thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// What is wrong.
    pub fault: Fault,
}

/// What [`verify`] found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The ledger, as it names itself.
    pub ledger: Option<LedgerId>,
    /// The key of its signatures.
    pub key: Option<PublicKey>,
    /// Whether the caller knew the key; where not, it is the ledger's own word.
    pub key_known: bool,
    /// Files that were read.
    pub files: u32,
    /// Records that are in order.
    pub records: u64,
    /// The last of them.
    pub head: Option<Head>,
    /// The last that is signed.
    pub signed: Option<Head>,
    /// Records after the last signature.
    pub unsigned: u64,
    /// The expected head, where it was found.
    pub expected_at: Option<u64>,
    /// Whether records could be missing at the end.
    pub completeness: Completeness,
    /// The first thing that is wrong; nothing after it was judged.
    pub finding: Option<Finding>,
}

impl Report {
    /// Nothing is wrong with what is there.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.finding.is_none()
    }
}

/// Verifies a ledger: its directory, or one file that holds all its lines (a copy that a sink made).
///
/// # Errors
/// Where it cannot be read at all. What is wrong with it is not an error but a [`Finding`].
pub fn verify(path: &Path, trust: &Trust) -> Result<Report, LedgerError> {
    let mut walk = Walk { chain: Chain::begin(trust.key), trust: *trust, expected_at: None, at: 1 };
    // Before it is read: a writer that closes it meanwhile has not left an end behind that we did not see.
    let claimed = Place::look(path).is_ok_and(|place| place.is_claimed());
    let sources = sources(path)?;
    let (mut files, mut finding) = (0, None);
    let mut last = String::new();
    for Source { name: file, number, open } in sources {
        let opened = open();
        finding = walk.file_fault(number).map(|fault| Finding { file: file.clone(), line: 1, fault });
        if finding.is_none() {
            let failed = |source| LedgerError::Read { file: file.clone(), source };
            let mut from = BufReader::with_capacity(1 << 16, opened.map_err(failed)?);
            let fault = walk.lines(&mut from).map_err(failed)?;
            files += 1;
            finding = fault.map(|fault| Finding { file: file.clone(), line: walk.at, fault });
        }
        last = file;
        if finding.is_some() {
            break;
        }
    }
    let end = finding.is_none().then(|| walk.end_fault()).flatten();
    let finding = finding.or_else(|| end.map(|fault| Finding { file: last, line: walk.at, fault }));
    Ok(walk.report(files, finding, claimed))
}

/// Every whole line of a ledger in order, unjudged: file, line number, bytes. Stops at the first that is torn.
///
/// # Errors
/// Where it cannot be read, or the visitor fails.
pub fn records<E: From<LedgerError>>(
    path: &Path,
    mut visit: impl FnMut(&str, u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    for Source { name: file, number: _, open } in sources(path)? {
        let failed = |source| LedgerError::Read { file: file.clone(), source };
        let mut from = BufReader::with_capacity(1 << 16, open().map_err(failed)?);
        let mut line = Vec::new();
        for at in 1.. {
            match lines::next(&mut from, &mut line).map_err(failed)? {
                Found::Whole => visit(&file, at, &line)?,
                Found::Torn | Found::Long | Found::End => break,
            }
        }
    }
    Ok(())
}

struct Source {
    name: String,
    /// Its place among the files; absent for a copy in one file.
    number: Option<u32>,
    open: Box<dyn Fn() -> io::Result<File>>,
}

fn sources(path: &Path) -> Result<Vec<Source>, LedgerError> {
    let failed = |source| LedgerError::Directory { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(failed)?.is_file() {
        let (owned, name) = (path.to_owned(), path.display().to_string());
        return Ok(vec![Source { name, number: None, open: Box::new(move || File::open(&owned)) }]);
    }
    let place = std::rc::Rc::new(Place::look(path)?);
    let numbers = place.files()?;
    if numbers.is_empty() {
        return Err(failed(io::Error::new(io::ErrorKind::NotFound, "no ledger in it")));
    }
    let source = |number| {
        let (place, file) = (place.clone(), name(number));
        Source { name: name(number), number: Some(number), open: Box::new(move || place.read(&file)) }
    };
    Ok(numbers.into_iter().map(source).collect())
}

struct Walk {
    chain: Chain,
    trust: Trust,
    expected_at: Option<u64>,
    /// The line that is looked at.
    at: u64,
}

impl Walk {
    /// Whether this file may come now.
    fn file_fault(&self, number: Option<u32>) -> Option<Fault> {
        let expected = match self.chain.stage {
            Stage::Begin => 1,
            Stage::Turned { next } => next,
            // The file before was cut; it is said here, where it is noticed.
            _ => return Some(Fault::Misplaced),
        };
        (number? != expected).then_some(Fault::FileMissing { number: expected })
    }

    /// Walks one file. The first fault, at [`Walk::at`].
    fn lines(&mut self, from: &mut BufReader<File>) -> io::Result<Option<Fault>> {
        let mut line = Vec::new();
        for at in 1.. {
            self.at = at;
            let fault = match lines::next(from, &mut line)? {
                Found::End if at == 1 => Some(Fault::Truncated),
                Found::End => {
                    self.at = at - 1;
                    return Ok(None);
                }
                Found::Torn => Some(Fault::Truncated),
                Found::Long => Some(Fault::Unreadable { why: "it is too long".to_owned() }),
                Found::Whole => self.line(&line).err(),
            };
            match fault {
                Some(Fault::Dropped { missing }) => return Ok(Some(sought(from, missing)?)),
                Some(fault) => return Ok(Some(fault)),
                None => {}
            }
        }
        Ok(None)
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Fault> {
        let read: Line =
            ledger_text::read(line).map_err(|error| Fault::Unreadable { why: error.to_string() })?;
        self.chain.step(&read)?;
        if self.trust.head == Some(read.claimed) {
            self.expected_at = Some(read.link.seq);
        }
        Ok(())
    }

    /// What is wrong with where it ends.
    fn end_fault(&self) -> Option<Fault> {
        match self.chain.stage {
            Stage::Turned { next } => Some(Fault::FileMissing { number: next }),
            _ if self.trust.head.is_some() && self.expected_at.is_none() => Some(Fault::HeadMissing),
            _ => None,
        }
    }

    fn report(self, files: u32, finding: Option<Finding>, claimed: bool) -> Report {
        let Self { chain, trust, expected_at, at: _ } = self;
        let completeness = match chain.stage {
            _ if finding.is_some() => Completeness::Unproven,
            _ if expected_at.is_some() && expected_at == chain.last.map(|last| last.seq) => {
                Completeness::HeadMatches
            }
            Stage::Proven => Completeness::Closed,
            _ if claimed => Completeness::BeingWritten,
            _ => Completeness::Unproven,
        };
        Report {
            key_known: trust.key.is_some(),
            files,
            records: chain.next(),
            head: chain.last,
            signed: chain.signed.map(|(head, _)| head),
            unsigned: chain.unsigned(),
            expected_at,
            completeness,
            finding,
            key: chain.origin.as_ref().map(|(_, key)| *key),
            ledger: chain.origin.map(|(ledger, _)| ledger),
        }
    }
}

/// A record is not where it should be: is it further down, or nowhere?
fn sought(from: &mut BufReader<File>, missing: u64) -> io::Result<Fault> {
    let mut line = Vec::new();
    while lines::next(from, &mut line)? == Found::Whole {
        let read = ledger_text::read(&line);
        if read.is_ok_and(|read| read.link.seq == missing && read.claimed == read.actual) {
            return Ok(Fault::Reordered { expected: missing });
        }
    }
    Ok(Fault::Dropped { missing })
}
