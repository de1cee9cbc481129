//! JavaScript: QuickJS as a reactor, with a console and timers of our own. Its image is taken when both are there.

#[cfg(feature = "compiler")]
pub(crate) mod begin;

use std::time::{Duration, Instant};

use blastbox_wire::agent::{ExecSpec, Exit};
use blastbox_wire::limits::{HTTP_CALL, MAX_TOOL_INPUT, MAX_TOOL_NAME};
use wasmtime::{Caller, Extern, Linker, TypedFunc};

use super::{Broken, Seat, piece, stuck, told};
use crate::streams::Told;
use crate::tools;
use crate::wasi::Guest;

/// What the prelude calls, and takes out of sight of the program.
const WRITE: &[u8] = b"__blastbox_write";
const RANDOM: &[u8] = b"__blastbox_random";
const ABOUT: &[u8] = b"__blastbox_about";
const TURNS: &[u8] = b"__blastbox_turns";
const CALL: &[u8] = b"__blastbox_call";
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
/// Longest name of a function of ours: a longer one is none, and is not looked at.
const MOST_NAME: u32 = 64;
/// Longest text that one call writes.
const MOST_TEXT: u32 = 256 << 20;

pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    linker.func_wrap("env", "host_get_timezone_offset", |_: u32, _: u32| -> u32 { 0 })?;
    linker.func_wrap("env", "host_interrupt", || -> u32 { 0 })?;
    linker.func_wrap("env", "host_promise_rejection", |_: u32, _: u32, _: u32| {})?;
    // No modules: their names lead nowhere.
    linker.func_wrap("env", "host_module_normalize", |_: u32, _: u32| -> u32 { 0 })?;
    linker.func_wrap("env", "host_module_load", |_: u32, _: u32| -> u32 { 0 })?;
    linker.func_wrap("env", "host_call", host_call)?;
    Ok(())
}

/// A function of ours, called from JavaScript. Returns a value, or 0 for a failure.
fn host_call(
    mut caller: Caller<'_, Guest>,
    name: u32,
    length: u32,
    _this: u32,
    count: u32,
    list: u32,
) -> wasmtime::Result<u32> {
    let Some(Extern::Memory(memory)) = caller.get_export("memory") else { return Ok(0) };
    let length = length.min(MOST_NAME);
    let called = piece(memory.data(&caller), name, length).map(<[u8]>::to_vec);
    match called.as_deref() {
        Some(name) if name == WRITE && count == 2 => {
            let value = |data: &[u8], at: u32| {
                piece(data, list.checked_add(at)?, 4)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
            };
            let data = memory.data(&caller);
            let (Some(stream), Some(text)) = (value(data, 0), value(data, 4)) else { return Ok(0) };
            let stream = function::<u32, f64>(&mut caller, "qjs_get_float64")?.call(&mut caller, stream)?;
            write(&mut caller, if stream == 2.0 { 2 } else { 1 }, text)?;
            Ok(function::<(), u32>(&mut caller, "qjs_get_undefined")?.call(&mut caller, ())?)
        }
        Some(name) if name == RANDOM => {
            let mut bytes = [0; 4];
            caller.data_mut().host.chance.fill(&mut bytes)?;
            let number = f64::from(u32::from_le_bytes(bytes));
            Ok(function::<f64, u32>(&mut caller, "qjs_new_number")?.call(&mut caller, number)?)
        }
        Some(name) if name == ABOUT => {
            let text = caller.data().host.about.clone();
            say(&mut caller, &text)
        }
        Some(name) if name == CALL && count == 2 => call_tool(&mut caller, list),
        Some(name) if name == TURNS => {
            caller.data_mut().host.turns = true;
            Ok(function::<(), u32>(&mut caller, "qjs_get_undefined")?.call(&mut caller, ())?)
        }
        _ => Ok(0),
    }
}

/// Calls a function of the caller: its name and JSON, as strings. What comes back is a string that begins with a sign.
fn call_tool(caller: &mut Caller<'_, Guest>, list: u32) -> wasmtime::Result<u32> {
    let Some(Extern::Memory(memory)) = caller.get_export("memory") else { return Ok(0) };
    let value = |data: &[u8], at: u32| {
        piece(data, list.checked_add(at)?, 4)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    };
    let data = memory.data(&*caller);
    let (Some(tool), Some(input)) = (value(data, 0), value(data, 4)) else { return Ok(0) };
    let tool = text_in(caller, tool, MAX_TOOL_NAME)?.unwrap_or_default();
    let request = tool == HTTP_CALL.as_bytes();
    // Of a request each letter is a byte, which may take two to be written.
    let most = if request { 2 * MAX_TOOL_INPUT } else { MAX_TOOL_INPUT };
    let input = text_in(caller, input, most)?.unwrap_or_default();
    let input = if request { to_bytes(&input) } else { input };
    let answer = tools::call_for(caller, &tool, &input)?;
    match request && answer.good {
        true => say(caller, &answer.signed().into_iter().map(char::from).collect::<String>()),
        // What the host wrote is JSON, and so is text.
        false => say(caller, &String::from_utf8_lossy(&answer.signed())),
    }
}

/// Bytes that were said as letters, one for each. What is no byte becomes a question mark.
fn to_bytes(text: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(text);
    text.chars().map(|letter| u8::try_from(letter).unwrap_or(b'?')).collect()
}

/// A string of the guest's.
fn say(caller: &mut Caller<'_, Guest>, text: &str) -> wasmtime::Result<u32> {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    let at = function::<u32, u32>(caller, "wasm_malloc")?.call(&mut *caller, length.max(1))?;
    let Some(Extern::Memory(memory)) = caller.get_export("memory") else { return Ok(0) };
    if at == 0 || memory.write(&mut *caller, usize::try_from(at)?, text.as_bytes()).is_err() {
        return Ok(0);
    }
    let made = function::<(u32, u32), u32>(caller, "qjs_new_string")?.call(&mut *caller, (at, length))?;
    function::<u32, ()>(caller, "wasm_free")?.call(&mut *caller, at)?;
    Ok(made)
}

/// Writes the text of a value.
fn write(caller: &mut Caller<'_, Guest>, stream: u8, value: u32) -> wasmtime::Result<()> {
    let Some(streams) = caller.data().host.streams.clone() else { return Ok(()) };
    with_text(caller, value, |text| streams.write(stream, text).map_err(wasmtime::Error::new))
}

/// The text of a value, and of one that is too long one byte too many: what is copied is no memory of the guest's, and in no budget.
fn text_in(caller: &mut Caller<'_, Guest>, value: u32, most: usize) -> wasmtime::Result<Option<Vec<u8>>> {
    let mut found = None;
    with_text(caller, value, |text| {
        found = Some(text.get(..=most).unwrap_or(text).to_vec());
        Ok(())
    })?;
    Ok(found)
}

/// Does something with the text of a value, where it has one.
fn with_text(
    caller: &mut Caller<'_, Guest>,
    value: u32,
    work: impl FnOnce(&[u8]) -> wasmtime::Result<()>,
) -> wasmtime::Result<()> {
    let out = function::<u32, u32>(caller, "wasm_malloc")?.call(&mut *caller, 4)?;
    let at = function::<(u32, u32), u32>(caller, "qjs_get_string_len")?.call(&mut *caller, (value, out))?;
    let Some(Extern::Memory(memory)) = caller.get_export("memory") else { return Ok(()) };
    let data = memory.data(&*caller);
    let length =
        piece(data, out, 4).and_then(|bytes| bytes.first_chunk()).map(|bytes| u32::from_le_bytes(*bytes));
    let length = length.filter(|length| at != 0 && *length <= MOST_TEXT);
    if let Some(text) = length.and_then(|length| piece(data, at, length)) {
        work(text)?;
    }
    if at != 0 {
        function::<u32, ()>(caller, "qjs_free_cstring")?.call(&mut *caller, at)?;
    }
    function::<u32, ()>(caller, "wasm_free")?.call(&mut *caller, out)
}

fn function<P: wasmtime::WasmParams, R: wasmtime::WasmResults>(
    caller: &mut Caller<'_, Guest>,
    name: &str,
) -> wasmtime::Result<TypedFunc<P, R>> {
    let found = caller.get_export(name).and_then(Extern::into_func);
    found.ok_or_else(|| wasmtime::Error::msg("a function of QuickJS is missing"))?.typed(&*caller)
}

/// Sows its numbers, and writes to the pages that a command writes to: they are the guest's own from then on.
pub(super) fn warm_up(seat: &mut Seat) -> Result<(), Broken> {
    let sown = evaluate(seat, b"__blastbox_sow()", b"prelude", 0)?;
    if seat.call::<u32, u32>("qjs_is_exception", sown)? != 0 {
        return Err(stuck("its numbers cannot be sown"));
    }
    rehearse(seat)
}

/// Does all that a command does.
fn rehearse(seat: &mut Seat) -> Result<(), Broken> {
    match piece_of_code(seat, REHEARSAL, b"<command>")? {
        Ran::Well(_) => Ok(()),
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
    /// This is what it came to.
    Well(u32),
    /// What it threw has been told.
    Badly,
    /// It waits for what never comes.
    Never,
}

/// Runs a piece of code, and what it set in motion.
fn piece_of_code(seat: &mut Seat, source: &[u8], name: &[u8]) -> Result<Ran, Broken> {
    let result = evaluate(seat, source, name, ASYNC)?;
    if seat.call::<u32, u32>("qjs_is_exception", result)? != 0 {
        let thrown: u32 = seat.call("qjs_get_exception", ())?;
        complain(seat, thrown)?;
        return Ok(Ran::Badly);
    }
    if !settle(seat)? {
        return Ok(Ran::Badly);
    }
    match seat.call::<u32, u32>("qjs_promise_state", result)? {
        PENDING => Ok(Ran::Never),
        REJECTED => {
            let thrown: u32 = seat.call("qjs_promise_result", result)?;
            complain(seat, thrown)?;
            Ok(Ran::Badly)
        }
        _ => Ok(Ran::Well(seat.call("qjs_promise_result", result)?)),
    }
}

/// Each line of standard input is a piece of code, and all of them see the same variables.
fn take_turns(seat: &mut Seat) -> Result<u8, Broken> {
    while let Some(line) = seat.read_line()? {
        let asked = format!("__blastbox_turn({})", text(&line));
        let code = evaluate(seat, asked.as_bytes(), b"turns", 0)?;
        if seat.call::<u32, u32>("qjs_is_exception", code)? != 0 {
            let thrown: u32 = seat.call("qjs_get_exception", ())?;
            complain(seat, thrown)?;
            return Ok(1);
        }
        let source = text_of(seat, code)?;
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
        evaluate(seat, format!("__blastbox_over({failed})").as_bytes(), b"turns", 0)?;
    }
    Ok(0)
}

/// Puts what a piece of code came to where the prelude looks for it. `false`: it is a promise that failed, which has been told.
fn show(seat: &mut Seat, result: u32) -> Result<bool, Broken> {
    // An evaluation that may wait comes to an object with the value in it.
    let (name, _) = seat.put("wasm_malloc", b"value")?;
    let mut value: u32 = seat.call("qjs_get_prop_string", (result, name))?;
    if seat.call::<u32, u32>("qjs_is_promise", value)? != 0 {
        let state: u32 = seat.call("qjs_promise_state", value)?;
        if state != PENDING {
            value = seat.call("qjs_promise_result", value)?;
        }
        if state == REJECTED {
            complain(seat, value)?;
            return Ok(false);
        }
    }
    keep(seat, value)?;
    Ok(true)
}

/// The bytes of a string.
fn text_of(seat: &mut Seat, value: u32) -> Result<Vec<u8>, Broken> {
    let (out, _) = seat.put("wasm_malloc", &[0; 4])?;
    let at: u32 = seat.call("qjs_get_string_len", (value, out))?;
    let memory = seat.memory()?;
    let data = memory.data(&seat.store);
    let length =
        piece(data, out, 4).and_then(|bytes| bytes.first_chunk()).map(|bytes| u32::from_le_bytes(*bytes));
    let length = length.filter(|length| at != 0 && *length <= MOST_TEXT);
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
            let ran: u32 = seat.call("qjs_execute_pending_job", ())?;
            if seat.call::<u32, u32>("qjs_is_exception", ran)? != 0 {
                let thrown: u32 = seat.call("qjs_get_exception", ())?;
                complain(seat, thrown)?;
                return Ok(false);
            }
        }
        // The prelude runs what is due and says how many milliseconds the next one is away; less than 0: there is none.
        let due = evaluate(seat, b"__blastbox_timers()", b"timers", 0)?;
        if seat.call::<u32, u32>("qjs_is_exception", due)? != 0 {
            let thrown: u32 = seat.call("qjs_get_exception", ())?;
            complain(seat, thrown)?;
            return Ok(false);
        }
        let left: f64 = seat.call("qjs_get_float64", due)?;
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

fn evaluate(seat: &mut Seat, source: &[u8], name: &[u8], flags: u32) -> Result<u32, Broken> {
    let (name, _) = seat.put("wasm_malloc", name)?;
    let (at, length) = seat.put("wasm_malloc", source)?;
    seat.call("qjs_eval", (at, length, name, flags))
}

/// Says what was thrown, as a program that nobody caught it in would.
fn complain(seat: &mut Seat, thrown: u32) -> Result<(), Broken> {
    keep(seat, thrown)?;
    evaluate(seat, b"__blastbox_complain()", b"complaint", 0).map(drop)
}

/// Puts a value where the prelude looks for it.
fn keep(seat: &mut Seat, value: u32) -> Result<(), Broken> {
    let global: u32 = seat.call("qjs_get_global", ())?;
    let (name, _) = seat.put("wasm_malloc", THROWN)?;
    seat.call::<(u32, u32, u32), u32>("qjs_set_prop_string", (global, name, value)).map(drop)
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
