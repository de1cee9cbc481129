//! Copies elsewhere: complete, in order, acknowledged, and honest about what cannot be had.

use std::fs;
use std::io;
use std::os::unix::net::UnixDatagram;

use blastbox_wire::event::Event;
use blastbox_wire::event::ledger_text::read_record;

use super::room::{Room, fill, lines};
use crate::ledger::{
    Completeness, Entry, FileSink, Grade, Ledger, LedgerError, Need, Options, Sink, SinkError, SyslogSink,
    Trust, verify,
};

fn file_sink(room: &Room) -> Box<FileSink> {
    Box::new(FileSink::open("copy", &room.0.join("copy.jsonl")).unwrap())
}

#[test]
fn a_copy_in_one_file_is_a_ledger_that_verifies() {
    let room = Room::new();
    let mut ledger = Ledger::open(Options { rotate_at: 4096, ..room.options() }).unwrap();
    ledger.add_sink(file_sink(&room), Need::MustAcknowledge).unwrap();
    fill(&mut ledger, 30);
    let head = ledger.head();
    ledger.flush_until_acked(head.seq).unwrap();
    let report = verify(&room.0.join("copy.jsonl"), &Trust { key: None, head: Some(head.hash) }).unwrap();
    assert_eq!((report.finding, report.completeness), (None, Completeness::HeadMatches));
    assert!(room.verify().files > 1, "over the border of a file");
}

#[test]
fn a_new_daemon_sends_what_the_sink_does_not_have_and_nothing_twice() {
    let room = Room::new();
    for _ in 0..3 {
        let mut ledger = room.open();
        ledger.add_sink(file_sink(&room), Need::BestEffort).unwrap();
        fill(&mut ledger, 7);
        assert!(ledger.ship().is_empty());
        fill(&mut ledger, 2);
    }
    // The note of what was acknowledged is lost, and the copy ends in half a line.
    fs::remove_file(room.ledger().join("sink-copy.cursor")).unwrap();
    let mut copy = fs::read(room.0.join("copy.jsonl")).unwrap();
    copy.truncate(copy.len() - 9);
    fs::write(room.0.join("copy.jsonl"), copy).unwrap();
    let mut ledger = room.open();
    ledger.add_sink(file_sink(&room), Need::BestEffort).unwrap();
    assert!(ledger.ship().is_empty());
    assert_eq!(lines(&room.0.join("copy.jsonl")), lines(&room.file(1)));
}

#[derive(Debug)]
struct Moody {
    takes: u64,
    grade: Grade,
}

impl Sink for Moody {
    fn name(&self) -> &str {
        "moody"
    }

    fn grade(&self) -> Grade {
        self.grade
    }

    fn deliver(&mut self, batch: &[Entry]) -> Result<u64, SinkError> {
        let taken = batch.iter().map(|entry| entry.seq).filter(|seq| *seq < self.takes).max();
        taken.ok_or_else(|| SinkError::Unreachable(io::ErrorKind::ConnectionRefused.into()))
    }
}

#[test]
fn nothing_is_called_acknowledged_that_was_not() {
    let room = Room::new();
    let mut ledger = room.open();
    let sink = Box::new(Moody { takes: 4, grade: Grade::Durable });
    ledger.add_sink(sink, Need::MustAcknowledge).unwrap();
    fill(&mut ledger, 6);
    ledger.flush_until_acked(3).unwrap();
    let refused = ledger.flush_until_acked(4);
    assert!(matches!(refused, Err(LedgerError::Unacknowledged { seq: 4, .. })), "{refused:?}");
    assert_eq!(ledger.ship().len(), 1);
}

#[test]
fn a_record_that_is_not_written_yet_is_not_waited_for() {
    let room = Room::new();
    let mut ledger = room.open();
    ledger.add_sink(file_sink(&room), Need::MustAcknowledge).unwrap();
    let ahead = ledger.head().seq + 1;
    assert!(ledger.flush_until_acked(ahead).is_err());
}

#[test]
fn who_only_hands_over_cannot_be_who_must_acknowledge() {
    let room = Room::new();
    let mut ledger = room.open();
    let sink = || Box::new(Moody { takes: 4, grade: Grade::HandedOver });
    assert!(matches!(ledger.add_sink(sink(), Need::MustAcknowledge), Err(SinkError::NotDurable)));
    ledger.add_sink(sink(), Need::BestEffort).unwrap();
}

#[test]
fn a_ledger_that_was_cut_back_behind_what_a_sink_has_is_noticed() {
    let room = Room::new();
    let mut ledger = room.open();
    ledger.add_sink(file_sink(&room), Need::BestEffort).unwrap();
    fill(&mut ledger, 5);
    ledger.ship();
    drop(ledger);
    let whole = lines(&room.file(1));
    fs::write(room.file(1), whole[..whole.len() - 2].concat()).unwrap();
    let mut ledger = room.open();
    let noticed = ledger.add_sink(file_sink(&room), Need::BestEffort);
    assert!(matches!(noticed, Err(SinkError::Ahead { .. })), "{noticed:?}");
}

#[test]
fn an_old_copy_is_refused_by_a_new_ledger_and_stays_as_it_is() {
    let room = Room::new();
    let mut old = room.open();
    old.add_sink(file_sink(&room), Need::MustAcknowledge).unwrap();
    fill(&mut old, 9);
    assert!(old.ship().is_empty());
    drop(old);
    let before = fs::read(room.0.join("copy.jsonl")).unwrap();
    fs::rename(room.ledger(), room.0.join("aside")).unwrap();
    let mut new = room.open();
    let refused = new.add_sink(file_sink(&room), Need::MustAcknowledge);
    assert!(matches!(refused, Err(SinkError::Foreign { seq: 0 })), "{refused:?}");
    assert_eq!(fs::read(room.0.join("copy.jsonl")).unwrap(), before);
    // What it advises works.
    fs::rename(room.0.join("copy.jsonl"), room.0.join("old-copy.jsonl")).unwrap();
    new.add_sink(file_sink(&room), Need::MustAcknowledge).unwrap();
    new.flush_until_acked(new.head().seq).unwrap();
    assert_eq!(lines(&room.0.join("copy.jsonl")), lines(&room.file(1)));
}

#[test]
fn a_copy_with_a_changed_line_is_not_opened() {
    let room = Room::new();
    let mut ledger = room.open();
    ledger.add_sink(file_sink(&room), Need::BestEffort).unwrap();
    fill(&mut ledger, 3);
    ledger.ship();
    let path = room.0.join("copy.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("\"exec\":1", "\"exec\":8", 1)).unwrap();
    let refused = FileSink::open("copy", &path).unwrap_err();
    assert!(refused.to_string().contains("was changed"), "{refused}");
}

#[test]
fn syslog_gets_one_message_per_record_and_an_alert_is_louder() {
    let room = Room::new();
    let path = room.0.join("log");
    let mut ledger = room.open();
    ledger.add_sink(Box::new(SyslogSink::new(&path)), Need::BestEffort).unwrap();
    assert_eq!(ledger.ship().len(), 1, "nobody listens");
    let listener = UnixDatagram::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    ledger.append(None, &Event::SyscallDenied { number: 165, name: Some("mount".into()), count: 1 }).unwrap();
    assert!(ledger.ship().is_empty());
    let mut buffer = [0; 4096];
    let mut messages = Vec::new();
    while let Ok(count) = listener.recv(&mut buffer) {
        messages.push(String::from_utf8(buffer[..count].to_vec()).unwrap());
    }
    assert_eq!(messages.len(), lines(&room.file(1)).len());
    let last = messages.last().unwrap();
    assert!(last.starts_with("<107>1 ") && last.contains(" - blastbox - ledger - {\"seq\":"), "{last}");
    assert!(messages[0].starts_with("<109>1 "));
    let json = last.split_once(" - ledger - ").unwrap().1;
    assert!(read_record(json.as_bytes()).is_ok());
}
