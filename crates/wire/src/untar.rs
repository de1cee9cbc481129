//! A tar stream, cut into entries as it arrives. Holds no more than one header and its records.
//!
//! Trust: guest. On the host an archive comes out of a box; in the box it comes from whoever has a key.

use crate::tar::{self, BLOCK, Header, NoHeader};

/// Longest pax record list or long name. A path is at most 4096 bytes; what needs more than this is not meant well.
const MOST_RECORDS: u64 = 64 * 1024;

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// An entry begins. Its content follows.
    Entry(Header),
    /// Content of the entry.
    Content(&'a [u8]),
    /// The entry is complete.
    EntryEnd,
}

#[derive(Debug)]
enum Reading {
    /// A header, of which this much is there.
    Header(Vec<u8>),
    /// Content, and what fills its last block.
    Content { left: u64, padding: usize },
    /// A record list or a long name.
    Records { kind: u8, left: u64, padding: usize, text: Vec<u8> },
    /// The end was seen: whatever follows is nothing.
    Over,
}

/// What stands before a header and belongs to it.
#[derive(Debug, Default)]
struct Before {
    records: Vec<u8>,
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
}

/// The cutter.
#[derive(Debug)]
pub struct Untar {
    reading: Reading,
    before: Before,
}

impl Default for Untar {
    fn default() -> Self {
        Self::new()
    }
}

impl Untar {
    /// At the beginning of an archive.
    #[must_use]
    pub fn new() -> Self {
        Self { reading: Reading::Header(Vec::new()), before: Before::default() }
    }

    /// Whether the stream may end here: no entry is cut in two.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        match &self.reading {
            Reading::Over => true,
            Reading::Header(bytes) => bytes.is_empty(),
            Reading::Content { .. } | Reading::Records { .. } => false,
        }
    }

    /// Whether the end mark was seen. Without it, what follows the last whole entry may have been cut off.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.reading, Reading::Over)
    }

    /// Cuts the next part off the front of `bytes`. `None`: more bytes are needed, and all of these are used.
    pub fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Part<'a>>, NoHeader> {
        loop {
            match &mut self.reading {
                Reading::Over => {
                    *bytes = &[];
                    return Ok(None);
                }
                Reading::Content { left: 0, padding } => {
                    take(bytes, padding);
                    if *padding > 0 {
                        return Ok(None);
                    }
                    self.reading = Reading::Header(Vec::new());
                    return Ok(Some(Part::EntryEnd));
                }
                Reading::Content { left, padding: _ } => {
                    let content = take_content(bytes, left);
                    return Ok((!content.is_empty()).then_some(Part::Content(content)));
                }
                Reading::Records { kind, left: 0, padding, text } => {
                    take(bytes, padding);
                    if *padding > 0 {
                        return Ok(None);
                    }
                    let text = std::mem::take(text);
                    match kind {
                        b'x' => self.before.records = text,
                        b'L' => self.before.path = Some(until_zero(text)),
                        b'K' => self.before.link = Some(until_zero(text)),
                        // Records for all entries: dates and comments, in practice.
                        _ => {}
                    }
                    self.reading = Reading::Header(Vec::new());
                }
                Reading::Records { left, text, .. } => {
                    let more = take_content(bytes, left);
                    if more.is_empty() {
                        return Ok(None);
                    }
                    text.extend_from_slice(more);
                }
                Reading::Header(block) => {
                    let missing = BLOCK.saturating_sub(block.len());
                    let now = bytes.get(..missing).unwrap_or(bytes);
                    block.extend_from_slice(now);
                    *bytes = bytes.get(now.len()..).unwrap_or_default();
                    let Some(whole) = block.first_chunk::<BLOCK>() else { return Ok(None) };
                    let header = tar::read(whole)?;
                    if let Some(entry) = self.begin(header)? {
                        return Ok(Some(Part::Entry(entry)));
                    }
                }
            }
        }
    }

    fn begin(&mut self, header: Option<Header>) -> Result<Option<Header>, NoHeader> {
        let Some(mut header) = header else {
            self.reading = Reading::Over;
            return Ok(None);
        };
        if matches!(header.kind, b'x' | b'g' | b'L' | b'K') {
            if header.size > MOST_RECORDS {
                return Err(NoHeader);
            }
            let padding = tar::padding(header.size);
            self.reading =
                Reading::Records { kind: header.kind, left: header.size, padding, text: Vec::new() };
            return Ok(None);
        }
        let Before { records, path, link } = std::mem::take(&mut self.before);
        header.path = path.unwrap_or(header.path);
        header.link = link.unwrap_or(header.link);
        tar::apply(&records, &mut header)?;
        self.reading = Reading::Content { left: header.size, padding: tar::padding(header.size) };
        Ok(Some(header))
    }
}

fn take(bytes: &mut &[u8], wanted: &mut usize) {
    let now = bytes.len().min(*wanted);
    *bytes = bytes.get(now..).unwrap_or_default();
    *wanted = wanted.saturating_sub(now);
}

fn take_content<'a>(bytes: &mut &'a [u8], left: &mut u64) -> &'a [u8] {
    let most = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
    let (now, rest) = bytes.split_at_checked(most).unwrap_or((bytes, &[]));
    *bytes = rest;
    *left = left.saturating_sub(u64::try_from(now.len()).unwrap_or(0));
    now
}

fn until_zero(mut text: Vec<u8>) -> Vec<u8> {
    if let Some(zero) = text.iter().position(|&byte| byte == 0) {
        text.truncate(zero);
    }
    text
}
