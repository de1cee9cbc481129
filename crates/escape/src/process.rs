//! The one door through which this crate starts programs: `blastbox` itself, and controls that harm nobody.
//!
//! Everything has a bound, is ended by its id, and ends with whoever dropped it or with this process, however that ends:
//! programs are started through `blastbox tether`, which asks the kernel for that and becomes them. Standard streams are
//! files in memory, so that a control that leaves a process behind with an open stream holds nobody up.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

use crate::stop::Stop;

/// No output is looked at beyond this.
const MOST_OUTPUT: usize = 48 << 20;
/// How long blastbox may take to end its box when it is told to.
const GRACE: Duration = Duration::from_secs(5);

/// What kind of program it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// blastbox: has the caller's environment, and is asked to end before it is made to, so that it ends its box.
    Blastbox,
    /// A control outside of boxes: has an environment of its own, and is ended with all of its group.
    Control,
}

/// What it reads.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Input<'a> {
    /// A text, then nothing more.
    Text(&'a str),
    /// Nothing, and no end as long as it is held.
    Open,
}

/// What is to be started.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    /// A `blastbox` that knows `tether`.
    pub(crate) tether: &'a Path,
    pub(crate) kind: Kind,
    pub(crate) program: &'a Path,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) variables: Vec<(&'static str, String)>,
    pub(crate) input: Input<'a>,
    pub(crate) stop: &'a Stop,
}

/// A program that runs. Dropped, it is ended.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    kind: Kind,
    stdout: File,
    stderr: File,
    until: Instant,
    stop: Stop,
    over: bool,
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) overdue: bool,
}

/// Why a wait was over.
#[derive(Debug, PartialEq, Eq)]
enum Woken {
    Ended,
    Overdue,
    Stopped,
}

fn sheet(name: &str) -> io::Result<File> {
    Ok(File::from(memfd_create(name, MemfdFlags::CLOEXEC)?))
}

/// Starts a program that ends after `limit` at the latest.
#[expect(
    clippy::disallowed_methods,
    reason = "the one door: blastbox itself and controls, each with a bound"
)]
pub(crate) fn start(what: Start<'_>, limit: Duration) -> io::Result<Running> {
    if what.stop.is_said() {
        return Err(stopped());
    }
    let (stdout, stderr) = (sheet("stdout")?, sheet("stderr")?);
    let mut command = Command::new(what.tether);
    if what.kind == Kind::Control {
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    }
    command.args(["tether", "--parent", &std::process::id().to_string()]);
    if what.kind == Kind::Blastbox {
        command.arg("--gently");
    }
    command.arg("--").arg(what.program).args(what.arguments).envs(what.variables);
    command.stdin(match what.input {
        Input::Open => Stdio::piped(),
        Input::Text(text) => {
            let mut input = sheet("input")?;
            input.write_all(text.as_bytes())?;
            input.rewind()?;
            Stdio::from(input)
        }
    });
    command.stdout(Stdio::from(stdout.try_clone()?)).stderr(Stdio::from(stderr.try_clone()?));
    command.process_group(0);
    let child = command.spawn()?;
    let (kind, until, stop) = (what.kind, Instant::now() + limit, what.stop.clone());
    Ok(Running { child, kind, stdout, stderr, until, stop, over: false })
}

fn stopped() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "the campaign was told to end")
}

impl Running {
    /// What it has printed until now.
    pub(crate) fn printed(&self) -> String {
        text(&self.stdout)
    }

    /// Waits for its end; what takes too long is ended with everything in its group.
    pub(crate) fn end(mut self) -> io::Result<Ended> {
        let stop = self.stop.clone();
        // One that was seen to end has no number any more by which it could be waited for.
        let woken = if self.has_ended() { Woken::Ended } else { self.wait_until(self.until, Some(&stop))? };
        match woken {
            Woken::Ended => {}
            Woken::Overdue => self.kill(),
            // Dropped on the way out.
            Woken::Stopped => return Err(stopped()),
        }
        let status = self.child.wait()?;
        self.over = true;
        let (stdout, stderr) = (text(&self.stdout), text(&self.stderr));
        let overdue = woken == Woken::Overdue;
        Ok(Ended { code: status.code(), signal: status.signal(), stdout, stderr, overdue })
    }

    fn wait_until(&self, until: Instant, stop: Option<&Stop>) -> io::Result<Woken> {
        let process = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())?;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let wait = Timespec::try_from(left).unwrap_or_default();
            let mut watched = vec![PollFd::new(&process, PollFlags::IN)];
            watched.extend(stop.map(|stop| PollFd::new(stop, PollFlags::IN)));
            match poll(&mut watched, Some(&wait)) {
                Ok(0) => return Ok(Woken::Overdue),
                Ok(_) if watched.first().is_some_and(|fd| !fd.revents().is_empty()) => {
                    return Ok(Woken::Ended);
                }
                Ok(_) => return Ok(Woken::Stopped),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.over = self.over || !matches!(self.child.try_wait(), Ok(None));
        self.over
    }

    fn kill(&self) {
        kill_process_group(Pid::from_child(&self.child), Signal::KILL).ok();
    }

    fn ask_to_end(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).ok();
    }

    /// Asks it to end, as a caller does who presses Ctrl-C, and waits.
    pub(crate) fn stop(mut self) -> io::Result<Ended> {
        // The number of one that is gone may be a stranger's by now.
        if !self.has_ended() {
            self.ask_to_end();
        }
        self.end()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that was waited for has no number any more that would be its own.
        if self.has_ended() {
            return;
        }
        let gone = self.kind == Kind::Blastbox && {
            self.ask_to_end();
            matches!(self.wait_until(Instant::now() + GRACE, None), Ok(Woken::Ended))
        };
        if !gone {
            self.kill();
        }
        self.child.wait().ok();
    }
}

/// Read without moving the place at which the program goes on writing: it may be alive.
fn text(sheet: &File) -> String {
    let (mut bytes, mut piece) = (Vec::new(), vec![0_u8; 64 * 1024]);
    while bytes.len() < MOST_OUTPUT {
        let at = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        match sheet.read_at(&mut piece, at) {
            Ok(count) if count > 0 => bytes.extend_from_slice(piece.get(..count).unwrap_or_default()),
            Ok(_) | Err(_) => break,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
