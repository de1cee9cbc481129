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
    let mebibytes = u64::try_from(options.samples(2048, 256))?;
    let bytes = mebibytes * 1024 * 1024;
    let size = if mebibytes % 1024 == 0 { format!("{}G", mebibytes / 1024) } else { format!("{mebibytes}M") };
    let (piped, plain) = (format!("cat /dev/zero | head -c {size}"), format!("head -c {size} /dev/zero"));
    let daemon = Daemon::start()?;
    let before = daemon.holds()?;
    let mut rows = Vec::new();
    let mut rates = Vec::new();
    for (name, script, route) in [
        ("a pipe in the box, as bytes", &piped, "output"),
        ("as bytes", &plain, "output"),
        ("as events, base64", &plain, "events"),
    ] {
        let (heard, seconds) = through(&daemon, script, route)?;
        if heard < bytes {
            return Err(format!("{heard} bytes of {bytes} came through {route}").into());
        }
        let rate = megabytes(bytes) / seconds;
        rates.push(rate);
        let how = format!("sh -c '{script}' in a box; GET …/execs/{{n}}/{route}");
        rows.push(Row::said(name, &how, format!("{rate:.0} MB/s of output ({heard} bytes over the line)")));
    }
    let after = daemon.holds()?;
    let grown = after.peak.saturating_sub(before.rss);
    let bares = [("bare processes and two pipes", &piped), ("bare process and a pipe", &plain)];
    for ((name, script), boxed) in bares.into_iter().zip(&rates) {
        let (printed, seconds) = bare(script)?;
        let rate = megabytes(printed) / seconds;
        let beside = format!("{rate:.0} MB/s; the box has {:.2} of it", boxed / rate);
        rows.push(Row::said(name, &format!("sh -c '{script}'"), beside));
    }
    let held = format!("{} KiB before, {} after, {} at its peak", before.rss, after.rss, after.peak);
    rows.push(Row::said("the daemon's resident memory", "VmRSS, VmHWM", held));
    let promised = rates.first().copied().unwrap_or(f64::NAN);
    Ok(Finding {
        title: "stream · a command that prints, the daemon, and a caller on loopback that drops what it reads",
        rows,
        promises: vec![
            Promise {
                says: format!("`{piped}` comes through the daemon at {LEAST:.0} MB/s or more"),
                measured: format!("{promised:.0} MB/s"),
                kept: Some(promised >= LEAST),
            },
            Promise {
                says: "and the daemon's memory stays bounded".to_owned(),
                measured: format!(
                    "{grown} KiB more at its peak for {bytes} bytes, three times; at most {GROWTH}"
                ),
                kept: Some(grown <= GROWTH),
            },
        ],
    })
}

/// What a script in a box prints: how many bytes came, and in how many seconds from the first one on.
fn through(daemon: &Daemon, script: &str, route: &str) -> Result<(u64, f64), Wrong> {
    let mut client = daemon.client()?;
    let made = create(&mut client, BOX)?;
    // It waits for its reader: what is printed before nobody holds back is overwritten.
    let script = format!("read go; {script}");
    let body = serde_json::json!({ "command": ["/bin/sh", "-c", script], "stdin": "stream" }).to_string();
    let begun = client.ask("POST", &format!("{made}/execs"), &body)?;
    let number = begun.get("exec").and_then(serde_json::Value::as_u64).ok_or("no number")?;
    let path = format!("{made}/execs/{number}");
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
    client.ask("POST", &format!("{path}/stdin"), "go\n")?;
    let heard = reader.join().map_err(|_| "the reader went down")??;
    client.ask("DELETE", &made, "")?;
    Ok(heard)
}

/// The same on the host, with nothing in between.
fn bare(script: &str) -> Result<(u64, f64), Wrong> {
    let begun = Instant::now();
    let mut child = printing(&["/bin/sh", "-c", script])?;
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
