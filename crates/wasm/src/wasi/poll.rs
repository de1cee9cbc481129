//! Waiting for time and for input. Nothing else can be waited for.

use std::time::{Duration, Instant};

use wasmtime::Linker;

use super::about::time;
use super::memory::step;
use super::{Descriptor, Errno, Guest, GuestMemory, Host, Stop, calls};
use crate::clock::GRAIN;

/// Most things that are waited for at once.
const MOST: u32 = 64;
const SUBSCRIPTION: u32 = 48;
const EVENT: u32 = 32;

/// When something is due, by the clock that the guest has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    Real(Instant),
    /// Nanoseconds of the guest's life. How long the host takes between two looks is not counted, and decides nothing.
    Counted(u64),
}

impl Moment {
    fn after(nanos: u64, host: &Host) -> Self {
        if host.clock.is_counted() {
            // In whole steps of the clock, or it would stand short of the moment when it was slept until then.
            let steps = nanos.checked_next_multiple_of(GRAIN).unwrap_or(u64::MAX);
            return Self::Counted(host.clock.peek().saturating_add(steps));
        }
        let now = Instant::now();
        Self::Real(now.checked_add(Duration::from_nanos(nanos)).unwrap_or(now))
    }

    fn has_come(self, host: &Host) -> bool {
        match self {
            Self::Real(moment) => moment <= Instant::now(),
            Self::Counted(nanos) => nanos <= host.clock.peek(),
        }
    }
}

enum Wanted {
    /// A moment.
    Until(Moment),
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
            Wanted::Until(moment) => Some(moment),
            _ => None,
        });
        let until = until.min();
        let for_input = questions.iter().any(|question| matches!(question.wanted, Wanted::Input));
        if let Some(streams) = &host.streams {
            match until {
                Some(Moment::Counted(nanos)) => {
                    let left = Duration::from_nanos(nanos.saturating_sub(host.clock.peek()));
                    streams.sleep(Instant::now().checked_add(left), for_input)?;
                    host.clock.slept(left);
                }
                Some(Moment::Real(moment)) => streams.sleep(Some(moment), for_input)?,
                None => streams.sleep(None, for_input)?,
            }
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
            Wanted::Until(Moment::after(left, host))
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
    for Question { mark, kind, wanted } in questions {
        let (errno, bytes) = match wanted {
            Wanted::Until(moment) if moment.has_come(host) => (0, 0),
            Wanted::Until(_) => continue,
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

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: u32 = 1024;
    const OUT: u32 = 2048;

    /// Waits for spans of time, each marked by its place. The marks of those that were said to be over.
    fn waited(host: &mut Host, spans: &[u64]) -> Vec<u64> {
        let mut bytes = vec![0; 4096];
        let mut memory = GuestMemory::new(&mut bytes);
        let count = u32::try_from(spans.len()).unwrap();
        for (number, span) in (0..).zip(spans) {
            let at = number * SUBSCRIPTION;
            memory.put_u64(at, number.into()).unwrap();
            // The clock that goes on from the guest's beginning.
            memory.put_u32(at + 16, 1).unwrap();
            memory.put_u64(at + 24, *span).unwrap();
        }
        poll(&mut memory, host, 0, EVENTS, count, OUT).unwrap();
        let told = memory.u32(OUT).unwrap();
        (0..told).map(|number| memory.u64(EVENTS + number * EVENT).unwrap()).collect()
    }

    #[test]
    fn the_first_moment_ends_a_wait_and_a_clock_that_counts_stands_there_then() {
        for deterministic in [true, false] {
            let mut host = Host::alone(deterministic, true);
            let before = host.clock.peek();
            // Between two steps of the clock.
            assert_eq!(waited(&mut host, &[u64::MAX / 4, 50_001]), [1]);
            assert!(host.clock.peek() >= before + 50_000);
        }
        let mut host = Host::alone(true, true);
        waited(&mut host, &[1_000_000]);
        assert_eq!(host.clock.peek(), 1_000_000);
    }

    #[test]
    fn how_long_the_host_takes_decides_nothing_where_the_clock_is_counted() {
        let mut host = Host::alone(true, true);
        // By the host's clock both are over before anybody has looked.
        assert_eq!(waited(&mut host, &[2, 0]), [1]);
        assert_eq!(waited(&mut host, &[GRAIN + 1, 1]), [1], "and the other one is a step later");
        assert_eq!(waited(&mut host, &[GRAIN, 1, GRAIN + 1]), [0, 1], "in the same step");
        assert_eq!(host.clock.peek(), 2 * GRAIN);
        // Whoever slept too long by the host's clock has slept as long as was asked for.
        let late = Moment::after(GRAIN, &host);
        std::thread::sleep(Duration::from_millis(2));
        assert!(!late.has_come(&host));
        host.clock.slept(Duration::from_nanos(GRAIN));
        assert!(late.has_come(&host));
    }
}
