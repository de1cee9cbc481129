//! A guest's memory, seen from a call: every address is checked, and none is kept.

use super::Errno;
use crate::files::LONGEST_PATH;

/// Most pieces of one read or write.
const MOST_PIECES: u32 = 1024;

/// The bytes of one guest.
pub(crate) struct Memory<'a> {
    bytes: &'a mut [u8],
    /// Bytes that were moved for the guest: its work, done by others.
    moved: u64,
}

impl<'a> Memory<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, moved: 0 }
    }

    /// So many bytes are moved for the guest, to or from here. Where its work is counted, each is a unit of it.
    pub(crate) fn move_bytes(&mut self, count: u64) {
        self.moved = self.moved.saturating_add(count);
    }

    pub(crate) fn moved(&self) -> u64 {
        self.moved
    }

    /// These bytes.
    pub(crate) fn get(&self, at: u32, length: u32) -> Result<&[u8], Errno> {
        let (start, length) = (size(at)?, size(length)?);
        self.bytes.get(start..).and_then(|rest| rest.get(..length)).ok_or(Errno::Fault)
    }

    /// These bytes as a path. Its length is the guest's to say: what is longer than any path is refused before it is looked at.
    pub(crate) fn path(&self, at: u32, length: u32) -> Result<&[u8], Errno> {
        if size(length)? > LONGEST_PATH {
            return Err(Errno::NameTooLong);
        }
        self.get(at, length)
    }

    /// These bytes, to be changed.
    pub(crate) fn get_mut(&mut self, at: u32, length: u32) -> Result<&mut [u8], Errno> {
        let (start, length) = (size(at)?, size(length)?);
        self.bytes.get_mut(start..).and_then(|rest| rest.get_mut(..length)).ok_or(Errno::Fault)
    }

    /// Puts bytes there.
    pub(crate) fn put(&mut self, at: u32, bytes: &[u8]) -> Result<(), Errno> {
        let length = u32::try_from(bytes.len()).map_err(|_| Errno::Fault)?;
        self.get_mut(at, length)?.copy_from_slice(bytes);
        Ok(())
    }

    pub(crate) fn u32(&self, at: u32) -> Result<u32, Errno> {
        let bytes = self.get(at, 4)?.first_chunk().ok_or(Errno::Fault)?;
        Ok(u32::from_le_bytes(*bytes))
    }

    pub(crate) fn u64(&self, at: u32) -> Result<u64, Errno> {
        let bytes = self.get(at, 8)?.first_chunk().ok_or(Errno::Fault)?;
        Ok(u64::from_le_bytes(*bytes))
    }

    pub(crate) fn put_u32(&mut self, at: u32, value: u32) -> Result<(), Errno> {
        self.put(at, &value.to_le_bytes())
    }

    pub(crate) fn put_u64(&mut self, at: u32, value: u64) -> Result<(), Errno> {
        self.put(at, &value.to_le_bytes())
    }

    /// Address and length of each piece that a read or write is about.
    pub(crate) fn pieces(&self, at: u32, count: u32) -> Result<Vec<(u32, u32)>, Errno> {
        if count > MOST_PIECES {
            return Err(Errno::Invalid);
        }
        (0..count)
            .map(|number| {
                let piece = number.checked_mul(8).and_then(|far| at.checked_add(far)).ok_or(Errno::Fault)?;
                let (address, length) = (self.u32(piece)?, self.u32(step(piece, 4)?)?);
                self.get(address, length)?;
                Ok((address, length))
            })
            .collect()
    }
}

/// An address a little further on.
pub(crate) fn step(at: u32, by: u32) -> Result<u32, Errno> {
    at.checked_add(by).ok_or(Errno::Fault)
}

fn size(number: u32) -> Result<usize, Errno> {
    usize::try_from(number).map_err(|_| Errno::Fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_leads_out_of_the_memory() {
        let mut bytes = [0; 64];
        let mut memory = Memory::new(&mut bytes);
        for (at, length) in [(64, 1), (0, 65), (u32::MAX, 1), (1, u32::MAX), (u32::MAX, u32::MAX)] {
            assert_eq!(memory.get(at, length), Err(Errno::Fault), "{at} {length}");
            assert!(memory.get_mut(at, length).is_err());
        }
        assert_eq!(memory.get(64, 0), Ok(&[][..]));
        assert_eq!(memory.put_u64(57, 1), Err(Errno::Fault));
        assert_eq!(memory.put_u64(56, 1), Ok(()));
    }

    #[test]
    fn a_path_over_its_limit_is_refused_before_it_is_looked_at() {
        let mut bytes = [b'x'; 8192];
        let memory = Memory::new(&mut bytes);
        assert_eq!(memory.path(0, 4096).map(<[u8]>::len), Ok(4096));
        assert_eq!(memory.path(0, 4097), Err(Errno::NameTooLong));
        assert_eq!(memory.path(0, u32::MAX), Err(Errno::NameTooLong));
    }

    #[test]
    fn a_lying_count_of_pieces_is_refused() {
        let mut bytes = [0; 64];
        let memory = Memory::new(&mut bytes);
        assert_eq!(memory.pieces(0, u32::MAX), Err(Errno::Invalid));
        assert_eq!(memory.pieces(0, 9), Err(Errno::Fault));
        assert_eq!(memory.pieces(u32::MAX, 1), Err(Errno::Fault));
        assert_eq!(memory.pieces(0, 8).unwrap().len(), 8);
    }
}
