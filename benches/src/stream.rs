//! What a command prints, through the daemon to a caller that reads.

use std::io::Read;
use std::time::Instant;

use crate::daemon::{Daemon, create};
use crate::options::Options;
use crate::paper::{Finding, Promise, Row, Wrong};
use crate::process::printing;

/// In megabytes (10^6 bytes) a second.
const LEAST: f64 = 500.0;
/// What the daemon may need more for it, in KiB, however much is printed.
const GROWTH: u64 = 64 * 1024;
const BOX: &str = r#"{"limits":{"output":"64GiB"}}"#;

/// Measures it.
pub(crate) fn measure(options: &Options) -> Result<Finding, Wrong> {
    let bytes = u64::try_from(options.samples(2048, 256))? * 1024 * 1024;
    let count = bytes.to_string();
    // It waits for its reader: what is printed before nobody holds back is overwritten.
    let script = format!("read go; exec head -c {count} /dev/zero");
    let daemon = Daemon::start()?;
    let mut client = daemon.client()?;
    let before = daemon.holds()?;
    let mut rows = Vec::new();
    let mut rates = Vec::new();
    for (name, route) in [("as bytes", "output"), ("as events, base64", "events")] {
        let made = create(&mut client, BOX)?;
        let body = serde_json::json!({ "command": ["/bin/sh", "-c", script], "stdin": "stream" }).to_string();
        let begun = client.ask("POST", &format!("{made}/execs"), &body)?;
        let number = begun.get("exec").and_then(serde_json::Value::as_u64).ok_or("no number")?;
        let path = format!("{made}/execs/{number}");
        let mut second = daemon.client()?;
        let reader = {
            let (mut reader, path) = (daemon.client()?, format!("{path}/{route}"));
            std::thread::spawn(move || -> Result<(u64, f64), String> {
                let (mut heard, mut begun) = (0_u64, None);
                let heard_all = reader.listen(&path, |piece| {
                    begun.get_or_insert_with(Instant::now);
                    heard += u64::try_from(piece.len()).unwrap_or(0);
                });
                heard_all.map_err(|wrong| wrong.to_string())?;
                Ok((heard, begun.map_or(f64::NAN, |begun| begun.elapsed().as_secs_f64())))
            })
        };
        second.ask("POST", &format!("{path}/stdin"), "go\n")?;
        let (heard, seconds) = reader.join().map_err(|_| "the reader went down")??;
        if heard < bytes {
            return Err(format!("{heard} bytes of {bytes} came through {route}").into());
        }
        client.ask("DELETE", &made, "")?;
        let rate = megabytes(bytes) / seconds;
        rates.push(rate);
        let how = format!("sh -c '{script}' in a box; GET …/execs/{{n}}/{route}");
        rows.push(Row::said(name, &how, format!("{rate:.0} MB/s of output ({heard} bytes over the line)")));
    }
    let grown = daemon.holds()?.peak.saturating_sub(before.rss);
    let (printed, seconds) = bare(&count)?;
    let bare = megabytes(printed) / seconds;
    let best = rates.first().copied().unwrap_or(f64::NAN);
    rows.push(Row::said(
        "bare process and a pipe",
        &format!("head -c {count} /dev/zero"),
        format!("{bare:.0} MB/s"),
    ));
    rows.push(Row::said("beside it", "as bytes / bare", format!("{:.2}", best / bare)));
    Ok(Finding {
        title: "stream · a command that prints, the daemon, and a caller on loopback that drops what it reads",
        rows,
        promises: vec![
            Promise {
                says: format!("output comes through the daemon at {LEAST:.0} MB/s or more"),
                measured: format!("{best:.0} MB/s"),
                kept: Some(best >= LEAST),
            },
            Promise {
                says: "and the daemon's memory stays bounded".to_owned(),
                measured: format!("{grown} KiB more at its peak for {bytes} bytes, twice; at most {GROWTH}"),
                kept: Some(grown <= GROWTH),
            },
        ],
    })
}

fn bare(count: &str) -> Result<(u64, f64), Wrong> {
    let begun = Instant::now();
    let mut child = printing(&["/usr/bin/head", "-c", count, "/dev/zero"])?;
    let (mut room, mut printed) = (vec![0; 64 * 1024], 0);
    if let Some(pipe) = &mut child.stdout {
        while let count @ 1.. = pipe.read(&mut room)? {
            printed += u64::try_from(count)?;
        }
    }
    child.wait()?;
    Ok((printed, begun.elapsed().as_secs_f64()))
}

fn megabytes(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes / 1_000_000).unwrap_or(u32::MAX))
}
