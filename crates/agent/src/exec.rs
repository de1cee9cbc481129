//! One command, from its start to its last frame.
//!
//! ```text
//! Starting ──the program runs──► Running ──its process ended──► Ended ──output passed on──► (Exited)
//!     └──it does not──► (NotStarted)
//! ```

use std::os::fd::{AsFd, OwnedFd};

use blastbox_sys::spawn::{self, Dead, Identity, Memory, Spawn, Spawned, Terminal};
use blastbox_wire::agent::{AgentFrame, ExecSpec, Exit, Io, Stage, StandingExec, Usage};
use blastbox_wire::limits::OUTPUT_WINDOW;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::control::Control;
use crate::failpoint;
use crate::find;
use crate::input::{Ending, Input};
use crate::output::{Output, Source};
use crate::streams::{self, Theirs, User};

/// How gladly the kernel kills commands when the box's memory runs out: all of them before the agent.
pub(crate) const FIRST_TO_GO: i16 = 1000;

/// Why a command was not started: what failed, and the errno.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotStarted(pub(crate) Stage, pub(crate) i32);

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Outcome,
    Input,
    Output,
    Error,
}

impl Part {
    /// Number of the part in an event's token.
    pub(crate) fn number(self) -> u64 {
        match self {
            Self::Outcome => 0,
            Self::Input => 1,
            Self::Output => 2,
            Self::Error => 3,
        }
    }
}

#[derive(Debug)]
enum Phase {
    Starting { pid: Pid, outcome: OwnedFd },
    Running { pid: Pid },
    Ended { exit: Exit, usage: Usage },
}

/// A command.
#[derive(Debug)]
pub(crate) struct Exec {
    number: u32,
    phase: Phase,
    input: Input,
    outputs: [Option<Output>; 2],
    io: Io,
    credit: u64,
    printed: u64,
}

impl Exec {
    /// Starts a command. `token` gives the number under which events about a part of it arrive.
    pub(crate) fn start(
        spec: ExecSpec,
        user: Option<Identity>,
        oom_score_adj: Option<i16>,
        memory: Memory,
        epoll: &OwnedFd,
        token: impl Fn(Part) -> u64,
    ) -> Result<Self, NotStarted> {
        let ExecSpec { exec, arguments, environment, directory, user: _, io, window } = spec;
        let programs = find::candidates(arguments.first().map_or(b"", Vec::as_slice), &environment)?;
        let texts = |texts: Vec<Vec<u8>>| texts.into_iter().map(find::text).collect::<Result<Vec<_>, _>>();
        let (arguments, environment) = (texts(arguments)?, texts(environment)?);
        let directory =
            find::text(directory).map_err(|NotStarted(_, errno)| NotStarted(Stage::Directory, errno))?;
        let broken = |errno: Errno| NotStarted(Stage::Streams, errno.raw_os_error());
        let theirs = user.map_or(User::Same, User::Other);
        let streams = streams::open(io, theirs).map_err(broken)?;
        let (terminal, source, ending) = match &streams.theirs {
            Theirs::Pipes { .. } => (Terminal::None, Source::Output, Ending::Close),
            Theirs::Terminal(_) => (Terminal::Controlling, Source::Terminal, Ending::Type),
        };
        let watch = |fd: &dyn AsFd, part, flags| {
            let data = EventData::new_u64(token(part));
            epoll::add(epoll, fd.as_fd(), data, flags | EventFlags::ET).map_err(broken)
        };
        // Before the fork: a start that fails here has started nothing.
        watch(&streams.output, Part::Output, EventFlags::IN)?;
        if let Some(error) = &streams.error {
            watch(error, Part::Error, EventFlags::IN)?;
        }
        if let Some(input) = &streams.input {
            watch(input, Part::Input, EventFlags::OUT)?;
        }
        let spawned = spawn::spawn(&Spawn {
            programs: &programs,
            arguments: &arguments,
            environment: &environment,
            directory: &directory,
            identity: user,
            streams: streams.theirs.standard(),
            terminal,
            oom_score_adj,
            memory,
        });
        let Spawned { pid, outcome } = spawned.map_err(not_started)?;
        if let Err(refused) = watch(&outcome, Part::Outcome, EventFlags::IN) {
            // Nobody would hear of it: it must not run. Its end is heard of as that of a stranger.
            spawn::signal_group(pid, 9).ok();
            return Err(refused);
        }
        let streams::Streams { input, output, error, theirs: _ } = streams;
        Ok(Self {
            number: exec,
            phase: Phase::Starting { pid, outcome },
            input: Input::new(input, ending),
            outputs: [Some(Output::new(source, output)), error.map(|from| Output::new(Source::Error, from))],
            io,
            credit: u64::from(window),
            printed: 0,
        })
    }

    /// The number by which the host calls it.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Its process, as long as it has not been waited for.
    pub(crate) fn pid(&self) -> Option<Pid> {
        match self.phase {
            Phase::Starting { pid, .. } | Phase::Running { pid } => Some(pid),
            Phase::Ended { .. } => None,
        }
    }

    /// Something happened to a stream.
    pub(crate) fn ready(&mut self, part: Part) {
        let [output, error] = &mut self.outputs;
        match part {
            Part::Outcome => {}
            Part::Input => self.input.ready(),
            Part::Output => output.iter_mut().for_each(Output::ready),
            Part::Error => error.iter_mut().for_each(Output::ready),
        }
    }

    /// The start has been decided: tells the host. An error means that this command is over.
    pub(crate) fn settle(&mut self, control: &mut Control) -> Result<(), NotStarted> {
        let Phase::Starting { pid, outcome } = &self.phase else { return Ok(()) };
        let pid = *pid;
        match spawn::outcome(outcome.as_fd()) {
            Ok(started) => started.map_err(not_started)?,
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or_else(|| Errno::IO.raw_os_error());
                return Err(NotStarted(Stage::Fork, errno));
            }
        }
        failpoint::reach("exec-begun");
        self.phase = Phase::Running { pid };
        let pid = u32::try_from(pid.as_raw_nonzero().get()).unwrap_or(0);
        control.send(&AgentFrame::Started { exec: self.number, pid });
        Ok(())
    }

    /// Its process has ended.
    pub(crate) fn end(&mut self, dead: &Dead) {
        let Dead { pid: _, code, signal, user_micros, system_micros, peak_bytes } = *dead;
        let exit = code.map_or(Exit::Signal(signal), Exit::Code);
        self.phase =
            Phase::Ended { exit, usage: Usage { user_micros, system_micros, peak_bytes, fuel: None } };
        self.outputs.iter_mut().flatten().for_each(Output::last_call);
    }

    /// How it ended, once all its output is passed on.
    pub(crate) fn finished(&self) -> Option<(Exit, Usage)> {
        let Phase::Ended { exit, usage } = self.phase else { return None };
        self.outputs.iter().flatten().all(|output| output.fd().is_none()).then_some((exit, usage))
    }

    /// Whether [`Exec::pump_output`] would find something to do.
    pub(crate) fn has_output(&self) -> bool {
        !matches!(self.phase, Phase::Starting { .. })
            && self.credit > 0
            && self.outputs.iter().flatten().any(Output::is_ready)
    }

    /// Reads each stream once. How many bytes came.
    pub(crate) fn pump_output(&mut self, control: &mut Control) -> u64 {
        let before = self.printed;
        for output in self.outputs.iter_mut().flatten() {
            let got = u64::try_from(output.pump(self.number, self.credit, control)).unwrap_or(u64::MAX);
            self.credit = self.credit.saturating_sub(got);
            self.printed = self.printed.saturating_add(got);
        }
        failpoint::printed(self.printed);
        self.printed.saturating_sub(before)
    }

    /// Bytes that it has printed since its start.
    pub(crate) fn printed(&self) -> u64 {
        self.printed
    }

    /// As another host finds it, which gives it a whole window.
    pub(crate) fn stand(&mut self) -> StandingExec {
        self.credit = u64::from(OUTPUT_WINDOW);
        let pid = match self.phase {
            Phase::Running { pid } => u32::try_from(pid.as_raw_nonzero().get()).unwrap_or(0),
            Phase::Starting { .. } | Phase::Ended { .. } => 0,
        };
        let (unread, takes_input) = self.input.standing();
        StandingExec { exec: self.number, pid, ended: false, printed: self.printed, unread, takes_input }
    }

    /// Passes standard input on.
    pub(crate) fn pump_input(&mut self, control: &mut Control) {
        if let Phase::Starting { .. } = self.phase {
            return;
        }
        let bytes = self.input.pump();
        if bytes > 0 {
            control.send(&AgentFrame::StdinTaken { exec: self.number, bytes });
        }
    }

    /// Standard input from the host.
    pub(crate) fn input(&mut self) -> &mut Input {
        &mut self.input
    }

    /// The host has consumed output.
    pub(crate) fn add_credit(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_add(u64::from(bytes));
    }

    /// The host's terminal has another size. Means nothing to a command without one.
    pub(crate) fn resize(&self, rows: u16, columns: u16) -> Result<(), Errno> {
        let [output, _] = &self.outputs;
        match (self.io, output.as_ref().and_then(Output::fd)) {
            (Io::Terminal { .. }, Some(terminal)) => streams::resize(terminal, rows, columns),
            _ => Ok(()),
        }
    }
}

fn not_started(error: spawn::SpawnError) -> NotStarted {
    let stage = match error.stage {
        spawn::Stage::Find => Stage::Find,
        spawn::Stage::Directory => Stage::Directory,
        spawn::Stage::Streams => Stage::Streams,
        spawn::Stage::Fork => Stage::Fork,
        spawn::Stage::Identity => Stage::Identity,
        spawn::Stage::Execute => Stage::Execute,
    };
    NotStarted(stage, error.errno)
}
