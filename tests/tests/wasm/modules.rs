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

/// Does nothing, and has so many functions that nobody calls: it takes a while to compile.
pub(crate) fn large(functions: usize) -> Vec<u8> {
    let exports = [[text("memory"), vec![2, 0]].concat(), [text("_start"), vec![0, 0]].concat()];
    let mut bodies = vec![function(&[])];
    // Reads, adds and writes back, some times over.
    let step = [0x41, 0, 0x41, 0, 0x28, 2, 0, 0x41, 1, 0x6a, 0x36, 2, 0];
    bodies.resize(functions, function(&step.repeat(8)));
    module(&[
        types(),
        section(3, &vec![vec![0]; functions]),
        section(5, &[vec![0, 1]]),
        section(7, &exports),
        section(10, &bodies),
    ])
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

/// A number below zero too, as WebAssembly writes it.
fn signed(value: i32) -> Vec<u8> {
    let mut rest = i64::from(value);
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(rest & 0x7f).unwrap();
        rest >>= 7;
        let last = (rest == 0 && low & 0x40 == 0) || (rest == -1 && low & 0x40 != 0);
        bytes.push(if last { low } else { low | 0x80 });
        if last {
            return bytes;
        }
    }
}

/// When a module asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    /// As a command.
    Started,
    /// While it is put together, before there is a command.
    Early,
}

/// Where `asks` has its answers put.
pub(crate) const ANSWER: u32 = 4096;

/// Calls `blastbox.FUNCTION` once with these numbers, in a memory of 2 MiB that has these bytes in it; prints the answer, which is
/// expected at `ANSWER`. Its code is what the upper half of the result says, and of one below zero how far it is below.
pub(crate) fn asks(when: Asks, function: &str, bytes: &[(u32, &[u8])], numbers: &[u32]) -> Vec<u8> {
    let import = |from: &str, name: &str, kind: u8| [text(from), text(name), vec![0, kind]].concat();
    let wasi = "wasi_snapshot_preview1";
    let constant = |value: u32| [vec![0x41], signed(value.cast_signed())].concat();
    let given: Vec<u8> = numbers.iter().flat_map(|value| constant(*value)).collect();
    let upper_half = [0x20, 0, 0x42, 32, 0x88, 0xa7];
    let code = [
        &given[..],
        // Below zero: ends with how far.
        &[0x10, 0, 0x22, 0, 0x42, 0, 0x53, 0x04, 0x40, 0x42, 0, 0x20, 0, 0x7d, 0xa7, 0x10, 2, 0x0b],
        // Nothing was written: ends with that.
        &[0x20, 0, 0x42, 33, 0x88, 0xa7, 0x04, 0x40],
        &upper_half,
        &[0x10, 2, 0x0b],
        // The length of the piece at 0, which begins at the answer; fd_write(1, 0, 1, 8).
        &[0x41, 4, 0x20, 0, 0xa7, 0x36, 2, 0, 0x41, 1, 0x41, 0, 0x41, 1, 0x41, 8, 0x10, 1, 0x1a],
        &upper_half,
        &[0x10, 2],
    ]
    .concat();
    // One local, of 64 bits.
    let body = [&[1, 1, 0x7e][..], &code, &[0x0b]].concat();
    let asked = [vec![0x60], number(numbers.len()), vec![0x7f; numbers.len()], vec![1, 0x7e]].concat();
    let four = vec![0x60, 4, 0x7f, 0x7f, 0x7f, 0x7f, 1, 0x7f];
    let piece = ANSWER.to_le_bytes();
    let data = std::iter::once((0, &piece[..])).chain(bytes.iter().copied());
    let data = data
        .map(|(at, bytes)| [vec![0], constant(at), vec![0x0b], number(bytes.len()), bytes.to_vec()].concat());
    module(&[
        section(1, &[vec![0x60, 0, 0], four, asked, vec![0x60, 1, 0x7f, 0]]),
        section(
            2,
            &[import("blastbox", function, 2), import(wasi, "fd_write", 1), import(wasi, "proc_exit", 3)],
        ),
        section(3, &[vec![0]]),
        section(5, &[vec![0, 32]]),
        section(7, &[[text("memory"), vec![2, 0]].concat(), [text("_start"), vec![0, 3]].concat()]),
        if when == Asks::Early { vec![8, 1, 3] } else { Vec::new() },
        section(10, &[[number(body.len()), body].concat()]),
        section(11, &data.collect::<Vec<_>>()),
    ])
}
