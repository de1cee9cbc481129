//! gzip, in both directions, piece by piece.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::{GzDecoder, GzEncoder};

/// Compressed bytes are taken in pieces of this size, so that one of them never becomes more than about a MiB.
const BITE: usize = 1024;

/// Compresses.
#[derive(Debug)]
pub(super) struct Squeeze(GzEncoder<Vec<u8>>);

impl Squeeze {
    pub(super) fn new() -> Self {
        Self(GzEncoder::new(Vec::new(), Compression::fast()))
    }

    /// What is ready after these bytes, which may be nothing.
    pub(super) fn add(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        self.0.write_all(bytes)?;
        Ok(std::mem::take(self.0.get_mut()))
    }

    /// The rest.
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        self.0.finish()
    }
}

/// Decompresses.
#[derive(Debug)]
pub(super) struct Swell(GzDecoder<Vec<u8>>);

impl Swell {
    pub(super) fn new() -> Self {
        Self(GzDecoder::new(Vec::new()))
    }

    /// The pieces that these bytes become, one bite at a time.
    pub(super) fn add(&mut self, bytes: &mut &[u8]) -> io::Result<Option<Vec<u8>>> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let (bite, rest) = bytes.split_at(bytes.len().min(BITE));
        *bytes = rest;
        self.0.write_all(bite)?;
        Ok(Some(std::mem::take(self.0.get_mut())))
    }

    /// The rest. An error: the end is missing, or its checksum is another.
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swollen(mut packed: &[u8]) -> io::Result<(Vec<u8>, usize)> {
        let (mut swell, mut all, mut largest) = (Swell::new(), Vec::new(), 0);
        while let Some(piece) = swell.add(&mut packed)? {
            largest = largest.max(piece.len());
            all.extend(piece);
        }
        all.extend(swell.finish()?);
        Ok((all, largest))
    }

    #[test]
    fn what_was_squeezed_swells_again_and_a_bomb_comes_in_bites() {
        let bytes = vec![0_u8; 8 << 20];
        let mut squeeze = Squeeze::new();
        let mut packed = squeeze.add(&bytes).unwrap();
        packed.extend(squeeze.finish().unwrap());
        assert!(packed.len() < 100_000, "{}", packed.len());
        let (all, largest) = swollen(&packed).unwrap();
        assert!(all == bytes && largest < 2 << 20, "{largest}");
    }

    #[test]
    fn half_a_stream_and_no_stream_are_errors() {
        let mut squeeze = Squeeze::new();
        let mut packed = squeeze.add(b"hello").unwrap();
        packed.extend(squeeze.finish().unwrap());
        assert!(swollen(&packed[..packed.len() - 3]).is_err());
        assert!(swollen(b"not gzip at all, but long enough").is_err());
    }
}
