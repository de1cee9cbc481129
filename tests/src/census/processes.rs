//! Processes as a census sees them: who descends from this test, and whose namespaces are held.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::{Pid, Signal, WaitOptions, waitpid};

use crate::daemon::signal;
use crate::wait_until;

const WARDEN: &str = "blastbox-warden";
/// How the first processes of boxes are called, and who makes them. The kernel keeps 15 letters of a name.
const FIRST_PROCESSES: [&str; 5] =
    [WARDEN, "blastbox-agent", "blastbox-gvisor", "blastbox-wasm", "qemu-system"];
const NAMESPACES: [&str; 7] = ["mnt", "pid", "ipc", "uts", "user", "cgroup", "net"];

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

/// When a process began, in the kernel's ticks: numbers of processes begin anew, and say nothing about their order.
pub fn begun_at(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    rest.split(' ').nth(19).and_then(|word| word.parse().ok()).unwrap_or(u64::MAX)
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

/// Processes of ours whose parent has ended without collecting them, whether they live or not. Of those that were started while this
/// program adopts orphans.
pub fn orphans() -> Vec<String> {
    let me = std::process::id();
    let orphan = |(process, _): &(Process, char)| process.parent == me && was_adopted(&process.name);
    pids().into_iter().filter_map(look).filter(orphan).map(|(process, _)| process.name).collect()
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

/// Kills a process that was seen, and waits until it is gone.
#[track_caller]
pub fn end(seen: &Process) {
    signal(seen.pid, Signal::KILL);
    assert!(wait_until(|| !lives(seen)), "{seen:?} cannot be killed");
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

pub(super) fn pids() -> Vec<u32> {
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

pub(super) fn namespaces_of(pid: u32) -> Vec<String> {
    let link = |kind| fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok();
    NAMESPACES.into_iter().filter_map(link).map(|path| path.to_string_lossy().into_owned()).collect()
}

/// Wardens that live on this host and are not this test's.
pub(super) fn wardens_of_others(ours: &[Process]) -> Vec<u32> {
    let is_warden = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).next().is_some_and(|name| name.ends_with(WARDEN.as_bytes()))
    };
    pids().into_iter().filter(|pid| !ours.iter().any(|p| p.pid == *pid)).filter(is_warden).collect()
}

/// The numbers of the sockets that a process has open.
pub(super) fn sockets_of(pid: u32) -> Vec<String> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    links
        .filter_map(|to| Some(to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect()
}
