//! Processes to compare with: bare ones, and peers.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A way to start a bare process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// `fork`, then `execve`: what the promise compares with.
    Fork,
    /// `posix_spawn`, by which the child borrows its parent's memory: the fastest there is.
    Spawn,
}

#[expect(clippy::disallowed_methods, reason = "the processes that boxes are compared with")]
fn program(path: &Path) -> Command {
    Command::new(path)
}

/// Starts a program without arguments and waits for its end.
pub(crate) fn bare(path: &str, start: Start) -> io::Result<Duration> {
    let mut command = program(Path::new(path));
    if start == Start::Fork {
        // A user to become, be it the same, makes the standard library fork for real.
        command.uid(rustix::process::geteuid().as_raw());
    }
    let begun = Instant::now();
    let status = command.status()?;
    let took = begun.elapsed();
    if status.success() { Ok(took) } else { Err(io::Error::other(format!("{path}: {status}"))) }
}

/// Runs a command line to its end, with nothing on its streams. An error says what it said.
pub(crate) fn run(line: &[String]) -> io::Result<Duration> {
    let Some((path, arguments)) = line.split_first() else { return Err(io::ErrorKind::InvalidInput.into()) };
    let mut command = program(Path::new(path));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let begun = Instant::now();
    let child = command.spawn()?;
    let done = child.wait_with_output()?;
    let took = begun.elapsed();
    if done.status.success() {
        return Ok(took);
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(io::Error::other(format!("{}: {}", done.status, said.lines().last().unwrap_or_default())))
}

/// Runs a program to its end, with something to read.
pub(crate) fn fed(line: &[&str], text: &[u8]) -> io::Result<()> {
    let Some((path, arguments)) = line.split_first() else { return Err(io::ErrorKind::InvalidInput.into()) };
    let mut command = program(Path::new(path));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    // One that did not want to read says why when it ends.
    child.stdin.take().map(|mut to| to.write_all(text));
    let done = child.wait_with_output()?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(io::Error::other(format!("{path}: {}: {}", done.status, said.lines().last().unwrap_or_default())))
}

/// Starts a program that prints, with a pipe to read from.
pub(crate) fn printing(line: &[&str]) -> io::Result<Child> {
    let Some((path, arguments)) = line.split_first() else { return Err(io::ErrorKind::InvalidInput.into()) };
    program(Path::new(path)).args(arguments).stdout(Stdio::piped()).spawn()
}

/// Starts a program that goes on, with a pipe from its standard error, where it says what it does.
pub(crate) fn talking(line: &[&str]) -> io::Result<Child> {
    let Some((path, arguments)) = line.split_first() else { return Err(io::ErrorKind::InvalidInput.into()) };
    program(Path::new(path)).args(arguments).stdin(Stdio::null()).stderr(Stdio::piped()).spawn()
}

/// Starts a program that waits for nobody and says nothing.
pub(crate) fn waiting(line: &[&str]) -> io::Result<Child> {
    let Some((path, arguments)) = line.split_first() else { return Err(io::ErrorKind::InvalidInput.into()) };
    program(Path::new(path)).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).spawn()
}

/// Starts a program that is told something and answers, by pipes. What it complains about is shown.
pub(crate) fn conversing(line: &[String]) -> io::Result<Child> {
    let Some((path, arguments)) = line.split_first() else { return Err(io::ErrorKind::InvalidInput.into()) };
    program(Path::new(path)).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
}

/// Runs a program to its end; the one line that it printed.
pub(crate) fn said(line: &[&str]) -> io::Result<String> {
    let Some((path, arguments)) = line.split_first() else { return Err(io::ErrorKind::InvalidInput.into()) };
    let done = program(Path::new(path)).args(arguments).stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&done.stdout).trim().to_owned();
    if done.status.success() && !text.is_empty() && !text.contains('\n') {
        return Ok(text);
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(io::Error::other(format!("{path}: {}: {}", done.status, said.lines().last().unwrap_or_default())))
}

/// A shell that waits for command lines: for a peer that needs another view of the mounts than this process has.
#[derive(Debug)]
pub(crate) struct Shell {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Shell {
    /// Starts it in a mount namespace of its own; `first` is done there once.
    pub(crate) fn with_own_mounts(first: &str) -> io::Result<Self> {
        let script = format!(
            "{first} && echo ready || exit 1\nwhile read -r line; do $line </dev/null >/dev/null 2>&1; echo $?; done"
        );
        let mut child = program(Path::new("/usr/bin/unshare"))
            .args(["--mount", "--propagation", "private", "/bin/sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let mut shell = Self { child, to, from: BufReader::new(from) };
        let said = shell.listen()?;
        if said == "ready" {
            Ok(shell)
        } else {
            Err(io::Error::other("its view of the mounts could not be made"))
        }
    }

    /// Has it run a command line, words parted by blanks.
    pub(crate) fn run(&mut self, line: &[String]) -> io::Result<Duration> {
        let line = line.join(" ") + "\n";
        let begun = Instant::now();
        self.to.write_all(line.as_bytes())?;
        let said = self.listen()?;
        let took = begun.elapsed();
        if said == "0" { Ok(took) } else { Err(io::Error::other(format!("exit status {said}"))) }
    }

    fn listen(&mut self) -> io::Result<String> {
        let mut said = String::new();
        self.from.read_line(&mut said)?;
        Ok(said.trim().to_owned())
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // It waits for a line at most; whether it was still there does not matter.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Where distributions install a program.
pub(crate) fn installed(name: &str) -> Option<PathBuf> {
    ["/usr/bin", "/usr/sbin", "/bin", "/sbin"]
        .iter()
        .map(|dir| Path::new(dir).join(name))
        .find(|path| path.is_file())
}
