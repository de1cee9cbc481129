//! `wasi:io/poll` and the errors of streams: waiting for time and for input. Nothing else can be waited for.

use std::time::{Duration, Instant};

use wasmtime::component::{Linker, Resource, WasmList};

use super::handles::{Thing, Wanted};
use super::{Call, ErrorHandle, PollHandle, kinds, offer, owned};
use crate::clock::GRAIN;
use crate::streams::Told;
use crate::wasi::{Guest, Host};

/// Most things that are waited for at once.
const MOST: usize = 1024;

pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    kinds! { linker, "wasi:io/error@0.2.0"; "error" => ErrorHandle, }
    offer! { linker, "wasi:io/error@0.2.0";
        "[method]error.to-debug-string" => |call, this: Resource<ErrorHandle>| -> String {
            format!("{:?}", call.data().host.handles.error(this.rep()))
        }
    }
    kinds! { linker, "wasi:io/poll@0.2.0"; "pollable" => PollHandle, }
    offer! { linker, "wasi:io/poll@0.2.0";
        "[method]pollable.ready" => |call, this: Resource<PollHandle>| -> bool {
            let host = &mut call.data_mut().host;
            let wanted = host.handles.wanted(this.rep())?;
            let now = host.clock.lived();
            is_ready(host, wanted, now)
        }
        "poll" => |call, list: WasmList<Resource<PollHandle>>| -> Vec<u32> {
            let count = list.len();
            // None at all would wait for ever.
            if count == 0 || count > MOST {
                return Err(wasmtime::Error::msg(format!("the guest waits for {count} things at once: 1 to {MOST} can be")));
            }
            crate::wasi::pay(&mut call, u64::try_from(count).unwrap_or(u64::MAX))?;
            let numbers = list.iter(&mut call)?.collect::<wasmtime::Result<Vec<Resource<PollHandle>>>>()?;
            let host = &mut call.data_mut().host;
            let wanted = numbers.iter().map(|this| Ok(host.handles.wanted(this.rep())?));
            let wanted = wanted.collect::<wasmtime::Result<Vec<Wanted>>>()?;
            wait(host, &wanted)?
        }
    }
    linker.instance("wasi:io/poll@0.2.0")?.func_wrap(
        "[method]pollable.block",
        |mut call: Call<'_>, (this,): (Resource<PollHandle>,)| {
            let host = &mut call.data_mut().host;
            let wanted = host.handles.wanted(this.rep())?;
            wait(host, &[wanted])?;
            Ok(())
        },
    )
}

/// One more thing that can be waited for.
pub(super) fn wanting(call: &mut Call<'_>, wanted: Wanted) -> wasmtime::Result<Resource<PollHandle>> {
    Ok(owned(call.data_mut().host.handles.open(Thing::Wanted(wanted))?))
}

/// Whether it has come. When input comes is not counted: where the clock is, it is said to be there, and whoever reads it waits.
fn is_ready(host: &Host, wanted: Wanted, now: u64) -> bool {
    match wanted {
        Wanted::Now => true,
        Wanted::Input if host.clock.is_counted() => true,
        Wanted::Input => host.streams.as_ref().is_none_or(|streams| streams.readable().is_some()),
        Wanted::Until(moment) => moment <= now,
    }
}

/// Waits until one of them has come. Returns which have.
fn wait(host: &mut Host, wanted: &[Wanted]) -> Result<Vec<u32>, Told> {
    // A look that is counted: whoever asks again and again gets on.
    let mut now = host.clock.lived();
    loop {
        let come = (0..).zip(wanted).filter(|(_, wanted)| is_ready(host, **wanted, now));
        let come: Vec<u32> = come.map(|(number, _)| number).collect();
        let Some(streams) = host.streams.clone() else { return Ok(come) };
        if let Some(signal) = streams.told() {
            return Err(Told(signal));
        }
        if !come.is_empty() {
            return Ok(come);
        }
        let moments = wanted.iter().filter_map(|wanted| match wanted {
            Wanted::Until(moment) => Some(moment.saturating_sub(now)),
            Wanted::Now | Wanted::Input => None,
        });
        // In whole steps of the clock, or it would stand short of the moment.
        let left = moments.min().map(|left| left.checked_next_multiple_of(GRAIN).unwrap_or(u64::MAX));
        let until = left.and_then(|left| Instant::now().checked_add(Duration::from_nanos(left)));
        streams.sleep(until, wanted.contains(&Wanted::Input))?;
        if let (Some(left), Some(until)) = (left, until)
            && until <= Instant::now()
        {
            host.clock.slept(Duration::from_nanos(left));
        }
        now = host.clock.peek();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_moment_ends_a_wait_and_a_clock_that_counts_stands_there_then() {
        for deterministic in [true, false] {
            let mut host = Host::alone(deterministic, true);
            let far = Wanted::Until(u64::MAX);
            // Between two steps of the clock.
            let near = host.clock.peek() + 50_001;
            assert_eq!(wait(&mut host, &[far, Wanted::Until(near)]), Ok(vec![1]));
            assert!(host.clock.peek() >= near);
            // None has come. Whose clock counts is not told when it does, and waits where it reads.
            let near = Wanted::Until(host.clock.peek() + 50_001);
            let first = if deterministic { 2 } else { 1 };
            assert_eq!(wait(&mut host, &[far, near, Wanted::Input]), Ok(vec![first]));
        }
        // Whoever asks again and again instead of waiting comes there as well.
        let mut asker = Host::alone(true, true);
        let asked =
            (1..).find(|_| wait(&mut asker, &[Wanted::Now, Wanted::Until(1_000_000)]).unwrap().len() == 2);
        assert_eq!(asked, Some(50));
        let mut host = Host::alone(true, true);
        wait(&mut host, &[Wanted::Until(1_000_000)]).unwrap();
        assert_eq!(host.clock.peek(), 1_000_000);
    }

    #[test]
    fn what_has_come_is_told_at_once_and_whoever_is_told_to_end_waits_for_nothing() {
        let mut host = Host::alone(false, false);
        // Input that has ended can be read.
        assert_eq!(wait(&mut host, &[Wanted::Until(u64::MAX), Wanted::Input, Wanted::Now]), Ok(vec![1, 2]));
        host.streams.as_ref().unwrap().tell(9);
        assert_eq!(wait(&mut host, &[Wanted::Until(u64::MAX)]), Err(Told(9)));
        assert_eq!(wait(&mut host, &[Wanted::Now]), Err(Told(9)));
    }
}
