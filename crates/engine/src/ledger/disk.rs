//! A line reaches the disk whole or not at all.

use std::fs::File;
use std::io;

use rustix::fs::{fdatasync, fstat, ftruncate};
use rustix::io::{Errno, pread, write};

/// What is asked of a file. A trait, so that a full disk can be had without filling one.
pub(super) trait Disk {
    fn write(&self, bytes: &[u8]) -> Result<usize, Errno>;
    fn cut(&self, length: u64) -> Result<(), Errno>;
    fn sync(&self) -> Result<(), Errno>;
    fn length(&self) -> Result<u64, Errno>;
    fn read(&self, room: &mut [u8], at: u64) -> Result<usize, Errno>;
}

impl Disk for File {
    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        write(self, bytes)
    }

    fn cut(&self, length: u64) -> Result<(), Errno> {
        ftruncate(self, length)
    }

    fn sync(&self) -> Result<(), Errno> {
        fdatasync(self)
    }

    fn length(&self) -> Result<u64, Errno> {
        Ok(u64::try_from(fstat(self)?.st_size).unwrap_or(0))
    }

    fn read(&self, room: &mut [u8], at: u64) -> Result<usize, Errno> {
        pread(self, room, at)
    }
}

/// Reads a disk from some place on.
pub(super) struct Reading<'a, D> {
    pub(super) disk: &'a D,
    pub(super) at: u64,
}

impl<D: Disk> io::Read for Reading<'_, D> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let count = self.disk.read(room, self.at)?;
        self.at = self.at.saturating_add(count as u64);
        Ok(count)
    }
}

/// Why a line is not there.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PutError {
    /// No room, and nothing of the line is left.
    Full,
    /// Another reason, and nothing of the line is left.
    Failed(Errno),
    /// A part of the line is there and could not be removed.
    Stuck(Errno),
}

/// Appends to a file that is opened for appending and has the given length now.
pub(super) fn put(disk: &impl Disk, length: u64, bytes: &[u8]) -> Result<(), PutError> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let errno = match disk.write(rest) {
            Ok(0) => Errno::NOSPC,
            Ok(count) => {
                rest = rest.get(count..).unwrap_or_default();
                continue;
            }
            Err(Errno::INTR) => continue,
            Err(errno) => errno,
        };
        if rest.len() < bytes.len()
            && let Err(errno) = disk.cut(length)
        {
            return Err(PutError::Stuck(errno));
        }
        return Err(match errno {
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => PutError::Full,
            other => PutError::Failed(other),
        });
    }
    Ok(())
}

impl From<PutError> for io::Error {
    fn from(error: PutError) -> Self {
        match error {
            PutError::Full => Errno::NOSPC.into(),
            PutError::Failed(errno) | PutError::Stuck(errno) => errno.into(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// A disk with room for so many bytes, three at a time.
    #[derive(Debug)]
    pub(in super::super) struct Small {
        pub(in super::super) room: Cell<usize>,
        pub(in super::super) holds: RefCell<Vec<u8>>,
        pub(in super::super) cuts: Cell<Result<(), Errno>>,
        pub(in super::super) syncs: Cell<Result<(), Errno>>,
    }

    impl Small {
        pub(in super::super) fn with_room(room: usize) -> Self {
            let (cuts, syncs) = (Cell::new(Ok(())), Cell::new(Ok(())));
            Self { room: Cell::new(room), holds: RefCell::default(), cuts, syncs }
        }
    }

    impl Disk for Small {
        fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
            let mut holds = self.holds.borrow_mut();
            let count = bytes.len().min(3).min(self.room.get().saturating_sub(holds.len()));
            holds.extend_from_slice(&bytes[..count]);
            if count == 0 { Err(Errno::NOSPC) } else { Ok(count) }
        }

        fn cut(&self, length: u64) -> Result<(), Errno> {
            self.cuts.get()?;
            self.holds.borrow_mut().truncate(usize::try_from(length).unwrap());
            Ok(())
        }

        fn sync(&self) -> Result<(), Errno> {
            self.syncs.get()
        }

        fn length(&self) -> Result<u64, Errno> {
            Ok(self.holds.borrow().len() as u64)
        }

        fn read(&self, room: &mut [u8], at: u64) -> Result<usize, Errno> {
            let holds = self.holds.borrow();
            let rest = holds.get(usize::try_from(at).unwrap()..).unwrap_or_default();
            let count = rest.len().min(room.len());
            room[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        }
    }

    #[test]
    fn a_line_that_does_not_fit_leaves_nothing_and_the_next_that_fits_is_taken() {
        let disk = Small::with_room(10);
        assert_eq!(put(&disk, 0, b"12345\n"), Ok(()));
        assert_eq!(put(&disk, 6, b"67890\n"), Err(PutError::Full));
        assert_eq!(*disk.holds.borrow(), b"12345\n");
        assert_eq!(put(&disk, 6, b"67\n"), Ok(()));
    }

    #[test]
    fn half_a_line_that_cannot_be_removed_is_said_to_be_there() {
        let disk = Small::with_room(4);
        disk.cuts.set(Err(Errno::IO));
        assert_eq!(put(&disk, 0, b"12345\n"), Err(PutError::Stuck(Errno::IO)));
    }

    #[test]
    fn nothing_is_cut_where_nothing_was_written() {
        let disk = Small::with_room(0);
        disk.cuts.set(Err(Errno::IO));
        assert_eq!(put(&disk, 0, b"1\n"), Err(PutError::Full));
    }
}
