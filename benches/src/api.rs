//! One box from the warm pool, asked for over the API on loopback, beside a bare process.

use std::time::Instant;

use crate::daemon::{Daemon, create_and_run, cycle};
use crate::options::Options;
use crate::paper::{Finding, Promise, Row, Wrong};
use crate::process::{Start, bare};
use crate::sample::Samples;

const WARM_UP: usize = 50;
/// In milliseconds.
const MIDDLE: f64 = 3.0;
const SLOWEST: f64 = 15.0;

/// Measures it.
pub(crate) fn measure(options: &Options) -> Result<Finding, Wrong> {
    let daemon = Daemon::start()?;
    let mut client = daemon.client()?;
    let [mut boxes, mut ends, mut runs, mut forked] = [const { Samples::new() }; 4];
    for _ in 0..WARM_UP {
        cycle(&mut client)?;
    }
    for _ in 0..options.samples(1000, 100) {
        let begun = Instant::now();
        let made = create_and_run(&mut client)?;
        boxes.add_since(begun);
        let begun = Instant::now();
        client.ask("DELETE", &made, "")?;
        ends.add_since(begun);
        let begun = Instant::now();
        client.ask("POST", "/v1/run", r#"{"command":["/bin/true"]}"#)?;
        runs.add_since(begun);
        forked.add(bare("/bin/true", Start::Fork)?);
    }
    let (boxes, bare) = (boxes.summary(), forked.summary());
    Ok(Finding {
        title: "api · over loopback with a key, one caller, one connection, in turns",
        rows: vec![
            Row::times(
                "warm box, command, result",
                "POST /v1/boxes; POST …/execs /bin/true; GET …/events",
                boxes,
            ),
            Row::times("the end of that box", "DELETE /v1/boxes/{id}, receipt and all", ends.summary()),
            Row::times(
                "all of it in one question",
                "POST /v1/run {\"command\":[\"/bin/true\"]}",
                runs.summary(),
            ),
            Row::times("bare process, fork + exec", "std::process::Command with uid(), /bin/true", bare),
            Row::said(
                "beside the bare process",
                "median / median",
                format!("{:.1} times", boxes.median / bare.median),
            ),
        ],
        promises: vec![
            Promise {
                says: format!("a warm box, a command and its result take {MIDDLE} ms in the middle"),
                measured: format!("{:.2} ms", boxes.median),
                kept: Some(boxes.median <= MIDDLE),
            },
            Promise {
                says: format!("and {SLOWEST} ms for the slowest of a hundred"),
                measured: format!("{:.2} ms", boxes.p99),
                kept: Some(boxes.p99 <= SLOWEST),
            },
        ],
    })
}
