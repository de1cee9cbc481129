//! JavaScript: QuickJS as a reactor, with a console and timers of our own. Its image is taken when both are there.

#[cfg(feature = "compiler")]
pub(crate) mod begin;
mod calls;

use std::time::{Duration, Instant};

use blastbox_wire::agent::{ExecSpec, Exit};

pub(super) use self::calls::link;
use super::{Broken, MOST_SOURCE, Seat, piece, stuck, told};
use crate::streams::Told;

/// What the prelude calls, and takes out of sight of the program.
const WRITE: &[u8] = b"__blastbox_write";
const RANDOM: &[u8] = b"__blastbox_random";
const ABOUT: &[u8] = b"__blastbox_about";
const TURNS: &[u8] = b"__blastbox_turns";
const CALL: &[u8] = b"__blastbox_call";
const TIMED: &[u8] = b"__blastbox_timed";
/// Where the prelude finds what was thrown, or what a piece of code came to.
const THROWN: &[u8] = b"__blastbox_thrown";
/// What a program might do. Nobody hears it.
const REHEARSAL: &[u8] = b"console.log(0)";
/// Top-level `await` is allowed; the result is a promise.
const ASYNC: u32 = 128;
/// A promise's states.
const PENDING: u32 = 0;
const REJECTED: u32 = 2;
/// How Node.js ends when its program waits for what never comes.
const NEVER_SETTLED: u8 = 13;

/// Sows its numbers, and writes to the pages that a command writes to: they are the guest's own from then on.
pub(super) fn warm_up(seat: &mut Seat) -> Result<(), Broken> {
    let sown = evaluate(seat, b"__blastbox_sow()", b"prelude", 0)?;
    if is_exception(seat, sown)? {
        return Err(stuck("its numbers cannot be sown"));
    }
    free(seat, sown)?;
    rehearse(seat)
}

/// Does all that a command does.
fn rehearse(seat: &mut Seat) -> Result<(), Broken> {
    match piece_of_code(seat, REHEARSAL, b"<command>")? {
        Ran::Well(result) => free(seat, result),
        Ran::Badly | Ran::Never => Err(stuck("its rehearsal does not run")),
    }
}

pub(super) fn run(seat: &mut Seat, spec: ExecSpec) -> Result<u8, Broken> {
    let ExecSpec { arguments, environment, directory, .. } = spec;
    let mut rest = arguments.into_iter().skip(1);
    let mut argv = vec![b"js".to_vec()];
    let (source, name) = match rest.next() {
        None => (seat.read_source()?, b"<stdin>".to_vec()),
        Some(word) => match word.as_slice() {
            b"-" => (seat.read_source()?, b"<stdin>".to_vec()),
            b"-e" | b"-c" => (rest.next().unwrap_or_default(), b"<command>".to_vec()),
            [b'-', ..] => {
                let why =
                    format!("js takes -e CODE, - or a file, and not {:?}", String::from_utf8_lossy(&word));
                return Err(Broken { exit: Exit::Code(2), why: Some(why) });
            }
            path => {
                argv.push(word.clone());
                (seat.read_file(&directory, path)?, word)
            }
        },
    };
    seat.warm_unheard(warm_up)?;
    seat.fill()?;
    let rest: Vec<Vec<u8>> = rest.collect();
    argv.extend_from_slice(&rest);
    seat.store.data_mut().host.about = about(&argv, &rest, &environment);
    let ended = piece_of_code(seat, &source, &name)?;
    if seat.store.data().host.turns {
        return take_turns(seat);
    }
    Ok(match ended {
        Ran::Well(_) => 0,
        Ran::Badly => 1,
        Ran::Never => NEVER_SETTLED,
    })
}

/// How a piece of code ended.
enum Ran {
    /// This is what it came to, for whoever asked to free.
    Well(u32),
    /// What it threw has been told.
    Badly,
    /// It waits for what never comes.
    Never,
}

/// Runs a piece of code, and what it set in motion.
fn piece_of_code(seat: &mut Seat, source: &[u8], name: &[u8]) -> Result<Ran, Broken> {
    let promise = evaluate(seat, source, name, ASYNC)?;
    let ran = settled(seat, promise)?;
    free(seat, promise)?;
    Ok(ran)
}

/// Does what the promise waits for.
fn settled(seat: &mut Seat, promise: u32) -> Result<Ran, Broken> {
    if threw(seat, promise)? || !settle(seat)? {
        return Ok(Ran::Badly);
    }
    match seat.call::<u32, u32>("qjs_promise_state", promise)? {
        PENDING => Ok(Ran::Never),
        REJECTED => {
            let thrown: u32 = seat.call("qjs_promise_result", promise)?;
            complain(seat, thrown)?;
            Ok(Ran::Badly)
        }
        _ => Ok(Ran::Well(seat.call("qjs_promise_result", promise)?)),
    }
}

/// Each line of standard input is a piece of code, and all of them see the same variables.
fn take_turns(seat: &mut Seat) -> Result<u8, Broken> {
    while let Some(line) = seat.read_line()? {
        let asked = format!("__blastbox_turn({})", text(&line));
        let code = evaluate(seat, asked.as_bytes(), b"turns", 0)?;
        if threw(seat, code)? {
            return Ok(1);
        }
        let source = text_of(seat, code)?;
        free(seat, code)?;
        let failed = match piece_of_code(seat, &source, b"<code>")? {
            Ran::Well(result) => !show(seat, result)?,
            Ran::Badly => true,
            Ran::Never => {
                let streams = seat.streams();
                let told = streams.map(|streams| streams.write(2, b"it waits for what never comes\n"));
                told.transpose().map_err(|Told(signal)| super::told(signal))?;
                true
            }
        };
        let over = evaluate(seat, format!("__blastbox_over({failed})").as_bytes(), b"turns", 0)?;
        free(seat, over)?;
    }
    Ok(0)
}

/// Puts what a piece of code came to where the prelude looks for it, and frees it. `false`: it is a promise that failed, which has been
/// told.
fn show(seat: &mut Seat, result: u32) -> Result<bool, Broken> {
    // An evaluation that may wait comes to an object with the value in it.
    let (name, _) = seat.put("wasm_malloc", b"value")?;
    let mut value: u32 = seat.call("qjs_get_prop_string", (result, name))?;
    seat.call::<u32, ()>("wasm_free", name)?;
    free(seat, result)?;
    if seat.call::<u32, u32>("qjs_is_promise", value)? != 0 {
        let state: u32 = seat.call("qjs_promise_state", value)?;
        if state != PENDING {
            let inner: u32 = seat.call("qjs_promise_result", value)?;
            free(seat, value)?;
            value = inner;
        }
        if state == REJECTED {
            complain(seat, value)?;
            return Ok(false);
        }
    }
    keep(seat, value)?;
    free(seat, value)?;
    Ok(true)
}

/// The bytes of a string, which becomes source: what is copied is no memory of the guest's, and in no budget.
fn text_of(seat: &mut Seat, value: u32) -> Result<Vec<u8>, Broken> {
    let (out, _) = seat.put("wasm_malloc", &[0; 4])?;
    let at: u32 = seat.call("qjs_get_string_len", (value, out))?;
    let memory = seat.memory()?;
    let data = memory.data(&seat.store);
    let length = piece(data, out, 4).and_then(|bytes| bytes.first_chunk()).copied().map(u32::from_le_bytes);
    let length = length.filter(|_| at != 0);
    if length.is_some_and(|length| usize::try_from(length).map_or(true, |length| length > MOST_SOURCE)) {
        return Err(stuck("a turn of it is longer than 16 MiB"));
    }
    let found = length.and_then(|length| piece(data, at, length)).map(<[u8]>::to_vec);
    let found = found.ok_or_else(|| stuck("a string of it is not there"))?;
    seat.call::<u32, ()>("qjs_free_cstring", at)?;
    seat.call::<u32, ()>("wasm_free", out)?;
    Ok(found)
}

/// Runs what promises and timers still have to do. `false`: one of them threw something, which has been told.
fn settle(seat: &mut Seat) -> Result<bool, Broken> {
    loop {
        while seat.call::<(), u32>("qjs_is_job_pending", ())? != 0 {
            // No value: 1, or less than 0 where it threw.
            if seat.call::<(), i32>("qjs_execute_pending_job", ())? < 0 {
                let thrown: u32 = seat.call("qjs_get_exception", ())?;
                complain(seat, thrown)?;
                return Ok(false);
            }
        }
        if !seat.store.data().host.timed {
            return Ok(true);
        }
        // The prelude runs what is due and says how many milliseconds the next one is away; less than 0: there is none.
        let due = evaluate(seat, b"__blastbox_timers()", b"timers", 0)?;
        if threw(seat, due)? {
            free(seat, due)?;
            return Ok(false);
        }
        let left: f64 = seat.call("qjs_get_float64", due)?;
        free(seat, due)?;
        if left < 0.0 {
            return Ok(true);
        }
        let patience = Duration::try_from_secs_f64(left / 1000.0).unwrap_or(Duration::MAX);
        if let Some(streams) = seat.streams()
            && !patience.is_zero()
        {
            let until = Instant::now().checked_add(patience);
            streams.sleep(until, false).map_err(|Told(signal)| told(signal))?;
            seat.store.data_mut().host.clock.slept(patience);
        }
    }
}

/// What code comes to, for whoever asked to free. QuickJS has copied what it keeps of source and name.
fn evaluate(seat: &mut Seat, source: &[u8], name: &[u8], flags: u32) -> Result<u32, Broken> {
    let (name, _) = seat.put("wasm_malloc", name)?;
    let (at, length) = seat.put("wasm_malloc", source)?;
    let value = seat.call("qjs_eval", (at, length, name, flags))?;
    seat.call::<u32, ()>("wasm_free", at)?;
    seat.call::<u32, ()>("wasm_free", name)?;
    Ok(value)
}

/// Lets a value go. Each number that QuickJS gives us is a reference of our own, also one to what it has already: a session that kept
/// them would grow with every turn and every tick.
fn free(seat: &mut Seat, value: u32) -> Result<(), Broken> {
    seat.call("qjs_free_value", value)
}

fn is_exception(seat: &mut Seat, value: u32) -> Result<bool, Broken> {
    Ok(seat.call::<u32, u32>("qjs_is_exception", value)? != 0)
}

/// Whether this stands for something that was thrown, which then is told.
fn threw(seat: &mut Seat, value: u32) -> Result<bool, Broken> {
    if !is_exception(seat, value)? {
        return Ok(false);
    }
    let thrown: u32 = seat.call("qjs_get_exception", ())?;
    complain(seat, thrown)?;
    Ok(true)
}

/// Says what was thrown, as a program that nobody caught it in would, and frees it.
fn complain(seat: &mut Seat, thrown: u32) -> Result<(), Broken> {
    keep(seat, thrown)?;
    free(seat, thrown)?;
    let said = evaluate(seat, b"__blastbox_complain()", b"complaint", 0)?;
    free(seat, said)
}

/// Puts a value where the prelude looks for it, which takes a reference of its own.
fn keep(seat: &mut Seat, value: u32) -> Result<(), Broken> {
    let global: u32 = seat.call("qjs_get_global", ())?;
    let (name, _) = seat.put("wasm_malloc", THROWN)?;
    seat.call::<(u32, u32, u32), u32>("qjs_set_prop_string", (global, name, value))?;
    seat.call::<u32, ()>("wasm_free", name)?;
    free(seat, global)
}

/// What the program is told of its command when it asks.
fn about(argv: &[Vec<u8>], rest: &[Vec<u8>], environment: &[Vec<u8>]) -> String {
    let list = |words: &[Vec<u8>]| words.iter().map(|word| text(word)).collect::<Vec<_>>().join(",");
    let pair = |pair: &Vec<u8>| {
        let at = pair.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
        let (name, value) = pair.split_at(at);
        Some(format!("{}:{}", text(name), text(value.get(1..).unwrap_or_default())))
    };
    let pairs: Vec<String> = environment.iter().filter_map(pair).collect();
    format!("{{\"argv\":[{}],\"rest\":[{}],\"env\":{{{}}}}}", list(argv), list(rest), pairs.join(","))
}

/// Bytes as a string of JavaScript and of JSON, whatever is in them.
fn text(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for unit in String::from_utf8_lossy(bytes).encode_utf16() {
        match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii_alphanumeric() || b" ./_-=:".contains(&byte) => {
                out.push(char::from(byte))
            }
            _ => out.push_str(&format!("\\u{unit:04x}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_argument_can_leave_its_quotes() {
        assert_eq!(text(b"a\"b\n\\"), "\"a\\u0022b\\u000a\\u005c\"");
        assert_eq!(text("\u{1F600}".as_bytes()), "\"\\ud83d\\ude00\"");
    }

    #[test]
    fn a_program_is_told_its_arguments_and_its_environment() {
        let said =
            about(&[b"js".to_vec(), b"x".to_vec()], &[b"x".to_vec()], &[b"A=b=c".to_vec(), b"=".to_vec()]);
        assert_eq!(said, "{\"argv\":[\"js\",\"x\"],\"rest\":[\"x\"],\"env\":{\"A\":\"b=c\"}}");
    }
}
