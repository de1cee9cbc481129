//! Waiting for time and for input. Nothing else can be waited for.

use std::time::{Duration, Instant};

use wasmtime::Linker;

use super::about::time;
use super::memory::step;
use super::{Descriptor, Errno, Guest, GuestMemory, Host, Stop, calls};

/// Most things that are waited for at once.
const MOST: u32 = 64;
const SUBSCRIPTION: u32 = 48;
const EVENT: u32 = 32;

enum Wanted {
    /// A moment.
    Until(Instant, Duration),
    /// Something to read.
    Input,
    /// What never waits: this many bytes.
    Now(u64),
    /// What cannot be waited for.
    Wrong(Errno),
}

struct Question {
    mark: u64,
    kind: u8,
    wanted: Wanted,
}

pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    calls! { linker;
        "poll_oneoff" => |memory, host, list: u32, events: u32, count: u32, out: u32| {
            poll(memory, host, list, events, count, out)
        };
    }
    Ok(())
}

fn poll(
    memory: &mut GuestMemory<'_>,
    host: &mut Host,
    list: u32,
    events: u32,
    count: u32,
    out: u32,
) -> Result<(), Stop> {
    if count == 0 || count > MOST {
        return Err(Errno::Invalid.into());
    }
    let questions = (0..count)
        .map(|number| question(memory, host, step(list, number.saturating_mul(SUBSCRIPTION))?))
        .collect::<Result<Vec<Question>, Errno>>()?;
    let mut answered = answer(memory, host, &questions, events)?;
    if answered == 0 {
        let until = questions.iter().filter_map(|question| match question.wanted {
            Wanted::Until(moment, left) => Some((moment, left)),
            _ => None,
        });
        let until = until.min();
        let for_input = questions.iter().any(|question| matches!(question.wanted, Wanted::Input));
        if let Some(streams) = &host.streams {
            streams.sleep(until.map(|(moment, _)| moment), for_input)?;
        }
        if let Some((moment, left)) = until
            && moment <= Instant::now()
        {
            host.clock.slept(left);
        }
        answered = answer(memory, host, &questions, events)?;
    }
    Ok(memory.put_u32(out, answered)?)
}

fn question(memory: &GuestMemory<'_>, host: &mut Host, at: u32) -> Result<Question, Errno> {
    let mark = memory.u64(at)?;
    let kind = *memory.get(step(at, 8)?, 1)?.first().ok_or(Errno::Fault)?;
    let wanted = match kind {
        0 => {
            let clock = memory.u32(step(at, 16)?)?;
            let timeout = memory.u64(step(at, 24)?)?;
            let absolute = memory.u32(step(at, 40)?)? & 1 != 0;
            let left = if absolute { timeout.saturating_sub(time(host, clock)?) } else { timeout };
            let (now, left) = (Instant::now(), Duration::from_nanos(left));
            Wanted::Until(now.checked_add(left).unwrap_or(now), left)
        }
        1 | 2 => match (kind, host.descriptors.get(memory.u32(step(at, 16)?)?)) {
            (1, Ok(Descriptor::Input)) => Wanted::Input,
            (2, Ok(Descriptor::Output(_))) => Wanted::Now(4096),
            (_, Ok(Descriptor::File { .. })) => Wanted::Now(4096),
            (_, Ok(_)) => Wanted::Wrong(Errno::NotSupported),
            (_, Err(errno)) => Wanted::Wrong(errno),
        },
        _ => return Err(Errno::Invalid),
    };
    Ok(Question { mark, kind, wanted })
}

/// Writes an event for everything that has come. Returns how many.
fn answer(
    memory: &mut GuestMemory<'_>,
    host: &Host,
    questions: &[Question],
    events: u32,
) -> Result<u32, Errno> {
    let mut answered: u32 = 0;
    let now = Instant::now();
    for Question { mark, kind, wanted } in questions {
        let (errno, bytes) = match wanted {
            Wanted::Until(moment, _) if *moment <= now => (0, 0),
            Wanted::Until(..) => continue,
            // When input comes is not counted: where the clock is, it is said to be there, and whoever reads it waits.
            Wanted::Input if host.clock.is_counted() => (0, 1),
            Wanted::Input => match host.streams.as_ref().map_or(Some(0), |streams| streams.readable()) {
                Some(bytes) => (0, bytes),
                None => continue,
            },
            Wanted::Now(bytes) => (0, *bytes),
            Wanted::Wrong(errno) => (errno.number(), 0),
        };
        let at = step(events, answered.saturating_mul(EVENT))?;
        memory.put(at, &[0; 32])?;
        memory.put_u64(at, *mark)?;
        memory.put_u32(step(at, 8)?, u32::try_from(errno).unwrap_or(0))?;
        memory.put(step(at, 10)?, &[*kind])?;
        memory.put_u64(step(at, 16)?, bytes)?;
        answered = answered.saturating_add(1);
    }
    Ok(answered)
}
