//! A sink that is another file: on another disk, a network mount, or where a log shipper looks.
//!
//! It acknowledges what is in the copy, byte for byte, and on its disk. A record that the copy seems to have already is
//! compared with what is there and not counted: an old copy under a new ledger has records of the same numbers. After a
//! failure nothing is acknowledged until the copy was cut back to what is certain, and written anew from there.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use blastbox_wire::event::ledger_text;
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::chain::Head;
use super::courier::{Entry, Grade, Sink, SinkError};
use super::disk::{Disk, Reading, put};
use super::lines::{self, Found};

/// All lines of a ledger in one file, which [`super::verify`] reads as well.
#[derive(Debug)]
pub struct FileSink {
    name: String,
    copy: Duplicate<File>,
}

impl FileSink {
    /// Opens the copy, or begins one. Half a line at its end is removed: the ledger has the whole.
    ///
    /// # Errors
    /// Where it cannot be opened, or holds something else than the unbroken chain of a ledger.
    pub fn open(name: &str, path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(CWD, path, flags | OFlags::NONBLOCK, Mode::RUSR | Mode::WUSR)?);
        if !file.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self { name: name.to_owned(), copy: Duplicate::new(file)? })
    }
}

impl Sink for FileSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn grade(&self) -> Grade {
        Grade::Durable
    }

    fn belongs(&mut self, first: &Entry) -> Result<(), SinkError> {
        self.copy.belongs(first)
    }

    fn deliver(&mut self, batch: &[Entry]) -> Result<u64, SinkError> {
        self.copy.deliver(batch)
    }
}

/// A copy and what is known of it.
#[derive(Debug)]
struct Duplicate<D> {
    disk: D,
    /// What is certainly on the disk.
    kept: Standing,
    /// A place up to which it was compared with what was delivered, and the number of the record there.
    compared: (u64, u64),
    /// An attempt failed: more, or less, may be there than is kept.
    in_doubt: bool,
}

/// A chain of whole lines.
#[derive(Debug, Clone, Copy, Default)]
struct Standing {
    length: u64,
    first: Option<Head>,
    last: Option<Head>,
}

impl<D: Disk> Duplicate<D> {
    fn new(disk: D) -> io::Result<Self> {
        let kept = stand(&disk)?;
        // Lines that a killed daemon wrote may be with the kernel only.
        disk.sync()?;
        let compared = (0, kept.first.map_or(0, |first| first.seq));
        Ok(Self { disk, kept, compared, in_doubt: false })
    }

    fn belongs(&self, first: &Entry) -> Result<(), SinkError> {
        match self.kept.first {
            Some(own) if own.seq == first.seq && own.hash != first.hash => {
                Err(SinkError::Foreign { seq: first.seq })
            }
            // One that begins later is held against the ledger where it goes on.
            Some(_) | None => Ok(()),
        }
    }

    fn deliver(&mut self, batch: &[Entry]) -> Result<u64, SinkError> {
        self.settle().map_err(SinkError::Unreachable)?;
        let (mut bytes, mut then) = (Vec::new(), self.kept);
        for entry in batch {
            match then.last {
                Some(last) if entry.seq <= last.seq => self.compare(entry)?,
                Some(last) if entry.seq != last.seq + 1 || entry.prev != last.hash => {
                    return Err(SinkError::Foreign { seq: entry.seq.min(last.seq.saturating_add(1)) });
                }
                Some(_) | None => {
                    bytes.extend_from_slice(&entry.line);
                    bytes.push(b'\n');
                    let head = Head { seq: entry.seq, hash: entry.hash };
                    then.first.get_or_insert(head);
                    then.last = Some(head);
                }
            }
        }
        then.length = then.length.saturating_add(bytes.len() as u64);
        // Whatever fails from here on, the next attempt begins with what is kept now.
        self.in_doubt = true;
        put(&self.disk, self.kept.length, &bytes).map_err(|error| SinkError::Unreachable(error.into()))?;
        self.disk.sync().map_err(|errno| SinkError::Unreachable(errno.into()))?;
        self.in_doubt = false;
        self.kept = then;
        batch.last().map(|entry| entry.seq).ok_or(SinkError::NoProgress)
    }

    /// Brings the copy back to what is known of it, or finds out what it is.
    fn settle(&mut self) -> io::Result<()> {
        let length = self.disk.length()?;
        if self.in_doubt && length > self.kept.length {
            // Also lines that look whole: after a failed `fsync` the kernel shows what the disk may never get, and the
            // next `fsync` says nothing of it. Only what is written anew is written.
            self.disk.cut(self.kept.length)?;
            self.disk.sync()?;
        } else if length != self.kept.length {
            // A log shipper cut it, or somebody else wrote to it: that is not ours to cut off.
            self.kept = stand(&self.disk)?;
            self.disk.sync()?;
            self.compared = (0, self.kept.first.map_or(0, |first| first.seq));
        }
        self.in_doubt = false;
        Ok(())
    }

    /// A record that the copy should have by its number: it has these bytes, or it is the copy of something else.
    fn compare(&mut self, entry: &Entry) -> Result<(), SinkError> {
        let foreign = SinkError::Foreign { seq: entry.seq };
        let begin = self.kept.first.map_or(0, |first| first.seq);
        if entry.seq < begin {
            return Err(foreign);
        }
        if entry.seq < self.compared.1 {
            self.compared = (0, begin);
        }
        let (mut at, mut seq) = self.compared;
        let mut from = BufReader::new(Reading { disk: &self.disk, at });
        let mut line = Vec::new();
        loop {
            match lines::next(&mut from, &mut line).map_err(SinkError::Unreachable)? {
                Found::Whole => {}
                Found::Torn | Found::Long | Found::End => return Err(foreign),
            }
            at = at.saturating_add(line.len() as u64 + 1);
            seq += 1;
            if seq > entry.seq {
                break;
            }
        }
        self.compared = (at, seq);
        if line == entry.line { Ok(()) } else { Err(foreign) }
    }
}

/// Reads a copy whole. What is torn at its end is cut off.
fn stand(disk: &impl Disk) -> io::Result<Standing> {
    let mut from = BufReader::with_capacity(1 << 16, Reading { disk, at: 0 });
    let (mut standing, mut line) = (Standing::default(), Vec::new());
    loop {
        match lines::next(&mut from, &mut line)? {
            Found::Whole => {
                let read = ledger_text::read(&line).map_err(io::Error::other)?;
                let head = Head { seq: read.link.seq, hash: read.actual };
                let follows = |last: Head| last.seq + 1 == head.seq && last.hash == read.link.prev;
                if read.claimed != read.actual || !standing.last.is_none_or(follows) {
                    let why = format!("its record {} was changed or does not follow", head.seq);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                }
                standing.first.get_or_insert(head);
                standing.last = Some(head);
                standing.length += line.len() as u64 + 1;
            }
            Found::End => return Ok(standing),
            Found::Torn => {
                disk.cut(standing.length)?;
                return Ok(standing);
            }
            Found::Long => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use blastbox_wire::event::ledger_text::{Draft, write};
    use blastbox_wire::event::{Event, Hash};
    use rustix::io::Errno;

    use super::super::disk::tests::Small;
    use super::*;

    /// Records of one history, which differs from others by its commands.
    fn history(records: u64, exec: u32) -> Vec<Entry> {
        let mut prev = Hash::NOTHING;
        let entry = |seq| {
            let event = Event::CommandStarted { exec };
            let time = "2026-01-01T00:00:00Z";
            let draft = Draft { seq, prev, time, boot_micros: 0, about: None, event: &event };
            let (mut line, hash) = write(&draft).unwrap();
            line.pop();
            let entry = Entry { seq, prev, hash, line };
            prev = hash;
            entry
        };
        (0..records).map(entry).collect()
    }

    fn text(entries: &[Entry]) -> Vec<u8> {
        entries.iter().flat_map(|entry| [entry.line.as_slice(), b"\n"].concat()).collect()
    }

    #[test]
    fn a_failed_sync_acknowledges_nothing_and_what_it_was_for_is_written_anew() {
        let records = history(4, 1);
        let mut copy = Duplicate::new(Small::with_room(1 << 20)).unwrap();
        assert_eq!(copy.deliver(&records[..1]).unwrap(), 0);
        copy.disk.syncs.set(Err(Errno::IO));
        assert!(copy.deliver(&records[1..3]).is_err());
        // The kernel shows it; the disk may not have it. Not even cutting it off is certain while the disk fails.
        assert!(copy.deliver(&records[1..3]).is_err());
        assert_eq!(*copy.disk.holds.borrow(), text(&records[..1]));
        copy.disk.syncs.set(Ok(()));
        assert_eq!(copy.deliver(&records[1..]).unwrap(), 3);
        assert_eq!(*copy.disk.holds.borrow(), text(&records));
    }

    #[test]
    fn half_a_line_that_cannot_be_removed_is_never_written_behind() {
        let records = history(3, 1);
        let room = text(&records[..1]).len() + 5;
        let mut copy = Duplicate::new(Small::with_room(room)).unwrap();
        copy.deliver(&records[..1]).unwrap();
        copy.disk.cuts.set(Err(Errno::IO));
        assert!(copy.deliver(&records[1..]).is_err());
        assert_eq!(copy.disk.holds.borrow().len(), room, "half a line is there");
        copy.disk.room.set(1 << 20);
        assert!(copy.deliver(&records[1..]).is_err(), "there is room, and half a line before it");
        copy.disk.cuts.set(Ok(()));
        assert_eq!(copy.deliver(&records[1..]).unwrap(), 2);
        assert_eq!(*copy.disk.holds.borrow(), text(&records));
    }

    #[test]
    fn a_copy_of_another_history_is_refused_wherever_the_two_part() {
        let (ours, theirs) = (history(6, 1), history(3, 2));
        let over = |holds: &[Entry]| {
            let disk = Small::with_room(1 << 20);
            *disk.holds.borrow_mut() = text(holds);
            Duplicate::new(disk).unwrap()
        };
        let mut copy = over(&theirs);
        assert!(matches!(copy.belongs(&ours[0]), Err(SinkError::Foreign { seq: 0 })));
        assert!(matches!(copy.deliver(&ours[..2]), Err(SinkError::Foreign { seq: 0 })));
        // Only the end of it could tell.
        assert!(matches!(copy.deliver(&ours[3..]), Err(SinkError::Foreign { seq: 3 })));
        assert_eq!(*copy.disk.holds.borrow(), text(&theirs), "evidence stays as it is");
        // It is the same ledger, and the copy is behind what it acknowledged, or begins after what it should have.
        assert!(matches!(over(&ours[..2]).deliver(&ours[4..]), Err(SinkError::Foreign { seq: 2 })));
        assert!(matches!(over(&ours[2..]).deliver(&ours[..1]), Err(SinkError::Foreign { seq: 0 })));
        // The neighbour: a copy that has a part, wherever it begins.
        assert_eq!(over(&ours[..4]).deliver(&ours).unwrap(), 5);
        assert_eq!(over(&ours[2..4]).deliver(&ours[3..]).unwrap(), 5);
    }

    #[test]
    fn a_copy_that_somebody_cut_or_wrote_to_is_read_again() {
        let ours = history(6, 1);
        let mut copy = Duplicate::new(Small::with_room(1 << 20)).unwrap();
        copy.deliver(&ours[..3]).unwrap();
        // A log shipper took what was there.
        copy.disk.holds.borrow_mut().clear();
        assert_eq!(copy.deliver(&ours[3..5]).unwrap(), 4);
        assert_eq!(*copy.disk.holds.borrow(), text(&ours[3..5]));
        copy.disk.holds.borrow_mut().extend(text(&history(1, 2)));
        assert!(copy.deliver(&ours[5..]).is_err());
        assert!(copy.deliver(&ours[5..]).is_err(), "and stays so");
    }
}
