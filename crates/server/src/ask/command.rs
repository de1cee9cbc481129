//! A command as a caller asks for it, and what the agent is told then.

use std::collections::BTreeMap;
use std::time::Duration;

use blastbox_engine::keeper::Terms;
use blastbox_engine::{Command, USUAL_PATH};
use blastbox_policy::Seconds;
use blastbox_wire::agent::{Io, User};
use blastbox_wire::limits::{MAX_ARGUMENT, MAX_ARGUMENT_BYTES, MAX_ARGUMENTS, MAX_PATH, MAX_TOOLS};
use blastbox_wire::tools::{BadToolName, ToolName};
use serde::{Deserialize, Serialize};

use super::optional_amount;
use crate::Trouble;
use crate::start_place::HOME;

/// Longest time of one command.
const LONGEST: u64 = 30 * 86_400;
/// Longest time for which a command that nobody reads can be made to wait.
const LONGEST_HOLD: u64 = 600;

/// `POST /v1/boxes/{id}/execs`.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewExec {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Variables beside the few that every command has.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Where it starts: an absolute path in the box.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Where its standard input comes from.
    #[serde(default)]
    pub stdin: StdinFrom,
    /// A terminal, where it shall have one.
    #[serde(default)]
    pub terminal: Option<TerminalSize>,
    /// After so long it is killed.
    #[serde(default, deserialize_with = "optional_amount")]
    pub timeout: Option<Seconds>,
    /// For so long what it prints is held for its first reader, and it waits where that is much. Zero: it is not waited for.
    #[serde(default, deserialize_with = "optional_amount")]
    pub hold: Option<Seconds>,
    /// Functions of the caller that it may call, by name: tier `wasm`. The caller answers at `calls`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
}

/// Where standard input comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StdinFrom {
    /// Nowhere: it is at its end.
    #[default]
    None,
    /// From whoever posts to `stdin`.
    Stream,
}

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub columns: u16,
}

/// A command that a box can be asked to start, once it is known where.
#[derive(Debug)]
pub(crate) struct Checked {
    command: Command,
    terms: Terms,
    place: Place,
}

/// Where a command starts.
#[derive(Debug)]
enum Place {
    Given,
    Usual,
}

impl Checked {
    /// What the box is asked to start, in `usual` where nobody said where.
    pub(crate) fn start(mut self, usual: &str) -> (Command, Terms) {
        if let Place::Usual = self.place {
            self.command.directory = usual.as_bytes().to_vec();
        }
        (self.command, self.terms)
    }
}

impl NewExec {
    /// Holds it against what any box can start.
    pub(crate) fn check(self) -> Result<Checked, Trouble> {
        let Self { command, env, cwd, stdin, terminal, timeout, hold, tools } = self;
        let io = match (terminal, stdin) {
            (Some(TerminalSize { rows, columns }), _) => Io::Terminal { rows, columns },
            (None, StdinFrom::Stream) => Io::PipesWithStdin,
            (None, StdinFrom::None) => Io::Pipes,
        };
        let timeout = match timeout {
            Some(Seconds(seconds @ 1..=LONGEST)) => Some(Duration::from_secs(seconds)),
            Some(_) => {
                return Err(Trouble::BadField("`timeout` is out of range; permitted is 1s to 30d".into()));
            }
            None => None,
        };
        let mut terms = Terms::from(timeout);
        match hold {
            Some(Seconds(seconds @ 0..=LONGEST_HOLD)) => terms.first_reader = Duration::from_secs(seconds),
            Some(_) => {
                return Err(Trouble::BadField("`hold` is out of range; permitted is 0s to 10m".into()));
            }
            None => {}
        }
        terms.tools = named(&tools)?;
        let arguments = arguments(command)?;
        let environment = environment(terminal.is_some(), env)?;
        check_length(&arguments, &environment)?;
        let (place, directory) = match cwd {
            Some(cwd) => (Place::Given, directory(cwd)?),
            None => (Place::Usual, Vec::new()),
        };
        Ok(Checked {
            command: Command { arguments, environment, directory, io, user: User::Payload },
            terms,
            place,
        })
    }
}

/// The functions that a command is offered.
fn named(tools: &[String]) -> Result<Vec<ToolName>, Trouble> {
    if tools.len() > MAX_TOOLS {
        return Err(Trouble::BadField(format!("`tools` has more than {MAX_TOOLS} names")));
    }
    let name = |tool: &String| tool.parse().map_err(|bad: BadToolName| Trouble::BadField(bad.to_string()));
    tools.iter().map(name).collect()
}

fn bad<T>(what: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble::BadCommand(what.into()))
}

fn arguments(command: Vec<String>) -> Result<Vec<Vec<u8>>, Trouble> {
    if command.first().is_none_or(String::is_empty) {
        return bad("`command` is empty; its first word is the program");
    }
    if command.iter().any(|word| word.contains('\0')) {
        return bad("`command` has a NUL in it, which no argument can have");
    }
    Ok(command.into_iter().map(String::into_bytes).collect())
}

/// The environment of the box, built from nothing.
fn environment(tty: bool, given: BTreeMap<String, String>) -> Result<Vec<Vec<u8>>, Trouble> {
    let mut all = BTreeMap::from([
        ("HOME".to_owned(), HOME.to_owned()),
        ("USER".to_owned(), "user".to_owned()),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
        ("PATH".to_owned(), USUAL_PATH.to_owned()),
    ]);
    if tty {
        all.insert("TERM".to_owned(), "xterm-256color".to_owned());
    }
    for (name, value) in given {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return bad("`env` has a name that is empty or has `=` in it, or a NUL");
        }
        all.insert(name, value);
    }
    Ok(all.into_iter().map(|(name, value)| format!("{name}={value}").into_bytes()).collect())
}

fn directory(cwd: String) -> Result<Vec<u8>, Trouble> {
    if !cwd.starts_with('/') || cwd.contains('\0') || cwd.len() >= MAX_PATH {
        return bad("`cwd` is not an absolute path in the box");
    }
    Ok(cwd.into_bytes())
}

/// The kernel's own limits, so that the answer is a sentence and not an errno from inside the box.
fn check_length(arguments: &[Vec<u8>], environment: &[Vec<u8>]) -> Result<(), Trouble> {
    let count = arguments.len().max(environment.len());
    if count > MAX_ARGUMENTS {
        return bad(format!(
            "there are {count} arguments or variables; at most {MAX_ARGUMENTS} can be passed"
        ));
    }
    let all = || arguments.iter().chain(environment);
    if all().any(|text| text.len() >= MAX_ARGUMENT) {
        return bad(format!(
            "an argument or variable is longer than {MAX_ARGUMENT} bytes; use stdin or a file"
        ));
    }
    // The terminating zero counts, and so does the pointer to each.
    let bytes: usize = all().map(|text| text.len() + 1 + size_of::<usize>()).sum();
    if bytes > MAX_ARGUMENT_BYTES {
        return bad(format!(
            "arguments and environment have {bytes} bytes; at most {MAX_ARGUMENT_BYTES} can be passed"
        ));
    }
    Ok(())
}
