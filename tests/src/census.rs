//! Counting what is left: processes, namespaces, mounts, groups, names and files.
//!
//! Other boxes may live on the same host while a test counts, so a census counts only what can be ascribed to its own
//! test: processes that descend from it (it adopts their orphans), groups of its caller that no living stranger has
//! locked, and, where no stranger lives, the namespaces that its processes were seen in.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions, waitpid};

use crate::{Caller, Who};

/// What the issue promises: nothing is left after this time.
const PROMISE: Duration = Duration::from_secs(2);
const WARDEN: &str = "blastbox-warden";
/// How the first processes of boxes are called, and who makes them. The kernel keeps 15 letters of a name.
const FIRST_PROCESSES: [&str; 5] =
    [WARDEN, "blastbox-agent", "blastbox-gvisor", "blastbox-wasm", "qemu-system"];
/// How the directories of wardens and boxes are called.
const OURS: [&str; 2] = ["blastbox-warden-", "bx_"];
const MOMENT: Duration = Duration::from_millis(30);
const NAMESPACES: [&str; 7] = ["mnt", "pid", "ipc", "uts", "user", "cgroup", "net"];
/// Levels of cgroups that are searched; nobody nests deeper.
const DEEPEST: u32 = 8;

/// One process at a time counts: while it is held, no other test of this program runs a box.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// What was there before, and what the boxes of this test were seen in.
#[derive(Debug)]
pub struct Census {
    /// Groups that were left before this test; whoever left them fails in another.
    before: Vec<PathBuf>,
    mounts: Vec<String>,
    own: BTreeSet<String>,
    seen: BTreeSet<String>,
    caller: u32,
    directory: PathBuf,
    files: BTreeSet<String>,
    _alone: MutexGuard<'static, ()>,
}

impl Census {
    /// Waits for every other census of this program, then looks around.
    pub fn begin(caller: &Caller) -> Self {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).expect("adopt orphans");
        let me = std::process::id();
        let directory = caller.place().path();
        let caller = match caller.who() {
            Who::Root => 0,
            Who::User(uid) => uid,
        };
        Self {
            before: unclaimed_groups(caller, &wardens_of_others(&descendants())),
            mounts: mounts(),
            own: namespaces_of(me).into_iter().collect(),
            seen: BTreeSet::new(),
            caller,
            directory: directory.to_owned(),
            files: files(directory),
            _alone: alone,
        }
    }

    /// Remembers the namespaces that this test's processes are in now, and says how many are not the host's.
    pub fn see(&mut self) -> usize {
        for process in descendants() {
            self.seen.extend(namespaces_of(process.pid));
        }
        self.seen.difference(&self.own).count()
    }

    /// The files that are there now are the test's own.
    pub fn accept_files(&mut self) {
        self.files = files(&self.directory);
    }

    /// A file that the test itself expects from now on.
    pub fn expect_file(&mut self, name: &str) {
        self.files.insert(name.to_owned());
    }

    /// Fails unless nothing is left within the promised time.
    #[track_caller]
    pub fn expect_nothing(&self, after: &str) {
        self.expect(after, Self::left);
    }

    /// The same without groups: where CLI and warden are killed together, these stay until the next warden comes.
    #[track_caller]
    pub fn expect_nothing_but_groups(&self, after: &str) {
        self.expect(after, |census| {
            census.left().into_iter().filter(|line| !line.starts_with("group ")).collect()
        });
    }

    #[track_caller]
    fn expect(&self, after: &str, left: impl Fn(&Self) -> Vec<String>) {
        let begun = Instant::now();
        loop {
            let left = left(self);
            if left.is_empty() {
                return;
            }
            assert!(begun.elapsed() < PROMISE, "{after}: left behind:\n  {}", left.join("\n  "));
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// Everything that is left at this moment, one line each.
    pub fn left(&self) -> Vec<String> {
        let processes = descendants();
        let mut left: Vec<String> =
            processes.iter().map(|process| format!("process {} {}", process.pid, process.name)).collect();
        let strangers = wardens_of_others(&processes);
        left.extend(self.groups(&strangers));
        left.extend(names(strangers.iter().filter(|pid| is_privileged(**pid)).count()));
        let mounts = mounts();
        left.extend(mounts.iter().filter(|line| !self.mounts.contains(line)).map(|l| format!("mount {l}")));
        let files = files(&self.directory);
        left.extend(files.difference(&self.files).map(|name| format!("file {name}")));
        // Those of a process that is counted already are no news; those of strangers may have the numbers of ours, which
        // the kernel gives away again.
        if processes.is_empty() && strangers.is_empty() {
            left.extend(self.namespaces());
        }
        left
    }

    /// Groups that are new since the beginning.
    fn groups(&self, strangers: &[u32]) -> Vec<String> {
        let mut found = unclaimed_groups(self.caller, strangers);
        found.retain(|path| !self.before.contains(path));
        if !found.is_empty() && !strangers.is_empty() {
            // A stranger's group is without lock for a moment after it is made.
            std::thread::sleep(MOMENT);
            let again = unclaimed_groups(self.caller, strangers);
            found.retain(|path| again.contains(path));
        }
        found.into_iter().map(|path| format!("group {}", path.display())).collect()
    }

    /// Namespaces of this test that some process of the host, or a mount, still holds.
    fn namespaces(&self) -> Vec<String> {
        let boxes: BTreeSet<&String> = self.seen.difference(&self.own).collect();
        if boxes.is_empty() {
            return Vec::new();
        }
        let held = pids().into_iter().flat_map(namespaces_of);
        held.filter(|namespace| boxes.contains(namespace)).map(|n| format!("namespace {n}")).collect()
    }
}

/// One living process.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its parent's id.
    pub parent: u32,
    /// Its short name.
    pub name: String,
}

/// Every living process that this test program started, however deep. Collects adopted ones that have ended.
pub fn descendants() -> Vec<Process> {
    let me = std::process::id();
    let mut all = Vec::new();
    for pid in pids() {
        let Some((process, state)) = look(pid) else { continue };
        if state == 'Z' && process.parent == me && was_adopted(&process.name) {
            collect(pid);
        }
        if !matches!(state, 'Z' | 'X') {
            all.push(process);
        }
    }
    let mut family = BTreeSet::from([me]);
    loop {
        let before = family.len();
        family.extend(all.iter().filter(|p| family.contains(&p.parent)).map(|p| p.pid).collect::<Vec<_>>());
        if family.len() == before {
            break;
        }
    }
    all.retain(|process| process.pid != me && family.contains(&process.pid));
    all
}

/// A living process with everything that descends from it.
pub fn family(of: u32) -> Vec<Process> {
    let all: Vec<Process> = pids()
        .into_iter()
        .filter_map(look)
        .filter(|(_, state)| !matches!(state, 'Z' | 'X'))
        .map(|(p, _)| p)
        .collect();
    let mut family = BTreeSet::from([of]);
    loop {
        let before = family.len();
        family.extend(all.iter().filter(|p| family.contains(&p.parent)).map(|p| p.pid).collect::<Vec<_>>());
        if family.len() == before {
            return all.into_iter().filter(|process| family.contains(&process.pid)).collect();
        }
    }
}

/// Whether a process that was seen still lives, whoever its parent is now.
pub fn lives(seen: &Process) -> bool {
    look(seen.pid).is_some_and(|(now, state)| now.name == seen.name && !matches!(state, 'Z' | 'X'))
}

/// The first living child of a process.
pub fn child_of(pid: u32) -> Option<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let children = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    children.flat_map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).find_map(
        |child| {
            let child = child.parse().ok()?;
            look(child).is_some_and(|(_, state)| state != 'Z').then_some(child)
        },
    )
}

/// Wardens, agents and monitors have names of their own, and before they take them are called by the number of the descriptor
/// that they were executed from. Nothing that a test starts itself is, so that nobody waits for one of these but this census.
fn was_adopted(name: &str) -> bool {
    name.parse::<u32>().is_ok() || FIRST_PROCESSES.iter().any(|ours| name.starts_with(ours))
}

fn collect(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // Somebody else was faster: it is gone either way.
        waitpid(Some(pid), WaitOptions::NOHANG).ok();
    }
}

fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("list processes");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// A process and the letter of its state.
fn look(pid: u32) -> Option<(Process, char)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in brackets and may hold any character, brackets too.
    let (front, rest) = stat.rsplit_once(") ")?;
    let name = front.split_once('(')?.1.to_owned();
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((Process { pid, parent: fields.next()?.parse().ok()?, name }, state))
}

fn namespaces_of(pid: u32) -> Vec<String> {
    let link = |kind| fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok();
    NAMESPACES.into_iter().filter_map(link).map(|path| path.to_string_lossy().into_owned()).collect()
}

/// Wardens that live on this host and are not this test's.
fn wardens_of_others(ours: &[Process]) -> Vec<u32> {
    let is_warden = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).next().is_some_and(|name| name.ends_with(WARDEN.as_bytes()))
    };
    pids().into_iter().filter(|pid| !ours.iter().any(|p| p.pid == *pid)).filter(is_warden).collect()
}

/// Groups of this caller that no living stranger has locked.
fn unclaimed_groups(caller: u32, strangers: &[u32]) -> Vec<PathBuf> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let locked = |path: &Path| {
        let Ok(inode) = fs::metadata(path).map(|about| about.ino().to_string()) else { return true };
        locks.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let pid = words.get(4).and_then(|pid| pid.parse().ok());
            words.get(5).and_then(|place| place.rsplit(':').next()) == Some(inode.as_str())
                && pid.is_some_and(|pid| strangers.contains(&pid))
        })
    };
    let mut found = Vec::new();
    let mounts = mounts();
    for line in mounts.iter().filter(|line| line.contains(" - cgroup")) {
        if let Some(at) = line.split(' ').nth(4) {
            search(Path::new(at), 0, &mut found);
        }
    }
    found.retain(|path| fs::metadata(path).is_ok_and(|about| about.uid() == caller));
    // A warden locks its own directory, in which the groups of its boxes lie.
    found.retain(|path| !locked(path) && !path.parent().is_some_and(locked));
    found
}

fn search(directory: &Path, depth: u32, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        let name = entry.file_name();
        if OURS.iter().any(|ours| name.to_string_lossy().starts_with(ours)) {
            found.push(entry.path());
        }
        if depth < DEEPEST {
            search(&entry.path(), depth + 1, found);
        }
    }
}

/// Whether a warden is one that holds a block of ids.
fn is_privileged(pid: u32) -> bool {
    fs::metadata(format!("/proc/{pid}")).is_ok_and(|about| about.uid() == 0)
}

/// Names of blocks of ids, beyond those that strangers may hold.
fn names(strangers: usize) -> Option<String> {
    let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let held = sockets.lines().filter(|line| line.contains("@blastbox/ids/")).count();
    (held > strangers).then(|| format!("name {held} blocks of ids held by {strangers} wardens"))
}

fn mounts() -> Vec<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").expect("read the host's mounts");
    text.lines().map(str::to_owned).collect()
}

fn files(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).expect("list the caller's directory");
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
