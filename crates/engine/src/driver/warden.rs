//! Between the driver and the warden: its words about the box, its clock, and a box that is asked for once more.

use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use blastbox_wire::warden::Ask;
use tokio::net::UnixStream;
use tokio::time::Instant;

use super::{Driver, Launch};
use crate::error::{PauseError, because};
use crate::inbox::Inbox;
use crate::link::Word;
use crate::outcome::{Ending, Loss};
use crate::state::{Cure, Event, Load, State, Stop, cure};

/// How much later than the driver the warden ends a box.
const GRACE: Duration = Duration::from_secs(5);

impl Driver {
    /// Tells the warden when it is to end the box by its own clock, should this process hang or be stopped.
    pub(super) fn say_until(&mut self) {
        let left = self.deadline.saturating_duration_since(Instant::now()).saturating_add(GRACE);
        let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        // An error means that the warden is gone, and the box with it.
        self.house.link.say(Ask::Until { box_id: self.id.clone(), millis }).ok();
    }

    pub(super) fn hear_warden(&mut self, word: Word) {
        self.making = None;
        match word {
            Word::Launched => {}
            Word::Counted(spent) => self.counted(&spent),
            Word::Failed { tried, errno } => {
                self.launch_failed(tried, errno);
            }
            Word::Ended(spent) => {
                // It died by itself: its last words may still lie in the socket.
                if self.state != State::Teardown {
                    self.drain();
                }
                self.log.spent = self.spent_in_all(spent);
                self.log.stopped.get_or_insert_with(Instant::now);
                if self.state != State::Teardown {
                    let ending = match self.is_done() {
                        true => Ending::Dismissed,
                        // The warden's clock was faster than a process that hung, or was stopped.
                        false if Instant::now() >= self.deadline => Ending::TimedOut,
                        false => Ending::Lost(Loss::AgentGone),
                    };
                    self.log.ending.get_or_insert(ending);
                }
                self.happen(Event::Released);
            }
            Word::Paused => self.paused(Event::Paused),
            Word::Resumed => {
                let load = if self.log.execs.is_empty() { Load::Idle } else { Load::Busy };
                self.paused(Event::Resumed(load));
            }
            // The box is not as its owner was told, and nobody would ever find out why it does not answer.
            Word::NotPaused { tried, errno } if self.undoing => {
                self.stop(Stop::Asked, Ending::Lost(Loss::NotUndone(format!("{tried}{}", because(errno)))));
            }
            Word::NotPaused { tried, errno } => {
                self.answer_pause(Err(PauseError::Host { tried, errno }));
            }
            Word::WardenGone => self.stop(Stop::WardenLost, Ending::Lost(Loss::WardenGone)),
            Word::Swept => {
                self.happen(Event::Released);
            }
        }
    }

    /// The warden could not make the box, and has left nothing of it.
    fn launch_failed(&mut self, tried: String, errno: i32) {
        self.log.failures += 1;
        let cure = if self.again.is_some() { cure(self.log.failures, errno) } else { Cure::Nothing };
        if cure == Cure::Retry && self.happen(Event::LaunchFailed(cure)) {
            // Its channel is closed, and so is what was waited for because of that.
            self.deadline = self.log.mute.take().unwrap_or(self.deadline);
            return;
        }
        self.log.ending.get_or_insert(Ending::LaunchFailed { tried, errno });
        self.happen(Event::LaunchFailed(Cure::Nothing));
        self.happen(Event::Released);
    }

    /// Asks the warden once more, over a fresh channel, on which everything is said again that nobody has heard.
    pub(super) fn launch_again(&mut self) {
        let asked = self.again.as_ref().map(|Launch { plan, directories }| -> io::Result<UnixStream> {
            let (ours, theirs) = StdStream::pair()?;
            ours.set_nonblocking(true)?;
            let ours = UnixStream::from_std(ours)?;
            let directories = directories.iter().map(OwnedFd::try_clone);
            let fds = std::iter::once(Ok(theirs.into())).chain(directories).collect::<io::Result<_>>()?;
            self.house.link.say_with(Ask::Launch(plan.clone()), fds).map_err(io::Error::other)?;
            Ok(ours)
        });
        match asked {
            Some(Ok(ours)) => {
                self.agent = ours;
                if self.heritable {
                    self.bequeath();
                }
                self.log.inbox = Inbox::default();
                self.log.outbox = mem::take(&mut self.log.unheard);
                self.log.unheard = self.log.outbox.clone();
                self.flush();
                self.say_until();
            }
            Some(Err(_)) | None => self.stop(Stop::WardenLost, Ending::Lost(Loss::WardenGone)),
        }
    }
}
