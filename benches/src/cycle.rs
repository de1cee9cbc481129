//! One box from nothing to nothing, beside a bare process.

use std::time::Instant;

use crate::boxes::{House, runtime};
use crate::options::Options;
use crate::paper::{Finding, Promise, Row, Wrong};
use crate::process::{Start, bare};
use crate::sample::Samples;

const TRUE: &str = "/bin/true";
const WARM_UP: usize = 20;

/// Measures it.
pub(crate) fn measure(options: &Options) -> Result<Finding, Wrong> {
    let [mut boxes, mut forked, mut spawned] = [const { Samples::new() }; 3];
    let [mut setup, mut command, mut teardown] = [const { Samples::new() }; 3];
    runtime()?.block_on(async {
        let house = House::open()?;
        for _ in 0..WARM_UP {
            house.cycle(&[TRUE]).await?;
        }
        for _ in 0..options.samples(300, 60) {
            let begun = Instant::now();
            let ended = house.cycle(&[TRUE]).await?;
            boxes.add_since(begun);
            setup.add(ended.setup);
            command.add(ended.run);
            teardown.add(ended.teardown);
            forked.add(bare(TRUE, Start::Fork)?);
            spawned.add(bare(TRUE, Start::Spawn)?);
        }
        Ok::<_, Wrong>(())
    })?;
    let (boxes, forked, spawned) = (boxes.summary(), forked.summary(), spawned.summary());
    let promise = Promise::at_most("a box's whole life costs at most 2.5 bare processes", 2.5, boxes, forked);
    let closest = Promise::at_most("(for comparison: against posix_spawn)", 2.5, boxes, spawned);
    Ok(Finding {
        title: "cycle · create → /bin/true → destroyed, engine in this process, one at a time",
        rows: vec![
            Row::times(
                "box",
                "Engine::launch, exec /bin/true, end; equal boxes, the next one's first process waits",
                boxes,
            ),
            Row::times("  of it, until its agent answers", "Ended::setup", setup.summary()),
            Row::times("  of it, the command", "Ended::run", command.summary()),
            Row::times("  of it, until nothing is left", "Ended::teardown", teardown.summary()),
            Row::times("bare process, fork + exec", "std::process::Command with uid(), /bin/true", forked),
            Row::times("bare process, posix_spawn", "std::process::Command, /bin/true", spawned),
        ],
        promises: vec![promise, Promise { kept: None, ..closest }],
    })
}
