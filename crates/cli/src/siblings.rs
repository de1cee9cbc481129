//! The other program of this command, which lies beside this one.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where a program of this name lies, if it does.
pub(crate) fn of(name: &str) -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let path = own.parent().unwrap_or(Path::new("/")).join(name);
    if path.is_file() {
        return Ok(path);
    }
    Err(io::Error::new(io::ErrorKind::NotFound, format!("it is not at {}", path.display())))
}

/// Becomes it, called as this process was.
pub(crate) fn become_it(program: &Path, words: &[OsString]) -> io::Result<Infallible> {
    #[expect(
        clippy::disallowed_methods,
        reason = "not started but become: this very command, with all its verbs"
    )]
    let mut command = Command::new(program);
    if let Some(name) = words.first() {
        command.arg0(name);
    }
    Err(command.args(words.iter().skip(1)).exec())
}
