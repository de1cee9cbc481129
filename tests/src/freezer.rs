//! Whether processes can be frozen on this host: asked of its kernel, not of blastbox, which is what a test is about.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::{Caller, Who, place};

/// What a host where nothing can be frozen never comes to.
const FROZEN: [&str; 6] = [
    "executing>paused",
    "paused>executing",
    "ready>paused",
    "completed>paused",
    "paused>completed",
    "paused>teardown",
];

/// Whether a place of a box's life is one that needs a frozen box.
pub fn is_of_frozen(point: &str) -> bool {
    FROZEN.contains(&point)
}

/// Leaves out a place that was never reached; it must be one of a frozen box, on a host that freezes none for this caller.
pub fn leave_out_unreached(caller: &Caller, point: &str) {
    assert!(is_of_frozen(point), "{point} was never reached");
    assert!(!can_freeze(caller), "{point} was never reached, and this host freezes groups");
    caller.leave_out(point, "this host lets this caller freeze nothing");
}

/// Makes a group, stops it, sees that it is stopped, and takes it away.
fn can_freeze(caller: &Caller) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("read the host's mounts");
    // Whoever a caller is, its programs are in the group of this one.
    let own = fs::read_to_string("/proc/self/cgroup").expect("read the own groups");
    let Some((root, file, stop, go)) = freezer(&mounts, &own) else { return false };
    // A user has a group of its own only where one was given to it.
    let uid = match caller.who() {
        Who::Root => 0,
        Who::User(uid) => uid,
    };
    let own = fs::metadata(&root).is_ok_and(|about| about.uid() == uid);
    let group = root.join(format!("blastbox-tests-{}-{}", std::process::id(), place::number()));
    if !own || fs::create_dir(&group).is_err() {
        return false;
    }
    let stopped = fs::write(group.join(file), stop).is_ok()
        && fs::read_to_string(group.join(file)).is_ok_and(|state| state.trim() == stop);
    fs::write(group.join(file), go).ok();
    fs::remove_dir(&group).expect("take a group away that has nobody in it");
    stopped
}

/// The own group where groups are frozen, the file that does it, and the words for it.
fn freezer(mounts: &str, own: &str) -> Option<(PathBuf, &'static str, &'static str, &'static str)> {
    // What of the hierarchy is mounted, and where.
    let mount = |line: &str, kind: &str, option: &str| {
        let (mount, about) = line.split_once(" - ")?;
        let mut words = about.split(' ');
        let found = words.next() == Some(kind) && words.nth(1)?.split(',').any(|one| one == option);
        let mut places = mount.split(' ').skip(3);
        found.then(|| Some((places.next()?.to_owned(), PathBuf::from(places.next()?)))).flatten()
    };
    let find = |name, option| mounts.lines().find_map(|line| mount(line, name, option));
    let group = |(root, at): (String, PathBuf), is_it: &dyn Fn(&str) -> bool| {
        let mut lines = own.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        let (_, path) = lines.find(|(controllers, _)| is_it(controllers))?;
        let beneath = Path::new(path).strip_prefix(root).unwrap_or(Path::new(path.trim_start_matches('/')));
        Some(at.join(beneath))
    };
    if let Some(old) = find("cgroup", "freezer") {
        let group = group(old, &|controllers| controllers.split(',').any(|one| one == "freezer"))?;
        return Some((group, "freezer.state", "FROZEN", "THAWED"));
    }
    // Beside controllers of the old interface the unified one has no boxes in it.
    if find("cgroup", "memory").is_some() || find("cgroup", "pids").is_some() {
        return None;
    }
    let group = group(find("cgroup2", "rw")?, &str::is_empty)?;
    Some((group, "cgroup.freeze", "1", "0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_freezer_is_found_where_boxes_are() {
        let old = "37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer\n";
        let memory = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";
        let new = "41 31 0:38 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw\n";
        let part = "41 31 0:38 /a /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n";
        let own = "9:cpu,freezer:/b\n3:memory:/c\n0::/a/d\n";
        let found = |text: &str| freezer(text, own).map(|(group, file, ..)| (group, file));
        let at = |place: &str| PathBuf::from("/sys/fs/cgroup").join(place);
        assert_eq!(found(&[memory, old, new].concat()), Some((at("freezer/b"), "freezer.state")));
        assert_eq!(found(new), Some((at("a/d"), "cgroup.freeze")));
        assert_eq!(found(part), Some((at("d"), "cgroup.freeze")), "a part of the hierarchy");
        assert_eq!(found(&[memory, new].concat()), None);
        assert_eq!(found(""), None);
    }
}
