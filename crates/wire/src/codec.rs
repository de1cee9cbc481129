//! The binary form of everything that crosses a process border.
//!
//! Trust: whoever holds the other end. Big-endian numbers, lengths before bytes. Reading never panics, and never
//! allocates from a length that was sent: every list and every text has a bound that the reader brings along.

/// Why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The message ends before its content does.
    #[error("the message is cut off")]
    Short,
    /// A list or a text is longer than the reader accepts.
    #[error("a length of {0} is over the limit")]
    TooLong(usize),
    /// Bytes are left over after the content.
    #[error("{0} bytes are left over")]
    Trailing(usize),
    /// A number that stands for a choice is not one of the choices.
    #[error("{0} is not a known {1}")]
    Unknown(u32, &'static str),
    /// Text that must be UTF-8 is not.
    #[error("a text is not UTF-8")]
    NotText,
    /// A value breaks the rule of its type.
    #[error("a value is not a valid {0}")]
    Invalid(&'static str),
}

/// Writes a message.
#[derive(Debug, Default)]
pub struct Writer {
    out: Vec<u8>,
}

impl Writer {
    /// A writer that appends to bytes which are already there.
    #[must_use]
    pub fn after(out: Vec<u8>) -> Self {
        Self { out }
    }
    /// The bytes.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.out
    }
    /// One byte.
    pub fn u8(&mut self, value: u8) {
        self.out.push(value);
    }
    /// Two bytes.
    pub fn u16(&mut self, value: u16) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }
    /// Four bytes.
    pub fn u32(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }
    /// Eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }
    /// Four bytes, signed.
    pub fn i32(&mut self, value: i32) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }
    /// Eight bytes, signed.
    pub fn i64(&mut self, value: i64) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }
    /// Bytes without a length: the rest of the message.
    pub fn rest(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }
    /// Bytes with their length. What does not fit 32 bits is cut, and the reader's bound refuses it.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.rest(bytes);
    }
    /// A list: its length, then each item.
    pub fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.u32(u32::try_from(items.len()).unwrap_or(u32::MAX));
        for item in items {
            each(self, item);
        }
    }
}

/// Reads a message.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads these bytes from the beginning.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(CodecError::Short)?;
        self.rest = rest;
        Ok(*head)
    }
    /// One byte.
    pub fn u8(&mut self) -> Result<u8, CodecError> {
        self.array::<1>().map(|[byte]| byte)
    }
    /// Two bytes.
    pub fn u16(&mut self) -> Result<u16, CodecError> {
        self.array().map(u16::from_be_bytes)
    }
    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32, CodecError> {
        self.array().map(u32::from_be_bytes)
    }
    /// Eight bytes.
    pub fn u64(&mut self) -> Result<u64, CodecError> {
        self.array().map(u64::from_be_bytes)
    }
    /// Four bytes, signed.
    pub fn i32(&mut self) -> Result<i32, CodecError> {
        self.array().map(i32::from_be_bytes)
    }
    /// Eight bytes, signed.
    pub fn i64(&mut self) -> Result<i64, CodecError> {
        self.array().map(i64::from_be_bytes)
    }
    /// A fixed number of bytes.
    pub fn exactly<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        self.array()
    }
    /// All bytes that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }
    /// Bytes with their length, at most `most` of them. Borrowed: nothing is allocated.
    pub fn bytes(&mut self, most: usize) -> Result<&'a [u8], CodecError> {
        let length = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        if length > most {
            return Err(CodecError::TooLong(length));
        }
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(CodecError::Short)?;
        self.rest = rest;
        Ok(bytes)
    }
    /// A text with its length, at most `most` bytes of it.
    pub fn text(&mut self, most: usize) -> Result<&'a str, CodecError> {
        std::str::from_utf8(self.bytes(most)?).map_err(|_| CodecError::NotText)
    }
    /// A list of at most `most` items. The vector grows with what is really there, not with what was announced.
    pub fn list<T>(
        &mut self,
        most: usize,
        mut each: impl FnMut(&mut Self) -> Result<T, CodecError>,
    ) -> Result<Vec<T>, CodecError> {
        let length = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        if length > most {
            return Err(CodecError::TooLong(length));
        }
        let mut items = Vec::new();
        for _ in 0..length {
            items.push(each(self)?);
        }
        Ok(items)
    }
    /// Whether nothing is left.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }
    /// Nothing may be left.
    pub fn end(self) -> Result<(), CodecError> {
        if self.rest.is_empty() { Ok(()) } else { Err(CodecError::Trailing(self.rest.len())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lying_length_is_refused_before_any_allocation() {
        let mut writer = Writer::default();
        writer.u32(u32::MAX);
        let bytes = writer.finish();
        assert_eq!(Reader::new(&bytes).bytes(10), Err(CodecError::TooLong(4_294_967_295)));
        assert_eq!(Reader::new(&bytes).list(10, Reader::u8), Err(CodecError::TooLong(4_294_967_295)));
    }

    #[test]
    fn a_length_within_the_bound_but_beyond_the_message_is_short() {
        let mut writer = Writer::default();
        writer.u32(10);
        writer.rest(b"abc");
        let bytes = writer.finish();
        assert_eq!(Reader::new(&bytes).bytes(10), Err(CodecError::Short));
    }
}
