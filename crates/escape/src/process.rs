//! The one door through which this crate starts programs: `blastbox` itself, and controls that harm nobody.
//!
//! Everything has a bound and is ended by its id. Standard streams are files in memory, so that a control that leaves a
//! process behind with an open stream holds nobody up.

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
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// No output is looked at beyond this.
const MOST_OUTPUT: usize = 48 << 20;

/// What is to be started.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    pub(crate) program: &'a Path,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) variables: Vec<(&'static str, String)>,
    /// Whether the caller's environment is passed on: blastbox gets it, a control does not.
    pub(crate) keep_environment: bool,
    pub(crate) input: &'a str,
}

/// A program that runs.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    stdout: File,
    stderr: File,
    until: Instant,
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

fn sheet(name: &str) -> io::Result<File> {
    Ok(File::from(memfd_create(name, MemfdFlags::CLOEXEC)?))
}

/// Starts a program that ends after `limit` at the latest.
#[expect(
    clippy::disallowed_methods,
    reason = "the one door: blastbox itself and controls, each with a bound"
)]
pub(crate) fn start(what: Start<'_>, limit: Duration) -> io::Result<Running> {
    let mut input = sheet("input")?;
    input.write_all(what.input.as_bytes())?;
    input.rewind()?;
    let (stdout, stderr) = (sheet("stdout")?, sheet("stderr")?);
    let mut command = Command::new(what.program);
    if !what.keep_environment {
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    }
    command.args(what.arguments).envs(what.variables);
    command.stdin(Stdio::from(input));
    command.stdout(Stdio::from(stdout.try_clone()?)).stderr(Stdio::from(stderr.try_clone()?));
    command.process_group(0);
    let child = command.spawn()?;
    Ok(Running { child, stdout, stderr, until: Instant::now() + limit })
}

impl Running {
    /// What it has printed until now.
    pub(crate) fn printed(&self) -> String {
        text(&self.stdout)
    }

    /// Waits for its end; what takes too long is ended with everything in its group.
    pub(crate) fn end(mut self) -> io::Result<Ended> {
        let pid = Pid::from_child(&self.child);
        let handle = pidfd_open(pid, PidfdFlags::empty())?;
        let mut overdue = false;
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            let wait = Timespec::try_from(left).unwrap_or_default();
            match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&wait)) {
                Ok(0) => {
                    overdue = true;
                    kill_process_group(pid, Signal::KILL).ok();
                    break;
                }
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let status = self.child.wait()?;
        let (stdout, stderr) = (text(&self.stdout), text(&self.stderr));
        Ok(Ended { code: status.code(), signal: status.signal(), stdout, stderr, overdue })
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it and everything in its group.
    pub(crate) fn kill(self) -> io::Result<Ended> {
        kill_process_group(Pid::from_child(&self.child), Signal::KILL).ok();
        self.end()
    }

    /// Asks it to end, as a caller does who presses Ctrl-C, and waits.
    pub(crate) fn stop(self) -> io::Result<Ended> {
        rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM).ok();
        self.end()
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
