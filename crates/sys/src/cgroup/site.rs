//! Where on this host groups can be made.

use std::cell::OnceCell;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Access, AtFlags, Mode, OFlags, accessat, mkdirat, openat};
use rustix::io::Errno;

use super::nest::Nest;
use super::{Controller, FREEZER, Flavour, NEST, read_at};
use crate::namespaces::write_at;

/// A place to make groups in, with the controllers that really work there.
#[derive(Debug)]
pub struct Site {
    /// Which interface.
    pub flavour: Flavour,
    /// On the old interface one directory a controller, on the unified one a single directory for all of them.
    /// In these lies the directory of each warden.
    pub(super) roots: Vec<(Vec<Controller>, OwnedFd)>,
    /// On the old interface, where processes are stopped; a box has a group there only once it was paused.
    pub(super) freezer: Option<OwnedFd>,
    /// The name of our own directory in each of them.
    pub(super) name: String,
    pub(super) nests: OnceCell<Vec<Nest>>,
    pub(super) freezer_nest: OnceCell<Nest>,
}

impl Site {
    /// Looks for a place, in which our own directory has this name or one that nobody else has. `None`: there is none
    /// that this process may use.
    pub fn find(name: Option<u64>) -> io::Result<Option<Self>> {
        let mounts = read_at(rustix::fs::CWD, "/proc/self/mountinfo")?;
        let own = read_at(rustix::fs::CWD, "/proc/self/cgroup")?;
        let found = Self::find_v2(&mounts, &own).or_else(|| Self::find_v1(&mounts, &own));
        Ok(found.map(|site| match name {
            Some(name) => Self { name: nest_name(name), ..site },
            None => site,
        }))
    }

    /// Whether a controller works here.
    #[must_use]
    pub fn has(&self, controller: Controller) -> bool {
        self.roots.iter().any(|(controllers, _)| controllers.contains(&controller))
    }

    fn find_v2(mounts: &str, own: &str) -> Option<Self> {
        let mount = mounts.lines().filter_map(Mounted::parse).find(|mount| mount.kind == "cgroup2")?;
        let own_path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
        // A delegated group of our own is the polite place: what our caller was limited to still holds there.
        let own_group = format!("{}{}", mount.at, own_path.strip_prefix(mount.root).unwrap_or(own_path));
        if let Some(site) = Self::delegated(&own_group) {
            return Some(site);
        }
        let root = open_dir(mount.at)?;
        let controllers = enable(&root)?;
        writable(&root).then(|| Self::at(Flavour::V2, vec![(controllers, root)], None))
    }

    /// A group that the service manager has handed over (`Delegate=yes`). Its processes move down into a leaf, since
    /// the kernel allows no processes beside limited children.
    fn delegated(path: &str) -> Option<Self> {
        let group = open_dir(path)?;
        let marked = ["user.delegate", "trusted.delegate"].iter().any(|name| {
            let mut value = [0_u8; 4];
            rustix::fs::getxattr(path, *name, &mut value)
                .is_ok_and(|length| value.get(..length) == Some(b"1"))
        });
        if !marked || !writable(&group) {
            return None;
        }
        match mkdirat(&group, "blastbox-caller", Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(_) => return None,
        }
        for pid in read_at(&group, "cgroup.procs").ok()?.lines() {
            // One that has ended meanwhile is no obstacle.
            write_at(&group, "blastbox-caller/cgroup.procs", pid.as_bytes()).ok();
        }
        let controllers = enable(&group)?;
        Some(Self::at(Flavour::V2, vec![(controllers, group)], None))
    }

    fn find_v1(mounts: &str, own: &str) -> Option<Self> {
        let mut roots = Vec::new();
        for controller in Controller::ALL {
            if let Some(dir) = hierarchy(mounts, own, controller.as_str()).filter(writable) {
                roots.push((vec![controller], dir));
            }
        }
        let freezer = hierarchy(mounts, own, FREEZER);
        (!roots.is_empty()).then(|| Self::at(Flavour::V1, roots, freezer))
    }

    fn at(flavour: Flavour, roots: Vec<(Vec<Controller>, OwnedFd)>, freezer: Option<OwnedFd>) -> Self {
        let mut random = [0_u8; 8];
        // Two wardens of one name would quarrel over one lock, and the second would fail; no worse can come of it.
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).ok();
        let name = nest_name(u64::from_ne_bytes(random));
        Self { flavour, roots, freezer, name, nests: OnceCell::new(), freezer_nest: OnceCell::new() }
    }
}

fn nest_name(number: u64) -> String {
    format!("{NEST}{number:016x}")
}

/// Our own group in one hierarchy of the old interface. What our caller was limited to holds beneath it.
fn hierarchy(mounts: &str, own: &str, name: &str) -> Option<OwnedFd> {
    let mount = mounts
        .lines()
        .filter_map(Mounted::parse)
        .find(|mount| mount.kind == "cgroup" && mount.options.split(',').any(|option| option == name))?;
    let own_path = own.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|other| other == name).then_some(path)
    })?;
    let path = format!("{}{}", mount.at, own_path.strip_prefix(mount.root).unwrap_or(own_path));
    open_dir(path.trim_end_matches('/'))
}

/// Switches the controllers on for the children of a group of the unified hierarchy, and tells which are.
fn enable(group: &OwnedFd) -> Option<Vec<Controller>> {
    let offered = read_at(group, "cgroup.controllers").ok()?;
    for controller in Controller::ALL {
        if offered.split_whitespace().any(|name| name == controller.as_str()) {
            // Whether it worked is read back below.
            write_at(group, "cgroup.subtree_control", format!("+{}", controller.as_str()).as_bytes()).ok();
        }
    }
    let enabled = read_at(group, "cgroup.subtree_control").ok()?;
    let works: Vec<_> = Controller::ALL
        .into_iter()
        .filter(|controller| enabled.split_whitespace().any(|name| name == controller.as_str()))
        .collect();
    (!works.is_empty()).then_some(works)
}

/// Whether a group can be made here, as far as permissions and a read-only mount go.
fn writable(root: &OwnedFd) -> bool {
    let needed = Access::WRITE_OK | Access::EXEC_OK;
    accessat(root, ".", needed, AtFlags::EACCESS).is_ok()
}

fn open_dir(path: &str) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(rustix::fs::CWD, path, flags, Mode::empty()).ok()
}

/// One line of `/proc/self/mountinfo`.
struct Mounted<'a> {
    root: &'a str,
    at: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mounted<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, at) = (left.next()?, left.next()?);
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1)?);
        // The root's own path is a single slash, which strips nothing from a path below it.
        Some(Self { root: root.trim_end_matches('/'), at, kind, options })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_line_is_read_in_its_two_halves() {
        let line = "34 24 0:29 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory";
        let mounted = Mounted::parse(line).unwrap();
        assert_eq!((mounted.root, mounted.at, mounted.kind), ("", "/sys/fs/cgroup/memory", "cgroup"));
        assert!(mounted.options.split(',').any(|option| option == "memory"));
    }
}
