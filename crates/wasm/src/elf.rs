//! ELF files of 64 bits as Wasmtime writes them: no segments, sections one behind the other, their table at the end.
//!
//! Trust: written by our compiler. What is not of this form gives nothing; nothing here panics or believes a length.

/// Bytes of the file's header, and of one of a section's.
const HEADER: usize = 64;
/// Places in the file's header.
const TABLE: usize = 40;
const COUNT: usize = 60;
const NAMES: usize = 62;
/// Places in a section's header.
const OFFSET: usize = 24;
const SIZE: usize = 32;
const ALIGNMENT: usize = 48;
/// What begins every such file: ELF, 64 bits, the lowest byte first.
const MAGIC: &[u8] = b"\x7fELF\x02\x01";

/// One section's header, and what it says.
struct Section<'a> {
    name: &'a [u8],
    header: [u8; HEADER],
    bytes: &'a [u8],
}

fn short(bytes: &[u8], at: usize) -> Option<usize> {
    bytes.get(at..)?.first_chunk().map(|bytes| usize::from(u16::from_le_bytes(*bytes)))
}

fn long(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?)).ok()
}

fn sections(file: &[u8]) -> Option<Vec<Section<'_>>> {
    if !file.starts_with(MAGIC) {
        return None;
    }
    let (table, count) = (file.get(long(file, TABLE)?..)?, short(file, COUNT)?);
    let header = |number: usize| table.get(number.checked_mul(HEADER)?..)?.first_chunk::<HEADER>();
    let bytes = |header: &[u8]| file.get(long(header, OFFSET)?..)?.get(..long(header, SIZE)?);
    let names = bytes(header(short(file, NAMES)?)?)?;
    let section = |number| {
        let header = *header(number)?;
        let at = usize::try_from(u32::from_le_bytes(*header.first_chunk()?)).ok()?;
        let name = names.get(at..)?.split(|byte| *byte == 0).next()?;
        Some(Section { name, header, bytes: bytes(&header)? })
    };
    (0..count).map(section).collect()
}

/// What a section holds.
pub(crate) fn section<'a>(file: &'a [u8], name: &str) -> Option<&'a [u8]> {
    sections(file)?.into_iter().find(|section| section.name == name.as_bytes()).map(|section| section.bytes)
}

/// The same file with other bytes in these sections.
pub(crate) fn with_sections(file: &[u8], others: &[(&str, &[u8])]) -> Option<Vec<u8>> {
    let mut sections = sections(file)?;
    for (name, bytes) in others {
        sections.iter_mut().find(|section| section.name == name.as_bytes())?.bytes = bytes;
    }
    let mut out = file.get(..HEADER)?.to_vec();
    // The first one is none: the file's header would be in it.
    for section in sections.iter_mut().skip(1) {
        align(&mut out, long(&section.header, ALIGNMENT)?)?;
        put(&mut section.header, OFFSET, out.len())?;
        put(&mut section.header, SIZE, section.bytes.len())?;
        out.extend_from_slice(section.bytes);
    }
    align(&mut out, 8)?;
    let table = out.len();
    put(&mut out, TABLE, table)?;
    out.extend(sections.iter().flat_map(|section| section.header));
    Some(out)
}

fn align(out: &mut Vec<u8>, to: usize) -> Option<()> {
    out.resize(out.len().checked_next_multiple_of(to.max(1))?, 0);
    Some(())
}

fn put(bytes: &mut [u8], at: usize, value: usize) -> Option<()> {
    let value = u64::try_from(value).ok()?.to_le_bytes();
    bytes.get_mut(at..)?.get_mut(..value.len())?.copy_from_slice(&value);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with one section of this name, and its names.
    fn file() -> Vec<u8> {
        let names = b"\0.a\0.names\0";
        let mut out = [MAGIC, &[0; HEADER - MAGIC.len()], b"aaa", names].concat();
        put(&mut out, TABLE, HEADER + 3 + names.len()).unwrap();
        (out[COUNT], out[NAMES]) = (3, 2);
        for (name, offset, size) in [(0, 0, 0), (1, HEADER, 3), (4, HEADER + 3, names.len())] {
            let mut header = [0; HEADER];
            header[0] = name;
            put(&mut header, OFFSET, offset).unwrap();
            put(&mut header, SIZE, size).unwrap();
            put(&mut header, ALIGNMENT, 1).unwrap();
            out.extend(header);
        }
        out
    }

    #[test]
    fn a_section_that_grows_moves_the_others_and_changes_none() {
        assert_eq!(section(&file(), ".a").unwrap(), b"aaa");
        let other = with_sections(&file(), &[(".a", b"longer than it was")]).unwrap();
        assert_eq!(section(&other, ".a").unwrap(), b"longer than it was");
        assert_eq!(section(&other, ".names"), section(&file(), ".names"));
        let back = with_sections(&other, &[(".a", b"aaa")]).unwrap();
        assert_eq!(section(&back, ".a").unwrap(), b"aaa");
    }

    #[test]
    fn what_is_no_such_file_gives_nothing() {
        assert_eq!(section(&file(), ".b"), None);
        assert_eq!(with_sections(&file(), &[(".b", b"")]), None);
        for length in 0..file().len() {
            assert_eq!(section(&file()[..length], ".names"), None, "{length}");
        }
        let mut lying = file();
        put(&mut lying, TABLE, usize::MAX).unwrap();
        assert_eq!(section(&lying, ".a"), None);
    }
}
