//! What guests of a Wasm box cost: memory of one that waits, and processor time of one from its beginning to its end.

use std::fs::{self, File};
use std::time::Duration;

use blastbox_engine::LiveBox;

use super::{JS, PYTHON, snippet};
use crate::boxes::programs;
use crate::memory::children;
use crate::paper::{Row, Wrong};

/// Guests of one kind that wait.
const WAITING: u64 = 2;
/// Within this, guests that are to wait are begun.
const SETTLED: Duration = Duration::from_millis(300);

/// What a Python that waits costs, in a box that has run nothing: whoever asks at once for JavaScript has those kept ready and no others.
pub(super) async fn waiting(live: &LiveBox, warden: u32) -> Result<Row, Wrong> {
    // Pages of a file that was just made, and lies on no disk yet, count as the worker's own: 3.4 MiB each where it is 0.8.
    File::open(programs()?.join("wasm/python.cwasm"))?.sync_all()?;
    snippet(live, &JS).await?;
    tokio::time::sleep(SETTLED).await;
    let worker = worker(warden)?;
    let before = private(worker);
    snippet(live, &PYTHON).await?;
    tokio::time::sleep(SETTLED).await;
    let note = match (before, private(worker)) {
        (Ok(before), Ok(after)) if after > before => {
            format!(
                "{} KiB each, what the first command leaves in the worker included",
                (after - before) / WAITING
            )
        }
        // Whoever did not come at once finds Pythons there.
        (Ok(_), Ok(_)) => "it cannot be told: the box was slow, and they were there before".to_owned(),
        (Err(wrong), _) | (_, Err(wrong)) => format!("it cannot be told: {wrong}"),
    };
    let how = "Private_Dirty of the worker's smaps_rollup, with two Pythons more that wait than before, halved; wish: 1.5 MiB";
    Ok(Row::said("a python that waits", how, note))
}

/// How many fresh Pythons a processor runs in a second, all that the worker does for them included.
pub(super) async fn rate(live: &LiveBox, warden: u32, count: usize) -> Result<Row, Wrong> {
    let worker = worker(warden)?;
    tokio::time::sleep(SETTLED).await;
    let before = spent(worker)?;
    for _ in 0..count {
        snippet(live, &PYTHON).await?;
    }
    tokio::time::sleep(SETTLED).await;
    let seconds = spent(worker)?.saturating_sub(before).as_secs_f64();
    let rate = f64::from(u32::try_from(count)?) / seconds;
    let how = format!(
        "{count} × exec python -c 'print(1)' one after the other, by the worker's processor time; wish: 800/s"
    );
    Ok(Row::said(
        "fresh pythons a second and core",
        &how,
        format!("{rate:.0}/s, {:.2} ms each", 1000.0 / rate),
    ))
}

/// The only process of the only box.
fn worker(warden: u32) -> Result<u32, Wrong> {
    match children(warden)?.as_slice() {
        [worker] => Ok(*worker),
        others => Err(format!("{} processes of one box", others.len()).into()),
    }
}

/// KiB that a process has for itself. Needs root: nobody else may look into a worker.
fn private(pid: u32) -> Result<u64, Wrong> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).ok_or("no Private_Dirty")?;
    Ok(line.split_whitespace().next().ok_or("no number")?.parse()?)
}

/// Processor time of all threads of a process.
fn spent(pid: u32) -> Result<Duration, Wrong> {
    let mut spent = Duration::ZERO;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        spent += Duration::from_nanos(text.split_whitespace().next().ok_or("no number")?.parse()?);
    }
    Ok(spent)
}
