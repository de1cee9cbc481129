//! What a command can print.

use std::io::Read;
use std::time::Instant;

use crate::boxes::{House, run, runtime};
use crate::options::Options;
use crate::paper::{Finding, Row, Wrong};
use crate::process::printing;

/// Measures it.
pub(crate) fn measure(options: &Options) -> Result<Finding, Wrong> {
    let bytes = (options.samples(1024, 128) * 1024 * 1024).to_string();
    let line = ["/usr/bin/head", "-c", &bytes, "/dev/zero"];
    let how = line.join(" ");
    let mut rows = Vec::new();
    let (printed, seconds) = runtime()?.block_on(async {
        let house = House::open()?;
        let live = house.create().await?;
        let begun = Instant::now();
        let printed = run(&live, &line).await?;
        let seconds = begun.elapsed().as_secs_f64();
        live.end().await;
        Ok::<_, Wrong>((printed, seconds))
    })?;
    rows.push(Row::said("box", &how, rate(printed, seconds)));
    let begun = Instant::now();
    let mut child = printing(&line)?;
    let (mut room, mut printed) = (vec![0; 64 * 1024], 0);
    if let Some(pipe) = &mut child.stdout {
        while let count @ 1.. = pipe.read(&mut room)? {
            printed += u64::try_from(count)?;
        }
    }
    child.wait()?;
    rows.push(Row::said("bare process and a pipe", &how, rate(printed, begun.elapsed().as_secs_f64())));
    Ok(Finding {
        title: "output · a command that prints, and a reader that drops it",
        rows,
        promises: Vec::new(),
    })
}

fn rate(bytes: u64, seconds: f64) -> String {
    let mebibytes = u32::try_from(bytes / (1024 * 1024)).unwrap_or(u32::MAX);
    format!("{:.0} MiB/s", f64::from(mebibytes) / seconds)
}
