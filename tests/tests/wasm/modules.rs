//! Small modules, put together by hand: no toolchain is needed to be hostile.

/// A number as WebAssembly writes it.
fn number(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(value & 0x7f).unwrap();
        value >>= 7;
        bytes.push(if value == 0 { low } else { low | 0x80 });
        if value == 0 {
            return bytes;
        }
    }
}

fn text(text: &str) -> Vec<u8> {
    [number(text.len()), text.as_bytes().to_vec()].concat()
}

fn list(items: &[Vec<u8>]) -> Vec<u8> {
    [number(items.len()), items.concat()].concat()
}

fn section(id: u8, items: &[Vec<u8>]) -> Vec<u8> {
    let body = list(items);
    [vec![id], number(body.len()), body].concat()
}

/// Types 0 `() -> ()` and 1 `(i32, i32, i32, i32) -> i32`.
fn types() -> Vec<u8> {
    section(1, &[vec![0x60, 0, 0], vec![0x60, 4, 0x7f, 0x7f, 0x7f, 0x7f, 1, 0x7f]])
}

fn function(code: &[u8]) -> Vec<u8> {
    let body = [&[0][..], code, &[0x0b]].concat();
    [number(body.len()), body].concat()
}

fn module(sections: &[Vec<u8>]) -> Vec<u8> {
    [b"\0asm\x01\0\0\0".to_vec(), sections.concat()].concat()
}

/// A command of this code, with one page of memory and no import.
fn command(code: &[u8]) -> Vec<u8> {
    let exports = [[text("memory"), vec![2, 0]].concat(), [text("_start"), vec![0, 0]].concat()];
    module(&[
        types(),
        section(3, &[vec![0]]),
        section(5, &[vec![0, 1]]),
        section(7, &exports),
        section(10, &[function(code)]),
    ])
}

/// Prints a line.
pub(crate) fn hello(line: &str) -> Vec<u8> {
    let import = [text("wasi_snapshot_preview1"), text("fd_write"), vec![0, 1]].concat();
    let exports = [[text("memory"), vec![2, 0]].concat(), [text("_start"), vec![0, 1]].concat()];
    // fd_write(1, 0, 1, 8): one piece, described at 0; the count goes to 8; the line lies at 16.
    let code = [0x41, 1, 0x41, 0, 0x41, 1, 0x41, 8, 0x10, 0, 0x1a];
    let piece = [16_u32.to_le_bytes(), u32::try_from(line.len()).unwrap().to_le_bytes()].concat();
    let data = |at: u8, bytes: &[u8]| [vec![0, 0x41, at, 0x0b], number(bytes.len()), bytes.to_vec()].concat();
    module(&[
        types(),
        section(2, &[import]),
        section(3, &[vec![0]]),
        section(5, &[vec![0, 1]]),
        section(7, &exports),
        section(10, &[function(&code)]),
        section(11, &[data(0, &piece), data(16, line.as_bytes())]),
    ])
}

/// Asks for a function that it is not given.
pub(crate) fn wants(from: &str, name: &str) -> Vec<u8> {
    let import = [text(from), text(name), vec![0, 0]].concat();
    let exports = [[text("_start"), vec![0, 1]].concat()];
    module(&[
        types(),
        section(2, &[import]),
        section(3, &[vec![0]]),
        section(7, &exports),
        section(10, &[function(&[0x10, 0])]),
    ])
}

/// Has nothing to start.
pub(crate) fn library() -> Vec<u8> {
    module(&[types(), section(3, &[vec![0]]), section(10, &[function(&[])])])
}

/// Does what must not be reached.
pub(crate) fn unreachable() -> Vec<u8> {
    command(&[0x00])
}

/// Divides by zero.
pub(crate) fn division() -> Vec<u8> {
    command(&[0x41, 1, 0x41, 0, 0x6d, 0x1a])
}

/// Reads far outside of its memory.
pub(crate) fn outside() -> Vec<u8> {
    command(&[0x41, 0x7f, 0x28, 2, 0, 0x1a])
}

/// Calls itself for ever.
pub(crate) fn deep() -> Vec<u8> {
    command(&[0x10, 0])
}

/// Never ends.
pub(crate) fn endless() -> Vec<u8> {
    command(&[0x03, 0x40, 0x0c, 0, 0x0b])
}

/// Takes memory, 16 MiB at a time, until it gets no more, and gives up.
pub(crate) fn greedy() -> Vec<u8> {
    command(&[0x03, 0x40, 0x41, 0x80, 2, 0x40, 0, 0x41, 0x7f, 0x47, 0x0d, 0, 0x0b, 0x00])
}

/// Never ends, and is at it before anybody has started it.
pub(crate) fn early() -> Vec<u8> {
    let exports = [[text("memory"), vec![2, 0]].concat(), [text("_start"), vec![0, 0]].concat()];
    module(&[
        types(),
        section(3, &[vec![0]]),
        section(5, &[vec![0, 1]]),
        section(7, &exports),
        // The function that runs when the module is put together.
        vec![8, 1, 0],
        section(10, &[function(&[0x03, 0x40, 0x0c, 0, 0x0b])]),
    ])
}

/// Has two tables.
pub(crate) fn tables() -> Vec<u8> {
    let exports = [[text("_start"), vec![0, 0]].concat()];
    let table = vec![0x70, 0, 1];
    module(&[
        types(),
        section(3, &[vec![0]]),
        section(4, &[table.clone(), table]),
        section(7, &exports),
        section(10, &[function(&[])]),
    ])
}
