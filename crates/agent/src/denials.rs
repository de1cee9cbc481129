//! System calls that the box was refused.
//!
//! Trust: the numbers and arguments are the payload's; they are counted and passed on, never acted upon. Each caller
//! sleeps until it is answered, so an answer never waits for anything. The host hears of the first call of each
//! number at once, of the rest by count. Where writes are watched too a thread of their own answers both (`writes`).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use blastbox_sys::seccomp::{self, Denied};
use blastbox_sys::spawn;
use blastbox_wire::agent::{AgentFrame, OnDenied};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal};

use crate::control::Control;
use crate::writes::{Sentry, Watch};

/// How long a count may wait for company.
const PATIENCE: Duration = Duration::from_millis(250);
/// Calls that are answered in one turn of the loop: one who does nothing else does not stop it.
const MOST_IN_A_TURN: usize = 64;
/// Numbers that are counted apart. More than any kernel has calls.
const MOST_NUMBERS: usize = 1024;
/// The number under which the rest is counted.
const ANY_OTHER: u32 = u32::MAX;

/// Calls of one number that the host has not heard of.
#[derive(Debug, Default)]
struct Tally {
    count: u64,
    pid: u32,
    arguments: [u64; 3],
}

/// Who answers denied calls.
#[derive(Debug)]
enum Answering {
    /// Nobody is asked: the kernel answers.
    Nobody,
    /// This loop, by the listener.
    Loop(OwnedFd),
    /// A thread, which rings when there is something to pass on.
    Thread(Sentry),
}

/// Who answers, with what was heard and not passed on.
#[derive(Debug)]
pub(crate) struct Denials {
    by: Answering,
    reaction: OnDenied,
    tallies: BTreeMap<u32, Tally>,
    /// When the oldest count was begun.
    since: Option<Instant>,
}

impl Denials {
    pub(crate) fn new(listener: Option<OwnedFd>, watch: Option<Watch>) -> io::Result<Self> {
        let by = match (listener, watch) {
            (None, _) => Answering::Nobody,
            (Some(listener), None) => Answering::Loop(listener),
            (Some(listener), Some(watch)) => Answering::Thread(Sentry::post(listener, watch)?),
        };
        Ok(Self { by, reaction: OnDenied::Record, tallies: BTreeMap::new(), since: None })
    }

    /// What is to be polled.
    pub(crate) fn listener(&self) -> Option<BorrowedFd<'_>> {
        match &self.by {
            Answering::Nobody => None,
            Answering::Loop(listener) => Some(listener.as_fd()),
            Answering::Thread(sentry) => Some(sentry.bell()),
        }
    }

    /// Whether a thread answers, so that calls that change files sleep as well until it has.
    pub(crate) fn watch_writes(&self) -> bool {
        matches!(self.by, Answering::Thread(_))
    }

    /// What the host wants done, besides counting.
    pub(crate) fn react(&mut self, reaction: OnDenied) {
        self.reaction = reaction;
        if let Answering::Thread(sentry) = &self.by {
            sentry.react(reaction);
        }
    }

    /// Answers what waits, a bounded number of calls; or takes what was answered.
    pub(crate) fn answer(&mut self, control: &mut Control) -> io::Result<()> {
        for _ in 0..MOST_IN_A_TURN {
            let listener = match &self.by {
                Answering::Nobody => return Ok(()),
                Answering::Loop(listener) => listener.as_fd(),
                Answering::Thread(_) => {
                    self.hear(false, control);
                    return Ok(());
                }
            };
            // Without this look the kernel would let us sleep until the next denied call.
            if !is_waiting(listener)? {
                return Ok(());
            }
            let Some(denied) = seccomp::receive(listener)? else { continue };
            match self.reaction {
                OnDenied::Record => {}
                OnDenied::Kill => end_box(denied.pid),
            }
            seccomp::refuse(listener, denied.id, seccomp::errno_for(denied.nr, &denied.args))?;
            self.count(denied.nr, &denied, 1, control);
        }
        Ok(())
    }

    /// Takes what the thread has heard.
    fn hear(&mut self, everything: bool, control: &mut Control) {
        let Answering::Thread(sentry) = &self.by else { return };
        let (denied, left) = sentry.hear(everything, control);
        for (number, (first, times)) in denied {
            self.count(number, &first, times, control);
        }
        if left {
            self.since.get_or_insert_with(Instant::now);
        }
    }

    fn count(&mut self, number: u32, denied: &Denied, mut times: u64, control: &mut Control) {
        let [a, b, c, ..] = denied.args;
        let (pid, arguments) = (denied.pid, [a, b, c]);
        let known = self.tallies.contains_key(&number);
        let number = if known || self.tallies.len() < MOST_NUMBERS { number } else { ANY_OTHER };
        let mut first = false;
        let tally = self.tallies.entry(number).or_insert_with(|| {
            first = true;
            Tally::default()
        });
        if first && control.has_room() {
            control.send(&AgentFrame::Denied { number, count: 1, pid, arguments });
            times = times.saturating_sub(1);
            if times == 0 {
                return;
            }
        }
        if tally.count == 0 {
            (tally.pid, tally.arguments) = (pid, arguments);
        }
        tally.count = tally.count.saturating_add(times);
        self.since.get_or_insert_with(Instant::now);
    }

    /// When counts are due: `None` if there are none.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        self.since.map(|since| PATIENCE.saturating_sub(since.elapsed()))
    }

    /// Passes on the counts that are due, if the host reads at all.
    pub(crate) fn flush_if_due(&mut self, control: &mut Control) {
        if self.due_in() == Some(Duration::ZERO) && control.has_room() {
            self.flush(control);
        }
    }

    /// Passes on all counts.
    pub(crate) fn flush(&mut self, control: &mut Control) {
        self.hear(true, control);
        if self.since.take().is_none() {
            return;
        }
        for (&number, tally) in self.tallies.iter_mut().filter(|(_, tally)| tally.count > 0) {
            let Tally { count, pid, arguments } = *tally;
            control.send(&AgentFrame::Denied { number, count, pid, arguments });
            tally.count = 0;
        }
    }
}

/// Whether a denied call waits for its answer.
fn is_waiting(listener: BorrowedFd<'_>) -> io::Result<bool> {
    let mut looked = [PollFd::from_borrowed_fd(listener, PollFlags::IN)];
    rustix::io::retry_on_intr(|| poll(&mut looked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })))?;
    Ok(looked.iter().any(|look| look.revents().contains(PollFlags::IN)))
}

/// Kills every process of the box: whoever sent the caller would send the next one. Where the agent is not the first
/// process, it kills the caller, which sleeps in its call; so the number is still its own. It cannot be the agent, nor a
/// process that cannot be seen from here (0).
pub(crate) fn end_box(pid: u32) {
    if spawn::kill_everything().is_ok() {
        return;
    }
    let pid = i32::try_from(pid).ok().filter(|&pid| pid > 1).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // Already dead is dead.
        rustix::process::kill_process(pid, Signal::KILL).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(nr: u32, pid: u32) -> Denied {
        Denied { id: 0, pid, nr, arch: 0, args: [1, 2, 3, 4, 5, 6] }
    }

    /// A pair of sockets: what the agent sends is read back as frames.
    fn heard(control: &mut Control, host: &OwnedFd) -> Vec<(u32, u64, u32)> {
        control.flush().unwrap();
        let mut bytes = Vec::with_capacity(1 << 20);
        if rustix::io::read(host, rustix::buffer::spare_capacity(&mut bytes)).is_err() {
            return Vec::new();
        }
        let (mut rest, mut heard) = (&bytes[..], Vec::new());
        while let Some((frame, taken)) = blastbox_wire::agent::parse(rest).unwrap() {
            let AgentFrame::Denied { number, count, pid, .. } = frame else { panic!("{frame:?}") };
            heard.push((number, count, pid));
            rest = &rest[taken..];
        }
        heard
    }

    fn pair() -> (Control, OwnedFd) {
        let (agent, host) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::NONBLOCK,
            None,
        )
        .unwrap();
        (Control::new(agent), host)
    }

    #[test]
    fn the_first_call_of_a_number_is_told_at_once_and_the_rest_by_count() {
        let (mut control, host) = pair();
        let mut denials = Denials::new(None, None).unwrap();
        let count = |denials: &mut Denials, pid, control: &mut Control| {
            denials.count(165, &denied(165, pid), 1, control);
        };
        count(&mut denials, 7, &mut control);
        assert_eq!(denials.due_in(), None);
        assert_eq!(heard(&mut control, &host), [(165, 1, 7)]);
        count(&mut denials, 8, &mut control);
        count(&mut denials, 9, &mut control);
        assert!(denials.due_in().is_some());
        assert_eq!(heard(&mut control, &host), []);
        denials.flush(&mut control);
        assert_eq!(heard(&mut control, &host), [(165, 2, 8)]);
        denials.flush(&mut control);
        assert_eq!(heard(&mut control, &host), []);
        assert_eq!(denials.due_in(), None);
    }

    #[test]
    fn numbers_without_end_cannot_make_the_agent_large() {
        let (mut control, host) = pair();
        let mut denials = Denials::new(None, None).unwrap();
        for number in 0..5000 {
            denials.count(number, &denied(number, 2), 1, &mut control);
        }
        assert!(denials.tallies.len() <= MOST_NUMBERS + 1);
        denials.flush(&mut control);
        let told: u64 = heard(&mut control, &host).iter().map(|(_, count, _)| count).sum();
        assert_eq!(told, 5000);
    }
}
