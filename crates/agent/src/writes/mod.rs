//! Writes at unexpected paths, for policies that want to hear of them (`files.report_writes`).
//!
//! Every call of the box that changes a file or a name sleeps until it was looked at here, and then goes on whatever was seen: the
//! kernel's own walls decide, and this is only what the host hears of. A payload that changes the name between the look and the use
//! cheats the report and nothing else.
//!
//! The agent makes such calls itself, for the host's file operations; one thread that answered its own questions would wait for
//! ever. So a second one answers, and all that the first one does is to pass on what it finds in the [`Sentry`]'s hands.
//!
//! ```text
//! payload ─► kernel ─► sentry's thread: look ─► judge ─► heard ─► let pass
//!                                                  └─ bell ─► the agent's loop ─► the host
//! ```

mod look;
mod names;
mod unexpected;

pub use unexpected::{Workplace, judge};

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blastbox_sys::seccomp::{self, Denied};
use blastbox_sys::spawn::Identity;
use blastbox_wire::agent::{AgentFrame, Oddity, OnDenied};
use blastbox_wire::limits::{MAX_WRITE_PATH, MAX_WRITE_PATHS};
use rustix::event::{EventfdFlags, eventfd};

use crate::control::Control;
use crate::denials::end_box;
use look::Eyes;

/// Numbers of denied calls that are kept apart until the loop comes. More than any kernel has calls.
const MOST_NUMBERS: usize = 1024;
/// Enough for one name and what it takes to look at it.
const STACK: usize = 256 * 1024;

/// Calls that were denied and that the loop has not heard of.
pub(crate) type DeniedCalls = BTreeMap<u32, (Denied, u64)>;

/// What the thread has heard and the loop has not passed on.
#[derive(Debug, Default)]
struct Heard {
    denied: DeniedCalls,
    writes: Writes,
    kills: bool,
}

/// Unexpected writes by path, bounded.
#[derive(Debug, Default)]
struct Writes(BTreeMap<(Oddity, Vec<u8>), Tally>);

#[derive(Debug, Default)]
struct Tally {
    count: u64,
    number: u32,
    pid: u32,
    /// The host has heard of this path before.
    known: bool,
}

impl Writes {
    fn count(&mut self, oddity: Oddity, mut path: Vec<u8>, call: &Denied) {
        path.truncate(MAX_WRITE_PATH);
        let mut key = (oddity, path);
        // Beyond what is told apart they are told as one of their kind, each kind by itself: noise of one must not hide another.
        let alike = || self.0.keys().filter(|(other, _)| *other == oddity).count();
        if !self.0.contains_key(&key) && alike() >= MAX_WRITE_PATHS {
            key.1.clear();
        }
        let tally = self.0.entry(key).or_default();
        if tally.count == 0 {
            (tally.number, tally.pid) = (call.nr, call.pid);
        }
        tally.count = tally.count.saturating_add(1);
    }

    /// Passes on what is new, or everything. Whether something is left.
    fn pass_on(&mut self, everything: bool, control: &mut Control) -> bool {
        let mut left = false;
        for ((oddity, path), tally) in self.0.iter_mut().filter(|(_, tally)| tally.count > 0) {
            // All of it, room or not: with the end of a command the host has heard everything about it, and so much has its bound.
            if !everything && (tally.known || !control.has_room()) {
                left = true;
                continue;
            }
            let Tally { count, number, pid, .. } = std::mem::take(tally);
            tally.known = true;
            control.send(&AgentFrame::Wrote { oddity: *oddity, number, count, pid, path });
        }
        left
    }
}

/// Whose writes are looked at, and with whose eyes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watch {
    /// Where commands work.
    pub(crate) workplace: Workplace,
    /// Who commands run as, where that is not the agent's own user.
    pub(crate) payload: Option<Identity>,
    /// Who those of the box's root run as, where it has one.
    pub(crate) root: Option<Identity>,
}

/// The thread that answers, as the loop sees it.
#[derive(Debug)]
pub(crate) struct Sentry {
    heard: Arc<Mutex<Heard>>,
    bell: OwnedFd,
}

impl Sentry {
    /// Starts the thread. From here on it answers every call that waits at the listener, denied ones too.
    pub(crate) fn post(listener: OwnedFd, watch: Watch) -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let heard = Arc::new(Mutex::new(Heard::default()));
        let (theirs, ring) = (Arc::clone(&heard), bell.try_clone()?);
        let (ready, begun) = std::sync::mpsc::channel();
        let Watch { workplace, payload, root } = watch;
        let thread = std::thread::Builder::new().name("blastbox-writes".to_owned()).stack_size(STACK);
        thread.spawn(move || {
            let eyes = Eyes::open(payload, root);
            let failed = eyes.as_ref().err().map(|error| io::Error::from(error.kind()));
            // Nobody waits for it any more: the agent has ended.
            ready.send(failed).ok();
            if let Ok(eyes) = eyes {
                let post = Post { listener, eyes, workplace, heard: theirs, bell: ring };
                // Whoever waits for an answer would wait for ever: the box ends.
                post.stand().unwrap_or_else(|_| std::process::abort());
            }
        })?;
        match begun.recv() {
            Ok(None) => Ok(Self { heard, bell }),
            Ok(Some(error)) => Err(error),
            Err(_) => Err(io::ErrorKind::Other.into()),
        }
    }

    /// Readable when something was heard.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// What the host wants done about denied calls, besides counting.
    pub(crate) fn react(&self, reaction: OnDenied) {
        lock(&self.heard).kills = reaction == OnDenied::Kill;
    }

    /// Takes what was denied, and passes on writes: those at paths that are new, or all. Whether some wait for company.
    pub(crate) fn hear(&self, everything: bool, control: &mut Control) -> (DeniedCalls, bool) {
        // Before the look: what comes afterwards rings again.
        rustix::io::read(&self.bell, &mut [0; 8]).ok();
        let mut heard = lock(&self.heard);
        let left = heard.writes.pass_on(everything, control);
        (std::mem::take(&mut heard.denied), left)
    }
}

/// The thread's side.
struct Post {
    listener: OwnedFd,
    eyes: Eyes,
    workplace: Workplace,
    heard: Arc<Mutex<Heard>>,
    bell: OwnedFd,
}

impl Post {
    fn stand(&self) -> io::Result<()> {
        let listener = self.listener.as_fd();
        let own = std::process::id();
        loop {
            let Some(call) = seccomp::receive(listener)? else { continue };
            if !call.is_watched() {
                self.deny(&call);
                seccomp::refuse(listener, call.id, seccomp::errno_for(call.nr, &call.args))?;
                continue;
            }
            // The agent's own, for the host.
            if call.pid != own {
                self.look(&call)?;
            }
            seccomp::let_pass(listener, &call)?;
        }
    }

    fn look(&self, call: &Denied) -> io::Result<()> {
        let odd: Vec<(Oddity, Vec<u8>)> = match self.eyes.names(call)? {
            Ok(names) => {
                let odd = |path: Vec<u8>| judge(&path, self.workplace).map(|oddity| (oddity, path));
                names.into_iter().filter_map(odd).collect()
            }
            Err(look::Hidden) => vec![(Oddity::Unreadable, Vec::new())],
        };
        if !odd.is_empty() {
            let mut heard = lock(&self.heard);
            odd.into_iter().for_each(|(oddity, path)| heard.writes.count(oddity, path, call));
            drop(heard);
            self.ring();
        }
        Ok(())
    }

    fn deny(&self, call: &Denied) {
        let mut heard = lock(&self.heard);
        let apart = heard.denied.contains_key(&call.nr) || heard.denied.len() < MOST_NUMBERS;
        let number = if apart { call.nr } else { u32::MAX };
        let known = heard.denied.entry(number).or_insert((*call, 0));
        known.1 = known.1.saturating_add(1);
        let kills = heard.kills;
        drop(heard);
        if kills {
            end_box(call.pid);
        }
        self.ring();
    }

    fn ring(&self) {
        // A bell that is full has been rung.
        rustix::io::write(&self.bell, &1_u64.to_ne_bytes()).ok();
    }
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Denied = Denied { id: 0, pid: 7, nr: 257, arch: 0, args: [0; 6] };

    /// As many paths of one kind as are told apart and more, and one of a kind that matters.
    fn noise(paths: usize) -> Writes {
        let mut writes = Writes::default();
        for number in 0..paths {
            writes.count(Oddity::Outside, format!("/etc/{number}/{}", "x".repeat(9_000)).into_bytes(), &CALL);
        }
        writes.count(Oddity::PoisonsTools, b"/workspace/.git/config".to_vec(), &CALL);
        writes
    }

    #[test]
    fn paths_without_end_cannot_make_the_agent_large_and_none_goes_uncounted() {
        let mut writes = noise(10_000);
        assert_eq!(writes.0.len(), MAX_WRITE_PATHS + 2);
        assert!(writes.0.keys().all(|(_, path)| path.len() <= MAX_WRITE_PATH));
        assert_eq!(writes.0.values().map(|tally| tally.count).sum::<u64>(), 10_001);
        for number in 0..1_000 {
            let oddity = Oddity::ALL[number % Oddity::ALL.len()];
            writes.count(oddity, number.to_string().into_bytes(), &CALL);
        }
        assert_eq!(writes.0.len(), (MAX_WRITE_PATHS + 1) * Oddity::ALL.len());
        assert_eq!(writes.0.values().map(|tally| tally.count).sum::<u64>(), 11_001);
    }

    #[test]
    fn noise_of_one_kind_hides_no_path_of_another() {
        let writes = noise(MAX_WRITE_PATHS + 1);
        let count = |oddity, path: &[u8]| writes.0.get(&(oddity, path.to_vec())).map(|tally| tally.count);
        assert_eq!(count(Oddity::Outside, b""), Some(1), "the first that is not told apart");
        assert_eq!(count(Oddity::PoisonsTools, b"/workspace/.git/config"), Some(1));
        assert_eq!(count(Oddity::PoisonsTools, b""), None);
    }

    #[test]
    fn what_there_is_no_room_for_waits_until_everything_is_wanted() {
        let (agent, _host) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut control = Control::new(agent.into());
        while control.has_room() {
            control.send(&AgentFrame::Pong { token: 0 });
        }
        let mut writes = noise(MAX_WRITE_PATHS + 1);
        let waiting = |writes: &Writes| writes.0.values().map(|tally| tally.count).sum::<u64>();
        assert!(writes.pass_on(false, &mut control));
        assert_eq!(waiting(&writes), u64::try_from(MAX_WRITE_PATHS).unwrap() + 2);
        assert!(!writes.pass_on(true, &mut control));
        assert_eq!(waiting(&writes), 0);
    }
}
