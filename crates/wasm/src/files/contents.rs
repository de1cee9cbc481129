//! What is in a file: bytes in memory, paid for before they are there.
//!
//! A file lies in pieces, and a piece has no more than what was written to it: a file that grows is filled with nothing, however far,
//! so that nobody holds the lock of the tree for as long as zeros take.

use std::os::unix::fs::FileExt as _;

use super::tree::{Body, Hold, Ino, Tree, Trouble};

/// Bytes of a file that lie together.
const PIECE: usize = 1 << 20;

/// The bytes of one file. What it costs is the room that it was given, which its size never exceeds, and its pieces neither.
#[derive(Debug, Default)]
pub(super) struct Contents {
    size: usize,
    room: usize,
    /// Each has the beginning of its part of the file. What is behind that is zeros.
    pieces: Vec<Vec<u8>>,
}

impl Contents {
    pub(super) fn size(&self) -> u64 {
        u64::try_from(self.size).unwrap_or(u64::MAX)
    }

    pub(super) fn room(&self) -> u64 {
        u64::try_from(self.room).unwrap_or(u64::MAX)
    }

    fn read(&self, at: usize, into: &mut [u8]) -> usize {
        let length = into.len().min(self.size.saturating_sub(at));
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..length).filter(|rest| !rest.is_empty()) {
            let (number, from) = place(at.saturating_add(done));
            let now = rest.len().min(PIECE.saturating_sub(from));
            let written = self.pieces.get(number).and_then(|piece| piece.get(from..)).unwrap_or_default();
            let written = written.get(..now).unwrap_or(written);
            let (there, hole) = rest.split_at_mut(now).0.split_at_mut(written.len());
            there.copy_from_slice(written);
            hole.fill(0);
            done = done.saturating_add(now);
        }
        done
    }

    /// Writes what lies within its size.
    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), Trouble> {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            let (number, from) = place(at.saturating_add(done));
            let now = rest.len().min(PIECE.saturating_sub(from));
            let to = from.saturating_add(now);
            // What it may take of what is paid: the last piece has less than a whole one.
            let most = self.room.saturating_sub(number.saturating_mul(PIECE)).min(PIECE);
            let piece = self.pieces.get_mut(number).ok_or(Trouble::TooLarge)?;
            if piece.len() < to {
                extend(piece, to, most)?;
            }
            let target = piece.get_mut(from..to).ok_or(Trouble::TooLarge)?;
            target.copy_from_slice(rest.get(..now).unwrap_or_default());
            done = done.saturating_add(now);
        }
        Ok(())
    }

    /// Another size within its room, or a smaller one, which has no room to spare.
    fn set_size(&mut self, size: usize) {
        let pieces = size.div_ceil(PIECE);
        if size < self.size {
            self.pieces.truncate(pieces);
            self.pieces.shrink_to_fit();
            if let Some(last) = self.pieces.last_mut() {
                last.truncate(size.saturating_sub(pieces.saturating_sub(1).saturating_mul(PIECE)));
                last.shrink_to_fit();
            }
            self.room = size;
        } else {
            self.pieces.resize_with(pieces, Vec::new);
        }
        self.size = size;
    }
}

/// The piece that a byte lies in, and where.
fn place(at: usize) -> (usize, usize) {
    (at / PIECE, at % PIECE)
}

/// Makes a piece longer: in steps, so that appending is not copying, and never beyond `most`.
fn extend(piece: &mut Vec<u8>, to: usize, most: usize) -> Result<(), Trouble> {
    if to > piece.capacity() {
        let step = piece.capacity().saturating_add(piece.capacity() / 2).next_multiple_of(4096);
        let room = to.max(step.min(most));
        piece.try_reserve_exact(room.saturating_sub(piece.len())).map_err(|_| Trouble::NoSpace)?;
    }
    piece.resize(to, 0);
    Ok(())
}

impl Tree {
    /// Reads at this place. 0: the end.
    pub(crate) fn read(&self, ino: Ino, at: u64, into: &mut [u8]) -> Result<usize, Trouble> {
        match &self.node(ino)?.body {
            Body::File(contents) => Ok(contents.read(usize::try_from(at).unwrap_or(usize::MAX), into)),
            Body::Shown { file, .. } => file.read_at(into, at).map_err(|_| Trouble::Failed),
            Body::Directory(_) => Err(Trouble::IsDirectory),
        }
    }

    /// Writes at this place, or behind the end; a hole reads as zeros. Returns how much was written, which is less than
    /// asked for when the tree is full.
    pub(crate) fn write(&mut self, ino: Ino, at: u64, bytes: &[u8]) -> Result<usize, Trouble> {
        if bytes.is_empty() {
            // Nothing is written, and nothing grows.
            return self.contents(ino).map(|_| 0);
        }
        let end = at.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if end > self.caps.file {
            return Err(Trouble::TooLarge);
        }
        if end > self.facts(ino)?.size {
            self.resize(ino, end)?;
        }
        let at = usize::try_from(at).map_err(|_| Trouble::TooLarge)?;
        self.contents(ino)?.write(at, bytes)?;
        let now = self.now();
        self.node_mut(ino)?.modified = now;
        Ok(bytes.len())
    }

    /// Gives a file another size. What it grows by is paid for, reads as zeros and is not there before it is written to.
    pub(crate) fn resize(&mut self, ino: Ino, size: u64) -> Result<(), Trouble> {
        if size > self.caps.file {
            return Err(Trouble::TooLarge);
        }
        let wanted = usize::try_from(size).map_err(|_| Trouble::TooLarge)?;
        let room = self.contents(ino)?.room;
        if wanted > room {
            // In steps, so that whoever appends need not ask each time; to the byte where the steps do not fit.
            let stride = wanted.max(room.saturating_add(room / 2)).next_multiple_of(4096);
            if self.grow(ino, stride).is_err() {
                self.grow(ino, wanted)?;
            }
        }
        let contents = self.contents(ino)?;
        let before = contents.room();
        contents.set_size(wanted);
        let after = contents.room();
        self.give_bytes(before.saturating_sub(after));
        let now = self.now();
        self.node_mut(ino)?.modified = now;
        Ok(())
    }

    /// Pays for this much room in all.
    fn grow(&mut self, ino: Ino, room: usize) -> Result<(), Trouble> {
        let before = self.contents(ino)?.room();
        self.take_bytes(u64::try_from(room).unwrap_or(u64::MAX).saturating_sub(before))?;
        self.contents(ino)?.room = room;
        Ok(())
    }

    fn contents(&mut self, ino: Ino) -> Result<&mut Contents, Trouble> {
        if self.node(ino)?.hold == Hold::Closed {
            return Err(Trouble::ReadOnly);
        }
        match &mut self.node_mut(ino)?.body {
            Body::File(contents) => Ok(contents),
            Body::Shown { .. } => Err(Trouble::ReadOnly),
            Body::Directory(_) => Err(Trouble::IsDirectory),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Caps, ROOT};
    use super::*;
    use crate::budget::Budget;

    fn tree(bytes: u64) -> (Tree, Ino, Budget) {
        let budget = Budget::new(1 << 30);
        let mut tree = Tree::new(Caps { bytes, entries: 100, file: 1 << 20 }, budget.clone());
        let ino = tree.make_file(ROOT, b"f", 0o644).unwrap();
        (tree, ino, budget)
    }

    #[test]
    fn what_is_written_can_be_read_and_a_hole_is_zeros() {
        let (mut tree, ino, _) = tree(1 << 20);
        assert_eq!(tree.write(ino, 5, b"hello"), Ok(5));
        let mut into = [9; 16];
        assert_eq!(tree.read(ino, 0, &mut into), Ok(10));
        assert_eq!(&into[..10], b"\0\0\0\0\0hello");
        assert_eq!(tree.read(ino, 10, &mut into), Ok(0));
        assert_eq!(tree.read(ino, u64::MAX, &mut into), Ok(0));
    }

    #[test]
    fn the_time_of_a_file_is_no_finer_than_a_clock() {
        let (mut tree, ino, _) = tree(1 << 20);
        let coarse = |tree: &Tree, ino| tree.facts(ino).unwrap().modified % 20_000 == 0;
        // Four in a row by chance: once in 10^17 runs.
        assert!(coarse(&tree, ROOT) && coarse(&tree, ino));
        tree.write(ino, 0, b"x").unwrap();
        assert!(coarse(&tree, ino));
        tree.resize(ino, 9).unwrap();
        assert!(coarse(&tree, ino));
    }

    #[test]
    fn a_full_tree_takes_no_more_and_gives_back_what_is_removed() {
        let (mut tree, ino, _) = tree(10_000);
        assert_eq!(tree.write(ino, 0, &[1; 9_000]), Ok(9_000));
        let other = tree.make_file(ROOT, b"g", 0o644).unwrap();
        assert_eq!(tree.write(other, 0, &[1; 5_000]), Err(Trouble::NoSpace));
        tree.remove(ROOT, b"f").unwrap();
        assert_eq!(tree.write(other, 0, &[1; 5_000]), Ok(5_000));
    }

    #[test]
    fn a_file_over_its_limit_is_refused_before_any_allocation() {
        let (mut tree, ino, _) = tree(u64::MAX);
        assert_eq!(tree.write(ino, u64::MAX - 1, b"x"), Err(Trouble::TooLarge));
        assert_eq!(tree.resize(ino, u64::MAX), Err(Trouble::TooLarge));
    }

    #[test]
    fn everything_taken_from_the_budget_comes_back() {
        let (mut tree, ino, budget) = tree(1 << 20);
        for round in 0..100 {
            tree.write(ino, round * 7_001, &[1; 7_000]).unwrap();
        }
        tree.resize(ino, 3).unwrap();
        tree.remove(ROOT, b"f").unwrap();
        assert_eq!(tree.bytes, 0);
        assert!(budget.take(1 << 30));
    }

    #[test]
    fn a_file_that_grows_is_filled_with_nothing_and_is_paid_for_all_the_same() {
        let budget = Budget::new(1 << 30);
        let mut tree = Tree::new(Caps { bytes: 1 << 29, entries: 9, file: 1 << 28 }, budget.clone());
        let ino = tree.make_file(ROOT, b"f", 0o644).unwrap();
        let there =
            |tree: &mut Tree| -> usize { tree.contents(ino).unwrap().pieces.iter().map(Vec::capacity).sum() };
        // Far more than could be done where each of them fills 256 MiB.
        for _ in 0..20_000 {
            tree.resize(ino, 1 << 28).unwrap();
            assert_eq!(tree.bytes, 1 << 28);
            tree.resize(ino, 1).unwrap();
        }
        assert_eq!((there(&mut tree), tree.bytes), (0, 1));
        // One byte at the end of it is one piece, and everything before it zeros.
        tree.resize(ino, 1 << 28).unwrap();
        tree.write(ino, (1 << 28) - 1, b"x").unwrap();
        assert!(there(&mut tree) <= PIECE);
        let mut into = [9; 3];
        assert_eq!((tree.read(ino, (1 << 28) - 3, &mut into), into), (Ok(3), *b"\0\0x"));
        assert_eq!((tree.read(ino, (1 << 27) - 1, &mut into), into), (Ok(3), [0; 3]));
        tree.write(ino, 1 << 28, b"").unwrap();
        tree.resize(ino, 7).unwrap();
        tree.write(ino, 1 << 27, b"").unwrap();
        assert_eq!(tree.facts(ino).unwrap().size, 7, "nothing was written");
        tree.remove(ROOT, b"f").unwrap();
        assert!(tree.bytes == 0 && budget.take((1 << 30) - 512), "all but the root's");
    }

    #[test]
    fn a_file_of_many_pieces_is_one_file() {
        let budget = Budget::new(1 << 30);
        let mut tree = Tree::new(Caps { bytes: 1 << 29, entries: 9, file: 1 << 28 }, budget);
        let ino = tree.make_file(ROOT, b"f", 0o644).unwrap();
        let mut all = vec![0_u8; 3 * PIECE + 7];
        let length = all.len();
        for (at, fill, count) in
            [(PIECE - 3, 1, 7), (2 * PIECE - 1, 2, PIECE + 5), (0, 3, 10), (length - 4, 4, 4)]
        {
            all[at..at + count].fill(fill);
            tree.write(ino, u64::try_from(at).unwrap(), &vec![fill; count]).unwrap();
        }
        let read = |tree: &Tree, at: usize| {
            let mut into = vec![9; 4 * PIECE];
            let got = tree.read(ino, u64::try_from(at).unwrap(), &mut into).unwrap();
            into.truncate(got);
            into
        };
        assert!(read(&tree, 0) == all && read(&tree, PIECE - 1) == all[PIECE - 1..]);
        // What was cut off does not come back.
        tree.resize(ino, u64::try_from(PIECE + 2).unwrap()).unwrap();
        tree.resize(ino, u64::try_from(2 * PIECE).unwrap()).unwrap();
        all.truncate(PIECE + 2);
        all.resize(2 * PIECE, 0);
        assert!(read(&tree, 0) == all);
        let contents = tree.contents(ino).unwrap();
        assert!(contents.pieces.iter().map(Vec::capacity).sum::<usize>() <= contents.room);
    }

    #[test]
    fn what_is_appended_never_takes_more_than_is_paid_for() {
        let (mut tree, ino, _) = tree(1 << 20);
        for at in 0..9_000_u64 {
            tree.write(ino, at * 3, b"abc").unwrap();
            let contents = tree.contents(ino).unwrap();
            let there: usize = contents.pieces.iter().map(Vec::capacity).sum();
            assert!(there <= contents.room && contents.size <= contents.room, "{at}");
        }
        let room = tree.contents(ino).unwrap().room();
        assert_eq!(tree.bytes, room);
    }

    #[test]
    fn an_open_file_outlives_its_name() {
        let (mut tree, ino, _) = tree(1 << 20);
        tree.write(ino, 0, b"kept").unwrap();
        tree.hold(ino);
        tree.remove(ROOT, b"f").unwrap();
        let mut into = [0; 4];
        assert_eq!(tree.read(ino, 0, &mut into), Ok(4));
        tree.release(ino);
        assert_eq!(tree.read(ino, 0, &mut into), Err(Trouble::NotFound));
    }
}
