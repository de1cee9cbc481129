//! Which paths are unexpected. Pure.
//!
//! Trust: paths are the payload's; they are compared and never opened here.

use blastbox_wire::agent::Oddity;
use blastbox_wire::plan::{Plan, Step, WorkspaceAccess};

/// Where commands work, and whose that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workplace {
    /// There is none, or nothing can be written there.
    Closed,
    /// The box's own.
    Own,
    /// The caller's directory: what is changed there may reach the caller.
    Callers,
}

impl Workplace {
    /// The one that a plan makes.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        let found = plan.own.iter().find_map(|step| match step {
            Step::ScratchDirectory { at, .. } if at.as_str().as_bytes() == WORKSPACE => Some(Self::Own),
            Step::Workspace { access: WorkspaceAccess::CopyOnWrite, .. } => Some(Self::Callers),
            _ => None,
        });
        found.unwrap_or(Self::Closed)
    }
}

/// Where commands work in every box.
const WORKSPACE: &[u8] = b"/workspace";

/// Directories in which a box may write what it likes.
const PLACES: [&[u8]; 5] = [b"/tmp", b"/var/tmp", b"/home/user", b"/dev/shm", b"/dev/pts"];

/// Devices that swallow, give or are a terminal. Others of /dev are not a box's to write to.
const DEVICES: [&[u8]; 8] = [
    b"/dev/null",
    b"/dev/zero",
    b"/dev/full",
    b"/dev/random",
    b"/dev/urandom",
    b"/dev/tty",
    b"/dev/ptmx",
    b"/dev/console",
];

/// What a box with a GPU opens.
const GPU: &[u8] = b"/dev/nvidia";

/// Files that a shell, an editor, git, a package manager or the next agent runs, loads or obeys, wherever they lie. Not those
/// that are edited in ordinary work, such as a Makefile.
const TRUSTED_FILES: [&[u8]; 24] = [
    b".bashrc",
    b".bash_profile",
    b".bash_login",
    b".bash_logout",
    b".profile",
    b".zshrc",
    b".zshenv",
    b".zprofile",
    b".envrc",
    b".gitattributes",
    b".gitconfig",
    b".gitmodules",
    b".npmrc",
    b".pypirc",
    b".mcp.json",
    b".cursorrules",
    b".windsurfrules",
    b"AGENTS.md",
    b"CLAUDE.md",
    b"CLAUDE.local.md",
    b"GEMINI.md",
    b"copilot-instructions.md",
    b"sitecustomize.py",
    b"usercustomize.py",
];

/// Directories in which everything is.
const TRUSTED_FOLDERS: [&[u8]; 7] =
    [b".vscode", b".idea", b".cursor", b".claude", b".husky", b".devcontainer", b".ssh"];

/// Such things in a directory that holds others.
const TRUSTED_PAIRS: [(&[u8], &[u8]); 4] =
    [(b".git", b"hooks"), (b".git", b"config"), (b".git", b"modules"), (b".github", b"workflows")];

/// What is unexpected about a write at this path; `None`: nothing.
#[must_use]
pub fn judge(path: &[u8], workplace: Workplace) -> Option<Oddity> {
    let path = plain(path);
    if beneath(&path, WORKSPACE) {
        return match workplace {
            Workplace::Closed => Some(Oddity::Outside),
            Workplace::Own => None,
            Workplace::Callers => is_trusted(&path).then_some(Oddity::PoisonsTools),
        };
    }
    (!is_expected(&path)).then_some(Oddity::Outside)
}

fn is_expected(path: &[u8]) -> bool {
    // Pipes, sockets and memory have no path; the kernel's names for them are no absolute ones, but for memory.
    let nameless = path.first() != Some(&b'/') && path.ends_with(b"]") && path.contains(&b':');
    let memory = path.starts_with(b"/memfd:") && path.ends_with(b" (deleted)");
    nameless
        || memory
        || PLACES.iter().any(|place| beneath(path, place))
        || DEVICES.contains(&path)
        || path.strip_prefix(GPU).is_some_and(|rest| !rest.contains(&b'/'))
        || is_about_a_process(path)
}

/// Files about processes of the box, such as `comm`: all but those of the first process, which is the agent.
fn is_about_a_process(path: &[u8]) -> bool {
    let mut parts = path.split(|byte| *byte == b'/').skip(1);
    let (proc, number) = (parts.next(), parts.next().unwrap_or_default());
    let is_number = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
    proc == Some(b"proc") && is_number && number != b"1" && parts.next().is_some()
}

fn is_trusted(path: &[u8]) -> bool {
    let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    // The holder itself too: another directory, made elsewhere, may be put in its place, or a file that names one.
    let holder = |name: &&[u8]| TRUSTED_PAIRS.iter().any(|(holder, _)| holder == name);
    let file = parts.last().is_some_and(|name| TRUSTED_FILES.contains(name) || holder(name));
    let folder = parts.iter().any(|part| TRUSTED_FOLDERS.contains(part));
    let pair =
        parts.windows(2).any(|two| matches!(two, [one, other] if TRUSTED_PAIRS.contains(&(one, other))));
    file || folder || pair
}

fn beneath(path: &[u8], place: &[u8]) -> bool {
    path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// The path without `.`, `..` and doubled slashes, as far as text alone can say.
pub(super) fn plain(path: &[u8]) -> Vec<u8> {
    let absolute = path.first() == Some(&b'/');
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if absolute || parts.last().is_some_and(|last| *last != b"..") => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let joined = parts.join(&b'/');
    if absolute { [b"/", joined.as_slice()].concat() } else { joined }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(path: &str, workplace: Workplace) -> Option<Oddity> {
        judge(path.as_bytes(), workplace)
    }

    #[test]
    fn what_a_box_has_places_for_is_expected() {
        for path in [
            "/tmp",
            "/tmp/x",
            "/tmp/../tmp//./x",
            "/home/user/.cache/pip/x",
            "/home/user/.bashrc",
            "/workspace/a/b",
            "/workspace/CLAUDE.md",
            "/dev/shm/sem.x",
            "/dev/null",
            "/dev/pts/0",
            "/dev/nvidia-uvm",
            "/proc/17/oom_score_adj",
            "/proc/17/task/18/comm",
            "pipe:[4711]",
            "socket:[1]",
            "/memfd:x (deleted)",
        ] {
            assert_eq!(judged(path, Workplace::Own), None, "{path}");
        }
    }

    #[test]
    fn everything_else_is_outside() {
        for path in [
            "/",
            "/etc/passwd",
            "/tmp/../etc/passwd",
            "/tmpfile",
            "/home/others",
            "/home/user2",
            "/usr/lib/python3/__pycache__/x.pyc",
            "/dev/sda",
            "/dev/mem",
            "/dev/nvidia/../sda",
            "/proc/sys/kernel/core_pattern",
            "/proc/1/mem",
            "/proc/17",
            "/sys/fs/cgroup/x",
            "/memfd:x",
            "unknown/x",
            "",
        ] {
            assert_eq!(judged(path, Workplace::Own), Some(Oddity::Outside), "{path}");
        }
    }

    #[test]
    fn the_workspace_counts_for_what_it_is() {
        assert_eq!(judged("/workspace/x", Workplace::Closed), Some(Oddity::Outside));
        for path in [
            "/workspace/sub/.git",
            "/workspace/.github",
            "/workspace/.bashrc",
            "/workspace/sub/.git/hooks/pre-commit",
            "/workspace/.git/config",
            "/workspace/.vscode/tasks.json",
            "/workspace/.mcp.json",
            "/workspace/.cursor/mcp.json",
            "/workspace/.claude/settings.json",
            "/workspace/AGENTS.md",
            "/workspace/deep/CLAUDE.md",
            "/workspace/.github/workflows/ci.yml",
        ] {
            assert_eq!(judged(path, Workplace::Callers), Some(Oddity::PoisonsTools), "{path}");
        }
        for path in
            ["/workspace/src/main.rs", "/workspace/Makefile", "/workspace/.git/index", "/workspace/git/hooks"]
        {
            assert_eq!(judged(path, Workplace::Callers), None, "{path}");
        }
    }

    #[test]
    fn text_alone_makes_a_path_plain() {
        for (path, wanted) in
            [("/a/./b//c/..", "/a/b"), ("/../..", "/"), ("a/../../b", "../b"), ("", ""), ("/", "/")]
        {
            assert_eq!(plain(path.as_bytes()), wanted.as_bytes(), "{path}");
        }
    }
}
