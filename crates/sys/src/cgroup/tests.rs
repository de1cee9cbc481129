//! What is found and written on hosts of every make, in directories that stand for those of the kernel.

mod aside;

use std::cell::{Cell, OnceCell, RefCell};
use std::fs;
use std::path::PathBuf;

use super::nest::Nest;
use super::site::{Mounted, Room, Root};
use super::{Controller, Flavour, Group, Limits, Site};

/// A directory that goes with its test.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("blastbox-cgroups-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A directory of the old interface, with our own group in it.
    fn old(&self, controllers: &str) -> String {
        fs::create_dir_all(self.0.join(controllers).join("own")).unwrap();
        let at = self.0.join(controllers);
        format!("34 24 0:29 / {} rw shared:9 - cgroup cgroup rw,{controllers}\n", at.display())
    }

    /// The unified hierarchy, with what it offers switched on already, as by a service manager.
    fn unified(&self, offers: &str) -> String {
        let at = self.0.join("unified");
        fs::create_dir_all(&at).unwrap();
        fs::write(at.join("cgroup.controllers"), offers).unwrap();
        fs::write(at.join("cgroup.subtree_control"), offers).unwrap();
        format!("42 24 0:30 / {} rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n", at.display())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

const OWN: &str = "5:freezer:/own\n4:memory:/own\n3:pids:/own\n2:cpu,cpuacct:/own\n0::/\n";

fn found(site: &Site) -> Vec<(Flavour, Vec<Controller>)> {
    site.roots.iter().map(|Root { flavour, controllers, .. }| (*flavour, controllers.clone())).collect()
}

#[test]
fn a_mount_line_is_read_in_its_two_halves() {
    let line = "34 24 0:29 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory";
    let mounted = Mounted::parse(line).unwrap();
    assert_eq!((mounted.root, mounted.at, mounted.kind), ("", "/sys/fs/cgroup/memory", "cgroup"));
    assert!(mounted.options.split(',').any(|option| option == "memory"));
}

#[test]
fn a_host_of_the_old_interface_has_a_root_for_each_controller_beneath_its_own_group() {
    let tree = Tree::new("old");
    let mounts = ["memory", "pids", "cpu,cpuacct", "freezer"].map(|name| tree.old(name)).concat();
    let site = Site::find_in(&mounts, OWN).unwrap();
    let one = |controller| (Flavour::V1, vec![controller]);
    assert_eq!(found(&site), [one(Controller::Memory), one(Controller::Pids), one(Controller::Cpu)]);
    assert!(site.freezer.is_some() && site.uses(Flavour::V1) && !site.uses(Flavour::V2));
    let own = rustix::fs::fstat(&site.roots[0].dir).unwrap().st_ino;
    assert_eq!(own, rustix::fs::stat(tree.0.join("memory/own")).unwrap().st_ino);
    // Without one of them the others still hold.
    let mounts = ["memory", "freezer"].map(|name| tree.old(name)).concat();
    assert_eq!(found(&Site::find_in(&mounts, OWN).unwrap()), [one(Controller::Memory)]);
    assert!(Site::find_in("", OWN).is_none() && Site::find_in(&tree.old("freezer"), OWN).is_none());
}

#[test]
fn whoever_was_moved_aside_calls_from_the_group_above() {
    let tree = Tree::new("aside");
    let mounts = tree.unified("memory pids");
    let group = tree.0.join("unified/service");
    fs::create_dir_all(group.join("blastbox-caller")).unwrap();
    for (name, text) in [
        ("cgroup.controllers", "memory pids"),
        ("cgroup.subtree_control", "memory pids"),
        ("cgroup.procs", ""),
    ] {
        fs::write(group.join(name), text).unwrap();
    }
    let here = |own: &str| {
        let site = Site::find_in(&mounts, own).unwrap();
        let inode = rustix::fs::fstat(&site.roots[0].dir).unwrap().st_ino;
        site.roots[0].delegated && inode == rustix::fs::stat(&group).unwrap().st_ino
    };
    // Handed over by nobody: the root of the hierarchy, as ever.
    assert!(!here("0::/service\n") && !here("0::/service/blastbox-caller\n"));
    if rustix::fs::setxattr(&group, "user.delegate", b"1", rustix::fs::XattrFlags::empty()).is_err() {
        return blastbox_skips::skip_this(
            "no file system for temporary files that keeps user attributes (tmpfs: Linux 6.6)",
        );
    }
    assert!(here("0::/service\n") && here("0::/service/blastbox-caller\n"));
    assert!(!here("0::/service/not-blastbox-caller\n"));
    // Handed over, and held by somebody, or of no use: no other place instead.
    let held = fs::File::open(&group).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert!(Site::find_in(&mounts, "0::/service\n").is_none());
    drop(held);
    assert!(here("0::/service\n"));
    fs::write(group.join("cgroup.controllers"), "io").unwrap();
    assert!(Site::find_in(&mounts, "0::/service\n").is_none());
}

#[test]
fn a_unified_host_has_one_root_for_all() {
    let tree = Tree::new("unified");
    let site = Site::find_in(&tree.unified("cpuset cpu io memory pids"), "0::/\n").unwrap();
    assert_eq!(found(&site), [(Flavour::V2, vec![Controller::Memory, Controller::Pids, Controller::Cpu])]);
    assert!(site.freezer.is_none() && !site.roots[0].delegated);
    let site = Site::find_in(&tree.unified("io pids"), "0::/\n").unwrap();
    assert!(site.has(Controller::Pids) && !site.has(Controller::Memory) && !site.has(Controller::Cpu));
}

#[test]
fn a_hybrid_host_whose_unified_side_has_nothing_for_us_is_one_of_the_old_interface() {
    let tree = Tree::new("hybrid");
    let old = ["memory", "pids", "cpu,cpuacct", "freezer"].map(|name| tree.old(name)).concat();
    let site = Site::find_in(&format!("{}{old}", tree.unified("hugetlb")), OWN).unwrap();
    assert!(!site.uses(Flavour::V2) && site.roots.len() == 3 && site.freezer.is_some());
}

#[test]
fn a_host_with_controllers_on_both_sides_loses_none_of_them() {
    let tree = Tree::new("split");
    let old = ["pids", "cpu,cpuacct", "freezer"].map(|name| tree.old(name)).concat();
    let site = Site::find_in(&format!("{old}{}", tree.unified("memory io")), OWN).unwrap();
    let (old, unified) = (Flavour::V1, Flavour::V2);
    let one = |flavour, controller| (flavour, vec![controller]);
    assert_eq!(
        found(&site),
        [one(unified, Controller::Memory), one(old, Controller::Pids), one(old, Controller::Cpu)]
    );
    // The unified side stops processes of both.
    assert!(site.uses(old) && site.uses(unified) && site.freezer.is_none());
}

/// An interface, what it counts, and files with what the kernel says in them.
type Stage<'a> = (Flavour, &'a [Controller], &'a [(&'a str, &'a str)]);

/// A group in a nest of each interface, with files that stand for the kernel's.
fn group_in(tree: &Tree, nests: &[Stage<'_>]) -> (Site, Group) {
    let mut made = Vec::new();
    for (number, (flavour, controllers, files)) in nests.iter().enumerate() {
        let nest = tree.0.join(format!("nest-{number}"));
        fs::create_dir_all(nest.join("bx_x")).unwrap();
        for (name, text) in *files {
            fs::write(nest.join("bx_x").join(name), text).unwrap();
        }
        let dir = fs::File::open(&nest).unwrap().into();
        made.push(Nest { flavour: *flavour, controllers: controllers.to_vec(), dir });
    }
    let name = "blastbox-warden-test".to_owned();
    let site = Site {
        roots: Vec::new(),
        freezer: None,
        name,
        room: Room::Many,
        locks: RefCell::default(),
        nests: OnceCell::from(made),
        freezer_nest: OnceCell::new(),
    };
    (site, Group { name: "bx_x".to_owned(), was_paused: Cell::new(false) })
}

#[test]
fn limits_are_written_and_counts_read_in_the_words_of_each_interface() {
    use Controller::{Cpu, Memory, Pids};
    let tree = Tree::new("limits");
    let limits = Limits { memory: 64 << 20, millicpus: 1_500, pids: 20 };
    let old: &[(&str, &str)] = &[
        ("memory.limit_in_bytes", ""),
        ("memory.memsw.limit_in_bytes", ""),
        ("memory.max_usage_in_bytes", "4096\n"),
        ("memory.oom_control", "oom_kill_disable 0\noom_kill 2\n"),
    ];
    let unified: &[(&str, &str)] = &[
        ("pids.max", ""),
        ("pids.events", "max 3\n"),
        ("cpu.max", ""),
        ("cpu.stat", "usage_usec 77\nuser_usec 7\n"),
    ];
    let (site, group) =
        group_in(&tree, &[(Flavour::V1, &[Memory], old), (Flavour::V2, &[Pids, Cpu], unified)]);
    site.set(&group, &limits).unwrap();
    let said = |file: &str| fs::read_to_string(tree.0.join(file)).unwrap();
    assert_eq!(said("nest-0/bx_x/memory.limit_in_bytes"), "67108864");
    assert_eq!(said("nest-0/bx_x/memory.memsw.limit_in_bytes"), "67108864");
    assert_eq!(said("nest-1/bx_x/pids.max"), "20");
    assert_eq!(said("nest-1/bx_x/cpu.max"), "150000 100000");
    let counts = site.counts(&group);
    assert_eq!((counts.memory_peak, counts.oom_kills), (4_096, 2));
    assert_eq!((counts.pids_refused, counts.cpu_micros), (3, 77));
    // A process is born on the unified side, and joins the other.
    assert!(site.birthplace(&group).unwrap().is_some());

    let tree = Tree::new("limits-unified");
    let files: &[(&str, &str)] = &[("memory.max", ""), ("memory.swap.max", "max\n")];
    let (site, group) = group_in(&tree, &[(Flavour::V2, &[Memory], files)]);
    site.set(&group, &limits).unwrap();
    let said = |file: &str| fs::read_to_string(tree.0.join(file)).unwrap();
    assert_eq!(said("nest-0/bx_x/memory.max"), "67108864");
    assert!(said("nest-0/bx_x/memory.swap.max").starts_with('0'));
}

#[test]
fn a_limit_that_cannot_be_written_is_an_error() {
    let tree = Tree::new("unwritable");
    let limits = Limits { memory: 64 << 20, millicpus: 1_000, pids: 20 };
    let (site, group) = group_in(&tree, &[(Flavour::V2, &[Controller::Pids], &[])]);
    assert!(site.set(&group, &limits).is_err(), "there is no pids.max");
}
