//! Python: CPython as a reactor whose image was taken after its first turns.
//!
//! Its module is the image of an interpreter that had only started, whose first turn sets up the rest: environment, library, how turns
//! are run. That is done when the guest is made, so that a guest begins with its first command.

#[cfg(feature = "compiler")]
pub(crate) mod begin;

use blastbox_wire::agent::{ExecSpec, Exit};
use blastbox_wire::limits::{MAX_TOOL_INPUT, MAX_TOOL_NAME};
use wasmtime::{Caller, Extern, Linker};

use super::{Broken, Seat, piece, stuck};
use crate::tools;
use crate::wasi::Guest;

/// A variable of the rehearsal.
const REHEARSED: &[u8] = b"BLASTBOX_REHEARSAL=1";
/// What a program might do. Nobody hears it.
const REHEARSAL: &[u8] = b"print(__import__('os').environ.pop('BLASTBOX_REHEARSAL'))";
/// What comes before it where the image has drawn numbers: without this every guest would draw the same. One without packages has
/// drawn none, and has not even loaded what draws them: whoever does that sows by it.
const SOW: &[u8] = b"__import__('random').seed(), __import__('numpy').random.seed()\n";
/// The module by which a program calls functions of the caller and has requests made. It is there where either is offered.
const TOOLS: &[u8] = include_bytes!("python/tools.py");
/// The answers to a guest that calls: it has one; what it says cannot be read.
const ANSWERED: i32 = 0;
const FAULT: i32 = -2;
/// What is taken of a call: a name, a line break, JSON, and one byte of more, which is told to be too long. What is copied is no memory
/// of the guest's, and in no budget.
const MOST_TAKEN: usize = MAX_TOOL_NAME + 1 + MAX_TOOL_INPUT + 1;
/// `quit()` is told by this bit.
const QUIT: i32 = 0xff;

/// What the interpreter's image was taken of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Image {
    /// One that has not imported anything.
    Bare,
    /// One that had imported packages, and drawn numbers.
    Data,
}

pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    linker.func_wrap("host", "call", host_call)?;
    Ok(())
}

/// A call from Python: a name, a line break and JSON lie at an address; where the answer lies is written to two others.
fn host_call(
    mut caller: Caller<'_, Guest>,
    at: u32,
    length: u32,
    answer_at: u32,
    answer_length: u32,
) -> wasmtime::Result<i32> {
    let Some(memory) = caller.data().memory else { return Ok(FAULT) };
    let Some(asked) = piece(memory.data(&caller), at, length) else { return Ok(FAULT) };
    let asked = asked.get(..MOST_TAKEN).unwrap_or(asked).to_vec();
    let mut parts = asked.splitn(2, |byte| *byte == b'\n');
    let (tool, input) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let answer = tools::call_for(&mut caller, tool, input)?;
    let bytes = answer.signed();
    let length = u32::try_from(bytes.len())?;
    let alloc = caller.get_export("host_alloc").and_then(Extern::into_func);
    let alloc = alloc.ok_or_else(|| wasmtime::Error::msg("a function of Python is missing"))?;
    let place = alloc.typed::<u32, u32>(&caller)?.call(&mut caller, length)?;
    let written = place != 0
        && [
            (place, bytes.as_slice()),
            (answer_at, &place.to_le_bytes()),
            (answer_length, &length.to_le_bytes()),
        ]
        .into_iter()
        .all(|(at, bytes)| usize::try_from(at).is_ok_and(|at| memory.write(&mut caller, at, bytes).is_ok()));
    Ok(if written { ANSWERED } else { FAULT })
}

/// A turn that does all that a command does, and leaves nothing of it.
fn rehearsal(image: Image) -> Vec<u8> {
    let sow = match image {
        Image::Bare => b"",
        Image::Data => SOW,
    };
    let rehearsal = Program {
        name: b"<string>".to_vec(),
        source: [sow, REHEARSAL].concat(),
        arguments: vec![b"-c".to_vec()],
        unbuffered: false,
    };
    rehearsal.given(&[REHEARSED.to_vec()], b"/workspace")
}

/// Sows numbers where any were drawn, and writes to the pages that a command writes to: they are the guest's own from then on.
pub(super) fn warm_up(seat: &mut Seat, image: Image) -> Result<(), Broken> {
    match turn(seat, &rehearsal(image))? {
        0 => Ok(()),
        _ => Err(stuck("its rehearsal does not run")),
    }
}

/// What a command asks for.
struct Program {
    /// What errors call it.
    name: Vec<u8>,
    source: Vec<u8>,
    arguments: Vec<Vec<u8>>,
    unbuffered: bool,
}

impl Program {
    /// As the turn that runs it is given it: the source behind what it finds when it begins.
    fn given(&self, environment: &[Vec<u8>], directory: &[u8]) -> Vec<u8> {
        let count = self.arguments.len().to_string();
        let unbuffered: &[u8] = if self.unbuffered { b"u" } else { b"" };
        let mut given = Vec::new();
        for word in [&self.name, directory, unbuffered, count.as_bytes()]
            .into_iter()
            .chain(self.arguments.iter().map(Vec::as_slice))
            .chain(environment.iter().filter(|pair| is_variable(pair)).map(Vec::as_slice))
        {
            given.push(if given.is_empty() { 0 } else { b' ' });
            // Digits: whatever bytes a word has, it is text, and ends where it ends.
            given.extend(word.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(digit));
        }
        given.push(0);
        given.extend_from_slice(&self.source);
        given
    }
}

fn digit(value: u8) -> u8 {
    value + if value < 10 { b'0' } else { b'a' - 10 }
}

/// Whether this has a name and a value.
fn is_variable(pair: &[u8]) -> bool {
    pair.iter().position(|byte| *byte == b'=').is_some_and(|at| at > 0)
}

pub(super) fn run(seat: &mut Seat, spec: ExecSpec, image: Image) -> Result<u8, Broken> {
    let ExecSpec { arguments, environment, directory, .. } = spec;
    let mut rest = arguments.into_iter().skip(1).peekable();
    let unbuffered = rest.next_if(|word| word == b"-u").is_some();
    let (source, script, name) = match rest.next() {
        None => (seat.read_source()?, Vec::new(), b"<stdin>".to_vec()),
        Some(word) => match word.as_slice() {
            b"-" => (seat.read_source()?, word, b"<stdin>".to_vec()),
            b"-c" => (rest.next().unwrap_or_default(), word, b"<string>".to_vec()),
            [b'-', ..] => {
                let why = format!("python takes -u, -c CODE, - or a file, and not {}", quoted(&word));
                return Err(Broken { exit: Exit::Code(2), why: Some(why) });
            }
            path => (seat.read_file(&directory, path)?, word.clone(), word),
        },
    };
    let mut arguments = vec![script];
    arguments.extend(rest);
    seat.warm_unheard(|seat| warm_up(seat, image))?;
    seat.fill()?;
    if seat.store.data().host.tools || seat.store.data().host.http {
        turn(seat, &module(TOOLS))?;
    }
    let program = Program { name, source, arguments, unbuffered };
    turn(seat, &program.given(&environment, &directory))
}

/// Makes a module of this source, and leaves no name behind.
fn module(source: &[u8]) -> Vec<u8> {
    let source = quoted(source);
    format!(
        "__import__('sys').modules.__setitem__('blastbox', __import__('types').ModuleType('blastbox'))\n\
         exec({source}, __import__('sys').modules['blastbox'].__dict__)\n"
    )
    .into_bytes()
}

/// One turn: source in, code out. What it has printed goes out with it, however it ends.
pub(crate) fn turn(seat: &mut Seat, source: &[u8]) -> Result<u8, Broken> {
    let (at, length) = seat.put("host_alloc", source)?;
    let code: i32 = seat.call("turn", (at, length))?;
    Ok(u8::try_from(code & QUIT).unwrap_or(1))
}

/// Bytes as Python writes them, whatever is in them.
fn quoted(bytes: &[u8]) -> String {
    let mut out = String::from("b'");
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' | b' ' | b'=' | b':' => {
                out.push(char::from(*byte));
            }
            other => out.push_str(&format!("\\x{other:02x}")),
        }
    }
    out.push('\'');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_argument_can_leave_its_quotes() {
        assert_eq!(quoted(b"a'b\n\\\"\xff"), "b'a\\x27b\\x0a\\x5c\\x22\\xff'");
    }

    #[test]
    fn a_variable_without_a_name_is_left_out() {
        let program =
            Program { name: b"x".to_vec(), source: b"1".to_vec(), arguments: Vec::new(), unbuffered: true };
        let environment = [b"=x".to_vec(), b"A=b".to_vec(), b"none".to_vec()];
        assert_eq!(program.given(&environment, b"/"), b"\x0078 2f 75 30 413d62\x001");
    }

    #[test]
    fn no_argument_ends_before_its_end() {
        let program = Program {
            name: Vec::new(),
            source: Vec::new(),
            arguments: vec![b" \0\xff".to_vec()],
            unbuffered: false,
        };
        assert_eq!(program.given(&[], b""), b"\x00   31 2000ff\x00");
    }
}
