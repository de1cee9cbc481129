//! Stopping every process of a box where it stands, and letting it go on.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use rustix::fs::{Mode, mkdirat};

use super::{Controller, Flavour, Group, Site, read_at};
use crate::namespaces::write_at;

/// How often the kernel is asked whether everything has stopped.
const LOOKS: u32 = 200;
const PAUSE: Duration = Duration::from_micros(500);

impl Site {
    /// Stops everything in a group. On an error nothing is stopped.
    pub fn freeze(&self, group: &Group) -> io::Result<()> {
        let unified = self.uses(Flavour::V2);
        let stopped = if unified { self.freeze_v2(group) } else { self.freeze_v1(group) };
        if stopped.is_err() {
            self.thaw(group).ok();
        }
        stopped
    }

    /// Lets everything in a group go on.
    pub fn thaw(&self, group: &Group) -> io::Result<()> {
        if !group.was_paused.get() {
            return Ok(());
        }
        match self.freezer_nest() {
            Some(nest) => write_at(&nest.dir, &format!("{}/freezer.state", group.name), b"THAWED"),
            None => self.birthplace(group)?.map_or(Ok(()), |dir| write_at(&dir, "cgroup.freeze", b"0")),
        }
    }

    /// The old interface stops whole groups of one hierarchy only, so the box's processes are gathered there first. One
    /// that is born meanwhile is born where its parent was: gathered in the next round, until a round finds nothing new.
    fn freeze_v1(&self, group: &Group) -> io::Result<()> {
        let members = [Controller::Pids, Controller::Memory, Controller::Cpu]
            .into_iter()
            .find_map(|controller| self.nest(controller));
        let Some(members) = members else { return Err(io::ErrorKind::Unsupported.into()) };
        let freezer = self.need_freezer_nest()?;
        if !group.was_paused.replace(true) {
            mkdirat(&freezer.dir, group.name.as_str(), Mode::from_raw_mode(0o755))?;
        }
        let dir = freezer.open(&group.name)?;
        for _ in 0..LOOKS {
            let all = pids(&read_at(&members.dir, &format!("{}/cgroup.procs", group.name))?);
            let gathered = pids(&read_at(&dir, "cgroup.procs")?);
            let missing: Vec<_> = all.difference(&gathered).collect();
            for pid in &missing {
                // One that has ended meanwhile needs no stopping.
                write_at(&dir, "cgroup.procs", pid.to_string().as_bytes()).ok();
            }
            write_at(&dir, "freezer.state", b"FROZEN")?;
            if missing.is_empty() && read_at(&dir, "freezer.state")?.trim() == "FROZEN" {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    fn freeze_v2(&self, group: &Group) -> io::Result<()> {
        let Some(dir) = self.birthplace(group)? else { return Err(io::ErrorKind::Unsupported.into()) };
        group.was_paused.set(true);
        write_at(&dir, "cgroup.freeze", b"1")?;
        for _ in 0..LOOKS {
            if read_at(&dir, "cgroup.events")?.lines().any(|line| line == "frozen 1") {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

fn pids(text: &str) -> BTreeSet<u32> {
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}
