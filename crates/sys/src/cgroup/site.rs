//! Where on this host groups can be made.

use std::cell::{OnceCell, RefCell};
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Access, AtFlags, Mode, OFlags, accessat, openat};

use super::aside::LEAF;
use super::nest::Nest;
use super::{Controller, FREEZER, Flavour, NEST, aside, read_at};
use crate::namespaces::write_at;

/// A directory to make groups in, with the controllers that really work there. In it lies the directory of each warden.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) flavour: Flavour,
    pub(super) controllers: Vec<Controller>,
    pub(super) dir: OwnedFd,
    /// Whether it is our caller's own group, whose processes have stepped aside.
    pub(super) delegated: bool,
}

/// How many boxes a place is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Many: our own directory is made and locked once, and each group in it is only made.
    Many,
    /// One, most likely: its group is made and locked where our own directory would be. A level less to make and to remove.
    One,
}

/// A place to make groups in.
#[derive(Debug)]
pub struct Site {
    /// One for all controllers of the unified interface, and one for each that is left to the old one: a host may have both.
    pub(super) roots: Vec<Root>,
    /// On the old interface alone, where processes are stopped; a box has a group there only once it was paused.
    pub(super) freezer: Option<OwnedFd>,
    /// The name of our own directory in each of them.
    pub(super) name: String,
    pub(super) room: Room,
    /// Those of groups that have no such directory around them, held until this process ends.
    pub(super) locks: RefCell<Vec<OwnedFd>>,
    pub(super) nests: OnceCell<Vec<Nest>>,
    pub(super) freezer_nest: OnceCell<Nest>,
}

impl Site {
    /// Looks for a place, in which our own directory has this name or one that nobody else has. `None`: there is none
    /// that this process may use.
    pub fn find(name: Option<u64>, room: Room) -> io::Result<Option<Self>> {
        let mounts = read_at(rustix::fs::CWD, "/proc/self/mountinfo")?;
        let own = read_at(rustix::fs::CWD, "/proc/self/cgroup")?;
        let named = |site: Self| Self { name: name.map_or(site.name, nest_name), room, ..site };
        Ok(Self::find_in(&mounts, &own).map(named))
    }

    /// Whether a controller works here.
    #[must_use]
    pub fn has(&self, controller: Controller) -> bool {
        self.roots.iter().any(|root| root.controllers.contains(&controller))
    }

    /// Whether this interface is used here.
    #[must_use]
    pub fn uses(&self, flavour: Flavour) -> bool {
        self.roots.iter().any(|root| root.flavour == flavour)
    }

    /// The same by what the kernel says of mounts and of our own groups.
    pub(super) fn find_in(mounts: &str, own: &str) -> Option<Self> {
        let mut roots: Vec<Root> = unified(mounts, own).into_iter().collect();
        for controller in Controller::ALL {
            // The kernel gives a controller to one interface only.
            if !roots.iter().any(|root| root.controllers.contains(&controller))
                && let Some(dir) = hierarchy(mounts, own, controller.as_str()).filter(writable)
            {
                let controllers = vec![controller];
                roots.push(Root { flavour: Flavour::V1, controllers, dir, delegated: false });
            }
        }
        let old = roots.iter().all(|root| root.flavour == Flavour::V1);
        let freezer = if old { hierarchy(mounts, own, FREEZER) } else { None };
        (!roots.is_empty()).then(|| Self::at(roots, freezer))
    }

    fn at(roots: Vec<Root>, freezer: Option<OwnedFd>) -> Self {
        let mut random = [0_u8; 8];
        // Two wardens of one name would quarrel over one lock, and the second would fail; no worse can come of it.
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).ok();
        let name = nest_name(u64::from_ne_bytes(random));
        let (nests, locks) = (OnceCell::new(), RefCell::default());
        Self { roots, freezer, name, room: Room::Many, locks, nests, freezer_nest: OnceCell::new() }
    }
}

fn nest_name(number: u64) -> String {
    format!("{NEST}{number:016x}")
}

/// The unified hierarchy, where it has a controller that we need.
fn unified(mounts: &str, own: &str) -> Option<Root> {
    let mount = mounts.lines().filter_map(Mounted::parse).find(|mount| mount.kind == "cgroup2")?;
    let own_path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    // Whoever was moved aside by another warden, or put there by the service manager, calls from the group above.
    let own_path = own_path.strip_suffix(LEAF).and_then(|above| above.strip_suffix('/')).unwrap_or(own_path);
    let found = |controllers, dir, delegated| Root { flavour: Flavour::V2, controllers, dir, delegated };
    // A delegated group of our own is the polite place: what our caller was limited to still holds there.
    let own_group = format!("{}{}", mount.at, own_path.strip_prefix(mount.root).unwrap_or(own_path));
    if let Some(group) = handed_over(&own_group) {
        // That one or none: in the root of the hierarchy a box would have more than its caller was given.
        return delegated(&group).map(|controllers| found(controllers, group, true));
    }
    let root = open_dir(mount.at)?;
    let controllers = enable(&root)?;
    writable(&root).then(|| found(controllers, root, false))
}

/// A group that the service manager has handed over (`Delegate=yes`).
fn handed_over(path: &str) -> Option<OwnedFd> {
    let group = open_dir(path)?;
    let marked = ["user.delegate", "trusted.delegate"].iter().any(|name| {
        let mut value = [0_u8; 4];
        rustix::fs::fgetxattr(&group, *name, &mut value).is_ok_and(|length| value.get(..length) == Some(b"1"))
    });
    marked.then_some(group)
}

/// What works in a group that was handed over; `None` where it cannot be used, or somebody holds it against us.
fn delegated(group: &OwnedFd) -> Option<Vec<Controller>> {
    if !writable(group) || ours(&read_at(group, "cgroup.controllers").ok()?).is_empty() || !aside::hold(group)
    {
        return None;
    }
    let controllers = aside::step_aside(group).ok().and_then(|()| enable(group));
    if controllers.is_none() {
        aside::step_back(group);
    }
    controllers
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
    let enabled = || read_at(group, "cgroup.subtree_control").map(|names| ours(&names));
    let before = enabled().ok()?;
    for controller in ours(&read_at(group, "cgroup.controllers").ok()?) {
        if !before.contains(&controller) {
            // Whether it worked is read back below.
            write_at(group, "cgroup.subtree_control", format!("+{}", controller.as_str()).as_bytes()).ok();
        }
    }
    enabled().ok().filter(|works| !works.is_empty())
}

/// Those of the controllers in a list of names that we need.
pub(super) fn ours(names: &str) -> Vec<Controller> {
    let named = |controller: &Controller| names.split_whitespace().any(|name| name == controller.as_str());
    Controller::ALL.into_iter().filter(named).collect()
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
pub(super) struct Mounted<'a> {
    pub(super) root: &'a str,
    pub(super) at: &'a str,
    pub(super) kind: &'a str,
    pub(super) options: &'a str,
}

impl<'a> Mounted<'a> {
    pub(super) fn parse(line: &'a str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, at) = (left.next()?, left.next()?);
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1)?);
        // The root's own path is a single slash, which strips nothing from a path below it.
        Some(Self { root: root.trim_end_matches('/'), at, kind, options })
    }
}
