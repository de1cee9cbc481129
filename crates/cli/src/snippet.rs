//! The program of `--lang`: what is piped in, or a file that the caller names where nothing is.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, fstat};

use crate::problem::Problem;
use crate::regular::open_regular;
use crate::terminal;

/// Where the program comes from.
#[derive(Debug)]
pub(crate) enum Snippet {
    /// From standard input, whatever that is.
    Stdin,
    /// From this file; the words after its name are the program's.
    File(File),
}

/// Finds it. Code that is piped in goes before a file: a word beside it is an argument, as it always was.
/// `spent`: standard input was read for something else.
pub(crate) fn find(words: &[OsString], spent: bool) -> Result<Snippet, Problem> {
    let path = words.first().map(Path::new).filter(|_| spent || !is_piped());
    let Some(path) = path else { return Ok(Snippet::Stdin) };
    // Somebody types the program, and the word is its argument. Where nothing comes, it can only mean a file.
    if !path.is_file() && terminal::on_stdin() {
        return Ok(Snippet::Stdin);
    }
    let failed = |source| Problem::Snippet { path: PathBuf::from(path), source };
    open_regular(path).map(Snippet::File).map_err(failed)
}

/// Whether somebody sends something: a pipe, a socket or a file. A terminal and `/dev/null` send no program.
fn is_piped() -> bool {
    let kind = fstat(rustix::stdio::stdin()).map(|found| FileType::from_raw_mode(found.st_mode));
    matches!(kind, Ok(FileType::Fifo | FileType::Socket | FileType::RegularFile))
}
