//! One line of a ledger: how a record is written, hashed and read back. `docs/ledger.md` says the same for people.
//!
//! ```text
//! {"seq":7,"prev":"sha256:…","time":"…","boot_micros":…,"about":{…},"event":{"kind":"…",…},"hash":"sha256:…"}
//! └──────────────────────── the body, without its closing brace ───────────────────────┘
//! ```
//! The hash is SHA-256 over the bytes of the body and one `}`. It always stands last and always has the same length, so
//! body and hash are found by counting from the end, without parsing and without any rule on how JSON is printed.
//!
//! Trust: whoever held the file. Every byte may be chosen by an attacker; a line longer than [`MAX_LINE`] is not looked at.

use serde::{Deserialize, Serialize};

use super::{About, Event, Hash, LedgerId, PublicKey, Signature};

/// Version of the form.
pub const VERSION: u32 = 1;
/// Most bytes of one line, without its line feed.
pub const MAX_LINE: usize = 16 * 1024;

const BEFORE_HASH: &[u8] = b",\"hash\":\"";
const AFTER_HASH: &[u8] = b"\"}";
/// `sha256:` and 64 digits.
const HASH_TEXT: usize = 71;

/// What a record says, before it is hashed.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Draft<'a> {
    /// Its number, from 0, without holes over all files.
    pub seq: u64,
    /// The hash of the record before; [`Hash::NOTHING`] for the first.
    pub prev: Hash,
    /// When: RFC 3339, UTC.
    pub time: &'a str,
    /// Microseconds since this machine was started: grows even where somebody sets the clock back.
    pub boot_micros: u64,
    /// Which box; absent where it is about the daemon or the ledger itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<&'a About>,
    /// What happens.
    pub event: &'a Event,
}

/// A record as it is read back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its number.
    pub seq: u64,
    /// The hash of the record before.
    pub prev: Hash,
    /// When.
    pub time: String,
    /// Microseconds since the machine was started.
    pub boot_micros: u64,
    /// Which box.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<About>,
    /// What happens.
    pub event: Event,
    /// Its own hash.
    pub hash: Hash,
}

/// What holds the chain together: all that a verifier has to understand of a record, whatever else later versions add.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Link {
    /// Its number.
    pub seq: u64,
    /// The hash of the record before.
    pub prev: Hash,
    /// What it means for the chain.
    pub event: Mark,
}

/// What an event means for the chain. The same words and fields as in [`Event`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the fields are those of `Event`")]
pub enum Mark {
    /// A file begins.
    Header { version: u32, ledger: LedgerId, file: u32, key: PublicKey },
    /// The record before is signed.
    Checkpoint { signed: u64, signature: Signature },
    /// The next file follows.
    Rotated { next: u32 },
    /// The ledger was closed.
    Closed,
    /// Nothing: anything else.
    #[serde(other)]
    Plain,
}

/// A line that was taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The chain's part of it.
    pub link: Link,
    /// The hash that it claims.
    pub claimed: Hash,
    /// The hash that it has.
    pub actual: Hash,
}

/// Why a line cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// It is longer than any that blastbox writes.
    #[error("it has more than {MAX_LINE} bytes")]
    Long,
    /// It does not end in a hash.
    #[error("it does not end in a hash")]
    NoHash,
    /// It is not a record.
    #[error("it is not a record")]
    NotARecord(#[source] serde_json::Error),
}

/// The line of a record, with its line feed, and its hash.
///
/// # Errors
/// Where it would be longer than [`MAX_LINE`].
pub fn write(draft: &Draft<'_>) -> Result<(Vec<u8>, Hash), LineError> {
    let mut line = Vec::with_capacity(1024);
    serde_json::to_writer(&mut line, draft).map_err(LineError::NotARecord)?;
    let hash = Hash::of([line.as_slice()]);
    line.pop();
    line.extend_from_slice(BEFORE_HASH);
    line.extend_from_slice(hash.to_string().as_bytes());
    line.extend_from_slice(AFTER_HASH);
    if line.len() > MAX_LINE {
        return Err(LineError::Long);
    }
    line.push(b'\n');
    Ok((line, hash))
}

/// Takes a line (without its line feed) apart. Does not judge: [`Line::claimed`] and [`Line::actual`] may differ.
///
/// # Errors
/// Where it is not a line of a ledger.
pub fn read(line: &[u8]) -> Result<Line, LineError> {
    if line.len() > MAX_LINE {
        return Err(LineError::Long);
    }
    let (body, claimed) = split(line).ok_or(LineError::NoHash)?;
    let link = serde_json::from_slice(line).map_err(LineError::NotARecord)?;
    Ok(Line { link, claimed, actual: Hash::of([body, b"}"]) })
}

/// Reads everything that a line says.
///
/// # Errors
/// Where it is not a record, or one with words that this version does not know.
pub fn read_record(line: &[u8]) -> Result<Record, LineError> {
    if line.len() > MAX_LINE {
        return Err(LineError::Long);
    }
    serde_json::from_slice(line).map_err(LineError::NotARecord)
}

/// The body without its closing brace, and the hash.
fn split(line: &[u8]) -> Option<(&[u8], Hash)> {
    let rest = line.strip_suffix(AFTER_HASH)?;
    let (rest, hash) = rest.split_at_checked(rest.len().checked_sub(HASH_TEXT)?)?;
    let body = rest.strip_suffix(BEFORE_HASH)?;
    Some((body, std::str::from_utf8(hash).ok()?.parse().ok()?))
}

/// What a checkpoint signs. Its first line keeps the signature from meaning anything elsewhere.
#[must_use]
pub fn checkpoint_message(ledger: &LedgerId, seq: u64, hash: &Hash) -> String {
    format!("blastbox-ledger-checkpoint 1\n{ledger}\n{seq}\n{hash}\n")
}

/// What the seal under a report signs: that this ledger has the report of this digest in this record. Its first line keeps
/// the signature from meaning anything elsewhere.
#[must_use]
pub fn report_message(ledger: &LedgerId, record: u64, digest: &Hash) -> String {
    format!("blastbox-escape-report 1\n{ledger}\n{record}\n{digest}\n")
}

#[cfg(test)]
mod tests {
    use blastbox_policy::{Draft as Policy, Gap, ThreatLevel, Tier};

    use super::super::{ImageMark, KilledBy, Label};
    use super::*;

    fn line(event: &Event) -> Vec<u8> {
        let about = About {
            box_id: Some(crate::BoxId::from_random([3; 20])),
            tenant: Label::new("a\"}\n,\"hash\":\""),
            policy: Policy::at(ThreatLevel::High).seal().unwrap().digest(),
            image: ImageMark { label: Label::new("host"), digest: None },
            tier: Some(Tier::Jail),
            gaps: vec![Gap::SharedKernel],
        };
        let time = "1970-01-01T00:00:00.000Z";
        let draft = Draft { seq: 7, prev: Hash::NOTHING, time, boot_micros: 9, about: Some(&about), event };
        write(&draft).unwrap().0
    }

    #[test]
    fn what_is_written_is_read_back_whole() {
        let event = Event::KillAsked { by: KilledBy::Operator };
        let line = line(&event);
        let (end, line) = line.split_last().unwrap();
        assert_eq!((*end, line.contains(&b'\n')), (b'\n', false), "one record, one line");
        let record = read_record(line).unwrap();
        assert_eq!((record.seq, &record.event), (7, &event));
        assert_eq!(record.about.unwrap().tier, Some(Tier::Jail));
        let read = read(line).unwrap();
        assert_eq!((read.claimed, read.link.event), (read.actual, Mark::Plain));
        assert_eq!(read.claimed, record.hash);
    }

    #[test]
    fn a_changed_byte_is_no_line_or_has_another_hash() {
        let line = line(&Event::BoxReady { kernel: None, engine: None });
        let line = line.strip_suffix(b"\n").unwrap();
        for at in 0..line.len() {
            for flip in [1, 0x20, 0x80] {
                let mut changed = line.to_vec();
                changed[at] ^= flip;
                assert!(read(&changed).map_or(true, |read| read.claimed != read.actual), "byte {at}");
            }
        }
    }

    #[test]
    fn the_chain_reads_the_same_words_that_events_are_written_in() {
        let key = PublicKey::from_bytes([5; 32]);
        let ledger = LedgerId::from_random([1; 20]);
        let signature = Signature::from_bytes([9; 64]);
        let mark = |event: &Event| read(line(event).strip_suffix(b"\n").unwrap()).unwrap().link.event;
        assert_eq!(
            mark(&Event::Header { version: VERSION, ledger: ledger.clone(), file: 2, key }),
            Mark::Header { version: VERSION, ledger, file: 2, key }
        );
        assert_eq!(
            mark(&Event::Checkpoint { signed: 6, signature }),
            Mark::Checkpoint { signed: 6, signature }
        );
        assert_eq!(mark(&Event::Rotated { next: 3 }), Mark::Rotated { next: 3 });
        assert_eq!(mark(&Event::Closed), Mark::Closed);
    }

    #[test]
    fn a_line_that_is_too_long_is_neither_written_nor_looked_at() {
        assert!(matches!(read(&vec![b'{'; MAX_LINE + 1]), Err(LineError::Long)));
        let time = "x".repeat(MAX_LINE);
        let draft = Draft {
            seq: 0,
            prev: Hash::NOTHING,
            time: &time,
            boot_micros: 0,
            about: None,
            event: &Event::Closed,
        };
        assert!(matches!(write(&draft), Err(LineError::Long)));
    }
}
