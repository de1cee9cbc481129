//! What is in a file: bytes in memory, counted before they are there.

use std::os::unix::fs::FileExt as _;

use super::tree::{Body, Hold, Ino, Tree, Trouble};

/// The bytes of one file. What it costs is the room that it has, not the bytes that it holds.
#[derive(Debug, Default)]
pub(super) struct Contents {
    bytes: Vec<u8>,
}

impl Contents {
    pub(super) fn size(&self) -> u64 {
        u64::try_from(self.bytes.len()).unwrap_or(u64::MAX)
    }

    pub(super) fn room(&self) -> u64 {
        u64::try_from(self.bytes.capacity()).unwrap_or(u64::MAX)
    }
}

impl Tree {
    /// Reads at this place. 0: the end.
    pub(crate) fn read(&self, ino: Ino, at: u64, into: &mut [u8]) -> Result<usize, Trouble> {
        match &self.node(ino)?.body {
            Body::File(contents) => {
                let start = usize::try_from(at).unwrap_or(usize::MAX).min(contents.bytes.len());
                let rest = contents.bytes.get(start..).unwrap_or_default();
                let length = rest.len().min(into.len());
                for (place, byte) in into.iter_mut().zip(rest) {
                    *place = *byte;
                }
                Ok(length)
            }
            Body::Shown { file, .. } => file.read_at(into, at).map_err(|_| Trouble::Failed),
            Body::Directory(_) => Err(Trouble::IsDirectory),
        }
    }

    /// Writes at this place, or behind the end; a hole reads as zeros. Returns how much was written, which is less than
    /// asked for when the tree is full.
    pub(crate) fn write(&mut self, ino: Ino, at: u64, bytes: &[u8]) -> Result<usize, Trouble> {
        let end = at.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if end > self.caps.file {
            return Err(Trouble::TooLarge);
        }
        if end > self.facts(ino)?.size {
            self.resize(ino, end)?;
        }
        let contents = self.contents(ino)?;
        let start = usize::try_from(at).unwrap_or(usize::MAX);
        let place = contents.bytes.get_mut(start..).and_then(|rest| rest.get_mut(..bytes.len()));
        place.ok_or(Trouble::TooLarge)?.copy_from_slice(bytes);
        let now = self.now();
        self.node_mut(ino)?.modified = now;
        Ok(bytes.len())
    }

    /// Gives a file another size.
    pub(crate) fn resize(&mut self, ino: Ino, size: u64) -> Result<(), Trouble> {
        if size > self.caps.file {
            return Err(Trouble::TooLarge);
        }
        let wanted = usize::try_from(size).map_err(|_| Trouble::TooLarge)?;
        let (had, room) = {
            let contents = self.contents(ino)?;
            (contents.bytes.len(), contents.bytes.capacity())
        };
        if wanted > room {
            // In steps, so that appending is not copying; to the byte where the steps do not fit.
            let stride = wanted.max(room.saturating_add(room / 2)).next_multiple_of(4096);
            let grown = self.grow(ino, stride);
            if grown.is_err() {
                self.grow(ino, wanted)?;
            }
        }
        let contents = self.contents(ino)?;
        contents.bytes.resize(wanted, 0);
        if wanted < had {
            let before = contents.room();
            contents.bytes.shrink_to_fit();
            let after = contents.room();
            self.give_bytes(before.saturating_sub(after));
        }
        let now = self.now();
        self.node_mut(ino)?.modified = now;
        Ok(())
    }

    /// Room for this many bytes in all, paid for before it is there.
    fn grow(&mut self, ino: Ino, room: usize) -> Result<(), Trouble> {
        let before = self.contents(ino)?.room();
        let wanted = u64::try_from(room).unwrap_or(u64::MAX);
        self.take_bytes(wanted.saturating_sub(before))?;
        let contents = self.contents(ino)?;
        let more = room.saturating_sub(contents.bytes.len());
        let got = contents.bytes.try_reserve_exact(more);
        let after = contents.room();
        // The allocator may give more or, when it fails, nothing.
        let paid = before.max(wanted);
        if after < paid {
            self.give_bytes(paid.saturating_sub(after));
        } else if after > paid {
            self.bytes = self.bytes.saturating_add(after.saturating_sub(paid));
        }
        got.map_err(|_| Trouble::NoSpace)
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
