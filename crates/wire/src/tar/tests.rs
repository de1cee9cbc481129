//! Headers: what is written is read again, and what is not a header is refused.

use crate::agent::Link;

use super::*;

fn entry(path: &[u8], kind: EntryKind, size: u64) -> Entry {
    let modified_nanos = 1_700_000_000_000_000_000;
    let link = (kind == EntryKind::Link).then(|| Link { text: vec![b't'; 150], beyond: None });
    Entry { path: path.to_vec(), kind, size, mode: 0o4755, uid: 1000, gid: 5_000_000, modified_nanos, link }
}

/// Reads all headers of what was written, with pax records applied, as an unpacker would.
fn reread(mut bytes: &[u8]) -> Result<Header, NoHeader> {
    let mut records = Vec::new();
    loop {
        let (block, rest) = bytes.split_first_chunk::<BLOCK>().ok_or(NoHeader)?;
        let mut header = read(block)?.ok_or(NoHeader)?;
        if header.kind == b'x' {
            let length = usize::try_from(header.size).map_err(|_| NoHeader)?;
            records = rest.get(..length).ok_or(NoHeader)?.to_vec();
            bytes = rest.get(length + padding(header.size)..).ok_or(NoHeader)?;
            continue;
        }
        assert!(rest.is_empty());
        apply(&records, &mut header)?;
        return Ok(header);
    }
}

#[test]
fn what_is_written_is_read_again() {
    let long = [b"d/".repeat(200).as_slice(), b"\xff\n"].concat();
    for path in [b"short".as_slice(), b"with\nline", b"\xff", &long] {
        for (kind, size) in [(EntryKind::File, 1 << 40), (EntryKind::Directory, 0), (EntryKind::Link, 0)] {
            let entry = entry(path, kind, size);
            let mut bytes = Vec::new();
            assert!(write(&entry, &mut bytes));
            assert_eq!(bytes.len() % BLOCK, 0);
            let header = reread(&bytes).unwrap();
            let slash: &[u8] = if kind == EntryKind::Directory { b"/" } else { b"" };
            assert_eq!(header.path, [path, slash].concat());
            assert_eq!((header.size, header.modified_seconds), (size, 1_700_000_000));
            assert_eq!(header.link.len(), if kind == EntryKind::Link { 150 } else { 0 });
        }
    }
}

#[test]
fn pipes_and_devices_have_no_header() {
    let mut bytes = Vec::new();
    assert!(!write(&entry(b"pipe", EntryKind::Other, 0), &mut bytes));
    assert_eq!(bytes, b"");
}

#[test]
fn a_wrong_sum_is_no_header() {
    let mut bytes = Vec::new();
    write(&entry(b"a", EntryKind::Directory, 0), &mut bytes);
    // The last block is the header itself; a pax header is before it.
    let mut block = *bytes.last_chunk::<BLOCK>().unwrap();
    assert!(read(&block).is_ok());
    block[0] ^= 1;
    assert_eq!(read(&block), Err(NoHeader));
    assert_eq!(read(&[0; BLOCK]), Ok(None));
}

#[test]
fn records_that_lie_about_their_length_are_refused() {
    for records in
        [&b"99 path=a\n"[..], b"0 path=a\n", b"x path=a\n", b"9 patha\n", b"3 \n", b"12 GNU.sparse.map=1\n"]
    {
        assert_eq!(apply(records, &mut Header::default()), Err(NoHeader), "{records:?}");
    }
    let mut header = Header::default();
    apply(b"10 path=a\n13 mtime=1.5\n", &mut header).unwrap();
    assert_eq!((header.path, header.modified_seconds), (b"a".to_vec(), 1));
}

#[test]
fn numbers_are_octal_or_binary_and_never_more_than_fits() {
    assert_eq!(number(b"0000755\0"), Ok(0o755));
    assert_eq!(number(b"   755 \0"), Ok(0o755));
    assert_eq!(number(b"\x80\0\0\0\0\0\0\x01\0\0\0\0"), Ok(1 << 32));
    assert_eq!(number(b"\x80\x01\0\0\0\0\0\0\0\0\0\0"), Err(NoHeader));
    assert_eq!(number(b"99999999"), Err(NoHeader));
}
