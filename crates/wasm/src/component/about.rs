//! `wasi:cli`, `wasi:clocks` and `wasi:random`: arguments, environment, standard streams, clocks, randomness, and the end.

use wasmtime::component::{ComponentType, Lift, Linker, Lower, Resource};

use super::handles::{Input, Output, Thing, Wanted};
use super::poll::wanting;
use super::{Call, InputHandle, OutputHandle, PollHandle, kinds, offer, owned};
use crate::clock::GRAIN;
use crate::wasi::{Errno, Exited, Guest, pay};

/// Bytes of randomness that one call gives at most.
const MOST_CHANCE: u64 = 1 << 20;
const NANOS: u64 = 1_000_000_000;

/// There is no terminal: none of these is ever made.
#[derive(Debug)]
struct NoTerminalInput;
#[derive(Debug)]
struct NoTerminalOutput;

/// A moment since 1970.
#[derive(Debug, Clone, Copy, ComponentType, Lift, Lower)]
#[component(record)]
pub(super) struct Datetime {
    seconds: u64,
    nanoseconds: u32,
}

impl Datetime {
    pub(super) fn of(nanos: u64) -> Self {
        Self { seconds: nanos / NANOS, nanoseconds: u32::try_from(nanos % NANOS).unwrap_or(0) }
    }

    pub(super) fn nanos(self) -> Result<i64, Errno> {
        let nanos =
            self.seconds.checked_mul(NANOS).and_then(|all| all.checked_add(u64::from(self.nanoseconds)));
        nanos.and_then(|nanos| i64::try_from(nanos).ok()).ok_or(Errno::Invalid)
    }
}

pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    link_cli(linker)?;
    link_streams(linker)?;
    offer! { linker, "wasi:clocks/wall-clock@0.2.0";
        "now" => |call| -> Datetime { Datetime::of(call.data_mut().host.clock.wall()) }
        "resolution" => |_call| -> Datetime { Datetime::of(GRAIN) }
    }
    offer! { linker, "wasi:clocks/monotonic-clock@0.2.0";
        "now" => |call| -> u64 { call.data_mut().host.clock.lived() }
        "resolution" => |_call| -> u64 { GRAIN }
        "subscribe-instant" => |call, moment: u64| -> Resource<PollHandle> {
            wanting(&mut call, Wanted::Until(moment))?
        }
        "subscribe-duration" => |call, span: u64| -> Resource<PollHandle> {
            let moment = call.data_mut().host.clock.lived().saturating_add(span);
            wanting(&mut call, Wanted::Until(moment))?
        }
    }
    offer! { linker, "wasi:random/random@0.2.0";
        "get-random-bytes" => |call, length: u64| -> Vec<u8> { chance(&mut call, length)? }
        "get-random-u64" => |call| -> u64 { number(&mut call)? }
    }
    offer! { linker, "wasi:random/insecure@0.2.0";
        "get-insecure-random-bytes" => |call, length: u64| -> Vec<u8> { chance(&mut call, length)? }
        "get-insecure-random-u64" => |call| -> u64 { number(&mut call)? }
    }
    offer! { linker, "wasi:random/insecure-seed@0.2.0";
        "insecure-seed" => |call| -> (u64, u64) { (number(&mut call)?, number(&mut call)?) }
    }
    Ok(())
}

fn link_cli(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    offer! { linker, "wasi:cli/environment@0.2.0";
        "get-environment" => |call| -> Vec<(String, String)> {
            let pairs = call.data().host.environment.iter();
            let pairs = pairs.map(|pair| {
                let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
                let (name, value) = pair.split_at(at);
                (text(name), text(value.strip_prefix(b"=").unwrap_or(value)))
            });
            pairs.collect()
        }
        "get-arguments" => |call| -> Vec<String> {
            call.data().host.arguments.iter().map(|word| text(word)).collect()
        }
        "initial-cwd" => |call| -> Option<String> { Some(text(&call.data().host.directory)) }
    }
    let mut exit = linker.instance("wasi:cli/exit@0.2.0")?;
    exit.func_wrap("exit", |_: Call<'_>, (status,): (Result<(), ()>,)| -> wasmtime::Result<()> {
        Err(wasmtime::Error::new(Exited(u32::from(status.is_err()))))
    })?;
    exit.func_wrap("exit-with-code", |_: Call<'_>, (code,): (u8,)| -> wasmtime::Result<()> {
        Err(wasmtime::Error::new(Exited(u32::from(code))))
    })
}

/// The three that every command has, and that none of them is a terminal.
fn link_streams(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    offer! { linker, "wasi:cli/stdin@0.2.0";
        "get-stdin" => |call| -> Resource<InputHandle> {
            owned(call.data_mut().host.handles.open(Thing::Input(Input::Standard))?)
        }
    }
    offer! { linker, "wasi:cli/stdout@0.2.0";
        "get-stdout" => |call| -> Resource<OutputHandle> { output(&mut call, 1)? }
    }
    offer! { linker, "wasi:cli/stderr@0.2.0";
        "get-stderr" => |call| -> Resource<OutputHandle> { output(&mut call, 2)? }
    }
    kinds! { linker, "wasi:cli/terminal-input@0.2.0"; "terminal-input" => NoTerminalInput, }
    kinds! { linker, "wasi:cli/terminal-output@0.2.0"; "terminal-output" => NoTerminalOutput, }
    offer! { linker, "wasi:cli/terminal-stdin@0.2.0";
        "get-terminal-stdin" => |_call| -> Option<Resource<NoTerminalInput>> { None }
    }
    offer! { linker, "wasi:cli/terminal-stdout@0.2.0";
        "get-terminal-stdout" => |_call| -> Option<Resource<NoTerminalOutput>> { None }
    }
    offer! { linker, "wasi:cli/terminal-stderr@0.2.0";
        "get-terminal-stderr" => |_call| -> Option<Resource<NoTerminalOutput>> { None }
    }
    Ok(())
}

fn output(call: &mut Call<'_>, stream: u8) -> wasmtime::Result<Resource<OutputHandle>> {
    Ok(owned(call.data_mut().host.handles.open(Thing::Output(Output::Standard(stream)))?))
}

fn chance(call: &mut Call<'_>, length: u64) -> wasmtime::Result<Vec<u8>> {
    if length > MOST_CHANCE {
        return Err(wasmtime::Error::msg(format!(
            "the guest asks for {length} bytes of randomness at once: {MOST_CHANCE} can be had"
        )));
    }
    pay(&mut *call, length)?;
    let mut bytes = vec![0; usize::try_from(length)?];
    call.data_mut().host.chance.fill(&mut bytes)?;
    Ok(bytes)
}

fn number(call: &mut Call<'_>) -> wasmtime::Result<u64> {
    let mut bytes = [0; 8];
    call.data_mut().host.chance.fill(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Texts of components are Unicode: what is not is replaced.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
