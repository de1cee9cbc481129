//! What is said to the host, by whichever thread has something to say: whoever had to wake another one for it would be heard that
//! much later.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blastbox_wire::agent::AgentFrame;
use rustix::event::{EventfdFlags, eventfd};

use crate::bench::Done;
use crate::budget::Met;
use crate::control::Control;
use crate::streams::{Call, Streams};

/// The way to the host.
pub(crate) struct Voice {
    /// Wakes the thread that listens to the host.
    bell: OwnedFd,
    mouth: Mutex<Mouth>,
    /// Commands that have ended and whose end was not told.
    done: Mutex<Vec<Done>>,
}

/// What there is to say.
pub(crate) struct Mouth {
    pub(crate) control: Control,
    pub(crate) running: BTreeMap<u32, Arc<Streams>>,
    /// Guests that have ended while the host was slow to read.
    ended: Vec<Done>,
    /// Limits that guests have met.
    pub(crate) met: Arc<Met>,
    /// Whether whoever listens has to know of the last end.
    pub(crate) farewell: bool,
}

impl Voice {
    pub(crate) fn new(control: Control) -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mouth = Mouth {
            control,
            running: BTreeMap::new(),
            ended: Vec::new(),
            met: Arc::default(),
            farewell: false,
        };
        Ok(Self { bell, mouth: Mutex::new(mouth), done: Mutex::default() })
    }

    /// One that nobody hears: no command ever runs by it, so nothing is said.
    #[cfg(any(test, feature = "compiler"))]
    pub(crate) fn unheard() -> io::Result<Arc<Self>> {
        let nowhere = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Self::new(Control::new(nowhere)).map(Arc::new)
    }

    pub(crate) fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// Never while anything of a guest is held. A thread that panicked aborts the worker, so no lock is ever poisoned.
    pub(crate) fn mouth(&self) -> MutexGuard<'_, Mouth> {
        self.mouth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes whoever listens to the host.
    pub(crate) fn ring(&self) {
        // Full means that it rings already.
        rustix::io::write(&self.bell, &1_u64.to_ne_bytes()).ok();
    }

    /// Says what there is to say, or has it said. Called without any lock.
    pub(crate) fn speak(&self) {
        // Whoever holds it may have looked before this was there, and has to look again.
        if !self.mouth.try_lock().is_ok_and(|mut mouth| mouth.speak(self)) {
            self.ring();
        }
    }

    /// Tells how a command ended, behind its last words.
    pub(crate) fn end(&self, done: Done) {
        self.done().push(done);
        self.speak();
    }

    fn done(&self) -> MutexGuard<'_, Vec<Done>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mouth {
    /// Whether all was said, and whoever listens needs to know nothing of it.
    fn speak(&mut self, voice: &Voice) -> bool {
        loop {
            self.carry(voice);
            let was_full = !self.control.has_room();
            if self.control.flush().is_err() {
                // What went wrong goes wrong again where it is told.
                return false;
            }
            // What was left behind a full queue has room now, and nobody else would come for it.
            if !was_full || !self.control.has_room() {
                return self.control.is_empty() && !self.farewell;
            }
        }
    }

    /// Carries what guests wrote and took, and how they ended.
    pub(crate) fn carry(&mut self, voice: &Voice) {
        let Self { control, running, ended, met, farewell: _ } = self;
        if !control.has_room() {
            return;
        }
        // First who has ended, then what was written: the end of a guest comes behind its last word.
        ended.append(&mut voice.done());
        for (&exec, streams) in &*running {
            let carried = streams.carry();
            for (stream, bytes) in &carried.output {
                control.send(&AgentFrame::Output { exec, stream: *stream, bytes });
            }
            if let Some(Call { number, tool, input }) = &carried.call {
                control.send(&AgentFrame::Call { exec, call: *number, tool, input });
            }
            if carried.taken > 0 {
                control.send(&AgentFrame::StdinTaken { exec, bytes: carried.taken });
            }
        }
        if !ended.is_empty() {
            tell(control, met);
        }
        for Done { exec, exit, usage } in ended.drain(..) {
            running.remove(&exec);
            control.send(&AgentFrame::Exited { exec, exit, usage });
        }
    }
}

/// Tells the host which limits were met since it was told last: before the end of a command, and before a sign of life.
pub(crate) fn tell(control: &mut Control, met: &Met) {
    let met = met.take();
    if met.contains(&true) {
        control.send(&AgentFrame::Full { met });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blastbox_wire::agent::{Exit, Usage};
    use rustix::fs::{MemfdFlags, memfd_create};

    #[test]
    fn an_end_behind_a_full_queue_is_told_as_soon_as_the_queue_is_sent() {
        // A host that takes everything at once.
        let host = memfd_create("host", MemfdFlags::CLOEXEC).unwrap();
        let voice = Voice::new(Control::new(host)).unwrap();
        while voice.mouth().control.has_room() {
            voice.mouth().control.send(&AgentFrame::Pong { token: 1 });
        }
        let usage = Usage { user_micros: 0, system_micros: 0, peak_bytes: 0, fuel: None };
        voice.end(Done { exec: 7, exit: Exit::Code(0), usage });
        assert!(voice.done().is_empty() && voice.mouth().control.is_empty());
    }
}
