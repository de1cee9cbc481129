//! What a ledger looks like when it is opened again, after whatever happened to whoever wrote it last.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};

use blastbox_wire::event::ledger_text;
use blastbox_wire::event::{Event, Hash, Label};

use super::chain::{Chain, Fault, Stage};
use super::disk::Disk;
use super::error::LedgerError;
use super::lines::{self, Found};
use super::place::{Place, name};

/// Where a ledger goes on.
#[derive(Debug)]
pub(super) struct Standing {
    /// The chain up to its last whole record.
    pub(super) chain: Chain,
    /// The file that is appended to, and its number and length.
    pub(super) file: File,
    pub(super) number: u32,
    pub(super) length: u64,
}

/// Reads the last file whole; what a dying daemon left half written is moved aside. `None`: there is no file.
pub(super) fn stand(place: &Place) -> Result<Option<Standing>, LedgerError> {
    let Some(number) = place.files()?.last().copied() else { return Ok(None) };
    let file = place.append(number)?;
    let (mut chain, length, torn) = scan(&file, number)?;
    if chain.last.is_none() && number > 1 {
        // A daemon died before the new file had its header: the chain ends in the file before.
        let before = number - 1;
        chain = scan(&place.append(before)?, before)?.0;
        if chain.stage != (Stage::Turned { next: number }) {
            return Err(LedgerError::Damaged { file: name(number), line: 1, fault: Fault::Truncated });
        }
    }
    if !torn.is_empty() {
        move_aside(place, &file, number, length, &torn)?;
    }
    Ok(Some(Standing { chain, file, number, length }))
}

/// The chain of one file, the length of its whole lines, and the bytes after them.
fn scan(file: &File, number: u32) -> Result<(Chain, u64, Vec<u8>), LedgerError> {
    let failed = |source| LedgerError::Read { file: name(number), source };
    let damaged = |line, fault| LedgerError::Damaged { file: name(number), line, fault };
    let mut from = BufReader::with_capacity(1 << 16, file);
    let (mut chain, mut length, mut line) = (Chain::middle(), 0_u64, Vec::new());
    for at in 1_u64.. {
        match lines::next(&mut from, &mut line).map_err(failed)? {
            Found::Whole => {
                let read = ledger_text::read(&line)
                    .map_err(|error| damaged(at, Fault::Unreadable { why: error.to_string() }))?;
                chain.step(&read).map_err(|fault| damaged(at, fault))?;
                length += line.len() as u64 + 1;
            }
            Found::End => break,
            Found::Torn | Found::Long => {
                let mut torn = Vec::new();
                from.seek(SeekFrom::Start(length)).map_err(failed)?;
                from.read_to_end(&mut torn).map_err(failed)?;
                // A write that was cut short has no line feed. More lines behind it: somebody else was here.
                if torn.contains(&b'\n') {
                    return Err(damaged(at, Fault::Changed));
                }
                return Ok((chain, length, torn));
            }
        }
    }
    Ok((chain, length, Vec::new()))
}

/// Ends the name of what was moved aside while no record tells of it.
const UNTOLD: &str = ".untold";

/// Kept first, on the disk, and only then cut: whatever dies in between, nothing is lost.
fn move_aside(place: &Place, file: &File, number: u32, length: u64, torn: &[u8]) -> Result<(), LedgerError> {
    let failed = |source| LedgerError::Write { file: name(number), source };
    let digest = Hash::of([torn]).to_string();
    let short = digest.get(7..15).unwrap_or_default();
    place.keep(&format!("torn-{number:06}-{length}-{short}{UNTOLD}"), torn).map_err(failed)?;
    file.cut(length).map_err(|errno| failed(errno.into()))?;
    file.sync_all().map_err(failed)
}

/// Something that was moved aside and that the ledger does not tell of yet.
#[derive(Debug)]
pub(super) struct Kept(String);

impl Kept {
    /// The ledger tells of it now. Before this is noted, it would be told again, which harms nobody.
    pub(super) fn told(self, place: &Place) -> Result<(), LedgerError> {
        let to = self.0.trim_end_matches(UNTOLD);
        place.rename(&self.0, to).map_err(|source| LedgerError::Write { file: self.0.clone(), source })
    }
}

/// All that was moved aside and not told, by this daemon or by one that died over it, with the event that tells it.
pub(super) fn pending(place: &Place) -> Result<Vec<(Kept, Event)>, LedgerError> {
    let mut pending = Vec::new();
    for kept in place.names("torn-", UNTOLD)? {
        let mut bytes = Vec::new();
        place
            .read(&kept)
            .and_then(|mut file| file.read_to_end(&mut bytes))
            .map_err(|source| LedgerError::Read { file: kept.clone(), source })?;
        let event = Event::Recovered {
            file: kept.split('-').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0),
            bytes: bytes.len() as u64,
            digest: Hash::of([bytes.as_slice()]),
            kept_as: Label::new(kept.trim_end_matches(UNTOLD)),
        };
        pending.push((Kept(kept), event));
    }
    Ok(pending)
}
