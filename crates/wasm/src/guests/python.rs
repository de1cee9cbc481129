//! Python: CPython as a reactor whose image was taken after the interpreter had started.
//!
//! Its first turn sets up what must differ between guests: the seed of `random`, the environment, the library.

use blastbox_wire::agent::{ExecSpec, Exit};
use wasmtime::{Caller, Linker};

use super::{Broken, Seat};
use crate::wasi::Guest;

/// A statement behind the program, so that its last expression is not echoed as in a dialogue.
const SCRIPT: &[u8] = b"\npass\n";
/// A turn that takes every path a turn takes, and leaves nothing.
const FIRST: &[u8] = b"print(end='')\n__import__('os').chdir('/workspace')\n";
/// The answer to a guest that calls for tools: there are none.
const NO_HOST: i32 = -1;
/// `quit()` is told by this bit.
const QUIT: i32 = 0xff;

pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    let none = |_: Caller<'_, Guest>, _: u32, _: u32, _: u32, _: u32| -> i32 { NO_HOST };
    linker.func_wrap("host", "call", none)?;
    Ok(())
}

pub(super) fn warm_up(seat: &mut Seat) -> Result<(), Broken> {
    turn(seat, FIRST).map(|_| ())
}

pub(super) fn run(seat: &mut Seat, spec: ExecSpec) -> Result<u8, Broken> {
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
        turn(seat, FIRST)?;
    }
    turn(seat, prologue(&given, &environment, &directory).as_bytes())?;
    if unbuffered {
        turn(seat, b"__import__('sys').stdout.reconfigure(write_through=True)\n")?;
    }
    let mut source = source;
    source.extend_from_slice(SCRIPT);
    let code = turn(seat, &source)?;
    // Buffered output of a script that ended well or badly goes out with it.
    turn(seat, b"__import__('sys').stdout.flush()\n")?;
    Ok(code)
}

/// One turn: source in, code out.
fn turn(seat: &mut Seat, source: &[u8]) -> Result<u8, Broken> {
    let (at, length) = seat.put("host_alloc", source)?;
    let code: i32 = seat.call("turn", (at, length))?;
    Ok(u8::try_from(code & QUIT).unwrap_or(1))
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
