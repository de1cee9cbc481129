//! Many callers at once, for long: cycles a second, and whether the daemon grows.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::daemon::{Daemon, Holds, cycle};
use crate::options::Options;
use crate::paper::{Finding, Promise, Row, Wrong};

const CLIENTS: usize = 8;
/// Before the first look: pools are filled, threads are there, caches have their size.
const WARM_UP: usize = 500;
const LEAST: f64 = 200.0;
/// What the daemon may grow by over all cycles, in KiB: it remembers the last 1,000 boxes that are gone.
const GROWTH: u64 = 16 * 1024;

/// Measures it.
pub(crate) fn measure(options: &Options) -> Result<Finding, Wrong> {
    let daemon = Daemon::start()?;
    let cycles = options.samples(10_000, 1_000);
    work(&daemon, WARM_UP)?;
    let before = daemon.holds()?;
    let begun = Instant::now();
    work(&daemon, cycles)?;
    let rate = f64::from(u32::try_from(cycles)?) / begun.elapsed().as_secs_f64();
    let after = daemon.holds()?;
    let growth = after.rss.saturating_sub(before.rss);
    Ok(Finding {
        title: "clients · 8 callers: create → /bin/true → destroy, over loopback with a key",
        rows: vec![
            Row::said(
                "cycles",
                "POST /v1/boxes; POST …/execs; GET …/events; DELETE",
                format!("{cycles}: {rate:.0} a second"),
            ),
            Row::said(
                "the daemon before",
                "/proc/PID/status and /proc/PID/fd, after 500 cycles",
                words(before),
            ),
            Row::said("the daemon after", "the same", words(after)),
        ],
        promises: vec![
            Promise {
                says: format!("{CLIENTS} callers make at least {LEAST} cycles a second"),
                measured: format!("{rate:.0}"),
                kept: Some(rate >= LEAST),
            },
            Promise {
                says: "the daemon does not grow with the boxes that it has had".to_owned(),
                measured: format!("{growth} KiB over {cycles} cycles; at most {GROWTH}"),
                kept: Some(growth <= GROWTH && after.threads <= before.threads + 2),
            },
        ],
    })
}

/// So many cycles, by all clients together.
fn work(daemon: &Daemon, cycles: usize) -> Result<(), Wrong> {
    let left = AtomicUsize::new(cycles);
    std::thread::scope(|scope| {
        let one = || -> Result<(), String> {
            let mut client = daemon.client().map_err(|wrong| wrong.to_string())?;
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
            {
                cycle(&mut client).map_err(|wrong| wrong.to_string())?;
            }
            Ok(())
        };
        let threads: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(one)).collect();
        for thread in threads {
            thread.join().map_err(|_| "a client went down")??;
        }
        Ok(())
    })
}

fn words(holds: Holds) -> String {
    let Holds { rss, peak, descriptors, threads } = holds;
    let descriptors = descriptors.map_or("? (needs root)".to_owned(), |count| count.to_string());
    format!("{rss} KiB resident (peak {peak}), {descriptors} descriptors, {threads} threads")
}
