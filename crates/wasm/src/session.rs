//! What is done with the words of the host, by whichever thread heard of them (`ear`); a command is run by the thread that read it. So
//! nobody has to be woken before a command begins. Nothing here waits for a guest.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use blastbox_wire::agent::{AgentFrame, BootFacts, ExecSpec, FrameError, HostFrame, Io, Stage, VERSION};
use blastbox_wire::limits::MAX_AGENT_TEXT;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use crate::Arguments;
use crate::bench::{Bench, Job};
use crate::budget::Budget;
use crate::control::{Control, Received};
use crate::desk::Desk;
use crate::ear::Heard;
use crate::engine;
use crate::files::{Caps, Tree};
use crate::guests;
use crate::shelf;
use crate::streams::{OverWindow, Streams};
use crate::tools::Answer;
use crate::voice::{Mouth, Voice, tell};
use crate::workspace;

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

/// The talk with the host.
pub(crate) struct Session {
    /// What the ear was told to expect of the host.
    interest: EventFlags,
    voice: Arc<Voice>,
    bench: Bench,
    desk: Desk,
    /// Commands that were heard and not handed on.
    asked: Vec<Job>,
    greeting: Greeting,
}

impl Session {
    /// Loads the guests, locks the door behind them and says hello. `Err`: the code to leave with.
    pub(crate) fn open(stream: OwnedFd, arguments: &Arguments) -> Result<Self, u8> {
        let voice = Arc::new(Voice::new(Control::new(stream)).map_err(|_| 1)?);
        Self::prepare(arguments, &voice)
            .map_err(|why| {
                let control = &mut voice.mouth().control;
                control.send(&AgentFrame::Fault { text: cut(&why) });
                control.flush().ok();
                1
            })?
            .finish()
            .map_err(|_| 1)
    }

    fn prepare(arguments: &Arguments, voice: &Arc<Voice>) -> Result<Prepared, String> {
        let broken = |error: wasmtime::Error| format!("no engine: {error}");
        let engine = engine::of_worker(arguments.metering()).map_err(broken)?;
        let shelf = shelf::load(&engine, arguments.metering(), &arguments.guests).map_err(broken)?;
        let budget = Budget::new(arguments.memory.saturating_sub(OWN_MEMORY));
        voice.mouth().met = budget.met();
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
        let desk = Desk::new(Arc::clone(&tree));
        let bench = Bench::open(engine, shelf, budget, tree, Arc::clone(voice), arguments)
            .map_err(|error| error.to_string())?;
        Ok(Prepared { bench, desk, voice: Arc::clone(voice) })
    }

    /// Works until the end.
    pub(crate) fn run(self) -> End {
        let bench = self.bench.clone();
        bench.preside(self)
    }

    /// Takes in what the host said and says what there is to say. The commands to run.
    pub(crate) fn turn(&mut self, heard: Heard) -> Result<Vec<Job>, End> {
        self.talk(heard).inspect_err(|end| {
            let control = &mut self.voice.mouth().control;
            match end {
                End::Shutdown | End::HostGone => {}
                End::HostBroken(_) | End::Breach(_) | End::Failed(_) => {
                    control.send(&AgentFrame::Fault { text: cut(&end.to_string()) });
                }
            }
            // Last words: to a host that does not listen they are lost. Guests end with the process.
            control.flush().ok();
        })?;
        Ok(std::mem::take(&mut self.asked))
    }

    fn talk(&mut self, heard: Heard) -> Result<(), End> {
        loop {
            let received = self.hear()?;
            let interest = self.say()?;
            if interest != self.interest {
                self.bench.expect(&self.voice.mouth().control, interest)?;
                self.interest = interest;
            }
            let more = received == Received::Much || heard == Heard::LastWords;
            if !self.asked.is_empty() && heard != Heard::LastWords {
                // Commands do not wait for what comes behind them: it is told of once more.
                return Ok(self.bench.expect(&self.voice.mouth().control, interest)?);
            }
            // What is left of a host that does not read waits until it does, and is told again then.
            if !more || !interest.contains(EventFlags::IN) {
                return Ok(());
            }
        }
    }

    /// Says what there is to say. Returns what is waited for.
    fn say(&mut self) -> Result<EventFlags, End> {
        let mut mouth = self.voice.mouth();
        loop {
            mouth.carry(&self.voice);
            self.desk.pump(&mut mouth.control);
            let was_full = !mouth.control.has_room();
            mouth.control.flush()?;
            // What was left behind a full queue has room now: it would wait for the next event.
            if !was_full || !mouth.control.has_room() {
                break;
            }
        }
        let idle = mouth.running.is_empty() && self.desk.is_empty();
        if idle && self.greeting == Greeting::Farewell && mouth.control.is_empty() {
            return Err(End::Shutdown);
        }
        Ok(mouth.control.interest())
    }

    /// Reads once, as long as there is room for answers.
    fn hear(&mut self) -> Result<Received, End> {
        let voice = Arc::clone(&self.voice);
        let mouth = &mut *voice.mouth();
        if !mouth.control.interest().contains(EventFlags::IN) {
            return Ok(Received::Much);
        }
        let received = mouth.control.receive()?;
        while let Some(frame) = mouth.control.next().map_err(End::HostBroken)? {
            self.obey(mouth, frame)?;
        }
        match received {
            Received::End => Err(End::HostGone),
            all_or_much => Ok(all_or_much),
        }
    }

    fn obey(&mut self, mouth: &mut Mouth, frame: HostFrame) -> Result<(), End> {
        match (self.greeting, frame) {
            (_, HostFrame::Shutdown) => return Err(End::Shutdown),
            (_, HostFrame::Ping { token }) => {
                tell(&mut mouth.control, &mouth.met);
                mouth.control.send(&AgentFrame::Pong { token });
            }
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
            (_, HostFrame::Farewell) => {
                self.greeting = Greeting::Farewell;
                mouth.farewell = true;
            }
            (Greeting::Heard, HostFrame::Exec(spec)) => self.start(mouth, spec),
            (_, HostFrame::Stdin { exec, bytes }) => {
                if let Some(streams) = mouth.running.get(&exec) {
                    streams.push(&bytes).map_err(|OverWindow| End::Breach("input over its window"))?;
                }
            }
            (_, HostFrame::StdinEnd { exec }) => {
                if let Some(streams) = mouth.running.get(&exec) {
                    streams.end_input();
                }
            }
            // There is no terminal.
            (_, HostFrame::Resize { .. }) => {}
            (_, HostFrame::Signal { exec, signal }) => {
                if ends(signal)
                    && let Some(streams) = mouth.running.get(&exec)
                {
                    streams.tell(signal);
                    self.bench.interrupt();
                }
            }
            (_, HostFrame::Credit { exec, bytes }) => {
                if let Some(streams) = mouth.running.get(&exec) {
                    streams.credit(bytes);
                }
            }
            (_, HostFrame::Answer { exec, call, good, bytes }) => {
                if let Some(streams) = mouth.running.get(&exec) {
                    streams.answer(call, Answer { good, bytes });
                }
            }
            (_, HostFrame::File { op, ask }) => {
                self.desk.hear(op, ask, &mut mouth.control).map_err(End::Breach)?;
            }
        }
        Ok(())
    }

    /// Starts a command, or tells the host why not.
    fn start(&mut self, mouth: &mut Mouth, spec: ExecSpec) {
        let exec = spec.exec;
        let refuse = |control: &mut Control, stage, errno: Errno| {
            control.send(&AgentFrame::NotStarted { exec, stage, errno: errno.raw_os_error() });
        };
        if mouth.running.contains_key(&exec) {
            return refuse(&mut mouth.control, Stage::Admission, Errno::EXIST);
        }
        if mouth.running.len() >= self.bench.places() {
            return refuse(&mut mouth.control, Stage::Admission, Errno::AGAIN);
        }
        let has_input = match spec.io {
            Io::Pipes => false,
            Io::PipesWithStdin => true,
            // A guest has no terminal to be given.
            Io::Terminal { .. } => return refuse(&mut mouth.control, Stage::Streams, Errno::NOTTY),
        };
        let Some(guest) = self.bench.find(spec.arguments.first().map_or(b"", Vec::as_slice)) else {
            return refuse(&mut mouth.control, Stage::Find, Errno::NOENT);
        };
        if self.desk.is_missing(&spec.directory) {
            return refuse(&mut mouth.control, Stage::Directory, Errno::NOENT);
        }
        let streams = Arc::new(Streams::new(spec.window, has_input, Arc::clone(&self.voice)));
        mouth.running.insert(exec, Arc::clone(&streams));
        // Guests are no processes; the host is told the number that it gave, moved past the first process.
        let pid = exec.saturating_add(2);
        mouth.control.send(&AgentFrame::Started { exec, pid });
        self.asked.push(Job { spec, guest, streams });
    }
}

/// What `open` has before it may say hello.
struct Prepared {
    bench: Bench,
    desk: Desk,
    voice: Arc<Voice>,
}

impl Prepared {
    fn finish(self) -> io::Result<Session> {
        let Self { bench, desk, voice } = self;
        let mut mouth = voice.mouth();
        let facts = BootFacts {
            pid: u32::try_from(rustix::process::getpid().as_raw_nonzero().get()).unwrap_or(0),
            uid: rustix::process::getuid().as_raw(),
            capabilities: 0,
            sees_denials: false,
            kernel: crate::engine::LABEL.to_owned(),
        };
        // This thread runs no guest and hears none, and is locked like theirs all the same: it cannot even ask who it is any more.
        crate::lock::lock()?;
        mouth.control.send(&AgentFrame::Hello { version: VERSION, facts });
        drop(mouth);
        // Said by whoever listens first: nobody waits for a word of the host to greet it.
        voice.ring();
        let (interest, asked) = (EventFlags::IN, Vec::new());
        Ok(Session { interest, voice, bench, desk, asked, greeting: Greeting::Awaited })
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
