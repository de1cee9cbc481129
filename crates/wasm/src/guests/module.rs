//! A WASI command: any module with `_start`; and how one calls functions of the caller and has requests made, which no WASI has.
//!
//! Trust: every number is a guest's. Where it wants to be heard and answered is held against its memory before anybody is asked, so
//! that no call is made whose answer has no place.

use blastbox_wire::agent::{ExecSpec, Exit};
use blastbox_wire::limits::{HTTP_CALL, MAX_TOOL_INPUT, MAX_TOOL_NAME};
use wasmtime::{Caller, Extern, Linker, Memory};

use super::{Broken, Seat};
use crate::files::ROOT;
use crate::tools::{self, Answer};
use crate::wasi::{Descriptor, Errno, Guest, GuestMemory};

/// Where modules look for what WASI does not have.
const MODULE: &str = "blastbox";
/// What the upper half of an answer says; the lower one is how many bytes it has.
const GAVE: i64 = 0;
const FAILED: i64 = 1;
const NO_ROOM: i64 = 2;

pub(super) fn run(seat: &mut Seat, spec: ExecSpec) -> Result<u8, Broken> {
    let host = &mut seat.store.data_mut().host;
    host.arguments = spec.arguments;
    host.environment = spec.environment;
    let here = {
        let mut tree = host.tree();
        tree.find(ROOT, &spec.directory).inspect(|ino| tree.hold(*ino))
    };
    if let Ok(ino) = here {
        // Names that do not begin with a slash begin here.
        host.descriptors.keep(Descriptor::Directory { ino, given: Some(b".".to_vec()) }).ok();
    }
    match seat.call::<(), ()>("_start", ()) {
        Ok(()) | Err(Broken { exit: Exit::Code(0), .. }) => Ok(0),
        Err(broken) => Err(broken),
    }
}

/// Bytes of a guest: where, and how many.
type Span = (u32, u32);

pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    linker.func_wrap(MODULE, "call_tool", call_tool)?;
    linker.func_wrap(MODULE, "fetch", fetch)?;
    Ok(())
}

/// Calls a function of the caller by its name, with JSON.
fn call_tool(
    mut caller: Caller<'_, Guest>,
    name: u32,
    name_length: u32,
    input: u32,
    input_length: u32,
    out: u32,
    room: u32,
) -> wasmtime::Result<i64> {
    let found = taken(&mut caller, (name, name_length), MAX_TOOL_NAME).and_then(|name| {
        let input = taken(&mut caller, (input, input_length), MAX_TOOL_INPUT)?;
        Ok((name, input))
    });
    match found {
        Ok((name, input)) => ask(&mut caller, (out, room), |caller| tools::call_named(caller, &name, &input)),
        Err(errno) => Ok(failed(errno)),
    }
}

/// Has a request made: `https://HOST` and a line break, then the request as HTTP/1.1 writes it.
fn fetch(
    mut caller: Caller<'_, Guest>,
    request: u32,
    length: u32,
    out: u32,
    room: u32,
) -> wasmtime::Result<i64> {
    match taken(&mut caller, (request, length), MAX_TOOL_INPUT) {
        Ok(request) => {
            ask(&mut caller, (out, room), |caller| tools::call_for(caller, HTTP_CALL.as_bytes(), &request))
        }
        Err(errno) => Ok(failed(errno)),
    }
}

fn ask(
    caller: &mut Caller<'_, Guest>,
    out: Span,
    call: impl FnOnce(&mut Caller<'_, Guest>) -> wasmtime::Result<Answer>,
) -> wasmtime::Result<i64> {
    if let Err(errno) = with_memory(caller, |memory| memory.get(out.0, out.1).map(drop)) {
        return Ok(failed(errno));
    }
    let answer = call(caller)?;
    answered(caller, &answer, out)
}

/// Writes the answer where the guest wants it, whole or not at all.
fn answered(caller: &mut Caller<'_, Guest>, answer: &Answer, (at, room): Span) -> wasmtime::Result<i64> {
    let length = u32::try_from(answer.bytes.len())?;
    let how = match answer.good {
        _ if length > room => NO_ROOM,
        true => GAVE,
        false => FAILED,
    };
    let written = with_memory(caller, |memory| match how {
        NO_ROOM => memory.get(at, room).map(drop),
        _ => memory.put(at, &answer.bytes),
    });
    Ok(written.map_or_else(failed, |()| (how << 32) | i64::from(length)))
}

/// What the guest says, and of what is too long one byte too many: what is copied is no memory of the guest's, and in no budget.
fn taken(caller: &mut Caller<'_, Guest>, (at, length): Span, most: usize) -> Result<Vec<u8>, Errno> {
    with_memory(caller, |memory| {
        let said = memory.get(at, length)?;
        Ok(said.get(..=most).unwrap_or(said).to_vec())
    })
}

fn with_memory<T>(
    caller: &mut Caller<'_, Guest>,
    work: impl FnOnce(&mut GuestMemory<'_>) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let memory: Memory = caller.get_export("memory").and_then(Extern::into_memory).ok_or(Errno::Fault)?;
    work(&mut GuestMemory::new(memory.data_mut(caller)))
}

/// Nobody was asked: the error of WASI, below zero.
fn failed(errno: Errno) -> i64 {
    -i64::from(errno.number())
}
