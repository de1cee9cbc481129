//! What an idle box costs.

use std::fs;
use std::path::{Path, PathBuf};

use crate::boxes::{House, runtime};
use crate::options::Options;
use crate::paper::{Finding, Promise, Row, Wrong};

const BOXES: usize = 50;

/// Measures it.
pub(crate) fn measure(_options: &Options) -> Result<Finding, Wrong> {
    let (agents, warden, groups) = runtime()?.block_on(async {
        let house = House::open()?;
        let mut live = Vec::new();
        for _ in 0..BOXES {
            live.push(house.create().await?);
        }
        let agents = children(house.warden)?;
        if agents.len() != BOXES {
            return Err(format!("{} agents of {BOXES} boxes", agents.len()).into());
        }
        let sizes = agents.iter().map(|&pid| pss(pid)).collect::<Result<Vec<_>, _>>()?;
        let groups: Vec<_> = agents.iter().filter_map(|&pid| group_memory(pid)).collect();
        let warden = pss(house.warden)?;
        for live in live {
            live.end().await;
        }
        Ok::<_, Wrong>((sizes, warden, groups))
    })?;
    let total: u64 = agents.iter().sum();
    let each = total / u64::try_from(BOXES)?;
    let with_warden = (total + warden) / u64::try_from(BOXES)?;
    let mut rows = vec![
        Row::said("agent", "Pss of /proc/PID/smaps_rollup, mean", format!("{each} KiB each")),
        Row::said("warden", "the same, one for all of them", format!("{warden} KiB")),
        Row::said("both, shared out", "(agents + warden) / boxes", format!("{with_warden} KiB a box")),
    ];
    let mean = groups.iter().sum::<u64>().checked_div(u64::try_from(groups.len())?);
    let note = mean.map_or("no group counts memory here".to_owned(), |mean| format!("{mean} KiB a box"));
    rows.push(Row::said("group, with the kernel's share", "usage of the box's memory cgroup, mean", note));
    let promise = Promise {
        says: "an idle box costs at most 1 MiB of PSS, its agent included".to_owned(),
        measured: format!("{with_warden} KiB"),
        kept: Some(with_warden <= 1024),
    };
    Ok(Finding { title: "memory · 50 idle boxes", rows, promises: vec![promise] })
}

/// The children of a process.
pub(crate) fn children(pid: u32) -> Result<Vec<u32>, Wrong> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    Ok(list.split_whitespace().map(str::parse).collect::<Result<_, _>>()?)
}

/// The proportional share of a process, in KiB. Needs root, because neither warden nor agent can be looked into.
pub(crate) fn pss(pid: u32) -> Result<u64, Wrong> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).ok_or("no Pss")?;
    Ok(line.split_whitespace().next().ok_or("no number")?.parse()?)
}

/// The directory of the group that counts a process's memory.
pub(crate) fn group(pid: u32) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = |controllers: &str| {
        groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            rest.strip_prefix(controllers)?.strip_prefix(":/")
        })
    };
    let old = path("memory").map(|path| Path::new("/sys/fs/cgroup/memory").join(path));
    old.or_else(|| path("").map(|path| Path::new("/sys/fs/cgroup").join(path)))
}

/// What the group of a process uses, in KiB.
fn group_memory(pid: u32) -> Option<u64> {
    let group = group(pid)?;
    let text = ["memory.usage_in_bytes", "memory.current"]
        .iter()
        .find_map(|file| fs::read_to_string(group.join(file)).ok());
    text?.trim().parse::<u64>().ok().map(|bytes| bytes / 1024)
}
