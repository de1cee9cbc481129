//! Starting cargo and git: the only place in xtask that makes a process.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// A command that will run in `directory`.
#[expect(clippy::disallowed_methods, reason = "xtask drives cargo and git; it is never shipped")]
fn command(program: impl Into<OsString>, directory: &Path) -> Command {
    let mut command = Command::new(program.into());
    command.current_dir(directory).stdin(Stdio::null());
    command
}

/// The cargo that started us, so that toolchains never mix.
pub(crate) fn cargo(root: &Path) -> Command {
    program(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), root)
}

/// A program that cargo has built, or cargo itself, in `directory`.
pub(crate) fn program(file: impl Into<OsString>, directory: &Path) -> Command {
    let mut program = command(file, directory);
    // What cargo said of us: build scripts that ask for such variables would run again, and half of everything be compiled anew.
    let ours = |name: &OsString| {
        ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix))
    };
    for name in std::env::vars_os().map(|(name, _)| name).filter(ours) {
        program.env_remove(name);
    }
    program
}

/// Runs git in `root` and returns what it printed.
pub(crate) fn git(root: &Path, arguments: &[&str]) -> io::Result<String> {
    output(command("git", root).args(arguments))
}

/// Runs a command to its end and returns what it printed; its complaints go to our stderr.
pub(crate) fn output(command: &mut Command) -> io::Result<String> {
    let done = command.stderr(Stdio::inherit()).output().map_err(|source| {
        io::Error::new(source.kind(), format!("cannot start {}: {source}", command.get_program().display()))
    })?;
    if !done.status.success() {
        return Err(io::Error::other(format!(
            "{} ended with {}",
            command.get_program().display(),
            done.status
        )));
    }
    String::from_utf8(done.stdout).map_err(io::Error::other)
}

/// Ends a process at once.
pub(crate) fn kill(id: u32) -> io::Result<()> {
    output(command("kill", Path::new("/")).arg("-KILL").arg(id.to_string())).map(drop)
}
