//! Python: CPython as a reactor whose image was taken after the interpreter had started.
//!
//! Its first turn sets up what must differ between guests: the seed of `random`, the environment, the library.

use blastbox_wire::agent::{ExecSpec, Exit};
use blastbox_wire::limits::{MAX_TOOL_INPUT, MAX_TOOL_NAME};
use wasmtime::{Caller, Extern, Linker};

use super::{Broken, Seat, piece, stuck, told};
use crate::tools;
use crate::wasi::Guest;

/// Behind the program: its last expression is not echoed as in a dialogue, and what it has buffered goes out without a turn of its own.
const SCRIPT: &[u8] = b"\ntry: __import__('sys').stdout.flush()\nexcept Exception: pass\n";
/// The first turn.
pub(crate) const FIRST: &[u8] = b"print(end='')\n__import__('os').chdir('/workspace')\n";
/// The first turn of an image that was taken after some: the interpreter sows its own numbers in its first one alone, and
/// without this every guest would draw the same.
const SOW: &[u8] = b"__import__('random').seed(), __import__('numpy').random.seed(), None\n__import__('os').chdir('/workspace')\n";
/// A variable of the rehearsal.
const REHEARSED: &[u8] = b"BLASTBOX_REHEARSAL=1";
/// What a program might do. Nobody hears it.
const REHEARSAL: &[u8] = b"print(__import__('os').environ.pop('BLASTBOX_REHEARSAL'))";
/// Buffered output of a script that did not come to its end goes out too.
const FLUSH: &[u8] = b"__import__('sys').stdout.flush()\n";
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
    /// One that had only started.
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

/// Does all that a command does, and leaves nothing of it: the pages that it writes to are the guest's own from then on.
pub(super) fn warm_up(seat: &mut Seat, image: Image) -> Result<(), Broken> {
    let sown = match image {
        Image::Bare => turn(seat, FIRST)?,
        Image::Data => turn(seat, SOW)?,
    };
    if sown != 0 {
        return Err(stuck("its numbers cannot be sown"));
    }
    turn(seat, prologue(&[b"-c".to_vec()], &[REHEARSED.to_vec()], b"/workspace").as_bytes())?;
    turn(seat, &[REHEARSAL, SCRIPT].concat()).map(drop)
}

pub(super) fn run(seat: &mut Seat, spec: ExecSpec, image: Image) -> Result<u8, Broken> {
    let ExecSpec { arguments, environment, directory, .. } = spec;
    let mut rest = arguments.into_iter().skip(1).peekable();
    let unbuffered = rest.next_if(|word| word == b"-u").is_some();
    let (source, script) = match rest.next() {
        None => (seat.read_source()?, Vec::new()),
        Some(word) => match word.as_slice() {
            b"-" => (seat.read_source()?, word),
            b"-c" => (rest.next().unwrap_or_default(), word),
            [b'-', ..] => {
                let why = format!("python takes -u, -c CODE, - or a file, and not {}", quoted(&word));
                return Err(Broken { exit: Exit::Code(2), why: Some(why) });
            }
            path => (seat.read_file(&directory, path)?, word),
        },
    };
    let mut given = vec![script];
    given.extend(rest);
    if !seat.warm {
        // The same, so that the command cannot tell: but with nothing heard of it.
        let streams = seat.store.data_mut().host.streams.take();
        warm_up(seat, image)?;
        let told_meanwhile = streams.as_ref().and_then(|streams| streams.told());
        seat.store.data_mut().host.streams = streams;
        // The epoch that went with it was not heard.
        if let Some(signal) = told_meanwhile {
            return Err(told(signal));
        }
    }
    seat.fill()?;
    turn(seat, prologue(&given, &environment, &directory).as_bytes())?;
    if seat.store.data().host.tools || seat.store.data().host.http {
        turn(seat, &module(TOOLS))?;
    }
    if unbuffered {
        turn(seat, b"__import__('sys').stdout.reconfigure(write_through=True)\n")?;
    }
    let mut source = source;
    source.extend_from_slice(SCRIPT);
    let code = raw_turn(seat, &source)?;
    if code != 0 {
        turn(seat, FLUSH)?;
    }
    Ok(code_of(code))
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

/// One turn: source in, code out.
pub(crate) fn turn(seat: &mut Seat, source: &[u8]) -> Result<u8, Broken> {
    raw_turn(seat, source).map(code_of)
}

/// The same, with the bit that tells of `quit()`. 0: it came to its end.
fn raw_turn(seat: &mut Seat, source: &[u8]) -> Result<i32, Broken> {
    let (at, length) = seat.put("host_alloc", source)?;
    seat.call("turn", (at, length))
}

fn code_of(code: i32) -> u8 {
    u8::try_from(code & QUIT).unwrap_or(1)
}

/// Arguments, environment and directory of this command. Leaves no name behind.
fn prologue(arguments: &[Vec<u8>], environment: &[Vec<u8>], directory: &[u8]) -> String {
    let list: Vec<String> = arguments.iter().map(|word| text(word)).collect();
    let pairs: Vec<String> = environment
        .iter()
        .filter_map(|pair| {
            let at = pair.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
            let (name, value) = pair.split_at(at);
            Some(format!("{}: {}", text(name), text(value.get(1..).unwrap_or_default())))
        })
        .collect();
    format!(
        "__import__('sys').argv[:] = [{}]\n__import__('os').environ.update({{{}}})\n__import__('os').chdir({})\n",
        list.join(", "),
        pairs.join(", "),
        text(directory)
    )
}

/// Bytes as an expression of Python that gives a string, whatever is in them.
fn text(bytes: &[u8]) -> String {
    format!("{}.decode('utf-8', 'surrogateescape')", quoted(bytes))
}

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
        let said = prologue(&[b"-".to_vec()], &[b"=x".to_vec(), b"A=b=c".to_vec(), b"none".to_vec()], b"/");
        assert!(said.contains("environ.update({b'A'.decode('utf-8', 'surrogateescape'): b'b=c'."), "{said}");
        assert!(!said.contains("none"));
    }
}
