//! Staying awake for a command that is over soon.
//!
//! A guest of the tier `wasm` has often ended before this thread has gone to sleep, and waking it takes longer than all that the guest
//! did: on a virtual machine a processor that was halted is 50 to 150 µs late. So whoever has sent a command looks for its end for a
//! moment, as long as such looks pay: after one that did not, nobody does until a command has been that short again. Others who have
//! something to do have their turn between two looks, tasks of this thread as well as threads of this processor.
//!
//! Only where no other command of this process began or ended a moment ago: while there is one after the other, no processor sleeps, and
//! whoever looked would keep one from the guests (a third fewer of them on two processors).

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recv};
use tokio::net::UnixStream;

use super::Driver;

/// How long a command may take, from its order to its end, to be waited for awake. Half of all Pythons need two thirds of it.
const LONGEST: Duration = Duration::from_micros(750);

/// How long no guest may have begun or ended for processors to be thought asleep.
const CALM: Duration = Duration::from_millis(2);

/// When a guest last began or ended, whatever box it was in.
#[derive(Debug)]
pub(crate) struct Stir {
    start: Instant,
    /// Microseconds since then, and one: 0 is never.
    last: AtomicU64,
}

impl Stir {
    pub(crate) fn new(now: Instant) -> Self {
        Self { start: now, last: AtomicU64::new(0) }
    }

    /// One does now. Whether it was calm until then.
    fn touch(&self, now: Instant) -> bool {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let at = micros(now.saturating_duration_since(self.start)).saturating_add(1);
        let last = self.last.swap(at, Ordering::Relaxed);
        last == 0 || at.saturating_sub(last) >= micros(CALM)
    }
}

/// Whether somebody stays awake for the commands of a box.
#[derive(Debug)]
pub(crate) struct Vigil {
    /// Whether it is worth it: what the last command has shown.
    pays: bool,
    /// When the command was sent that is waited for.
    since: Option<Instant>,
    /// Whether it was calm then.
    calm: bool,
}

impl Vigil {
    /// Of a box whose guests are begun already when somebody asks for them. Nobody can look and work at once on a single processor.
    pub(crate) fn for_guests() -> Option<Self> {
        let several = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
        several.then(Self::hopeful)
    }

    /// Of a box that has run none yet.
    pub(super) fn hopeful() -> Self {
        Self { pays: true, since: None, calm: false }
    }

    /// A command was sent.
    pub(super) fn begin(&mut self, stir: &Stir, now: Instant) {
        (self.since, self.calm) = (Some(now), stir.touch(now));
    }

    /// The last command is over.
    pub(crate) fn end(&mut self, stir: &Stir, now: Instant) {
        stir.touch(now);
        if let Some(since) = self.since.take() {
            self.pays = now.saturating_duration_since(since) < LONGEST;
        }
    }

    /// Until when somebody looks. That it is over is found out here: a worker that says a little again and again, as one that was taken over
    /// may, would be looked at for as long as it does.
    fn until(&self, now: Instant) -> Option<Instant> {
        let until = self.since.filter(|_| self.pays && self.calm).map(|since| since + LONGEST);
        until.filter(|until| *until > now)
    }

    /// It took too long.
    fn give_up(&mut self) {
        self.pays = false;
    }
}

impl Driver {
    /// Until when the channel is looked at again and again.
    pub(super) fn awake_until(&self) -> Option<Instant> {
        // Of a box that is left to somebody else nothing is taken off the channel before it was acted upon.
        self.vigil.as_ref().filter(|_| !self.heritable).and_then(|vigil| vigil.until(Instant::now()))
    }

    /// What the looking brought: something to read, or nothing in time.
    pub(super) fn looked(&mut self, has_said: bool) {
        if !has_said {
            if let Some(vigil) = &mut self.vigil {
                vigil.give_up();
            }
            return;
        }
        match self.take() {
            Ok(0) => self.agent_gone(),
            Ok(_) => drop(self.hear_agent()),
            Err(error) if super::talk::is_patience(&error) => {}
            Err(_) => self.agent_gone(),
        }
    }

    /// Reads once what the kernel has. Tokio may not have seen yet that there is something to read: it is not asked.
    pub(super) fn take(&mut self) -> io::Result<usize> {
        let agent = &self.agent;
        self.log.inbox.fill(|room| Ok(recv(agent, room, RecvFlags::DONTWAIT)?.0))
    }
}

/// Looks until there is something to read, which it says, or until then.
pub(super) async fn look(agent: &UnixStream, until: Instant) -> bool {
    loop {
        let mut seen = [PollFd::new(agent, PollFlags::IN)];
        // What cannot be looked at is found out by reading.
        if poll(&mut seen, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        std::thread::yield_now();
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_stays_awake_as_long_as_commands_are_short_and_come_out_of_a_calm() {
        let start = Instant::now();
        let stir = Stir::new(start);
        let mut vigil = Vigil::hopeful();
        assert_eq!(vigil.until(start), None, "for nobody");
        vigil.begin(&stir, start);
        assert_eq!(vigil.until(start), Some(start + LONGEST));
        assert_eq!(vigil.until(start + LONGEST), None, "whatever it says");
        let mut now = start + LONGEST / 2;
        vigil.end(&stir, now);
        assert_eq!(vigil.until(now), None);

        vigil.begin(&stir, now + CALM / 2);
        assert_eq!(vigil.until(now + CALM / 2), None, "another one has just ended");
        vigil.end(&stir, now + CALM / 2);

        now += CALM * 2;
        vigil.begin(&stir, now);
        assert!(vigil.until(now).is_some());
        vigil.give_up();
        assert_eq!(vigil.until(now), None);
        vigil.end(&stir, now + LONGEST * 2);
        now += CALM * 2;
        vigil.begin(&stir, now);
        assert_eq!(vigil.until(now), None, "the last one was long");
        vigil.end(&stir, now + LONGEST / 2);
        vigil.begin(&stir, now + CALM * 2);
        assert!(vigil.until(now + CALM * 2).is_some(), "and the last one was not");
    }

    #[tokio::test]
    async fn what_is_said_is_seen_without_the_runtime_and_silence_is_over_in_time() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let ours = UnixStream::from_std(ours).unwrap();
        assert!(!look(&ours, Instant::now() + Duration::from_millis(1)).await);
        let far = Instant::now() + Duration::from_secs(20);
        // Others have their turn between two looks.
        let (seen, ()) = tokio::join!(look(&ours, far), async {
            rustix::io::write(&theirs, b"x").unwrap();
        });
        assert!(seen);
        assert!(look(&ours, far).await, "nothing was taken");
        drop(theirs);
        assert!(look(&ours, far).await);
    }
}
