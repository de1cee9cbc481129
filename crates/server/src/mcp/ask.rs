//! What each tool takes. What is not known is refused, so that no wish is silently ignored.

use std::collections::BTreeMap;

use blastbox_images::Language;
use rmcp::schemars;
use serde::Deserialize;

/// A language that snippets can be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Code {
    /// Python 3.
    Python,
    /// Python 3 with numpy, pandas and scipy imported already, in a box of the tier wasm.
    PythonData,
    /// JavaScript, run by Node.js.
    Javascript,
    /// The POSIX shell.
    Sh,
}

impl From<Code> for Language {
    fn from(code: Code) -> Self {
        match code {
            Code::Python => Self::Python,
            Code::PythonData => Self::PythonData,
            Code::Javascript => Self::Node,
            Code::Sh => Self::Shell,
        }
    }
}

/// `run_code`.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunCode {
    /// The language of the code.
    pub(crate) language: Code,
    /// The code.
    pub(crate) code: String,
    /// Whether variables, imports and functions stay for the next stateful call of the same language (Python and JavaScript).
    /// A call that is cancelled or runs out of time loses them.
    #[serde(default)]
    pub(crate) stateful: bool,
    /// After so many seconds it is killed; 60 if absent.
    pub(crate) timeout_seconds: Option<u64>,
    /// Names of functions that the program may call (boxes of the tier wasm; Python: `import blastbox; blastbox.call(name, value)`,
    /// JavaScript: `blastbox.call(name, value)`). When it calls one, the answer says so in `waits`: answer with `answer_call`.
    #[serde(default)]
    pub(crate) tools: Vec<String>,
    /// A box from `start_box`; the session's own if absent.
    #[serde(rename = "box")]
    pub(crate) of: Option<String>,
}

/// `run_command`.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunCommand {
    /// Program and arguments, started as they are: no shell looks at them. For a shell line: ["sh", "-c", "…"].
    pub(crate) command: Vec<String>,
    /// An absolute path in the box to start in.
    pub(crate) cwd: Option<String>,
    /// Variables of the environment, beside the few that every command has.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// What the program reads from standard input.
    pub(crate) stdin: Option<String>,
    /// After so many seconds it is killed; 60 if absent.
    pub(crate) timeout_seconds: Option<u64>,
    /// Names of functions that the program may call (boxes of the tier wasm; Python: `import blastbox; blastbox.call(name, value)`,
    /// JavaScript: `blastbox.call(name, value)`). When it calls one, the answer says so in `waits`: answer with `answer_call`.
    #[serde(default)]
    pub(crate) tools: Vec<String>,
    /// A box from `start_box`; the session's own if absent.
    #[serde(rename = "box")]
    pub(crate) of: Option<String>,
}

/// `read_file`.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadFile {
    /// A path in the box: absolute, or relative to where commands start (/workspace; /home/user in a box without one).
    pub(crate) path: String,
    /// The first byte to read.
    #[serde(default)]
    pub(crate) offset: u64,
    /// Bytes to read at most; at most 262144, which is also the default.
    pub(crate) limit: Option<u64>,
    /// A box from `start_box`; the session's own if absent.
    #[serde(rename = "box")]
    pub(crate) of: Option<String>,
}

/// `write_file`.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteFile {
    /// A path in the box: absolute, or relative to where commands start (/workspace; /home/user in a box without one). Missing directories are made.
    pub(crate) path: String,
    /// The whole content as text. Exactly one of `text` and `base64`.
    pub(crate) text: Option<String>,
    /// The whole content as base64.
    pub(crate) base64: Option<String>,
    /// Whether it may be executed.
    #[serde(default)]
    pub(crate) executable: bool,
    /// A box from `start_box`; the session's own if absent.
    #[serde(rename = "box")]
    pub(crate) of: Option<String>,
}

/// `list_files`.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListFiles {
    /// A directory in the box: absolute, or relative to where commands start (/workspace; /home/user in a box without one).
    pub(crate) path: String,
    /// How many levels; 1 if absent, 10 at most.
    pub(crate) depth: Option<u32>,
    /// A box from `start_box`; the session's own if absent.
    #[serde(rename = "box")]
    pub(crate) of: Option<String>,
}

/// Tools that are about one box.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OneBox {
    /// A box from `start_box`; the session's own if absent.
    #[serde(rename = "box")]
    pub(crate) of: Option<String>,
}
