//! `wasi:io/streams`: bytes from and to the standard streams and files.

use wasmtime::component::{ComponentType, Linker, Lower, Resource, WasmList};

use super::handles::{Input, Output, Thing, Wanted};
use super::poll::wanting;
use super::{Call, ErrorHandle, InputHandle, OutputHandle, PollHandle, kinds, offer, owned};
use crate::streams::Told;
use crate::wasi::{Errno, Guest, Host, pay};

/// Bytes that one call moves at most.
const MOST: usize = 64 * 1024;
/// The same, as guests are told it.
const PERMIT: u64 = 64 * 1024;
static ZEROS: [u8; MOST] = [0; MOST];

/// How an operation on a stream ends other than well, in WASI's words.
#[derive(ComponentType, Lower)]
#[component(variant)]
enum StreamError {
    #[component(name = "last-operation-failed")]
    Failed(Resource<ErrorHandle>),
    #[component(name = "closed")]
    Closed,
}

type Answer<T> = Result<T, StreamError>;

/// The same, before anybody is told.
enum Stop {
    Failed(Errno),
    Closed,
    Told(Told),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

impl From<Told> for Stop {
    fn from(told: Told) -> Self {
        Self::Told(told)
    }
}

/// Whether a call waits for input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    None,
    Waits,
}

pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    kinds! { linker, "wasi:io/streams@0.2.0"; "input-stream" => InputHandle, "output-stream" => OutputHandle, }
    offer! { linker, "wasi:io/streams@0.2.0";
        "[method]input-stream.read" => |call, this: Resource<InputHandle>, length: u64| -> Answer<Vec<u8>> {
            read(&mut call, this.rep(), length, Patience::None)?
        }
        "[method]input-stream.blocking-read" => |call, this: Resource<InputHandle>, length: u64| -> Answer<Vec<u8>> {
            read(&mut call, this.rep(), length, Patience::Waits)?
        }
        "[method]input-stream.skip" => |call, this: Resource<InputHandle>, length: u64| -> Answer<u64> {
            read(&mut call, this.rep(), length, Patience::None)?.map(|bytes| count(&bytes))
        }
        "[method]input-stream.blocking-skip" => |call, this: Resource<InputHandle>, length: u64| -> Answer<u64> {
            read(&mut call, this.rep(), length, Patience::Waits)?.map(|bytes| count(&bytes))
        }
        "[method]input-stream.subscribe" => |call, this: Resource<InputHandle>| -> Resource<PollHandle> {
            let wanted = match call.data_mut().host.handles.input(this.rep())? {
                Input::Standard => Wanted::Input,
                Input::File { .. } => Wanted::Now,
            };
            wanting(&mut call, wanted)?
        }
        "[method]output-stream.check-write" => |call, this: Resource<OutputHandle>| -> Answer<u64> {
            call.data_mut().host.handles.output(this.rep())?;
            Ok(PERMIT)
        }
        "[method]output-stream.write" => |call, this: Resource<OutputHandle>, bytes: WasmList<u8>| -> Answer<()> {
            write_list(&mut call, this.rep(), &bytes)?
        }
        "[method]output-stream.blocking-write-and-flush" => |call, this: Resource<OutputHandle>, bytes: WasmList<u8>| -> Answer<()> {
            write_list(&mut call, this.rep(), &bytes)?
        }
        "[method]output-stream.flush" => |call, this: Resource<OutputHandle>| -> Answer<()> {
            flush(&mut call, this.rep())?
        }
        "[method]output-stream.blocking-flush" => |call, this: Resource<OutputHandle>| -> Answer<()> {
            flush(&mut call, this.rep())?
        }
        "[method]output-stream.subscribe" => |call, this: Resource<OutputHandle>| -> Resource<PollHandle> {
            call.data_mut().host.handles.output(this.rep())?;
            wanting(&mut call, Wanted::Now)?
        }
        "[method]output-stream.write-zeroes" => |call, this: Resource<OutputHandle>, length: u64| -> Answer<()> {
            write_zeros(&mut call, this.rep(), length)?
        }
        "[method]output-stream.blocking-write-zeroes-and-flush" => |call, this: Resource<OutputHandle>, length: u64| -> Answer<()> {
            write_zeros(&mut call, this.rep(), length)?
        }
        "[method]output-stream.splice" => |call, this: Resource<OutputHandle>, from: Resource<InputHandle>, length: u64| -> Answer<u64> {
            splice(&mut call, this.rep(), from.rep(), length, Patience::None)?
        }
        "[method]output-stream.blocking-splice" => |call, this: Resource<OutputHandle>, from: Resource<InputHandle>, length: u64| -> Answer<u64> {
            splice(&mut call, this.rep(), from.rep(), length, Patience::Waits)?
        }
    }
    Ok(())
}

/// Tells the guest how it ended; to be told to end ends the guest.
fn told<T>(call: &mut Call<'_>, ended: Result<T, Stop>) -> wasmtime::Result<Answer<T>> {
    match ended {
        Ok(given) => Ok(Ok(given)),
        Err(Stop::Closed) => Ok(Err(StreamError::Closed)),
        Err(Stop::Failed(errno)) => {
            let error = call.data_mut().host.handles.open(Thing::Error(errno))?;
            Ok(Err(StreamError::Failed(owned(error))))
        }
        Err(Stop::Told(told)) => Err(wasmtime::Error::new(told)),
    }
}

fn read(
    call: &mut Call<'_>,
    number: u32,
    length: u64,
    patience: Patience,
) -> wasmtime::Result<Answer<Vec<u8>>> {
    let read = read_from(&mut call.data_mut().host, number, length, patience);
    if let Ok(bytes) = &read {
        pay(&mut *call, count(bytes))?;
    }
    told(call, read)
}

fn read_from(host: &mut Host, number: u32, length: u64, patience: Patience) -> Result<Vec<u8>, Stop> {
    let input = *host.handles.input(number)?;
    if length == 0 {
        return Ok(Vec::new());
    }
    let room = |there: u64| vec![0; usize::try_from(length.min(there)).unwrap_or(usize::MAX).min(MOST)];
    let (mut bytes, got) = match input {
        Input::Standard => {
            let Some(streams) = &host.streams else { return Err(Stop::Closed) };
            let there = match streams.readable() {
                Some(there) => there,
                // When input comes is not counted: whoever's clock is waits for it.
                None if patience == Patience::None && !host.clock.is_counted() => return Ok(Vec::new()),
                None => {
                    streams.sleep(None, true)?;
                    streams.readable().unwrap_or(length)
                }
            };
            let mut bytes = room(there);
            let got = if bytes.is_empty() { 0 } else { streams.read(&mut bytes)? };
            (bytes, got)
        }
        Input::File { ino, at } => {
            let tree = host.tree();
            let mut bytes = room(tree.facts(ino).map_err(Errno::from)?.size.saturating_sub(at));
            let got = tree.read(ino, at, &mut bytes).map_err(Errno::from)?;
            drop(tree);
            if let Input::File { at, .. } = host.handles.input(number)? {
                *at = at.saturating_add(u64::try_from(got).unwrap_or(u64::MAX));
            }
            (bytes, got)
        }
    };
    bytes.truncate(got);
    if got == 0 { Err(Stop::Closed) } else { Ok(bytes) }
}

fn write_list(call: &mut Call<'_>, number: u32, bytes: &WasmList<u8>) -> wasmtime::Result<Answer<()>> {
    permitted(bytes.len())?;
    pay(&mut *call, u64::try_from(bytes.len()).unwrap_or(u64::MAX))?;
    let output = *call.data_mut().host.handles.output(number)?;
    let written = write_to(&call.data().host, output, bytes.as_le_slice(&*call));
    step(call, number, written)
}

fn write_zeros(call: &mut Call<'_>, number: u32, length: u64) -> wasmtime::Result<Answer<()>> {
    let wanted = usize::try_from(length).unwrap_or(usize::MAX);
    permitted(wanted)?;
    pay(&mut *call, length)?;
    let output = *call.data_mut().host.handles.output(number)?;
    let written = write_to(&call.data().host, output, ZEROS.get(..wanted).unwrap_or_default());
    step(call, number, written)
}

/// WASI ends a guest that writes more than it was permitted to.
fn permitted(length: usize) -> wasmtime::Result<()> {
    match length {
        0..=MOST => Ok(()),
        _ => Err(wasmtime::Error::msg(format!(
            "the guest writes {length} bytes at once where {MOST} are permitted"
        ))),
    }
}

/// What was written of a file.
struct Written {
    /// How far that brings the place in it.
    by: u64,
    /// How far behind its end it began: filled with zeros, as far as it lies beside what was written.
    hole: u64,
}

/// Writes all of it.
fn write_to(host: &Host, output: Output, bytes: &[u8]) -> Result<Written, Stop> {
    let mut hole = 0;
    match output {
        Output::Standard(stream) => {
            if let Some(streams) = &host.streams {
                streams.write(stream, bytes)?;
            }
        }
        Output::File { ino, at } => {
            let mut tree = host.tree();
            let before = tree.facts(ino).map_err(Errno::from)?.size;
            tree.write(ino, at, bytes).map_err(Errno::from)?;
            hole = at.saturating_sub(before);
        }
        Output::End { ino } => {
            let mut tree = host.tree();
            let at = tree.facts(ino).map_err(Errno::from)?.size;
            tree.write(ino, at, bytes).map_err(Errno::from)?;
        }
    }
    Ok(Written { by: count(bytes), hole })
}

/// Moves the place of the next write.
fn step(call: &mut Call<'_>, number: u32, written: Result<Written, Stop>) -> wasmtime::Result<Answer<()>> {
    if let Ok(Written { by, hole }) = &written {
        if let Output::File { at, .. } = call.data_mut().host.handles.output(number)? {
            *at = at.saturating_add(*by);
        }
        pay(&mut *call, *hole)?;
    }
    told(call, written.map(drop))
}

fn flush(call: &mut Call<'_>, number: u32) -> wasmtime::Result<Answer<()>> {
    call.data_mut().host.handles.output(number)?;
    Ok(Ok(()))
}

fn splice(
    call: &mut Call<'_>,
    to: u32,
    from: u32,
    length: u64,
    patience: Patience,
) -> wasmtime::Result<Answer<u64>> {
    let output = *call.data_mut().host.handles.output(to)?;
    let bytes = match read(call, from, length, patience)? {
        Ok(bytes) => bytes,
        Err(error) => return Ok(Err(error)),
    };
    pay(&mut *call, count(&bytes))?;
    let written = write_to(&call.data().host, output, &bytes);
    Ok(step(call, to, written)?.map(|()| count(&bytes)))
}

fn count(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
