//! Opened again after whatever happened: a dead daemon, a full disk, a second daemon, a lost key.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};

use blastbox_wire::event::Event;
use blastbox_wire::event::ledger_text::{MAX_LINE, read_record};

use super::room::{Room, about, fill, lines};
use crate::ledger::{Completeness, Fault, Ledger, LedgerError, Options, Sync};

fn tear(room: &Room, number: u32, bytes: &[u8]) {
    OpenOptions::new().append(true).open(room.file(number)).unwrap().write_all(bytes).unwrap();
}

fn events(room: &Room, number: u32) -> Vec<Event> {
    let whole = lines(&room.file(number));
    whole.iter().map(|line| read_record(line.strip_suffix(b"\n").unwrap()).unwrap().event).collect()
}

#[test]
fn a_ledger_goes_on_where_it_was_left() {
    let room = Room::new();
    let first = room.open();
    let (id, key) = (first.id().clone(), first.public_key());
    first.close().unwrap();
    assert_eq!(room.verify().completeness, Completeness::Closed);
    let mut again = room.open();
    assert_eq!((again.id(), again.public_key()), (&id, key));
    fill(&mut again, 20);
    drop(again);
    let report = room.verify();
    assert_eq!((report.finding, report.completeness), (None, Completeness::Unproven));
    assert_eq!((report.key, report.ledger), (Some(key), Some(id)));
}

#[test]
fn every_record_tells_whose_it_was_and_how_it_was_held() {
    let room = Room::new();
    let mut ledger = room.open();
    let head = ledger.append(Some(&about()), &Event::BoxLaunched).unwrap();
    let last = lines(&room.file(1)).pop().unwrap();
    let record = read_record(last.strip_suffix(b"\n").unwrap()).unwrap();
    assert_eq!((record.seq, record.hash, record.about), (head.seq, head.hash, Some(about())));
    assert!(record.boot_micros > 0 && record.time.ends_with('Z'));
}

#[test]
fn half_a_line_is_moved_aside_and_told() {
    let room = Room::new();
    fill(&mut room.open(), 5);
    tear(&room, 1, b"{\"seq\":7,\"prev");
    assert_eq!(room.verify().finding.unwrap().fault, Fault::Truncated);
    room.open().close().unwrap();
    assert_eq!(room.verify().completeness, Completeness::Closed);
    let told = events(&room, 1).into_iter().find_map(|event| match event {
        Event::Recovered { file: 1, bytes: 14, kept_as, .. } => Some(kept_as),
        _ => None,
    });
    let kept = fs::read(room.ledger().join(told.unwrap().as_str())).unwrap();
    assert_eq!(kept, b"{\"seq\":7,\"prev");
}

#[test]
fn what_was_moved_aside_is_told_even_by_the_daemon_after_the_next() {
    let room = Room::new();
    fill(&mut room.open(), 1);
    // One that died after it had cut the line and before it could write the record.
    fs::write(room.ledger().join("torn-000001-77-0123abcd.untold"), b"{\"se").unwrap();
    drop(room.open());
    assert!(events(&room, 1).iter().any(|event| matches!(event, Event::Recovered { bytes: 4, .. })));
    assert!(room.ledger().join("torn-000001-77-0123abcd").exists());
    drop(room.open());
    let told = |event: &&Event| matches!(event, Event::Recovered { .. });
    assert_eq!(events(&room, 1).iter().filter(told).count(), 1, "told once");
}

#[test]
fn zeros_that_a_power_cut_left_are_moved_aside_too() {
    let room = Room::new();
    fill(&mut room.open(), 5);
    tear(&room, 1, &vec![0; MAX_LINE * 2]);
    drop(room.open());
    assert_eq!(room.verify().finding, None);
}

#[test]
fn a_daemon_that_dies_at_any_byte_loses_no_whole_record() {
    let room = Room::new();
    fill(&mut room.open(), 12);
    let whole = fs::read(room.file(1)).unwrap();
    for length in (0..=whole.len()).step_by(97) {
        let kept = Room::new();
        fs::copy(room.0.join("key"), kept.0.join("key")).unwrap();
        fs::create_dir(kept.ledger()).unwrap();
        fs::write(kept.file(1), &whole[..length]).unwrap();
        fs::set_permissions(kept.file(1), fs::Permissions::from_mode(0o600)).unwrap();
        let mut ledger = kept.open();
        fill(&mut ledger, 3);
        ledger.close().unwrap();
        let report = kept.verify();
        assert_eq!((report.finding, report.completeness), (None, Completeness::Closed), "{length}");
        let border = whole[..length].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        assert!(fs::read(kept.file(1)).unwrap().starts_with(&whole[..border]), "{length}");
    }
}

#[test]
fn a_daemon_that_dies_while_files_change_goes_on_in_the_next() {
    let room = Room::new();
    let options = Options { rotate_at: 4096, ..room.options() };
    fill(&mut Ledger::open(options.clone()).unwrap(), 40);
    let report = room.verify();
    assert!(report.files > 2 && report.finding.is_none(), "{report:?}");
    let last = report.files;
    // The new file was made and has no header, or half of one, or was not made.
    for left in [Some(b"".as_slice()), Some(b"{\"seq\""), None] {
        match left {
            Some(bytes) => fs::write(room.file(last), bytes).unwrap(),
            None => fs::remove_file(room.file(last)).unwrap(),
        }
        assert!(room.verify().finding.is_some());
        drop(Ledger::open(options.clone()).unwrap());
        assert_eq!(room.verify().finding, None);
    }
    // The signature under the old file is missing too.
    fs::remove_file(room.file(last)).unwrap();
    let old = lines(&room.file(last - 1));
    fs::write(room.file(last - 1), old[..old.len() - 1].concat()).unwrap();
    drop(Ledger::open(options).unwrap());
    assert_eq!((room.verify().finding, room.verify().files), (None, last));
}

#[test]
fn a_full_disk_is_an_error_and_the_ledger_goes_on_when_there_is_room() {
    let room = Room::new();
    let mut ledger = room.open();
    fill(&mut ledger, 3);
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let file = std::mem::replace(&mut ledger.file, full);
    let head = ledger.head();
    let refused = ledger.append(Some(&about()), &Event::BoxLaunched);
    assert!(matches!(refused, Err(LedgerError::DiskFull { .. })), "{refused:?}");
    assert_eq!(ledger.head(), head);
    ledger.file = file;
    fill(&mut ledger, 3);
    ledger.close().unwrap();
    assert_eq!(room.verify().completeness, Completeness::Closed);
}

#[test]
fn a_signature_that_finds_no_room_is_made_up_for_when_there_is_some() {
    let room = Room::new();
    let mut ledger = room.open();
    fill(&mut ledger, 1);
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let file = std::mem::replace(&mut ledger.file, full);
    assert!(matches!(ledger.checkpoint(), Err(LedgerError::DiskFull { .. })));
    ledger.file = file;
    ledger.checkpoint().unwrap();
    drop(ledger);
    assert_eq!((room.verify().finding, room.verify().unsigned), (None, 0));
}

#[test]
fn after_a_failed_sync_nothing_more_is_taken() {
    let room = Room::new();
    let mut ledger = Ledger::open(Options { sync: Sync::EveryRecord, ..room.options() }).unwrap();
    // A device takes the bytes and cannot sync them.
    let null = File::options().append(true).open("/dev/null").unwrap();
    ledger.file = null;
    assert!(matches!(ledger.append(None, &Event::DaemonStopped), Err(LedgerError::Write { .. })));
    assert!(matches!(ledger.append(None, &Event::DaemonStopped), Err(LedgerError::Stuck)));
}

#[test]
fn a_second_daemon_is_refused_and_the_next_is_not() {
    let room = Room::new();
    let first = room.open();
    let second = Ledger::open(room.options()).unwrap_err();
    assert!(matches!(second, LedgerError::InUse { .. }) && second.to_string().contains("another blastbox"));
    drop(first);
    drop(room.open());
}

#[test]
fn a_ledger_without_its_key_is_not_continued_with_another() {
    let room = Room::new();
    drop(room.open());
    fs::remove_file(room.0.join("key")).unwrap();
    assert!(matches!(Ledger::open(room.options()), Err(LedgerError::KeyLost { .. })));
    assert!(!room.0.join("key").exists(), "none is made in its place");
    let other = Room::new();
    drop(other.open());
    fs::copy(other.0.join("key"), room.0.join("key")).unwrap();
    assert!(matches!(Ledger::open(room.options()), Err(LedgerError::KeyLost { .. })));
}

#[test]
fn key_and_files_are_for_the_owner_alone_and_an_exposed_one_is_not_used() {
    let room = Room::new();
    drop(room.open());
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&room.0.join("key")), mode(&room.file(1)), mode(&room.ledger())), (0o600, 0o600, 0o700));
    let exposed = || matches!(Ledger::open(room.options()), Err(LedgerError::Exposed { .. }));
    for (path, bad, good) in
        [(room.0.join("key"), 0o640, 0o600), (room.file(1), 0o620, 0o600), (room.ledger(), 0o770, 0o700)]
    {
        fs::set_permissions(&path, fs::Permissions::from_mode(bad)).unwrap();
        assert!(exposed(), "{}", path.display());
        fs::set_permissions(&path, fs::Permissions::from_mode(good)).unwrap();
    }
    drop(room.open());
}

#[test]
fn a_link_is_not_followed() {
    let room = Room::new();
    drop(room.open());
    fs::rename(room.file(1), room.0.join("elsewhere")).unwrap();
    symlink(room.0.join("elsewhere"), room.file(1)).unwrap();
    assert!(Ledger::open(room.options()).is_err());
    fs::remove_file(room.file(1)).unwrap();
    fs::hard_link(room.0.join("elsewhere"), room.file(1)).unwrap();
    assert!(matches!(Ledger::open(room.options()), Err(LedgerError::Exposed { .. })));
    fs::remove_file(room.file(1)).unwrap();
    fs::rename(room.0.join("elsewhere"), room.file(1)).unwrap();
    drop(room.open());
}

#[test]
fn a_changed_ledger_is_not_continued() {
    let room = Room::new();
    fill(&mut room.open(), 5);
    let mut bytes = fs::read(room.file(1)).unwrap();
    bytes[300] ^= 1;
    let file = OpenOptions::new().write(true).truncate(true).mode(0o600).open(room.file(1));
    file.unwrap().write_all(&bytes).unwrap();
    assert!(matches!(Ledger::open(room.options()), Err(LedgerError::Damaged { .. })));
}

#[test]
fn the_events_of_the_ledger_itself_cannot_be_forged_through_it() {
    let room = Room::new();
    let mut ledger = room.open();
    for event in [Event::Closed, Event::Rotated { next: 2 }, Event::Unrecognized] {
        assert!(matches!(ledger.append(None, &event), Err(LedgerError::Reserved)));
    }
}
