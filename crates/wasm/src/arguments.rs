//! The worker's command line. The warden writes it from the plan; it is ours, and still read strictly.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use crate::Workspace;
use crate::engine::Metering;
use crate::shelf::{Placed, Whose};

/// What the worker is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    /// The stream to the host.
    pub control: RawFd,
    /// The guests that this box has, each with the directory that it lies in.
    pub guests: Vec<Placed>,
    /// Memory of all guests and files together.
    pub memory: u64,
    /// Bytes of files.
    pub disk: u64,
    /// Files and directories.
    pub inodes: u64,
    /// Largest file.
    pub file_size: u64,
    /// Open files of one guest.
    pub open_files: u32,
    /// Guests that run at the same time.
    pub threads: u32,
    /// Whether every run is to be the same.
    pub deterministic: bool,
    /// Work that each command may do, if it is counted.
    pub fuel: Option<u64>,
    /// Whether HTTP requests are made for commands.
    pub http: bool,
    /// The caller's directory, if one is shown.
    pub workspace: Option<Workspace>,
}

impl Arguments {
    /// Whether guests count their work.
    pub(crate) fn metering(&self) -> Metering {
        if self.fuel.is_some() { Metering::Fuel } else { Metering::None }
    }
}

/// Reads it. `None`: not a command line of ours.
#[must_use]
pub fn parse(words: impl Iterator<Item = OsString>) -> Option<Arguments> {
    let mut arguments = Arguments {
        control: 3,
        guests: Vec::new(),
        memory: 512 << 20,
        disk: 256 << 20,
        inodes: 65_536,
        file_size: 256 << 20,
        open_files: 1024,
        threads: 4,
        deterministic: false,
        fuel: None,
        http: false,
        workspace: None,
    };
    let mut words = words;
    let mut shelf = PathBuf::from("/");
    while let Some(word) = words.next() {
        let value = words.next()?;
        let text = value.to_str()?;
        match word.to_str()? {
            "--control" => arguments.control = text.parse().ok().filter(|number| *number > 2)?,
            "--shelf" => shelf = value.into(),
            "--guest" => arguments.guests.push(placed(&shelf, text, Whose::Shelf)?),
            "--own" => arguments.guests.push(placed(&shelf, text, Whose::Caller)?),
            "--memory" => arguments.memory = text.parse().ok()?,
            "--disk" => arguments.disk = text.parse().ok()?,
            "--inodes" => arguments.inodes = text.parse().ok()?,
            "--file-size" => arguments.file_size = text.parse().ok()?,
            "--open-files" => arguments.open_files = text.parse().ok()?,
            "--threads" => arguments.threads = text.parse().ok().filter(|count| *count > 0)?,
            "--deterministic" => arguments.deterministic = text.parse().ok()?,
            "--fuel" => arguments.fuel = Some(text.parse().ok().filter(|fuel| *fuel > 0)?),
            "--http" => arguments.http = text.parse().ok()?,
            "--workspace" => arguments.workspace = Some(Workspace::parse(text)?),
            _ => return None,
        }
    }
    Some(arguments)
}

/// A guest's name becomes the name of a file.
fn placed(shelf: &Path, name: &str, whose: Whose) -> Option<Placed> {
    let clean = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_plain = !name.is_empty() && name.len() <= 80 && name.bytes().all(clean);
    is_plain.then(|| Placed { directory: shelf.to_owned(), name: name.to_owned(), whose })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Option<Arguments> {
        parse(words.iter().map(OsString::from))
    }

    #[test]
    fn what_the_plan_says_is_understood() {
        let words = [
            "--shelf",
            "/a",
            "--guest",
            "js",
            "--shelf",
            "/b",
            "--own",
            "x",
            "--memory",
            "5",
            "--threads",
            "2",
        ];
        let read = read(&words).unwrap();
        let placed = |directory: &str, name: &str, whose| Placed {
            directory: directory.into(),
            name: name.to_owned(),
            whose,
        };
        let guests = vec![placed("/a", "js", Whose::Shelf), placed("/b", "x", Whose::Caller)];
        assert_eq!((read.guests, read.memory, read.threads), (guests, 5, 2));
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        for words in [
            &["--guest"][..],
            &["--guest", "../js"],
            &["--guest", ""],
            &["--own", "x.wasm"],
            &["--control", "1"],
            &["--threads", "0"],
            &["--workspace", "rw"],
            &["--deterministic", "maybe"],
            &["--fuel", "0"],
            &["--http", "yes"],
            &["x", "y"],
        ] {
            assert_eq!(read(words), None, "{words:?}");
        }
    }
}
