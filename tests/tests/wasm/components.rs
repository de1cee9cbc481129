//! Components written byte by byte: those that are refused before anything runs, and one that has functions of the caller called,
//! which no library makes.

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

fn name(name: &str) -> Vec<u8> {
    [vec![0], text(name)].concat()
}

/// Where a component that calls has what it says, and where what it hears is told.
const NAME: u32 = 1024;
const INPUT: u32 = 4096;
const HEARD: u32 = 64;

/// A component that calls `call-tool` with this name and JSON, or with no name `fetch` with these bytes. It fails where an error comes
/// back; what came it passes on by calling the tool `say`, so that somebody sees it.
pub(crate) fn calling(tool: Option<&str>, input: &str) -> Vec<u8> {
    let calls = instance_of_calls();
    let alias = |kind: u8, name: &str| [&[kind, 0, 0][..], &text(name)].concat();
    let core = |kind: u8, instance: u8, name: &str| [&[0, kind, 1, instance], text(name).as_slice()].concat();
    // From core function 0, which is `realloc` in memory 0, and UTF-8.
    let lowered = |function: u8| vec![1, 0, function, 3, 0, 3, 0, 4, 0];
    let exported = |pairs: &[(&str, u8)]| {
        let pair = |(name, number): &(&str, u8)| [text(name), vec![0, *number]].concat();
        [vec![1], list(&pairs.iter().map(pair).collect::<Vec<_>>())].concat()
    };
    let given = [[text("m"), vec![0x12, 0]].concat(), [text("h"), vec![0x12, 1]].concat()];
    [
        b"\0asm\x0d\0\x01\0".to_vec(),
        section(1, &allocator()),
        section(1, &caller(tool, input)),
        section(7, &list(&[calls])),
        section(10, &list(&[[name("blastbox:host/calls@0.1.0"), vec![5, 0]].concat()])),
        section(6, &list(&[alias(1, "call-tool"), alias(1, "fetch")])),
        section(2, &list(&[vec![0, 0, 0]])),
        section(6, &list(&[core(2, 0, "memory"), core(0, 0, "realloc")])),
        section(8, &list(&[lowered(0), lowered(1)])),
        section(
            2,
            &list(&[exported(&[("call-tool", 1), ("fetch", 2)]), [vec![0, 1], list(&given)].concat()]),
        ),
        section(6, &list(&[core(0, 2, "run")])),
        // `result`, and a function that gives one.
        section(7, &list(&[vec![0x6a, 0, 0], vec![0x40, 0, 0, 1]])),
        section(8, &list(&[vec![0, 0, 3, 0, 2]])),
        section(5, &list(&[[vec![1], list(&[[name("run"), vec![1, 2]].concat()])].concat()])),
        section(11, &list(&[[name("wasi:cli/run@0.2.0"), vec![5, 1, 0]].concat()])),
    ]
    .concat()
}

/// The type of `blastbox:host/calls`.
fn instance_of_calls() -> Vec<u8> {
    const STRING: u8 = 0x73;
    let kind = |body: &[u8]| [&[1], body].concat();
    let function = |parameters: &[(&str, u8)], gives: u8| {
        let parameter = |(name, kind): &(&str, u8)| [text(name), vec![*kind]].concat();
        let parameters = list(&parameters.iter().map(parameter).collect::<Vec<_>>());
        kind(&[&[0x40][..], &parameters, &[0, gives]].concat())
    };
    let export = |text: &str, kind: u8| [&[4], name(text).as_slice(), &[1, kind]].concat();
    let declared = [
        kind(&[0x6a, 1, STRING, 1, STRING]),
        function(&[("name", STRING), ("json", STRING)], 0),
        export("call-tool", 1),
        kind(&[0x70, 0x7d]),
        kind(&[0x6a, 1, 2, 1, STRING]),
        function(&[("request", 2)], 3),
        export("fetch", 4),
    ];
    [vec![0x42], list(&declared)].concat()
}

/// A module with a memory of 4 MiB and `realloc`, which never gives the same twice.
fn allocator() -> Vec<u8> {
    // The place, and behind it rounded up to 8.
    let code = [0x23, 0, 0x23, 0, 0x20, 3, 0x6a, 0x41, 7, 0x6a, 0x41, 0x78, 0x71, 0x24, 0];
    let exports = [[text("memory"), vec![2, 0]].concat(), [text("realloc"), vec![0, 0]].concat()];
    module(&[
        section(1, &list(&[vec![0x60, 4, 0x7f, 0x7f, 0x7f, 0x7f, 1, 0x7f]])),
        section(3, &list(&[vec![0]])),
        section(5, &list(&[vec![0, 64]])),
        // From 1 MiB on.
        section(6, &list(&[vec![0x7f, 1, 0x41, 0x80, 0x80, 0xc0, 0, 0x0b]])),
        section(7, &list(&exports)),
        section(10, &list(&[body(&code)])),
    ])
}

/// The module that calls.
fn caller(tool: Option<&str>, input: &str) -> Vec<u8> {
    let number = |value: u32| [vec![0x41], signed(value)].concat();
    let span = |at: u32, text: &str| [number(at), number(u32::try_from(text.len()).unwrap())].concat();
    let asked = match tool {
        Some(tool) => [span(NAME, tool), span(INPUT, input), number(HEARD), vec![0x10, 0]].concat(),
        None => [span(INPUT, input), number(HEARD), vec![0x10, 1]].concat(),
    };
    let heard = [number(HEARD), vec![0x28, 2, 4], number(HEARD), vec![0x28, 2, 8]].concat();
    // Where it is told is past what was heard.
    let said = [span(0, "say"), heard, number(HEARD + 16), vec![0x10, 0]].concat();
    let code = [asked, said, number(HEARD), vec![0x2d, 0, 0]].concat();
    let data = |at: u32, bytes: &str| [vec![0], number(at), vec![0x0b], text(bytes)].concat();
    let import = |from: &str, name: &str, kind: &[u8]| [&text(from)[..], &text(name), kind].concat();
    let imports =
        [import("h", "call-tool", &[0, 0]), import("h", "fetch", &[0, 1]), import("m", "memory", &[2, 0, 1])];
    let five = vec![0x60, 5, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0];
    let exports = [[text("run"), vec![0, 2]].concat()];
    module(&[
        section(1, &list(&[five, vec![0x60, 3, 0x7f, 0x7f, 0x7f, 0], vec![0x60, 0, 1, 0x7f]])),
        section(2, &list(&imports)),
        section(3, &list(&[vec![2]])),
        section(7, &list(&exports)),
        section(10, &list(&[body(&code)])),
        section(11, &list(&[data(0, "say"), data(NAME, tool.unwrap_or_default()), data(INPUT, input)])),
    ])
}

fn module(sections: &[Vec<u8>]) -> Vec<u8> {
    [b"\0asm\x01\0\0\0".to_vec(), sections.concat()].concat()
}

/// A function of this code without variables of its own.
fn body(code: &[u8]) -> Vec<u8> {
    let whole = [&[0], code, &[0x0b]].concat();
    [number(whole.len()), whole].concat()
}

fn list(items: &[Vec<u8>]) -> Vec<u8> {
    [number(items.len()), items.concat()].concat()
}

fn section(id: u8, body: &[u8]) -> Vec<u8> {
    [vec![id], number(body.len()), body.to_vec()].concat()
}

fn text(text: &str) -> Vec<u8> {
    [number(text.len()), text.as_bytes().to_vec()].concat()
}

/// A length as WebAssembly writes it.
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

/// A number that may be below zero, which this one is not: its last byte says so.
fn signed(value: u32) -> Vec<u8> {
    let mut bytes = number(usize::try_from(value).unwrap());
    if let Some(last) = bytes.last_mut().filter(|last| **last & 0x40 != 0) {
        *last |= 0x80;
        bytes.push(0);
    }
    bytes
}
