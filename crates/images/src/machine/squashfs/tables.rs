//! The tables of a disk: blocks of metadata, and lists of names.

use std::io;

/// Bytes of a block of metadata.
const BLOCK: usize = 8192;
/// Set in the size of a block that is not compressed.
const PLAIN: u16 = 1 << 15;
/// Names under one head.
const MOST_NAMES: usize = 256;
/// The longest name.
const MOST_NAME: usize = 255;

/// Metadata in the making.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    done: Vec<u8>,
    block: Vec<u8>,
}

impl Metadata {
    /// Adds bytes and says where they begin: the block's place above sixteen bits of where in it.
    pub(super) fn add(&mut self, mut bytes: &[u8]) -> u64 {
        let place = ((self.done.len() as u64) << 16) | self.block.len() as u64;
        while !bytes.is_empty() {
            let room = BLOCK.saturating_sub(self.block.len());
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.block.extend_from_slice(now);
            if self.block.len() == BLOCK {
                self.close();
            }
            bytes = later;
        }
        place
    }

    pub(super) fn finish(&mut self) -> Vec<u8> {
        if !self.block.is_empty() {
            self.close();
        }
        std::mem::take(&mut self.done)
    }

    fn close(&mut self) {
        let length = u16::try_from(self.block.len()).unwrap_or(0);
        self.done.extend((length | PLAIN).to_le_bytes());
        self.done.append(&mut self.block);
    }
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeKind {
    Directory = 1,
    File = 2,
    Link = 3,
}

/// One name of a directory.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) name: &'a [u8],
    pub(super) number: u32,
    pub(super) inode: u64,
    pub(super) kind: NodeKind,
}

/// The list of a directory's names, which are sorted.
pub(super) fn listing(entries: &[Entry<'_>]) -> io::Result<Vec<u8>> {
    let mut list = Vec::new();
    let mut rest = entries;
    while let Some(first) = rest.first() {
        let block = first.inode >> 16;
        let under = |entry: &&Entry<'_>| {
            entry.inode >> 16 == block && difference(entry.number, first.number).is_some()
        };
        let count = rest.iter().take(MOST_NAMES).take_while(under).count();
        let (now, later) = rest.split_at(count);
        let head = [count.saturating_sub(1) as u64, block, u64::from(first.number)];
        for number in head {
            list.extend(u32::try_from(number).map_err(|_| io::ErrorKind::FileTooLarge)?.to_le_bytes());
        }
        for entry in now {
            let length = entry.name.len().checked_sub(1).filter(|length| *length < MOST_NAME);
            let length = length.and_then(|length| u16::try_from(length).ok());
            let length = length.ok_or(io::ErrorKind::InvalidFilename)?;
            let difference = difference(entry.number, first.number).unwrap_or(0);
            list.extend(((entry.inode & 0xffff) as u16).to_le_bytes());
            list.extend(difference.to_le_bytes());
            list.extend((entry.kind as u16).to_le_bytes());
            list.extend(length.to_le_bytes());
            list.extend(entry.name);
        }
        rest = later;
    }
    Ok(list)
}

fn difference(number: u32, first: u32) -> Option<i16> {
    i16::try_from(i64::from(number).saturating_sub(i64::from(first))).ok()
}
