//! Stopping every process of a box where it stands, and letting it go on.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, mkdirat};

use super::{Controller, Flavour, Group, Site, read_at};
use crate::namespaces::write_at;

/// How long the kernel is asked whether everything has stopped. Other boxes wait meanwhile, so a box that outruns the
/// gathering of its processes must not make it long; and how often at least, on a host that hardly lets us run.
const PATIENCE: Duration = Duration::from_millis(100);
const LOOKS: u32 = 4;
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
        let mut looks = Looks::begin();
        while looks.another() {
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
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "they do not stop within 100 ms"))
    }

    fn freeze_v2(&self, group: &Group) -> io::Result<()> {
        let Some(dir) = self.birthplace(group)? else { return Err(io::ErrorKind::Unsupported.into()) };
        group.was_paused.set(true);
        write_at(&dir, "cgroup.freeze", b"1")?;
        let mut looks = Looks::begin();
        while looks.another() {
            if read_at(&dir, "cgroup.events")?.lines().any(|line| line == "frozen 1") {
                return Ok(());
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "they do not stop within 100 ms"))
    }
}

/// How often somebody looks, with a pause between two looks.
struct Looks {
    began: Instant,
    taken: u32,
}

impl Looks {
    fn begin() -> Self {
        Self { began: Instant::now(), taken: 0 }
    }

    /// Whether to look once more.
    fn another(&mut self) -> bool {
        if self.taken > 0 {
            std::thread::sleep(PAUSE);
        }
        self.taken += 1;
        self.taken <= LOOKS || self.began.elapsed() < PATIENCE
    }
}

fn pids(text: &str) -> BTreeSet<u32> {
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, OnceCell, RefCell};
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::super::nest::Nest;
    use super::super::site::{Room, Root};
    use super::*;

    /// Plain directories with the files of a kernel, as far as stopping looks at them.
    struct Kernel(PathBuf);

    impl Kernel {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("blastbox-freeze-{name}-{}", std::process::id()));
            for (file, content) in files {
                let path = root.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            }
            Self(root)
        }

        fn read(&self, file: &str) -> String {
            fs::read_to_string(self.0.join(file)).unwrap()
        }

        fn site(&self, flavour: Flavour) -> Site {
            let open = |path: &Path| std::os::fd::OwnedFd::from(fs::File::open(path).unwrap());
            let nest = Nest { flavour, controllers: vec![Controller::Pids], dir: open(&self.0.join("pids")) };
            let freezer_nest = OnceCell::new();
            if flavour == Flavour::V1 {
                let dir = open(&self.0.join("freezer"));
                freezer_nest.set(Nest { flavour, controllers: Vec::new(), dir }).unwrap();
            }
            let nests = OnceCell::from(vec![nest]);
            let roots = vec![Root {
                flavour,
                controllers: vec![Controller::Pids],
                dir: open(&self.0),
                delegated: false,
            }];
            let (room, locks) = (Room::Many, RefCell::default());
            Site { roots, freezer: None, name: String::new(), room, locks, nests, freezer_nest }
        }
    }

    impl Drop for Kernel {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn group(paused: bool) -> Group {
        Group { name: "bx".to_owned(), was_paused: Cell::new(paused) }
    }

    #[test]
    fn the_unified_interface_is_asked_and_believed_when_it_says_that_all_has_stopped() {
        let events = "populated 1\nfrozen 1\n";
        let kernel = Kernel::new("v2", &[("pids/bx/cgroup.freeze", "0"), ("pids/bx/cgroup.events", events)]);
        let (site, group) = (kernel.site(Flavour::V2), group(false));
        site.freeze(&group).unwrap();
        assert_eq!(kernel.read("pids/bx/cgroup.freeze"), "1");
        site.thaw(&group).unwrap();
        assert_eq!(kernel.read("pids/bx/cgroup.freeze"), "0");
    }

    #[test]
    fn a_box_that_does_not_stop_is_let_go_again() {
        let events = "populated 1\nfrozen 0\n";
        let kernel =
            Kernel::new("v2-never", &[("pids/bx/cgroup.freeze", "0"), ("pids/bx/cgroup.events", events)]);
        let error = kernel.site(Flavour::V2).freeze(&group(false)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(kernel.read("pids/bx/cgroup.freeze"), "0");
    }

    #[test]
    fn the_old_interface_stops_once_everybody_is_gathered() {
        let kernel = Kernel::new(
            "v1",
            &[
                ("pids/bx/cgroup.procs", "10\n11\n"),
                ("freezer/bx/cgroup.procs", "11\n10\n"),
                ("freezer/bx/freezer.state", "THAWED"),
            ],
        );
        let (site, group) = (kernel.site(Flavour::V1), group(true));
        site.freeze(&group).unwrap();
        assert_eq!(kernel.read("freezer/bx/freezer.state"), "FROZEN");
        site.thaw(&group).unwrap();
        assert_eq!(kernel.read("freezer/bx/freezer.state"), "THAWED");
    }

    #[test]
    fn a_process_that_is_never_gathered_keeps_the_old_interface_from_saying_stopped() {
        let kernel = Kernel::new(
            "v1-never",
            &[
                ("pids/bx/cgroup.procs", "10\n11\n"),
                // A plain file keeps the last one that was written into it, and so always misses the other.
                ("freezer/bx/cgroup.procs", "11"),
                ("freezer/bx/freezer.state", "THAWED"),
            ],
        );
        let error = kernel.site(Flavour::V1).freeze(&group(true)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(kernel.read("freezer/bx/freezer.state"), "THAWED");
    }

    #[test]
    fn whoever_was_never_stopped_is_not_let_go() {
        let kernel = Kernel::new("untouched", &[("pids/none", ""), ("freezer/none", "")]);
        for flavour in [Flavour::V1, Flavour::V2] {
            kernel.site(flavour).thaw(&group(false)).unwrap();
        }
    }
}
