//! Somebody had the files in hand. Whatever was done to them is found, and named for what it is.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use blastbox_wire::event::ledger_text::{self, Draft, read_record};
use blastbox_wire::event::{Event, Hash, PublicKey};
use proptest::prelude::*;

use super::room::{Room, fill, lines};
use crate::ledger::{Completeness, Fault, Ledger, Options, Report, Trust, verify};

/// A closed ledger in one file, and the hash of its last record.
fn sample() -> &'static (Vec<Vec<u8>>, Hash) {
    static SAMPLE: OnceLock<(Vec<Vec<u8>>, Hash)> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let room = Room::new();
        let mut ledger = room.open();
        fill(&mut ledger, 21);
        let head = ledger.close().unwrap();
        (lines(&room.file(1)), head.hash)
    })
}

fn judge(path: &Path, bytes: &[u8], head: Option<Hash>) -> Report {
    fs::write(path, bytes).unwrap();
    verify(path, &Trust { key: None, head }).unwrap()
}

fn fault_of(lines: &[Vec<u8>]) -> Option<(u64, Fault)> {
    let room = Room::new();
    let report = judge(&room.0.join("copy"), &lines.concat(), None);
    report.finding.map(|finding| (finding.line, finding.fault))
}

#[test]
fn what_nobody_touched_is_intact_and_complete() {
    let (lines, head) = sample();
    let room = Room::new();
    let report = judge(&room.0.join("copy"), &lines.concat(), None);
    assert_eq!((report.completeness, report.unsigned), (Completeness::Closed, 0));
    assert!(report.is_intact() && report.records == lines.len() as u64);
    let report = judge(&room.0.join("copy"), &lines.concat(), Some(*head));
    assert_eq!(report.completeness, Completeness::HeadMatches);
}

#[test]
fn each_way_to_tamper_is_called_by_its_name() {
    let (whole, _) = sample();
    let with = |change: &dyn Fn(&mut Vec<Vec<u8>>)| {
        let mut lines = whole.clone();
        change(&mut lines);
        fault_of(&lines)
    };
    assert_eq!(with(&|lines| lines[4][20] ^= 1).unwrap().0, 5);
    assert_eq!(
        with(&|lines| {
            let at = lines[4].windows(5).position(|window| window == b"acme\"").unwrap();
            lines[4][at] = b'b';
        }),
        Some((5, Fault::Changed))
    );
    assert_eq!(with(&|lines| drop(lines.remove(4))), Some((5, Fault::Dropped { missing: 4 })));
    assert_eq!(with(&|lines| lines.swap(4, 9)), Some((5, Fault::Reordered { expected: 4 })));
    assert_eq!(with(&|lines| lines.insert(5, lines[4].clone())), Some((6, Fault::Repeated)));
    assert_eq!(with(&|lines| lines[4].truncate(9)).unwrap().0, 5);
    assert_eq!(with(&|lines| drop(lines.remove(0))), Some((1, Fault::Dropped { missing: 0 })));
    assert_eq!(
        with(&|lines| {
            lines.last_mut().unwrap().pop();
        }),
        Some((whole.len() as u64, Fault::Truncated))
    );
}

/// Writes the chain anew from a line on, as somebody without the key would: every hash fits again.
fn rechain(lines: &mut [Vec<u8>], from: usize, change: impl Fn(usize, &mut Event)) {
    let mut prev = read_record(lines[from - 1].trim_ascii_end()).unwrap().hash;
    for (at, line) in lines.iter_mut().enumerate().skip(from) {
        let mut record = read_record(line.trim_ascii_end()).unwrap();
        change(at, &mut record.event);
        let (seq, boot_micros, about) = (record.seq, record.boot_micros, record.about.as_ref());
        let draft = Draft { seq, prev, time: &record.time, boot_micros, about, event: &record.event };
        (*line, prev) = ledger_text::write(&draft).unwrap();
    }
}

#[test]
fn a_chain_that_was_computed_anew_without_the_key_fails_at_the_next_signature() {
    let mut lines = sample().0.clone();
    let next = lines.iter().skip(5).position(|line| line.windows(10).any(|window| window == b"checkpoint"));
    rechain(&mut lines, 4, |at, event| {
        if at == 4 {
            *event = Event::BoxReady { kernel: None, engine: None };
        }
    });
    assert_eq!(fault_of(&lines), Some((next.unwrap() as u64 + 6, Fault::BadSignature)));
}

#[test]
fn a_ledger_that_was_written_anew_with_another_key_passes_only_where_no_key_is_known() {
    let (mine, theirs) = (Room::new(), Room::new());
    let key = mine.open().public_key();
    theirs.open().close().unwrap();
    let trust = |key: PublicKey| Trust { key: Some(key), head: None };
    assert!(verify(&mine.ledger(), &trust(key)).unwrap().is_intact());
    let report = verify(&theirs.ledger(), &trust(key)).unwrap();
    assert_eq!(report.finding.unwrap().fault, Fault::WrongKey);
    assert!(theirs.verify().is_intact() && !theirs.verify().key_known);
}

#[test]
fn an_end_that_was_cut_at_a_line_is_unproven_and_with_the_head_it_is_found() {
    let (whole, head) = sample();
    let room = Room::new();
    let path = room.0.join("copy");
    for kept in 1..whole.len() {
        let cut = whole[..kept].concat();
        let report = judge(&path, &cut, None);
        assert_eq!((report.finding, report.completeness), (None, Completeness::Unproven), "{kept}");
        let report = judge(&path, &cut, Some(*head));
        assert_eq!(report.finding.unwrap().fault, Fault::HeadMissing, "{kept}");
    }
}

#[test]
fn a_head_that_was_noted_earlier_proves_everything_up_to_it() {
    let (whole, _) = sample();
    let room = Room::new();
    let early = read_record(whole[9].trim_ascii_end()).unwrap().hash;
    let report = judge(&room.0.join("copy"), &whole[..14].concat(), Some(early));
    assert_eq!((report.finding, report.expected_at), (None, Some(9)));
    assert_eq!(report.completeness, Completeness::Unproven);
}

#[test]
fn a_file_that_is_missing_is_named() {
    let room = Room::new();
    let mut ledger = Ledger::open(Options { rotate_at: 4096, ..room.options() }).unwrap();
    fill(&mut ledger, 40);
    ledger.close().unwrap();
    let report = room.verify();
    assert_eq!((report.finding, report.completeness), (None, Completeness::Closed));
    let last = report.files;
    assert!(last >= 3);
    for number in 1..=last {
        let aside = room.0.join("aside");
        fs::rename(room.file(number), &aside).unwrap();
        let fault = room.verify().finding.unwrap().fault;
        assert_eq!(fault, Fault::FileMissing { number });
        fs::rename(&aside, room.file(number)).unwrap();
    }
    let old = lines(&room.file(1));
    fs::write(room.file(1), old[..old.len() - 2].concat()).unwrap();
    assert!(!room.verify().is_intact(), "the end of a file in the middle");
}

/// One thing that is done to the bytes of a ledger.
#[derive(Debug, Clone)]
enum Deed {
    Change { at: usize, flip: u8 },
    DropByte { at: usize },
    AddByte { at: usize, byte: u8 },
    DropLine { at: usize },
    RepeatLine { at: usize, to: usize },
    SwapLines { one: usize, other: usize },
    Cut { at: usize },
}

fn deeds() -> impl Strategy<Value = Deed> {
    let place = 0_usize..1 << 20;
    prop_oneof![
        4 => (place.clone(), 1_u8..).prop_map(|(at, flip)| Deed::Change { at, flip }),
        1 => place.clone().prop_map(|at| Deed::DropByte { at }),
        1 => (place.clone(), any::<u8>()).prop_map(|(at, byte)| Deed::AddByte { at, byte }),
        2 => place.clone().prop_map(|at| Deed::DropLine { at }),
        1 => (place.clone(), place.clone()).prop_map(|(at, to)| Deed::RepeatLine { at, to }),
        2 => (place.clone(), place.clone()).prop_map(|(one, other)| Deed::SwapLines { one, other }),
        1 => place.prop_map(|at| Deed::Cut { at }),
    ]
}

fn done(lines: &[Vec<u8>], deed: &Deed) -> Vec<u8> {
    let (mut lines, mut bytes) = (lines.to_vec(), lines.concat());
    match *deed {
        Deed::Change { at, flip } => {
            let at = at % bytes.len();
            bytes[at] ^= flip;
        }
        Deed::DropByte { at } => drop(bytes.remove(at % bytes.len())),
        Deed::AddByte { at, byte } => bytes.insert(at % (bytes.len() + 1), byte),
        Deed::Cut { at } => bytes.truncate(at % bytes.len()),
        Deed::DropLine { at } => {
            lines.remove(at % lines.len());
            bytes = lines.concat();
        }
        Deed::RepeatLine { at, to } => {
            let line = lines[at % lines.len()].clone();
            lines.insert(to % (lines.len() + 1), line);
            bytes = lines.concat();
        }
        Deed::SwapLines { one, other } => {
            let count = lines.len();
            lines.swap(one % count, other % count);
            bytes = lines.concat();
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_one_thing_is_done_to_a_closed_ledger_it_no_longer_proves_itself(deed in deeds()) {
        let (lines, head) = sample();
        let bytes = done(lines, &deed);
        prop_assume!(bytes != lines.concat());
        let room = Room::new();
        let path = room.0.join("copy");
        let report = judge(&path, &bytes, None);
        prop_assert!(report.finding.is_some() || report.completeness == Completeness::Unproven);
        // Without a finding it is the beginning of the ledger, cut at a line; with the head that is found as well.
        if report.finding.is_none() {
            prop_assert!(lines.concat().starts_with(&bytes) && bytes.ends_with(b"\n"));
        }
        prop_assert!(judge(&path, &bytes, Some(*head)).finding.is_some());
    }
}
