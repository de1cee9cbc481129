//! The thousandth box, beside the first.

use std::time::Instant;

use tokio::task::{LocalSet, spawn_local};

use crate::boxes::{House, raise_descriptor_limit, runtime};
use crate::memory::{children, group};
use crate::options::Options;
use crate::paper::{Finding, Promise, Row, Wrong};
use crate::sample::Samples;

const EDGE: usize = 50;

/// Measures it.
pub(crate) fn measure(options: &Options) -> Result<Finding, Wrong> {
    let count = options.samples(1000, 300);
    raise_descriptor_limit()?;
    let (mut first, mut last) = (Samples::default(), Samples::default());
    let (mut alone, mut crowded) = (Samples::default(), Samples::default());
    let runtime = runtime()?;
    let (ended, left) = LocalSet::new().block_on(&runtime, async {
        let house = House::open()?;
        for _ in 0..EDGE {
            let begun = Instant::now();
            house.cycle(&["/bin/true"]).await?;
            alone.add_since(begun);
        }
        let mut live = Vec::new();
        for number in 0..count {
            let begun = Instant::now();
            live.push(house.create().await?);
            match number {
                _ if number < EDGE => first.add_since(begun),
                _ if number >= count - EDGE => last.add_since(begun),
                _ => {}
            }
        }
        for _ in 0..EDGE {
            let begun = Instant::now();
            house.cycle(&["/bin/true"]).await?;
            crowded.add_since(begun);
        }
        let groups: Vec<_> = children(house.warden)?.into_iter().filter_map(group).collect();
        let begun = Instant::now();
        let ending: Vec<_> = live.into_iter().map(|live| spawn_local(live.end())).collect();
        for end in ending {
            end.await?;
        }
        let ended = begun.elapsed();
        let left = children(house.warden)?.len() + groups.iter().filter(|group| group.exists()).count();
        Ok::<_, Wrong>((ended, left))
    })?;
    let (first, last) = (first.summary(), last.summary());
    let (alone, crowded) = (alone.summary(), crowded.summary());
    Ok(Finding {
        title: "crowd · many live boxes",
        rows: vec![
            Row::times(&format!("creating boxes 1 to {EDGE}"), "Engine::create", first),
            Row::times(&format!("creating boxes {} to {count}", count - EDGE + 1), "Engine::create", last),
            Row::times("a whole life, no other box", "launch, exec /bin/true, end", alone),
            Row::times(&format!("a whole life beside {count}"), "launch, exec /bin/true, end", crowded),
            Row::said("ending all of them at once", "LiveBox::end", format!("{:.3} s", ended.as_secs_f64())),
        ],
        promises: vec![
            Promise::at_most("live boxes slow creation by at most 1.5", 1.5, last, first),
            Promise {
                says: "nothing is left of them".to_owned(),
                measured: format!("{left} processes and groups"),
                kept: Some(left == 0),
            },
        ],
    })
}
