//! The walls of the process that asks, read back from the kernel: what a daemon says of itself when it starts is what it
//! asked for; this is what it got.

use std::fs::{self, File};
use std::io;

use serde::{Deserialize, Serialize};

/// A file that everybody may read, and no daemon needs.
const READ_BY_ALL: &str = "/etc/passwd";
/// The thread that starts our programs, which would inherit its walls.
const OUTSIDE: &str = "outside";

/// What holds for this process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walls {
    /// Its threads.
    pub threads: usize,
    /// Those without a filter of system calls or without `no_new_privs`, by name.
    pub open_threads: Vec<String>,
    /// Whether every thread but the one that starts programs has a filter of system calls.
    pub seccomp: bool,
    /// Whether every thread but that one can gain no privilege.
    pub no_new_privs: bool,
    /// Whether Landlock keeps this thread from a file that everybody may read. `None`: there is no such file to try.
    pub landlock: Option<bool>,
    /// Whether others of its user may look into its memory.
    pub dumpable: bool,
    /// The capabilities that it has, as the kernel's bit set.
    pub capabilities: u64,
}

impl Walls {
    /// Reads them.
    pub fn read() -> io::Result<Self> {
        let threads = fs::read_dir("/proc/self/task")?
            .map(|task| Ok(Thread::of(&fs::read_to_string(task?.path().join("status"))?)))
            // One that ended while it was looked at.
            .filter(|thread: &io::Result<Thread>| !thread.as_ref().is_err_and(is_over))
            .collect::<io::Result<Vec<_>>>()?;
        let dumpable =
            rustix::process::dumpable_behavior()? != rustix::process::DumpableBehavior::NotDumpable;
        Ok(Self::of(&threads, can_read(READ_BY_ALL), dumpable))
    }

    fn of(threads: &[Thread], reads: Option<bool>, dumpable: bool) -> Self {
        let others = || threads.iter().filter(|thread| thread.name != OUTSIDE);
        let open = threads.iter().filter(|thread| !thread.filtered || !thread.no_new_privs);
        Self {
            threads: threads.len(),
            open_threads: open.map(|thread| thread.name.clone()).collect(),
            seccomp: !threads.is_empty() && others().all(|thread| thread.filtered),
            no_new_privs: !threads.is_empty() && others().all(|thread| thread.no_new_privs),
            landlock: reads.map(|reads| !reads),
            dumpable,
            capabilities: others().fold(0, |all, thread| all | thread.capabilities),
        }
    }

    /// What is not as it should be, by the name of its field.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        [
            ("seccomp", self.seccomp),
            ("landlock", self.landlock == Some(true)),
            ("no_new_privs", self.no_new_privs),
            ("not dumpable", !self.dumpable),
        ]
        .into_iter()
        .filter_map(|(name, holds)| (!holds).then_some(name))
        .collect()
    }
}

#[derive(Debug, Default)]
struct Thread {
    name: String,
    filtered: bool,
    no_new_privs: bool,
    capabilities: u64,
}

impl Thread {
    /// What is not there counts as not there: a kernel that does not say so has no such wall.
    fn of(status: &str) -> Self {
        let mut thread = Self::default();
        for (name, value) in status.lines().filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            match name {
                "Name" => value.clone_into(&mut thread.name),
                "Seccomp" => thread.filtered = value == "2",
                "NoNewPrivs" => thread.no_new_privs = value == "1",
                // What cannot be read is all of them, never none.
                "CapEff" => thread.capabilities = u64::from_str_radix(value, 16).unwrap_or(u64::MAX),
                _ => {}
            }
        }
        thread
    }
}

fn is_over(error: &io::Error) -> bool {
    const ESRCH: i32 = 3;
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH)
}

/// Whether this thread can open a file. `None`: nobody could.
fn can_read(path: &str) -> Option<bool> {
    match File::open(path) {
        Ok(_) => Some(true),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Some(false),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFINED: &str =
        "Name:\tmain\nCapEff:\t0000000000000404\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n";

    #[test]
    fn one_open_thread_is_an_open_wall_but_for_the_one_that_starts_programs() {
        let outside = Thread::of("Name:\toutside\nCapEff:\t000001ffffffffff\nNoNewPrivs:\t0\nSeccomp:\t0\n");
        let walls = Walls::of(&[Thread::of(CONFINED), outside], Some(false), false);
        assert_eq!((walls.threads, walls.open_threads.as_slice()), (2, ["outside".to_owned()].as_slice()));
        assert_eq!((walls.capabilities, walls.missing()), (0x404, vec![]));
        let open = Thread::of("Name:\tworker\nNoNewPrivs:\t1\nSeccomp:\t0\n");
        let walls = Walls::of(&[Thread::of(CONFINED), open], Some(true), true);
        assert_eq!(walls.missing(), ["seccomp", "landlock", "not dumpable"]);
        assert_eq!(walls.open_threads, ["worker"]);
    }

    #[test]
    fn what_nobody_says_is_not_there() {
        let walls = Walls::of(&[Thread::of("Name:\tx\nCapEff:\tnonsense\n")], None, false);
        assert_eq!(walls.missing(), ["seccomp", "landlock", "no_new_privs"]);
        assert_eq!(walls.capabilities, u64::MAX);
        assert_eq!(Walls::of(&[], None, false).missing().len(), 3);
    }

    #[test]
    fn a_test_says_of_itself_that_nothing_confines_it() {
        let walls = Walls::read().unwrap();
        assert!(walls.threads > 0 && walls.missing().contains(&"landlock"), "{walls:?}");
        assert_eq!(walls.landlock, Some(false), "every host has {READ_BY_ALL}");
    }
}
