//! E2B's published SDK for Python on loopback, as a user calls it, and what of each call is the SDK's own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::boxes::programs;
use crate::daemon::Daemon;
use crate::options::Options;
use crate::paper::{Finding, Promise, Row, Wrong};
use crate::process::said;
use crate::sample::{Samples, Summary};

const POOL: &str = "[pool]\nmin = 4\n[[pool.warm]]\ntemplate = \"base\"\nmin = 4\n[[pool.warm]]\ntemplate = \"code-interpreter-v1\"\nmin = 2\n";
const TITLE: &str = "sdk · E2B's SDK for Python, unmodified, on loopback, one call at a time";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/e2b/sdk.py");
/// Sandboxes that are asked for at once.
const CROWD: usize = 100;
/// What is promised of a call, in milliseconds, by its name in the script.
const PROMISED: [(&str, &str, f64); 4] = [
    ("create", "Sandbox.create()", 10.0),
    ("command", "commands.run(\"true\")", 5.0),
    ("code", "run_code(\"1+1\")", 5.0),
    ("first code", "the first run_code(\"1+1\") of a sandbox from the pool", 50.0),
];
/// Megabytes a second, written and read.
const RATE: f64 = 300.0;

#[derive(Debug, Deserialize)]
struct Measured {
    took: BTreeMap<String, Vec<f64>>,
    rates: Vec<f64>,
    failed: usize,
}

/// Measures it.
pub(crate) fn measure(options: &Options) -> Result<Finding, Wrong> {
    let left_out = |why: &str| {
        let rows = vec![Row::said("left out", "this host", why.to_owned())];
        Ok(Finding { title: TITLE, rows, promises: Vec::new() })
    };
    let Some(python) = python()? else { return left_out("the SDK is not installed (tools/e2b.sh says why)") };
    if !std::path::Path::new("/usr/lib/python3/dist-packages/IPython").is_dir() {
        return left_out("the host's Python has no IPython (package ipython3)");
    }
    let daemon = Daemon::start_with(POOL)?;
    let url = daemon.url();
    let named = |name: &str, value: &str| format!("{name}={value}");
    let variables =
        [named("E2B_API_URL", &url), named("E2B_SANDBOX_URL", &url), named("E2B_API_KEY", daemon.key())];
    let (samples, crowd) = (options.samples(40, 10).to_string(), CROWD.to_string());
    let python = python.display().to_string();
    let words: Vec<&str> = ["/usr/bin/env"]
        .into_iter()
        .chain(variables.iter().map(String::as_str))
        .chain([python.as_str(), SCRIPT, &samples, &crowd])
        .collect();
    let measured: Measured = serde_json::from_str(&said(&words)?)?;
    found(&measured)
}

/// Where `make bench` has put the SDK.
fn python() -> Result<Option<PathBuf>, Wrong> {
    let place = programs()?.parent().map(|target| target.join("e2b/interpreter"));
    Ok(place.filter(|place| place.join(".holds").is_file()).map(|place| place.join("bin/python")))
}

fn found(measured: &Measured) -> Result<Finding, Wrong> {
    let of = |name: &str| -> Result<Summary, Wrong> {
        let times = measured.took.get(name).ok_or_else(|| format!("{name} was not measured"))?;
        let mut samples = Samples::new();
        times.iter().for_each(|&milliseconds| samples.add(Duration::from_secs_f64(milliseconds / 1e3)));
        Ok(samples.summary())
    };
    let (mut rows, mut promises) = (Vec::new(), Vec::new());
    for (name, how, most) in PROMISED {
        let times = of(name)?;
        rows.push(Row::times(name, how, times));
        promises.push(Promise {
            says: format!("{how} takes {most} ms in the middle"),
            measured: format!("{:.1} ms", times.median),
            kept: Some(times.median <= most),
        });
        if let Ok(raw) = of(&format!("{name}, raw")) {
            rows.push(Row::times("  without the SDK", "the same request over one connection", raw));
            let share = 100.0 * (1.0 - raw.median / times.median);
            rows.push(Row::said("  of that the SDK's own", "by the middle ones", format!("{share:.0} %")));
        }
    }
    let rate = measured.rates.iter().copied().fold(0.0, f64::max);
    promises.push(Promise {
        says: format!("a file of 100 MB is written and read at {RATE} MB/s"),
        measured: format!("{rate:.0} MB/s, the best of {}", measured.rates.len()),
        kept: Some(rate >= RATE),
    });
    rows.push(Row::times(
        "at once",
        "AsyncSandbox.create(), 100 of them with asyncio.gather",
        of("at once")?,
    ));
    promises.push(Promise {
        says: format!("{CROWD} sandboxes that are asked for at once are all made"),
        measured: format!("{} failed", measured.failed),
        kept: Some(measured.failed == 0),
    });
    Ok(Finding { title: TITLE, rows, promises })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_told_with_the_share_of_the_sdk() {
        let times = |name: &str, time: f64| (name.to_owned(), vec![time; 3]);
        let took = [
            ("create", 8.0),
            ("create, raw", 2.0),
            ("command", 9.0),
            ("code", 1.0),
            ("first code", 40.0),
            ("at once", 70.0),
        ];
        let took = took.map(|(name, time)| times(name, time)).into();
        let finding = found(&Measured { took, rates: vec![200.0, 400.0], failed: 1 }).unwrap();
        let kept: Vec<Option<bool>> = finding.promises.iter().map(|promise| promise.kept).collect();
        assert_eq!(kept, [true, false, true, true, true, false].map(Some));
        assert!(finding.rows.iter().any(|row| row.note == "75 %"));
        assert!(found(&Measured { took: BTreeMap::new(), rates: Vec::new(), failed: 0 }).is_err());
    }
}
