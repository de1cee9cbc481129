//! What becomes of programs that will not end: how long after its limit each is over, and what that is called.

use std::time::{Duration, Instant};

use blastbox_engine::{BoxSpec, Ending, Engine, ExecEnd, ExecEvent};
use blastbox_images::Image;
use blastbox_policy::{Bytes, Draft, Profile, Seconds, Tier};
use blastbox_wire::agent::{Exit, Io};

use super::{command, snippet};
use crate::options::Options;
use crate::paper::{Row, Wrong};
use crate::sample::Samples;

/// The life of a box that is to end by it.
const LIFE: Duration = Duration::from_secs(1);
/// What a box may say.
const OUTPUT: u64 = 1 << 20;
const MEMORY: u64 = 256 << 20;

/// A program, what its box may do beside, and from when its time counts.
struct Bomb {
    name: &'static str,
    how: &'static str,
    program: [&'static str; 3],
    limit: fn(Draft) -> Draft,
    /// How much later than its beginning it meets its limit.
    after: Duration,
    ends: fn(&ExecEnd) -> bool,
}

const BOMBS: [Bomb; 4] = [
    Bomb {
        name: "a loop past its time",
        how: "python -c 'while True: pass' in a box of 1 s: from the end of that second to the outcome timed_out; wish: 50 ms",
        program: ["python", "-c", "while True: pass"],
        limit: |draft| draft.timeout(Seconds(LIFE.as_secs())),
        after: LIFE,
        ends: |end| matches!(end, ExecEnd::BoxEnded(Ending::TimedOut)),
    },
    Bomb {
        name: "output without end",
        how: "python prints 1 GiB, 64 KiB a write, where 1 MiB is allowed: from its beginning to the outcome output_limit; wish: 50 ms",
        program: ["python", "-c", "import os\nfor _ in range(1 << 14): os.write(1, b'x' * 65536)"],
        limit: |draft| draft.output(Bytes(OUTPUT)),
        after: Duration::ZERO,
        ends: |end| matches!(end, ExecEnd::BoxEnded(Ending::OutputSpent)),
    },
    Bomb {
        name: "memory without end",
        how: "python wants 1 GiB where its box has 256 MiB: from its beginning to its end for that; wish: 50 ms",
        program: ["python", "-c", "try: bytearray(1 << 30)\nexcept MemoryError: raise SystemExit(1)"],
        limit: |draft| draft.memory(Bytes(MEMORY)),
        after: Duration::ZERO,
        ends: |end| matches!(end, ExecEnd::Exited { exit: Exit::Code(1), .. }),
    },
    Bomb {
        name: "a stack without end",
        how: "js -e with a function that calls itself for ever: from its beginning to its end by RangeError or a signal; wish: 50 ms",
        program: ["js", "-e", "function f() { return f() + 1 } f()"],
        limit: |draft| draft,
        after: Duration::ZERO,
        ends: |end| matches!(end, ExecEnd::Exited { exit: Exit::Signal(_) | Exit::Code(1), .. }),
    },
];

/// Each in boxes of its own, one after the other.
pub(super) async fn measure(engine: &Engine, options: &Options) -> Result<Vec<Row>, Wrong> {
    let mut rows = Vec::new();
    for bomb in &BOMBS {
        let mut times = Samples::new();
        let policy = (bomb.limit)(Profile::Default.draft()?.tier(Tier::Wasm)).seal()?;
        for _ in 0..options.samples(20, 5) {
            let image = Image::host();
            let spec =
                BoxSpec { policy: &policy, image: &image, workspace: None, volumes: &[], secrets: &[] };
            let asked = Instant::now();
            let live = engine.create(spec).await?;
            let begun = if bomb.after.is_zero() {
                // What it begins with is ready then.
                snippet(&live, &super::PYTHON).await?;
                tokio::time::sleep(super::PAUSE).await;
                Instant::now()
            } else {
                asked
            };
            let exec = live.exec(command(&bomb.program, Io::Pipes)).await;
            let end = loop {
                match exec.next().await {
                    ExecEvent::Started { .. } | ExecEvent::Output { .. } | ExecEvent::Called(_) => {}
                    ExecEvent::Ended(end) => break end,
                }
            };
            let took = begun.elapsed().saturating_sub(bomb.after);
            if !(bomb.ends)(&end) {
                return Err(format!("{}: ended as {end:?}", bomb.name).into());
            }
            times.add(took);
            live.end().await;
        }
        rows.push(Row::times(bomb.name, bomb.how, times.summary()));
    }
    Ok(rows)
}
