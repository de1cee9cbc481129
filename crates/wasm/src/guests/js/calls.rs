//! Functions of ours that JavaScript calls: what it writes, draws, asks for, and has called.
//!
//! Trust: names, lengths and places are a guest's. Values that come as arguments are QuickJS's own to free; what is returned is too.

use blastbox_wire::limits::{HTTP_CALL, MAX_TOOL_INPUT, MAX_TOOL_NAME};
use wasmtime::{Caller, Extern, Linker, TypedFunc};

use super::{ABOUT, CALL, RANDOM, TIMED, TURNS, WRITE};
use crate::guests::piece;
use crate::tools;
use crate::wasi::Guest;

/// Longest name of a function of ours: a longer one is none, and is not looked at.
const MOST_NAME: u32 = 64;
/// Longest text that one call writes.
const MOST_TEXT: u32 = 256 << 20;

pub(in crate::guests) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
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
        Some(name) if name == TIMED => {
            caller.data_mut().host.timed = true;
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
    let answer = tools::call_for(&mut *caller, &tool, &input)?;
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
