//! A word about files of the caller's directory that a command was given and its box does not see.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use blastbox_policy::Tier;
use blastbox_wire::receipt::{Outcome, Receipt};

use crate::args::RunArgs;
use crate::output::{plain, shell_word};

/// The code of a command that is not in the box.
const NOT_FOUND: &str = "not_found";

/// What is said of it: in the receipt, where the command itself was not found, and else beneath the summary. `words`: those that the
/// box was given, and not us.
pub(crate) fn tell<'a>(
    args: &RunArgs,
    mut words: impl Iterator<Item = &'a Path>,
    receipt: &mut Receipt,
) -> Option<String> {
    // A module of the tier wasm comes from the host, and its box has it.
    if args.source.workspace.is_some() || receipt.tier == Some(Tier::Wasm) {
        return None;
    }
    let failed = receipt.outcome == Outcome::Exited && receipt.exit_code != 0;
    match &mut receipt.reason {
        Some(reason) if receipt.outcome == Outcome::NotStarted && reason.code == NOT_FOUND => {
            // With --lang the command is an interpreter, whose name nobody wrote.
            if let Some(path) = words.next().filter(|path| args.lang.is_none() && path.is_file()) {
                reason.fix = Some(fix(path));
            }
            None
        }
        _ if failed => words.find(|path| is_here(path)).map(|path| {
            format!(
                "{} is in your directory, and a box sees nothing of that: --workspace . shows it",
                shown(path)
            )
        }),
        _ => None,
    }
}

/// A file of the current directory, by a word that could not mean one of the box.
fn is_here(path: &Path) -> bool {
    path.is_relative() && !path.as_os_str().as_bytes().starts_with(b"-") && path.is_file()
}

/// What to do about a command that lies outside of the box.
fn fix(path: &Path) -> String {
    if path.is_absolute() {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return String::new() };
        return format!(
            "it is a file of this host, which a box does not see; show its directory: --workspace {} -- ./{}",
            shown(directory),
            shown(Path::new(name))
        );
    }
    let dot = if path.as_os_str().as_bytes().contains(&b'/') { "" } else { "./" };
    format!(
        "it is in your directory, and a box sees nothing of that; show it (changes are thrown away): --workspace . -- {dot}{}",
        shown(path)
    )
}

fn shown(path: &Path) -> String {
    let text: &OsStr = path.as_os_str();
    plain(&shell_word(&text.to_string_lossy()))
}
