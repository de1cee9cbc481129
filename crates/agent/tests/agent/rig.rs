//! A host for one agent: starts it, speaks with it, and kills it when the test is over.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use blastbox_wire::agent::{
    AgentFrame, BootFacts, Change, Entry, ExecSpec, Exit, FileEnd, FileSay, HostFrame, Io, Oddity, OnDenied,
    Stage, StandingExec, Usage, User, VERSION, parse,
};
use blastbox_wire::limits::OUTPUT_WINDOW;
use rustix::io::FdFlags;

/// Longer than anything takes on a busy machine; shorter than anybody's patience.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the agent said, with everything owned.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Said {
    Hello(BootFacts),
    Started(u32, u32),
    NotStarted(u32, Stage, i32),
    Output(u32, u8, Vec<u8>),
    Exited(u32, Exit, Usage),
    Denied(u32, u64),
    Wrote(Oddity, u64, String),
    StdinTaken(u32, u32),
    Standing(u64, u64, Vec<StandingExec>),
    Asleep(i32),
    Pong(u64),
    Full(bool, bool),
    Fault(String),
    File(u32, Word),
}

/// What the agent said about a file operation, with everything owned.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Word {
    Begun(Entry),
    Chunk(Vec<u8>),
    Taken(u32),
    Entries(Vec<Entry>),
    Changes(Vec<Change>),
    Done(FileEnd),
}

/// A command that has ended.
#[derive(Debug, PartialEq)]
pub(crate) struct Finished {
    pub(crate) output: String,
    pub(crate) error: String,
    pub(crate) exit: Exit,
}

pub(crate) struct Agent {
    pub(crate) child: Child,
    pub(crate) stream: UnixStream,
    heard: Vec<u8>,
}

impl Agent {
    /// An agent that has been greeted.
    pub(crate) fn begun() -> Self {
        Self::begun_with(None, OnDenied::Record).0
    }

    pub(crate) fn begun_with(denials: Option<OwnedFd>, on_denied: OnDenied) -> (Self, BootFacts) {
        let mut agent = Self::start(denials);
        let Said::Hello(facts) = agent.next() else { panic!("no hello") };
        agent.say(&HostFrame::Begin { version: VERSION, on_denied, heritable: false });
        (agent, facts)
    }

    /// One that another host may take over.
    pub(crate) fn heritable() -> Self {
        let mut agent = Self::start(None);
        let Said::Hello(_) = agent.next() else { panic!("no hello") };
        agent.say(&HostFrame::Begin { version: VERSION, on_denied: OnDenied::Record, heritable: true });
        agent
    }

    /// An agent that has been started and not spoken to.
    pub(crate) fn start(denials: Option<OwnedFd>) -> Self {
        Self::start_with(denials, &[])
    }

    /// The same, with more options.
    #[expect(clippy::disallowed_methods, reason = "tests start the program under test")]
    pub(crate) fn start_with(denials: Option<OwnedFd>, options: &[&str]) -> Self {
        let (stream, theirs) = UnixStream::pair().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        rustix::io::fcntl_setfd(&theirs, FdFlags::empty()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_blastbox-agent"));
        command.args(["--control", &theirs.as_raw_fd().to_string()]).args(options).stdin(Stdio::null());
        if let Some(denials) = &denials {
            rustix::io::fcntl_setfd(denials, FdFlags::empty()).unwrap();
            command.args(["--denials", &denials.as_raw_fd().to_string()]);
        }
        let child = command.spawn().unwrap();
        Self { child, stream, heard: Vec::new() }
    }

    pub(crate) fn say(&mut self, frame: &HostFrame) {
        self.stream.write_all(&frame.encode()).unwrap();
    }

    /// The next frame; panics when the agent stays silent or has gone.
    pub(crate) fn next(&mut self) -> Said {
        self.try_next().unwrap().expect("the agent has gone")
    }

    /// The next frame; `None` when the agent has gone.
    pub(crate) fn try_next(&mut self) -> io::Result<Option<Said>> {
        loop {
            if let Some((frame, taken)) = parse(&self.heard).unwrap() {
                let said = own(frame);
                self.heard.drain(..taken);
                return Ok(Some(said));
            }
            let mut bytes = [0; 64 * 1024];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Ok(None),
                Ok(got) => self.heard.extend_from_slice(&bytes[..got]),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Starts a command and does not wait for anything.
    pub(crate) fn exec(&mut self, number: u32, io: Io, arguments: &[&str]) {
        let spec = command(number, io, arguments);
        self.say(&HostFrame::Exec(spec));
    }

    /// Runs a shell script to its end.
    pub(crate) fn shell(&mut self, script: &str) -> Finished {
        self.run(command(1, Io::Pipes, &["/bin/sh", "-c", script])).expect("a shell")
    }

    /// Runs a command to its end, or to the reason why it did not start.
    pub(crate) fn run(&mut self, spec: ExecSpec) -> Result<Finished, (Stage, i32)> {
        let number = spec.exec;
        self.say(&HostFrame::Exec(spec));
        loop {
            match self.next() {
                Said::Started(exec, pid) if exec == number && pid > 1 => return Ok(self.finish(number)),
                Said::NotStarted(exec, stage, errno) if exec == number => return Err((stage, errno)),
                // What the program does at once may be told before its start is.
                Said::Denied(..) | Said::Wrote(..) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Follows a started command to its end, giving credit for all output.
    pub(crate) fn finish(&mut self, number: u32) -> Finished {
        let (mut output, mut error) = (Vec::new(), Vec::new());
        loop {
            match self.next() {
                Said::Output(exec, stream, bytes) if exec == number => {
                    let bytes_taken = u32::try_from(bytes.len()).unwrap();
                    (if stream == 1 { &mut output } else { &mut error }).extend(bytes);
                    // Nobody takes it where the agent went with its last command; what it said before is still there to read.
                    match self
                        .stream
                        .write_all(&HostFrame::Credit { exec: number, bytes: bytes_taken }.encode())
                    {
                        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                        written => written.unwrap(),
                    }
                }
                Said::Exited(exec, exit, _) if exec == number => {
                    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
                    return Finished { output: text(output), error: text(error), exit };
                }
                Said::StdinTaken(..) | Said::Denied(..) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Waits for the agent's own end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "the agent does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // A host that goes: the agent ends all its commands before it ends itself. Killed, it would leave them behind,
        // because here it is not the first process of a namespace.
        drop(self.stream.shutdown(std::net::Shutdown::Both));
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A command with an ordinary environment, in the root directory.
pub(crate) fn command(number: u32, io: Io, arguments: &[&str]) -> ExecSpec {
    ExecSpec {
        exec: number,
        arguments: arguments.iter().map(|text| text.as_bytes().to_vec()).collect(),
        environment: vec![b"PATH=/usr/local/bin:/usr/bin:/bin".to_vec(), b"LANG=C.UTF-8".to_vec()],
        directory: b"/".to_vec(),
        user: User::Payload,
        io,
        window: OUTPUT_WINDOW,
    }
}

/// Whether a process is there and has not ended.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
}

/// Waits until something holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn own(frame: AgentFrame<'_>) -> Said {
    match frame {
        AgentFrame::Hello { version, facts } => {
            assert_eq!(version, VERSION);
            Said::Hello(facts)
        }
        AgentFrame::Started { exec, pid } => Said::Started(exec, pid),
        AgentFrame::NotStarted { exec, stage, errno } => Said::NotStarted(exec, stage, errno),
        AgentFrame::Output { exec, stream, bytes } => Said::Output(exec, stream, bytes.to_vec()),
        AgentFrame::Exited { exec, exit, usage } => Said::Exited(exec, exit, usage),
        AgentFrame::Denied { number, count, .. } => Said::Denied(number, count),
        AgentFrame::Wrote { oddity, count, path, .. } => {
            Said::Wrote(oddity, count, String::from_utf8_lossy(path).into_owned())
        }
        AgentFrame::StdinTaken { exec, bytes } => Said::StdinTaken(exec, bytes),
        AgentFrame::Standing { token, printed, execs } => Said::Standing(token, printed, execs),
        AgentFrame::Asleep { errno } => Said::Asleep(errno),
        AgentFrame::Pong { token } => Said::Pong(token),
        AgentFrame::Full { met: [bytes, inodes, ..] } => Said::Full(bytes, inodes),
        AgentFrame::Fault { text } => Said::Fault(text.to_owned()),
        AgentFrame::Call { .. } => panic!("an agent of processes calls nobody"),
        AgentFrame::File { op, say } => Said::File(
            op,
            match say {
                FileSay::Begun { entry } => Word::Begun(entry),
                FileSay::Chunk { bytes } => Word::Chunk(bytes.to_vec()),
                FileSay::Taken { bytes } => Word::Taken(bytes),
                FileSay::Entries { entries } => Word::Entries(entries),
                FileSay::Changes { changes } => Word::Changes(changes),
                FileSay::Done { end } => Word::Done(end),
            },
        ),
    }
}
