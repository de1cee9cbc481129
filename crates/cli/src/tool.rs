//! Functions that the caller of `blastbox run` offers to the command in the box: each is a command line of the caller's own,
//! outside of every box.
//!
//! The guest chooses when one is run and what it reads from standard input, and nothing else: neither the command line nor its
//! variables. What it is given was read as JSON and written anew.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use blastbox_engine::{ToolAnswer, ToolCall};
use blastbox_wire::limits::MAX_TOOL_ANSWER;
use blastbox_wire::tools::{ToolName, read_answer};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(60);
const SHELL: &str = "/bin/sh";

/// A function: `NAME=COMMAND`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolFlag {
    pub(crate) name: ToolName,
    command: String,
}

impl std::str::FromStr for ToolFlag {
    type Err = String;
    fn from_str(given: &str) -> Result<Self, String> {
        let (name, command) = given.split_once('=').ok_or("it has no `=`; write NAME=COMMAND")?;
        let name = name.parse::<ToolName>().map_err(|bad| bad.to_string())?;
        if command.trim().is_empty() {
            return Err("the command behind `=` is missing; write NAME=COMMAND".to_owned());
        }
        Ok(Self { name, command: command.to_owned() })
    }
}

/// Runs the function that is called. Dropping it ends its shell and what that started.
pub(crate) async fn run(tools: Vec<ToolFlag>, call: ToolCall) -> ToolAnswer {
    // The last one of a name: as with variables.
    let Some(tool) = tools.into_iter().rev().find(|tool| tool.name == call.tool) else {
        return Err("there is no such tool".to_owned());
    };
    let answer = timeout(PATIENCE, answer(&tool.command, call.input.to_string()));
    answer.await.unwrap_or_else(|_| Err(format!("it was not done within {} s", PATIENCE.as_secs())))
}

async fn answer(line: &str, input: String) -> ToolAnswer {
    #[expect(clippy::disallowed_methods, reason = "the caller's own command line, for the caller's own box")]
    let mut command = Command::new(SHELL);
    command.args(["-c", line]).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    let mut command = tokio::process::Command::from(command);
    let failed = |error: std::io::Error| format!("it cannot be run: {error}");
    let mut child = command.kill_on_drop(true).spawn().map_err(failed)?;
    // Behind the child, and so dropped before it: as long as the shell is not reaped, its number is nobody else's.
    let mut group = Group(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)));
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // One that does not read is none of our concern: what it prints counts.
            stdin.write_all(input.as_bytes()).await.ok();
        }
    };
    let hear = async {
        let mut said = Vec::new();
        if let Some(stdout) = stdout {
            let most = u64::try_from(MAX_TOOL_ANSWER).unwrap_or(u64::MAX).saturating_add(1);
            stdout.take(most).read_to_end(&mut said).await?;
        }
        Ok(said)
    };
    let ((), said) = tokio::join!(feed, hear);
    let said: Vec<u8> = said.map_err(failed)?;
    if said.len() > MAX_TOOL_ANSWER {
        return Err(format!("its answer has more than {MAX_TOOL_ANSWER} bytes"));
    }
    let status = child.wait().await.map_err(failed)?;
    group.0 = None;
    if !status.success() {
        return Err(format!("it failed: {status}"));
    }
    read_answer(&said).map_err(|bad| format!("its answer is of no use: {bad}"))
}

/// A shell and its children: `a | b` is three processes, and a guest that could leave them behind by making each call slow would
/// fill the host with them.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // An error: all of them have gone.
            kill_process_group(leader, Signal::KILL).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(tool: &str, input: serde_json::Value) -> ToolCall {
        ToolCall { call: 1, tool: tool.parse().unwrap(), input }
    }

    fn flag(text: &str) -> ToolFlag {
        text.parse().unwrap()
    }

    #[test]
    fn a_flag_is_a_name_and_a_command_line() {
        assert_eq!(flag("add=jq '.a = 1'").command, "jq '.a = 1'");
        for bad in ["add", "add=", "=cat", "a b=cat", "-a=cat"] {
            assert!(bad.parse::<ToolFlag>().is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_function_reads_json_and_prints_json() {
        let tools = vec![flag("same=cat"), flag("bad=echo {"), flag("no=exit 3"), flag("same=cat; true")];
        let value = serde_json::json!({ "a": ["$(touch x)", "'; rm"] });
        assert_eq!(run(tools.clone(), call("same", value.clone())).await, Ok(value));
        let failed = run(tools.clone(), call("no", serde_json::Value::Null)).await.unwrap_err();
        assert!(failed.contains("exit status: 3"), "{failed}");
        assert!(run(tools.clone(), call("bad", serde_json::Value::Null)).await.is_err());
        assert!(run(tools, call("other", serde_json::Value::Null)).await.is_err());
    }
}
