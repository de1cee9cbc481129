//! Components written byte by byte: those that are refused before anything runs.

/// A component that imports an instance of this name without anything in it, and exports it as `exported`.
pub(crate) fn passing(imported: &str, exported: &str) -> Vec<u8> {
    let exports = section(11, &[&[1][..], &name(exported), &[5, 0, 0]].concat());
    [importing(imported, &[]), exports].concat()
}

/// A component that imports an instance with these functions, which take and give nothing, and has nothing else.
pub(crate) fn importing(imported: &str, functions: &[&str]) -> Vec<u8> {
    // One type, of an instance: the type of its functions, and each of them.
    let function = |text: &&str| [&[4], name(text).as_slice(), &[1, 0]].concat();
    let inner = [&[1, 0x40, 0, 1, 0][..], &functions.iter().flat_map(function).collect::<Vec<u8>>()].concat();
    let count = u8::try_from(functions.len()).unwrap() + 1;
    let kinds = section(7, &[&[1, 0x42, count][..], &inner].concat());
    let imports = section(10, &[&[1][..], &name(imported), &[5, 0]].concat());
    [b"\0asm\x0d\0\x01\0".as_slice(), &kinds, &imports].concat()
}

fn name(text: &str) -> Vec<u8> {
    [&[0, short(text.len())], text.as_bytes()].concat()
}

fn section(id: u8, body: &[u8]) -> Vec<u8> {
    [&[id, short(body.len())], body].concat()
}

/// A length that is one byte of LEB128.
fn short(length: usize) -> u8 {
    u8::try_from(length).ok().filter(|length| *length < 128).unwrap()
}
