//! The loop: everything that the agent does, it does because something became ready here.
//!
//! Nothing in it waits for a command or for the host. A command that made a denied call sleeps until the loop answers
//! it; a loop that slept for that command would sleep for ever.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use blastbox_wire::agent::{AgentFrame, BootFacts, FrameError, HostFrame, VERSION};
use blastbox_wire::limits::MAX_AGENT_TEXT;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::control::{Control, Received};
use crate::denials::Denials;
use crate::execs::{Execs, FIRST_TOKEN, Volunteering};
use crate::failpoint;
use crate::files::{self, Files, Wrong};
use crate::harden::House;
use crate::input::OverWindow;
use crate::nurse::Nurse;
use crate::reap::{self, Reaper};
use crate::scratch::Scratch;
use crate::sudo::{self, Sudo};
use crate::writes::Watch;

const CONTROL: u64 = 0;
const CHILDREN: u64 = 1;
const DENIALS: u64 = 2;
/// Events taken in one turn.
const EVENTS: usize = 64;

/// Why the agent ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    /// The host asked for it, now or for the end of the last command.
    #[error("the host asked for it")]
    Shutdown,
    /// The host's end of the stream is closed.
    #[error("the host is gone")]
    HostGone,
    /// What the host sent is not a frame.
    #[error("the host does not speak our language")]
    HostBroken(#[source] FrameError),
    /// The host sent a frame that may not come now.
    #[error("the host broke the protocol: {0}")]
    Breach(&'static str),
    /// The kernel refused something that the agent cannot do without.
    #[error("the agent cannot go on")]
    Failed(#[source] io::Error),
}

impl From<Wrong> for End {
    fn from(wrong: Wrong) -> Self {
        match wrong {
            Wrong::Breach(what) => Self::Breach(what),
            Wrong::Stuck(error) => Self::Failed(error),
        }
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::HostGone,
            _ => Self::Failed(error),
        }
    }
}

/// Whether the host has said `Begin`, and whether it has said its farewell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Greeting {
    Awaited,
    Heard,
    /// No other command follows.
    Farewell,
}

/// The agent at work.
pub(crate) struct Session {
    epoll: OwnedFd,
    events: Vec<Event>,
    pub(crate) control: Control,
    /// What the stream to the host is watched for.
    interest: EventFlags,
    children: Reaper,
    pub(crate) denials: Denials,
    execs: Execs,
    files: Files,
    sudo: Sudo,
    scratch: Scratch,
    /// Whoever keeps the powers of a guest.
    pub(crate) nurse: Option<Nurse>,
    greeting: Greeting,
}

impl Session {
    /// Sets up the loop and says hello.
    pub(crate) fn open(house: House) -> io::Result<Self> {
        let House { control, denials, payload, capabilities, root, writes, nurse, lending } = house;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        // First: a thread inherits which signals are held back, and one that did not would be told of children in our stead.
        let (children, interest) = (Reaper::new()?, EventFlags::IN);
        let watch = writes.map(|workplace| Watch { workplace, payload, root });
        let (mut control, denials) = (Control::new(control), Denials::new(denials, watch)?);
        epoll::add(&epoll, &control, EventData::new_u64(CONTROL), interest)?;
        epoll::add(&epoll, &children, EventData::new_u64(CHILDREN), EventFlags::IN)?;
        if let Some(listener) = denials.listener() {
            epoll::add(&epoll, listener, EventData::new_u64(DENIALS), EventFlags::IN)?;
        }
        let facts = BootFacts {
            pid: u32::try_from(rustix::process::getpid().as_raw_nonzero().get()).unwrap_or(0),
            uid: rustix::process::getuid().as_raw(),
            capabilities: capabilities.bits(),
            sees_denials: denials.listener().is_some(),
            kernel: cut(&rustix::system::uname().release().to_string_lossy()).to_owned(),
        };
        control.send(&AgentFrame::Hello { version: VERSION, facts });
        let oom = if denials.watch_writes() { Volunteering::ByAgent } else { Volunteering::ByItself };
        let (execs, files) = (Execs::new(payload, root, oom, lending), Files::new(payload, root));
        let (sudo, greeting) = (Sudo::open(root, oom, &epoll)?, Greeting::Awaited);
        let events = Vec::with_capacity(EVENTS);
        Ok(Self {
            epoll,
            events,
            control,
            interest,
            children,
            denials,
            execs,
            files,
            sudo,
            scratch: Scratch::default(),
            nurse,
            greeting,
        })
    }

    /// Works until the end, and takes the box with it.
    pub(crate) fn run(mut self) -> End {
        let end = match self.be_copied() {
            Ok(()) => loop {
                if let Err(end) = self.turn() {
                    break end;
                }
            },
            Err(end) => end,
        };
        self.denials.flush(&mut self.control);
        match &end {
            End::Shutdown | End::HostGone => {}
            End::HostBroken(_) | End::Breach(_) | End::Failed(_) => {
                self.control.send(&AgentFrame::Fault { text: cut(&end.to_string()) });
            }
        }
        // Last words: to a host that does not listen they are lost.
        self.control.flush().ok();
        reap::end_everything(self.execs.pids().chain(self.sudo.pids()));
        end
    }

    fn turn(&mut self) -> Result<(), End> {
        self.control.flush()?;
        let idle = self.execs.is_empty() && self.files.is_empty();
        if idle && self.greeting == Greeting::Farewell && self.control.is_empty() {
            return Err(End::Shutdown);
        }
        self.watch_control()?;
        if idle {
            self.control.relax();
        }
        self.wait()?;
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            let (token, flags) = (event.data.u64(), event.flags);
            match token {
                // First of all the answers: somebody sleeps for each of them.
                DENIALS => self.answer_denied(flags)?,
                CONTROL if flags == EventFlags::OUT => {}
                CONTROL => self.hear_host()?,
                CHILDREN => self.children.quiet(),
                files::FIRST_TOKEN.. => self.files.ready(token),
                sudo::FIRST_TOKEN.. => self.sudo.ready(token, &self.epoll),
                FIRST_TOKEN.. => self.execs.ready(token, &mut self.control),
                _ => {}
            }
        }
        self.events = events;
        self.reap();
        let found = (&mut self.scratch, self.nurse.as_ref());
        self.execs.pump(&mut self.control, &mut self.denials, found);
        self.files.pump(&mut self.control)?;
        self.denials.flush_if_due(&mut self.control);
        Ok(())
    }

    /// Sleeps until something is ready.
    fn wait(&mut self) -> Result<(), End> {
        let has_work = self.execs.have_work() || self.files.have_work();
        let busy = self.children.has_more() || (has_work && self.control.has_room());
        let patience = if busy {
            Some(Duration::ZERO)
        } else {
            // Rounded up: a little too early would be a turn for nothing.
            self.denials.due_in().map(|due| due.saturating_add(Duration::from_millis(1)))
        };
        let patience = patience.map(|patience| Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: patience.subsec_nanos().into(),
        });
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), patience.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(End::Failed(errno.into())),
        }
    }

    fn watch_control(&mut self) -> io::Result<()> {
        let interest = self.control.interest();
        if interest != self.interest {
            epoll::modify(&self.epoll, &self.control, EventData::new_u64(CONTROL), interest)?;
            self.interest = interest;
        }
        Ok(())
    }

    fn answer_denied(&mut self, flags: EventFlags) -> Result<(), End> {
        if flags.contains(EventFlags::IN) {
            self.denials.answer(&mut self.control)?;
        } else if let Some(listener) = self.denials.listener() {
            // Nobody lives under the filter any more; the kernel would say so for ever.
            epoll::delete(&self.epoll, listener).map_err(io::Error::from)?;
        }
        Ok(())
    }

    fn reap(&mut self) {
        for _ in 0..reap::MOST_IN_A_TURN {
            if !self.children.has_more() {
                return;
            }
            if let Some(dead) = self.children.next() {
                self.execs.ended(&dead, &mut self.control);
                self.sudo.ended(&dead);
            }
        }
    }

    fn hear_host(&mut self) -> Result<(), End> {
        let received = self.control.receive()?;
        while let Some(frame) = self.control.next().map_err(End::HostBroken)? {
            self.obey(frame)?;
        }
        match received {
            Received::Bytes => Ok(()),
            Received::End => Err(End::HostGone),
        }
    }

    fn obey(&mut self, frame: HostFrame) -> Result<(), End> {
        failpoint::hear(&frame);
        match (self.greeting, frame) {
            (_, HostFrame::Shutdown) => return Err(End::Shutdown),
            (_, HostFrame::Ping { token }) => {
                self.scratch.look(&mut self.control, self.nurse.as_ref());
                self.control.send(&AgentFrame::Pong { token });
            }
            // A host newer than this agent adapts to it: any version is welcome.
            (Greeting::Awaited, HostFrame::Begin { version: _, on_denied, heritable }) => {
                if !heritable {
                    self.control.expect_no_heirs();
                }
                self.denials.react(on_denied);
                self.greeting = Greeting::Heard;
            }
            (Greeting::Awaited, _) => return Err(End::Breach("a command before the begin")),
            (_, HostFrame::Begin { .. }) => return Err(End::Breach("a second begin")),
            (Greeting::Farewell, HostFrame::Exec(_)) => {
                return Err(End::Breach("a command after the farewell"));
            }
            (_, HostFrame::Farewell) => self.greeting = Greeting::Farewell,
            (Greeting::Heard, HostFrame::Exec(spec)) => {
                self.execs.start(spec, &self.epoll, &mut self.control)
            }
            (_, HostFrame::Stdin { exec, bytes }) => {
                if let Some(exec) = self.execs.get(exec) {
                    exec.input().push(bytes).map_err(|OverWindow| End::Breach("input over its window"))?;
                }
            }
            (_, HostFrame::StdinEnd { exec }) => {
                if let Some(exec) = self.execs.get(exec) {
                    exec.input().end();
                }
            }
            (_, HostFrame::Resize { exec, rows, columns }) => {
                self.execs.resize(exec, rows, columns);
            }
            (_, HostFrame::Signal { exec, signal }) => self.execs.signal(exec, signal),
            (_, HostFrame::Credit { exec, bytes }) => {
                if let Some(exec) = self.execs.get(exec) {
                    exec.add_credit(bytes);
                }
            }
            (_, HostFrame::File { op, ask }) => {
                self.files.hear(op, ask, &self.epoll, &mut self.control)?;
            }
            // Commands here are offered no functions, so none waits for an answer.
            (_, HostFrame::Answer { .. }) => {}
            (_, HostFrame::Resync { token }) => {
                self.files.stop_all(&mut self.control)?;
                // Before it says how it stands, so that it is no news.
                self.scratch.repeat(&mut self.control);
                let (printed, execs) = self.execs.stand();
                self.control.send(&AgentFrame::Standing { token, printed, execs });
            }
            (_, HostFrame::Sleep) => self.sleep()?,
        }
        Ok(())
    }
}

/// As much of a text as a frame may hold.
fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_AGENT_TEXT)).unwrap_or_default()
}
