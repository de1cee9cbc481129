//! A Python kernel that a box had begun in the pool, before it was anybody's: it knows nothing of its sandbox until the first
//! piece of code, which brings that along.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use blastbox_engine::Command;
use blastbox_engine::keeper::{Keeper, Preparation};
use blastbox_wire::agent::{Io, User};

use super::contexts::Language;
use super::kernel::{self, Kernel};
use crate::e2b::envd::paths::HOME;
use crate::e2b::process::environment;
use crate::e2b::sandbox::Sandbox;

const READY: &[u8] = b"{\"type\": \"ready\"}\n";
const QUESTION: &[u8] = b"{\"ping\": true}\n";
const ANSWER: &[u8] = b"{\"type\": \"pong\"}\n";

/// Variables that an interpreter reads when it starts, and never again: a sandbox that sets one gets a kernel of its own.
const READ_AT_THE_START: [&str; 13] = [
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "TERM",
    "TZDIR",
];
const FAMILIES_READ_AT_THE_START: [&str; 8] =
    ["PYTHON", "IPYTHON", "JUPYTER", "LD_", "LC_", "XDG_", "MALLOC_", "GLIBC_"];

/// What members of a pool begin whose template has a kernel, which has imported these.
pub(in crate::e2b) fn preparation(imports: &[String]) -> Preparation {
    static SAME: OnceLock<Preparation> = OnceLock::new();
    let new = || {
        let mut arguments = kernel::words(Language::Python);
        arguments.extend(imports.iter().map(|name| name.clone().into_bytes()));
        Preparation::new(of_nobody(arguments), READY, QUESTION, ANSWER)
    };
    if imports.is_empty() { SAME.get_or_init(new).clone() } else { new() }
}

/// The same after a command of the operator's has come to its end.
pub(in crate::e2b) fn after(prewarm: Vec<String>, then: Option<&Preparation>) -> Preparation {
    let words = prewarm.into_iter().map(String::into_bytes).collect();
    Preparation::after(of_nobody(words), then)
}

fn of_nobody(arguments: Vec<Vec<u8>>) -> Command {
    Command {
        arguments,
        environment: environment::of_nobody(),
        directory: HOME.as_bytes().to_vec(),
        io: Io::PipesWithStdin,
        user: User::Payload,
    }
}

/// Gives a sandbox the kernel that its box had begun. Where its variables come too late for that one, it ends, and the first
/// piece of code starts another.
pub(in crate::e2b) fn take_over(keeper: &Keeper, sandbox: &Sandbox) {
    // An error: the box is gone already.
    let Ok(Some(exec)) = keeper.prepared(&sandbox.tenant, &sandbox.box_id) else { return };
    let Ok(context) = sandbox.contexts.usual(Language::Python) else { return };
    let variables = environment::of_sandbox(sandbox);
    let late = variables.keys().any(|name| is_read_at_the_start(name));
    let Some(kernel) = Kernel::begun(keeper, sandbox, exec, variables) else { return };
    if late {
        // Whoever lets go of it ends it.
        return;
    }
    if let Ok(mut place) = context.kernel.try_lock() {
        context.runs_as(exec);
        *place = Some(kernel);
    }
}

fn is_read_at_the_start(name: &str) -> bool {
    READ_AT_THE_START.contains(&name)
        || FAMILIES_READ_AT_THE_START.iter().any(|family| name.starts_with(family))
}

/// What a kernel that begun in the pool is told with its first piece of code.
pub(super) type Begin = BTreeMap<String, String>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_interpreter_reads_when_it_starts_comes_too_late_for_one_that_runs() {
        for late in ["PYTHONPATH", "PYTHONHASHSEED", "LC_ALL", "LD_PRELOAD", "TZ", "HOME", "PATH"] {
            assert!(is_read_at_the_start(late), "{late}");
        }
        for fine in ["API_KEY", "E2B_SANDBOX_ID", "MPLBACKEND", "TEMPERATURE", "LDAP"] {
            assert!(!is_read_at_the_start(fine), "{fine}");
        }
    }
}
