//! Counting what is left: processes, namespaces, mounts, groups, names and files.
//!
//! Other boxes may live on the same host while a test counts, so a census counts only what can be ascribed to its own
//! test: processes that descend from it (it adopts their orphans), groups of its caller that no living stranger has
//! locked, files of its caller in the usual places, and, where no stranger lives, the namespaces that its processes were
//! seen in.

mod files;
mod groups;
mod processes;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::files::Elsewhere;
use self::groups::unclaimed_groups;
pub use self::processes::{Process, begun_at, child_of, descendants, end, family, lives, orphans};
use self::processes::{namespaces_of, pids, sockets_of, wardens_of_others};
use crate::{Caller, Held, Who};

/// What the issue promises: nothing is left after this time.
const PROMISE: Duration = Duration::from_secs(2);
const MOMENT: Duration = Duration::from_millis(30);
/// Between two looks at a run that is watched.
const GLANCE: Duration = Duration::from_millis(2);

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
    elsewhere: Elsewhere,
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
            files: files::within(directory),
            elsewhere: Elsewhere::look(caller),
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

    /// Waits for the end of a run, and remembers the namespaces of its processes meanwhile.
    pub fn watch(&mut self, mut held: Held) -> crate::Ended {
        let begun = Instant::now();
        // One that hangs is for `end` to tell.
        while !held.is_over() && begun.elapsed() < crate::held::PATIENCE {
            self.see();
            std::thread::sleep(GLANCE);
        }
        held.end()
    }

    /// The files that are there now are the test's own.
    pub fn accept_files(&mut self) {
        self.files = files::within(&self.directory);
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
        left.extend(self.unclaimed(&processes, &strangers));
        let mounts = mounts();
        left.extend(mounts.iter().filter(|line| !self.mounts.contains(line)).map(|l| format!("mount {l}")));
        let files = files::within(&self.directory);
        left.extend(files.difference(&self.files).map(|name| format!("file {name}")));
        left.extend(self.elsewhere.left(strangers.is_empty()));
        // Those of a process that is counted already are no news; those of strangers may have the numbers of ours, which
        // the kernel gives away again.
        if processes.is_empty() && strangers.is_empty() {
            left.extend(self.namespaces());
        }
        left
    }

    /// Groups and names that are no stranger's.
    fn unclaimed(&self, ours: &[Process], strangers: &[u32]) -> Vec<String> {
        let mut found = self.groups(strangers);
        found.extend(names(strangers));
        // Somebody may have come meanwhile, and a stranger's group is without lock for a moment after it is made.
        let strangers = if found.is_empty() { Vec::new() } else { wardens_of_others(ours) };
        if !strangers.is_empty() {
            std::thread::sleep(MOMENT);
            let mut again = self.groups(&strangers);
            again.extend(names(&strangers));
            found.retain(|one| again.contains(one));
        }
        found
    }

    /// Groups that are new since the beginning.
    fn groups(&self, strangers: &[u32]) -> Vec<String> {
        let mut found = unclaimed_groups(self.caller, strangers);
        found.retain(|path| !self.before.contains(path));
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

/// Names of blocks of ids that no stranger holds. A warden has one, and one more for each of its boxes that has a root.
fn names(strangers: &[u32]) -> Vec<String> {
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let theirs: BTreeSet<String> = strangers.iter().flat_map(|pid| sockets_of(*pid)).collect();
    let names = table.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (inode, name) = (words.nth(6)?, words.next()?);
        (name.starts_with("@blastbox/ids/") && !theirs.contains(inode)).then(|| format!("name {name}"))
    });
    names.collect()
}

fn mounts() -> Vec<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").expect("read the host's mounts");
    text.lines().map(str::to_owned).collect()
}
