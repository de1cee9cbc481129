//! The programs that cargo makes of the tests, and who may run beside each.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::run;

/// What a program that counts what is left on its host names, and one that starts boxes. Those of the package `tests` all do.
const COUNTS: &str = "Census";
const STARTS: &str = "BLASTBOX_BIN_DIR";
const BOXES: &str = "tests";
/// It counts, too, and waits for minutes in which nothing happens: beside others, where it does without a part of the count.
const PATIENT: &str = "tests/left_alone";
/// Its boxes live on a host of their own, which is emulated; on this one it has a plan made, which takes a moment.
const NESTED: &str = "tests/nested";
/// What takes longest comes first: at the end nobody waits for it alone.
const LONGEST: [&str; 13] = [
    "tests/e2b",
    PATIENT,
    NESTED,
    "tests/escape",
    "tests/short_way",
    "tests/e2b_templates",
    "tests/network_copies",
    "tests/conformance",
    "tests/snapshots",
    "tests/paused_to_disk",
    "tests/e2b_wire",
    "tests/microvm_boxes",
    "tests/egress_flood",
];

/// A word for those of virtual machines, and which they are.
const MACHINES: (&str, [&str; 14]) = (
    "machines",
    [
        "tests/agent_crash",
        "tests/conformance",
        "tests/console",
        "tests/machine_crash",
        "tests/microvm",
        "tests/microvm_boxes",
        "tests/microvm_network",
        "tests/microvm_prepared",
        NESTED,
        "tests/network_copies",
        "tests/paused_crash",
        "tests/paused_to_disk",
        "tests/snapshot_refusals",
        "tests/snapshots",
    ],
);

/// What is tested beside what every program is built with: the worker of components and the compiler. As the Makefile has it.
const FEATURES: [&str; 2] = ["--features", "blastbox-wasm/components,blastbox-wasm/compiler"];

/// Who may run beside a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Company {
    /// Nobody who starts boxes: it counts what boxes have left on the whole host.
    Counts,
    /// Nobody who counts.
    Starts,
    /// Anybody: it starts no box.
    Quiet,
}

impl Company {
    pub(super) fn suits(self, other: Self) -> bool {
        self.max(other) == Self::Quiet || (self == Self::Starts && other == Self::Starts)
    }
}

/// One program, or all examples in the documentation, which cargo makes and runs itself.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) name: String,
    pub(super) company: Company,
    /// `None`: the documentation.
    file: Option<PathBuf>,
    directory: PathBuf,
}

impl Program {
    /// Starts it with its output to us. `only`: these tests alone, one after another.
    pub(super) fn command(&self, only: &BTreeSet<String>) -> Command {
        let mut command = if let Some(file) = &self.file {
            run::program(file, &self.directory)
        } else {
            let mut cargo = run::cargo(&self.directory);
            cargo.args(["test", "--workspace"]).args(FEATURES).args(["--doc", "--no-fail-fast", "--"]);
            cargo
        };
        if !only.is_empty() {
            command.args(["--exact", "--test-threads=1"]).args(only);
        }
        command.stdout(Stdio::piped());
        command
    }
}

/// Compiles all tests of the workspace and names their programs, in the order in which they had better begin.
pub(super) fn compiled(root: &Path) -> io::Result<Vec<Program>> {
    let mut cargo = run::cargo(root);
    cargo.args(["test", "--workspace", "--no-run"]).args(FEATURES);
    cargo.arg("--message-format=json-render-diagnostics");
    let mut programs = vec![Program {
        name: "documentation".to_owned(),
        company: Company::Quiet,
        file: None,
        directory: root.to_owned(),
    }];
    for line in run::output(&mut cargo)?.lines() {
        let message: Value = serde_json::from_str(line).map_err(io::Error::other)?;
        programs.extend(program(&message));
    }
    programs.sort_by_key(|program| {
        let place = LONGEST.iter().position(|name| *name == program.name).unwrap_or(LONGEST.len());
        (program.company, place, program.name.clone())
    });
    Ok(programs)
}

/// Those that somebody asks for by a part of their names; all, where nobody asks. It is an error to ask for one that is not there.
pub(super) fn wanted(programs: Vec<Program>, only: &[&str]) -> io::Result<Vec<Program>> {
    let is = |name: &str, word: &str| {
        if word == MACHINES.0 { MACHINES.1.contains(&name) } else { name.contains(word) }
    };
    if let Some(word) = only.iter().find(|word| !programs.iter().any(|program| is(&program.name, word))) {
        return Err(io::Error::other(format!("no program of tests has {word:?} in its name")));
    }
    let is_wanted = |program: &Program| only.is_empty() || only.iter().any(|word| is(&program.name, word));
    Ok(programs.into_iter().filter(is_wanted).collect())
}

/// What cargo says of a program of tests that it has made; it says other things, too.
fn program(message: &Value) -> Option<Program> {
    let target = message.get("target")?;
    let file = message.get("executable")?.as_str()?;
    if !message.get("profile")?.get("test")?.as_bool()? {
        return None;
    }
    let directory = Path::new(message.get("manifest_path")?.as_str()?).parent()?;
    let package = directory.file_name()?.to_str()?;
    let source = Path::new(target.get("src_path")?.as_str()?);
    let name = format!("{package}/{}", target.get("name")?.as_str()?);
    Some(Program {
        company: match name.as_str() {
            PATIENT => Company::Starts,
            NESTED => Company::Quiet,
            _ => company(package, &text_of(source)),
        },
        name,
        file: Some(file.into()),
        directory: directory.to_owned(),
    })
}

fn company(package: &str, text: &str) -> Company {
    if text.contains(COUNTS) {
        Company::Counts
    } else if package == BOXES || text.contains(STARTS) {
        Company::Starts
    } else {
        Company::Quiet
    }
}

/// Everything that a program is made of, as far as it lies with its first file: that alone, or its directory where it is called `main.rs`
/// or `lib.rs`, as cargo has it. What cannot be read names nobody.
fn text_of(first: &Path) -> String {
    let whole = matches!(first.file_name().and_then(|name| name.to_str()), Some("main.rs" | "lib.rs"));
    let (mut text, mut waiting) = (String::new(), Vec::new());
    match first.parent() {
        Some(directory) if whole => waiting.push(directory.to_owned()),
        _ => text += &fs::read_to_string(first).unwrap_or_default(),
    }
    while let Some(directory) = waiting.pop() {
        for path in fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text += &fs::read_to_string(path).unwrap_or_default();
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_counts_runs_beside_nobody_who_starts_boxes() {
        use Company::{Counts, Quiet, Starts};
        for (one, other, suits) in [
            (Counts, Counts, false),
            (Counts, Starts, false),
            (Counts, Quiet, true),
            (Starts, Starts, true),
            (Starts, Quiet, true),
            (Quiet, Quiet, true),
        ] {
            assert_eq!((one.suits(other), other.suits(one)), (suits, suits), "{one:?} {other:?}");
        }
    }

    #[test]
    fn what_a_program_needs_stands_in_its_text() {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("tests/tests");
        let of = |file: &str| company("tests", &text_of(&tests.join(file)));
        assert_eq!(of("crash.rs"), Company::Counts);
        assert_eq!(of("short_way/main.rs"), Company::Starts);
        assert_eq!(of("conformance.rs"), Company::Starts);
        assert_eq!(company("engine", "var_os(\"BLASTBOX_BIN_DIR\")"), Company::Starts);
        assert_eq!(company("wire", &text_of(Path::new("/nowhere.rs"))), Company::Quiet);
    }

    #[test]
    fn programs_are_asked_for_by_a_part_of_their_names() {
        let program = |name: &str| Program {
            name: name.to_owned(),
            company: Company::Starts,
            file: None,
            directory: "/".into(),
        };
        let all =
            || ["documentation", "tests/wasm", "tests/wasm_http", "tests/snapshots"].map(program).to_vec();
        let names = |only: &[&str]| -> Vec<String> {
            wanted(all(), only).unwrap().into_iter().map(|program| program.name).collect()
        };
        assert_eq!(names(&[]).len(), 4);
        assert_eq!(names(&["wasm"]), ["tests/wasm", "tests/wasm_http"]);
        assert_eq!(names(&["wasm_http", "machines"]), ["tests/wasm_http", "tests/snapshots"]);
        assert!(wanted(all(), &["wasm", "nobody"]).is_err());
    }

    #[test]
    fn programs_of_machines_are_there() {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("tests/tests");
        for name in MACHINES.1 {
            let file = name.trim_start_matches("tests/");
            let paths = [tests.join(format!("{file}.rs")), tests.join(file).join("main.rs")];
            assert!(paths.iter().any(|path| path.is_file()), "{name}");
        }
    }

    #[test]
    fn what_make_compiles_is_what_is_run() {
        let makefile =
            fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("Makefile"));
        assert!(makefile.unwrap().contains(&format!("TESTED := {}\n", FEATURES.join(" "))));
    }

    #[test]
    fn a_program_is_read_from_what_cargo_says() {
        let said = |test: bool, file: Value| {
            serde_json::json!({ "reason": "compiler-artifact", "manifest_path": "/x/tests/Cargo.toml", "executable": file,
                "target": { "name": "e2b", "src_path": "/x/tests/tests/e2b.rs" }, "profile": { "test": test } })
        };
        let found = program(&said(true, "/x/target/deps/e2b-1".into())).unwrap();
        assert_eq!((found.name.as_str(), found.directory.as_path()), ("tests/e2b", Path::new("/x/tests")));
        assert!(LONGEST.contains(&found.name.as_str()));
        assert!(program(&said(false, "/x/target/e2b".into())).is_none(), "a program, not its tests");
        assert!(program(&said(true, Value::Null)).is_none(), "a library");
        assert!(program(&serde_json::json!({ "reason": "build-finished", "success": true })).is_none());
    }
}
