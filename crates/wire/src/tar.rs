//! The form of a tar archive: ustar headers, with pax records where a header is too small. Files go in and out of a box
//! in this form, in both directions.

use crate::agent::{Entry, EntryKind};

/// Everything in an archive comes in blocks of this size.
pub const BLOCK: usize = 512;

/// What a header says of an entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Header {
    /// Its path, as it was written: whoever unpacks must not believe it.
    pub path: Vec<u8>,
    /// The text of a link.
    pub link: Vec<u8>,
    /// One character: `0` a file, `2` a link, `5` a directory.
    pub kind: u8,
    /// Permission bits.
    pub mode: u32,
    /// Bytes of content that follow.
    pub size: u64,
    /// Last change, in seconds since 1970.
    pub modified_seconds: i64,
}

/// Bytes that fill the last block of a content.
#[must_use]
pub fn padding(size: u64) -> usize {
    let over = usize::try_from(size % 512).unwrap_or(0);
    if over == 0 { 0 } else { BLOCK.saturating_sub(over) }
}

/// The header of an entry, with pax records before it where it needs them. `false`: archives have no such entry.
pub fn write(entry: &Entry, to: &mut Vec<u8>) -> bool {
    let (kind, size, link): (_, _, &[u8]) = match (entry.kind, &entry.link) {
        (EntryKind::File, _) => (b'0', entry.size, b""),
        (EntryKind::Directory, _) => (b'5', 0, b""),
        (EntryKind::Link, Some(link)) => (b'2', 0, &link.text),
        (EntryKind::Link, None) | (EntryKind::Other, _) => return false,
    };
    let mut path = entry.path.clone();
    if kind == b'5' {
        path.push(b'/');
    }
    let seconds = entry.modified_nanos.div_euclid(1_000_000_000);
    let mut records = Vec::new();
    for (key, value, most) in [("path", path.as_slice(), 100), ("linkpath", link, 100)] {
        if value.len() > most {
            if std::str::from_utf8(value).is_err() && records.is_empty() {
                record(&mut records, "hdrcharset", b"BINARY");
            }
            record(&mut records, key, value);
        }
    }
    for (key, value, digits) in
        [("size", size, 11), ("uid", u64::from(entry.uid), 7), ("gid", u64::from(entry.gid), 7)]
    {
        if octal(value, digits).is_none() {
            record(&mut records, key, value.to_string().as_bytes());
        }
    }
    if u64::try_from(seconds).ok().and_then(|seconds| octal(seconds, 11)).is_none() {
        record(&mut records, "mtime", seconds.to_string().as_bytes());
    }
    if !records.is_empty() {
        let length = u64::try_from(records.len()).unwrap_or(0);
        let about =
            Header { path: b"pax".to_vec(), kind: b'x', mode: 0o644, size: length, ..Header::default() };
        block(&about, 0, 0, to);
        to.extend_from_slice(&records);
        to.resize(to.len().saturating_add(padding(length)), 0);
    }
    let header =
        Header { path, link: link.to_vec(), kind, mode: entry.mode, size, modified_seconds: seconds };
    block(&header, entry.uid, entry.gid, to);
    true
}

/// One block of header. What does not fit is cut or zero here: a pax record says it in full.
fn block(header: &Header, uid: u32, gid: u32, to: &mut Vec<u8>) {
    let mut block = [0_u8; BLOCK];
    let number = |value: u64, digits: usize| octal(value, digits).unwrap_or_default();
    let seconds = u64::try_from(header.modified_seconds).unwrap_or(0);
    let fields: [(usize, usize, &[u8]); 9] = [
        (0, 100, &header.path),
        (100, 8, &number(u64::from(header.mode), 7)),
        (108, 8, &number(u64::from(uid), 7)),
        (116, 8, &number(u64::from(gid), 7)),
        (124, 12, &number(header.size, 11)),
        (136, 12, &number(seconds, 11)),
        (148, 8, b"        "),
        (157, 100, &header.link),
        (257, 8, b"ustar\x0000"),
    ];
    for (at, length, bytes) in fields {
        put(&mut block, at, length, bytes);
    }
    put(&mut block, 156, 1, &[header.kind]);
    let sum: u64 = block.iter().map(|&byte| u64::from(byte)).sum();
    let mut sum = number(sum, 6);
    sum.extend_from_slice(b"\0 ");
    put(&mut block, 148, 8, &sum);
    to.extend_from_slice(&block);
}

fn put(block: &mut [u8; BLOCK], at: usize, length: usize, bytes: &[u8]) {
    let field = block.get_mut(at..at.saturating_add(length)).unwrap_or_default();
    for (to, from) in field.iter_mut().zip(bytes) {
        *to = *from;
    }
}

fn octal(value: u64, digits: usize) -> Option<Vec<u8>> {
    let text = format!("{value:0digits$o}");
    (text.len() == digits).then(|| text.into_bytes())
}

/// `LENGTH KEY=VALUE\n`, where the length counts itself.
fn record(to: &mut Vec<u8>, key: &str, value: &[u8]) {
    let rest = key.len().saturating_add(value.len()).saturating_add(3);
    let mut length = rest;
    while length != rest.saturating_add(length.to_string().len()) {
        length = rest.saturating_add(length.to_string().len());
    }
    to.extend_from_slice(format!("{length} {key}=").as_bytes());
    to.extend_from_slice(value);
    to.push(b'\n');
}

/// This is no archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoHeader;

/// Reads one block of header. `None`: a block of zeros, which ends an archive.
pub fn read(block: &[u8; BLOCK]) -> Result<Option<Header>, NoHeader> {
    if block.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    let field = |at: usize, length: usize| block.get(at..at.saturating_add(length)).unwrap_or_default();
    let sum: u64 = block.iter().map(|&byte| u64::from(byte)).sum();
    let own: u64 = field(148, 8).iter().map(|&byte| u64::from(byte)).sum();
    if number(field(148, 8))? != sum.saturating_sub(own).saturating_add(8 * 0x20) {
        return Err(NoHeader);
    }
    let mut path = text(field(0, 100)).to_vec();
    // Only in ustar is it a part of the path; GNU has other things there.
    if field(257, 6) == b"ustar\0" && field(345, 1) != b"\0" {
        path = [text(field(345, 155)), b"/", &path].concat();
    }
    Ok(Some(Header {
        path,
        link: text(field(157, 100)).to_vec(),
        kind: field(156, 1).first().copied().unwrap_or(0),
        mode: u32::try_from(number(field(100, 8))? & 0o7777).unwrap_or(0),
        size: number(field(124, 12))?,
        modified_seconds: i64::try_from(number(field(136, 12))?).unwrap_or(0),
    }))
}

/// Applies pax records to the header that they precede.
pub fn apply(mut records: &[u8], header: &mut Header) -> Result<(), NoHeader> {
    while !records.is_empty() {
        let space = records.iter().position(|&byte| byte == b' ').ok_or(NoHeader)?;
        let length: usize = parsed(records.get(..space).unwrap_or_default())?;
        let (line, rest) = records.split_at_checked(length).ok_or(NoHeader)?;
        let line =
            line.get(space.saturating_add(1)..).and_then(|line| line.strip_suffix(b"\n")).ok_or(NoHeader)?;
        let equals = line.iter().position(|&byte| byte == b'=').ok_or(NoHeader)?;
        let (key, value) = (line.get(..equals).unwrap_or_default(), line.get(equals.saturating_add(1)..));
        let value = value.unwrap_or_default();
        match key {
            b"path" => header.path = value.to_vec(),
            b"linkpath" => header.link = value.to_vec(),
            b"size" => header.size = parsed(value)?,
            b"mtime" => {
                let whole = value.split(|&byte| byte == b'.').next().unwrap_or_default();
                header.modified_seconds = parsed(whole)?;
            }
            // Holes would be written as content: better refused than wrong.
            key if key.starts_with(b"GNU.sparse.") => return Err(NoHeader),
            _ => {}
        }
        records = rest;
    }
    Ok(())
}

fn parsed<T: std::str::FromStr>(digits: &[u8]) -> Result<T, NoHeader> {
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or(NoHeader)
}

fn text(field: &[u8]) -> &[u8] {
    field.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Octal with blanks and zeros around it, or, by GNU, big-endian behind a first byte of 0x80.
fn number(field: &[u8]) -> Result<u64, NoHeader> {
    if let Some((0x80, binary)) = field.split_first() {
        let (high, low) = binary.split_at_checked(binary.len().saturating_sub(8)).ok_or(NoHeader)?;
        if high.iter().any(|&byte| byte != 0) {
            return Err(NoHeader);
        }
        return Ok(low.iter().fold(0, |value, &byte| (value << 8) | u64::from(byte)));
    }
    let digits = std::str::from_utf8(field).map_err(|_| NoHeader)?.trim_matches([' ', '\0']);
    if digits.is_empty() { Ok(0) } else { u64::from_str_radix(digits, 8).map_err(|_| NoHeader) }
}

#[cfg(test)]
mod tests;
