//! Arguments, environment, clocks, randomness, and the end.

use wasmtime::{Caller, Linker};

use super::memory::step;
use super::{Errno, Exited, Guest, GuestMemory, Host, Stop, calls};
use crate::clock::GRAIN;

/// Bytes of randomness that are fetched at once.
const GULP: usize = 256;

pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    calls! { linker;
        "args_sizes_get" => |memory, host, count: u32, size: u32| sizes(memory, &host.arguments, count, size);
        "args_get" => |memory, host, list: u32, text: u32| texts(memory, &host.arguments, list, text);
        "environ_sizes_get" => |memory, host, count: u32, size: u32| sizes(memory, &host.environment, count, size);
        "environ_get" => |memory, host, list: u32, text: u32| texts(memory, &host.environment, list, text);
        "clock_res_get" => |memory, _host, clock: u32, out: u32| {
            if clock > 3 {
                return Err(Errno::Invalid.into());
            }
            Ok(memory.put_u64(out, GRAIN)?)
        };
        "clock_time_get" => |memory, host, clock: u32, _precision: u64, out: u32| {
            Ok(memory.put_u64(out, time(host, clock)?)?)
        };
        "random_get" => |memory, host, at: u32, length: u32| random(memory, host, at, length);
        "sched_yield" => |_memory, _host| Ok(());
        "proc_raise" => |_memory, _host, _signal: u32| Err(Errno::NotSupported.into());
        "sock_accept" => |_memory, _host, _fd: u32, _flags: u32, _out: u32| Err(Errno::NotSupported.into());
        "sock_recv" => |_memory, _host, _fd: u32, _list: u32, _count: u32, _flags: u32, _size: u32, _out: u32| {
            Err(Errno::NotSupported.into())
        };
        "sock_send" => |_memory, _host, _fd: u32, _list: u32, _count: u32, _flags: u32, _size: u32| {
            Err(Errno::NotSupported.into())
        };
        "sock_shutdown" => |_memory, _host, _fd: u32, _how: u32| Err(Errno::NotSupported.into());
    }
    linker.func_wrap(
        super::MODULE,
        "proc_exit",
        |_: Caller<'_, Guest>, code: u32| -> wasmtime::Result<()> { Err(wasmtime::Error::new(Exited(code))) },
    )?;
    Ok(())
}

fn sizes(memory: &mut GuestMemory<'_>, texts: &[Vec<u8>], count: u32, size: u32) -> Result<(), Stop> {
    let all: usize = texts.iter().map(|text| text.len().saturating_add(1)).sum();
    memory.put_u32(count, u32::try_from(texts.len()).map_err(|_| Errno::Fault)?)?;
    memory.put_u32(size, u32::try_from(all).map_err(|_| Errno::Fault)?)?;
    Ok(())
}

fn texts(memory: &mut GuestMemory<'_>, texts: &[Vec<u8>], list: u32, at: u32) -> Result<(), Stop> {
    let (mut list, mut at) = (list, at);
    for text in texts {
        memory.put_u32(list, at)?;
        memory.put(at, text)?;
        at = step(at, u32::try_from(text.len()).map_err(|_| Errno::Fault)?)?;
        memory.put(at, &[0])?;
        (list, at) = (step(list, 4)?, step(at, 1)?);
    }
    Ok(())
}

/// What a clock says, in its own grain. Time of process and thread is the time that the guest has lived.
pub(super) fn time(host: &mut Host, clock: u32) -> Result<u64, Errno> {
    match clock {
        0 => Ok(host.clock.wall()),
        1..=3 => Ok(host.clock.lived()),
        _ => Err(Errno::Invalid),
    }
}

fn random(memory: &mut GuestMemory<'_>, host: &mut Host, at: u32, length: u32) -> Result<(), Stop> {
    memory.move_bytes(u64::from(length));
    for piece in memory.get_mut(at, length)?.chunks_mut(GULP) {
        if let Some(streams) = &host.streams
            && let Some(signal) = streams.told()
        {
            return Err(crate::streams::Told(signal).into());
        }
        host.chance.fill(piece).map_err(|_| Errno::Io)?;
    }
    Ok(())
}
