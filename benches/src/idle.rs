//! A thousand idle boxes of a daemon, with everything that belongs to them.

use crate::daemon::{Daemon, create};
use crate::options::Options;
use crate::paper::{Finding, Promise, Row, Wrong};

/// In KiB.
const MOST: u64 = 1536 * 1024;

/// Measures it.
pub(crate) fn measure(options: &Options) -> Result<Finding, Wrong> {
    let boxes = options.samples(1000, 100);
    let daemon = Daemon::start()?;
    let mut client = daemon.client()?;
    for _ in 0..boxes {
        create(&mut client, "{}")?;
    }
    let (share, processes) = daemon.share_of_all()?;
    let count = u64::try_from(boxes)?;
    let most = MOST * count / 1000;
    Ok(Finding {
        title: "idle · boxes of a daemon that wait, and all that belongs to them",
        rows: vec![
            Row::said("boxes", "POST /v1/boxes {}", boxes.to_string()),
            Row::said(
                "daemon, warden and agents",
                "Pss of /proc/PID/smaps_rollup, summed over the tree of processes",
                format!("{} MiB in {processes} processes, {} KiB a box", share / 1024, share / count),
            ),
        ],
        promises: vec![Promise {
            says: format!("{boxes} idle boxes take at most {} MiB in all", most / 1024),
            measured: format!("{} MiB", share / 1024),
            kept: Some(share <= most),
        }],
    })
}
