//! The loop that speaks with the host. Guests run on threads of their own; nothing here waits for one.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use blastbox_wire::agent::{AgentFrame, BootFacts, ExecSpec, FrameError, HostFrame, Io, Stage, VERSION};
use blastbox_wire::limits::MAX_AGENT_TEXT;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::Arguments;
use crate::bench::{Bench, Done, Job};
use crate::budget::Budget;
use crate::control::{Control, Received};
use crate::desk::Desk;
use crate::engine::{self, Purpose};
use crate::files::{Caps, Tree};
use crate::guests;
use crate::shelf;
use crate::streams::{Call, OverWindow, Streams};
use crate::tools::Answer;
use crate::workspace;

const CONTROL: u64 = 0;
const BELL: u64 = 1;
/// What the worker itself needs of the box's memory.
const OWN_MEMORY: u64 = 48 << 20;

/// Why the worker ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    #[error("the host asked for it")]
    Shutdown,
    #[error("the host is gone")]
    HostGone,
    #[error("the host does not speak our language")]
    HostBroken(#[source] FrameError),
    #[error("the host broke the protocol: {0}")]
    Breach(&'static str),
    #[error("the worker cannot go on: {0}")]
    Failed(#[source] io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::HostGone,
            _ => Self::Failed(error),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Greeting {
    Awaited,
    Heard,
    Farewell,
}

/// The worker at work.
pub(crate) struct Session {
    epoll: OwnedFd,
    events: Vec<Event>,
    control: Control,
    interest: EventFlags,
    bell: Arc<OwnedFd>,
    bench: Bench,
    desk: Desk,
    running: BTreeMap<u32, Arc<Streams>>,
    /// Guests that have ended while the host was slow to read.
    ended: Vec<Done>,
    greeting: Greeting,
}

impl Session {
    /// Loads the guests, locks the door behind them and says hello. `Err`: the code to leave with.
    pub(crate) fn open(stream: OwnedFd, arguments: &Arguments) -> Result<Self, u8> {
        let mut control = Control::new(stream);
        Self::prepare(arguments)
            .map_err(|why| {
                control.send(&AgentFrame::Fault { text: cut(&why) });
                control.flush().ok();
                1
            })?
            .finish(control)
            .map_err(|_| 1)
    }

    fn prepare(arguments: &Arguments) -> Result<Prepared, String> {
        let broken = |error: wasmtime::Error| format!("no engine: {error}");
        let engine = engine::engine(Purpose::Run, arguments.metering()).map_err(broken)?;
        let shelf = shelf::load(&engine, arguments.metering(), &arguments.guests).map_err(broken)?;
        let budget = Budget::new(arguments.memory.saturating_sub(OWN_MEMORY));
        let caps = Caps { bytes: arguments.disk, entries: arguments.inodes, file: arguments.file_size };
        let mut tree = Tree::new(caps, budget.clone());
        if arguments.deterministic {
            tree.stop_time(crate::clock::BEGINNING);
        }
        guests::furnish(&mut tree, &shelf.guests).map_err(|trouble| format!("no files: {trouble:?}"))?;
        if let Some(access) = arguments.workspace {
            workspace::load(&mut tree, access).map_err(|trouble| trouble.to_string())?;
        }
        let tree = Arc::new(Mutex::new(tree));
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = Arc::new(eventfd(0, flags).map_err(|errno| errno.to_string())?);
        let desk = Desk::new(Arc::clone(&tree));
        let bench = Bench::open(engine, shelf, budget, tree, Arc::clone(&bell), arguments)
            .map_err(|error| error.to_string())?;
        Ok(Prepared { bench, desk, bell })
    }

    /// Works until the end.
    pub(crate) fn run(mut self) -> End {
        let end = loop {
            if let Err(end) = self.turn() {
                break end;
            }
        };
        match &end {
            End::Shutdown | End::HostGone => {}
            End::HostBroken(_) | End::Breach(_) | End::Failed(_) => {
                self.control.send(&AgentFrame::Fault { text: cut(&end.to_string()) });
            }
        }
        // Last words: to a host that does not listen they are lost. Guests end with the process.
        self.control.flush().ok();
        end
    }

    fn turn(&mut self) -> Result<(), End> {
        self.carry();
        self.desk.pump(&mut self.control);
        self.control.flush()?;
        let idle = self.running.is_empty() && self.desk.is_empty();
        if idle && self.greeting == Greeting::Farewell && self.control.is_empty() {
            return Err(End::Shutdown);
        }
        let interest = self.control.interest();
        if interest != self.interest {
            epoll::modify(&self.epoll, &self.control, EventData::new_u64(CONTROL), interest)
                .map_err(io::Error::from)?;
            self.interest = interest;
        }
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(End::Failed(errno.into())),
        }
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            let (token, flags) = (event.data.u64(), event.flags);
            match token {
                BELL => {
                    // Read before anything is carried: a ring that comes meanwhile is heard.
                    rustix::io::read(&self.bell, &mut [0; 8]).ok();
                }
                _ if flags == EventFlags::OUT => {}
                _ => self.hear()?,
            }
        }
        self.events = events;
        Ok(())
    }

    /// Carries what guests wrote and took, and how they ended.
    fn carry(&mut self) {
        if !self.control.has_room() {
            return;
        }
        // First who has ended, then what was written: the end of a guest comes behind its last word.
        self.ended.extend(self.bench.ended());
        for (&exec, streams) in &self.running {
            let carried = streams.carry();
            for (stream, bytes) in &carried.output {
                self.control.send(&AgentFrame::Output { exec, stream: *stream, bytes });
            }
            if let Some(Call { number, tool, input }) = &carried.call {
                self.control.send(&AgentFrame::Call { exec, call: *number, tool, input });
            }
            if carried.taken > 0 {
                self.control.send(&AgentFrame::StdinTaken { exec, bytes: carried.taken });
            }
        }
        for Done { exec, exit, usage } in self.ended.drain(..) {
            self.running.remove(&exec);
            self.control.send(&AgentFrame::Exited { exec, exit, usage });
        }
    }

    fn hear(&mut self) -> Result<(), End> {
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
        match (self.greeting, frame) {
            (_, HostFrame::Shutdown) => return Err(End::Shutdown),
            (_, HostFrame::Ping { token }) => self.control.send(&AgentFrame::Pong { token }),
            // Nobody learns of a denied system call here: what to do about one does not arise.
            // Only boxes of the jail outlive their host.
            (Greeting::Awaited, HostFrame::Begin { heritable: true, .. }) | (_, HostFrame::Resync { .. }) => {
                return Err(End::Breach("another host"));
            }
            (_, HostFrame::Sleep) => return Err(End::Breach("sleep")),
            (Greeting::Awaited, HostFrame::Begin { version: _, on_denied: _, heritable: false }) => {
                self.greeting = Greeting::Heard;
            }
            (Greeting::Awaited, _) => return Err(End::Breach("a command before the begin")),
            (_, HostFrame::Begin { .. }) => return Err(End::Breach("a second begin")),
            (Greeting::Farewell, HostFrame::Exec(_)) => {
                return Err(End::Breach("a command after the farewell"));
            }
            (_, HostFrame::Farewell) => self.greeting = Greeting::Farewell,
            (Greeting::Heard, HostFrame::Exec(spec)) => self.start(spec),
            (_, HostFrame::Stdin { exec, bytes }) => {
                if let Some(streams) = self.running.get(&exec) {
                    streams.push(&bytes).map_err(|OverWindow| End::Breach("input over its window"))?;
                }
            }
            (_, HostFrame::StdinEnd { exec }) => {
                if let Some(streams) = self.running.get(&exec) {
                    streams.end_input();
                }
            }
            // There is no terminal.
            (_, HostFrame::Resize { .. }) => {}
            (_, HostFrame::Signal { exec, signal }) => {
                if ends(signal)
                    && let Some(streams) = self.running.get(&exec)
                {
                    streams.tell(signal);
                    self.bench.interrupt();
                }
            }
            (_, HostFrame::Credit { exec, bytes }) => {
                if let Some(streams) = self.running.get(&exec) {
                    streams.credit(bytes);
                }
            }
            (_, HostFrame::Answer { exec, call, good, bytes }) => {
                if let Some(streams) = self.running.get(&exec) {
                    streams.answer(call, Answer { good, bytes });
                }
            }
            (_, HostFrame::File { op, ask }) => {
                self.desk.hear(op, ask, &mut self.control).map_err(End::Breach)?;
            }
        }
        Ok(())
    }

    /// Starts a command, or tells the host why not.
    fn start(&mut self, spec: ExecSpec) {
        let exec = spec.exec;
        let refuse = |control: &mut Control, stage, errno: Errno| {
            control.send(&AgentFrame::NotStarted { exec, stage, errno: errno.raw_os_error() });
        };
        if self.running.contains_key(&exec) {
            return refuse(&mut self.control, Stage::Admission, Errno::EXIST);
        }
        if self.running.len() >= self.bench.places() {
            return refuse(&mut self.control, Stage::Admission, Errno::AGAIN);
        }
        let has_input = match spec.io {
            Io::Pipes => false,
            Io::PipesWithStdin => true,
            // A guest has no terminal to be given.
            Io::Terminal { .. } => return refuse(&mut self.control, Stage::Streams, Errno::NOTTY),
        };
        let Some(guest) = self.bench.find(spec.arguments.first().map_or(b"", Vec::as_slice)) else {
            return refuse(&mut self.control, Stage::Find, Errno::NOENT);
        };
        if self.desk.is_missing(&spec.directory) {
            return refuse(&mut self.control, Stage::Directory, Errno::NOENT);
        }
        let streams = Arc::new(Streams::new(spec.window, has_input, Arc::clone(&self.bell)));
        self.running.insert(exec, Arc::clone(&streams));
        // Guests are no processes; the host is told the number that it gave, moved past the first process.
        let pid = exec.saturating_add(2);
        self.control.send(&AgentFrame::Started { exec, pid });
        self.bench.give(Job { spec, guest, streams });
    }
}

/// What `open` has before it may say hello.
struct Prepared {
    bench: Bench,
    desk: Desk,
    bell: Arc<OwnedFd>,
}

impl Prepared {
    fn finish(self, mut control: Control) -> io::Result<Session> {
        let Self { bench, desk, bell } = self;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let interest = EventFlags::IN;
        epoll::add(&epoll, &control, EventData::new_u64(CONTROL), interest)?;
        epoll::add(&epoll, &*bell, EventData::new_u64(BELL), EventFlags::IN)?;
        // This thread runs no guest, but reads what they wrote: it is locked like theirs.
        crate::lock::lock()?;
        let facts = BootFacts {
            pid: u32::try_from(rustix::process::getpid().as_raw_nonzero().get()).unwrap_or(0),
            uid: rustix::process::getuid().as_raw(),
            capabilities: 0,
            sees_denials: false,
            kernel: crate::engine::LABEL.to_owned(),
        };
        control.send(&AgentFrame::Hello { version: VERSION, facts });
        Ok(Session {
            epoll,
            events: Vec::with_capacity(8),
            control,
            interest,
            bell,
            bench,
            desk,
            running: BTreeMap::new(),
            ended: Vec::new(),
            greeting: Greeting::Awaited,
        })
    }
}

/// Whether a signal ends a process that has not asked for it: a guest cannot ask.
fn ends(signal: u8) -> bool {
    // SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH
    (1..=64).contains(&signal) && !matches!(signal, 17..=23 | 28)
}

/// As much of a text as a frame may hold.
fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_AGENT_TEXT)).unwrap_or_default()
}
