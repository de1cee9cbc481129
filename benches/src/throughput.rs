//! Boxes a second from one process.

use std::rc::Rc;
use std::time::Instant;

use tokio::task::{LocalSet, spawn_local};

use crate::boxes::{House, runtime};
use crate::options::Options;
use crate::paper::{Finding, Promise, Row, Wrong};
use crate::process::{Start, bare};
use crate::processors::Two;

/// Measures it.
pub(crate) fn measure(options: &Options) -> Result<Finding, Wrong> {
    let count = options.samples(800, 160);
    let two = Two::keep_to()?;
    let mut rows = Vec::new();
    let mut best = 0.0_f64;
    for tasks in [1, 2, 4, 8] {
        let rate = boxes(tasks, count)?;
        best = best.max(rate);
        rows.push(Row::said(
            &format!("{tasks} at a time"),
            &format!("{count} boxes"),
            format!("{rate:.0} boxes/s"),
        ));
    }
    let begun = Instant::now();
    for _ in 0..count {
        bare("/bin/true", Start::Fork)?;
    }
    let rate = per_second(count, begun);
    rows.push(Row::said("bare, one at a time", "fork + exec of /bin/true", format!("{rate:.0} processes/s")));
    drop(two);
    let promise = Promise {
        says: "300 boxes a second on two cores from one process".to_owned(),
        measured: format!("{best:.0} at best"),
        kept: Some(best >= 300.0),
    };
    Ok(Finding {
        title: "throughput · create → /bin/true → destroyed, several at a time in one process",
        rows,
        promises: vec![promise],
    })
}

fn boxes(tasks: usize, count: usize) -> Result<f64, Wrong> {
    let runtime = runtime()?;
    LocalSet::new().block_on(&runtime, async {
        let house = Rc::new(House::open()?);
        for _ in 0..tasks * 4 {
            house.cycle(&["/bin/true"]).await?;
        }
        let begun = Instant::now();
        let mut running = Vec::new();
        for _ in 0..tasks {
            let house = Rc::clone(&house);
            running.push(spawn_local(async move {
                for _ in 0..count / tasks {
                    house.cycle(&["/bin/true"]).await.map_err(|wrong| wrong.to_string())?;
                }
                Ok::<_, String>(())
            }));
        }
        for task in running {
            task.await??;
        }
        Ok(per_second(count, begun))
    })
}

fn per_second(count: usize, begun: Instant) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / begun.elapsed().as_secs_f64()
}
