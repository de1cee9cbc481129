//! Performs one attempt: what it runs and is told, alone, after another one or beside it.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::ask::{Ask, words};
use crate::attempt::{Attempt, Prop, Script};
use crate::judge::{Said, said};
use crate::layer::Layer;
use crate::process::{Ended, Input, Kind, Running};
use crate::props::Props;
use crate::stop::Stop;

const PRELUDE: &str = include_str!("../attempts/prelude.py");
const NAIVE: &str = include_str!("../attempts/control/naive_copy.py");
/// Where a build that lifts the mounts shows the host's root.
const HOST_ROOT: &str = "/host";
/// Tells an attempt where the stage is.
const STAGE: &str = "ESCAPE_STAGE";

fn source(script: Script) -> (&'static str, String) {
    match script {
        Script::Line(line) => ("python", format!("{PRELUDE}\n{line}\n")),
        Script::Python(text) => ("python", format!("{PRELUDE}\n{text}")),
        Script::Shell(text) => ("sh", text.to_owned()),
        // The liar is on the host's side; a control is whoever believes it.
        Script::Reply(_) => ("python", format!("{PRELUDE}\n{NAIVE}")),
        // Never run: the agent says what it says, whatever the command.
        Script::Frames(..) => ("sh", String::new()),
    }
}

/// One attempt with everything around it.
pub(crate) struct Performance<'a> {
    pub(crate) attempt: &'a Attempt,
    pub(crate) props: &'a Props,
}

impl Performance<'_> {
    fn variables(&self, role: &str, phase: &str) -> Vec<(&'static str, String)> {
        let mut variables = self.props.variables();
        variables.push(("ESCAPE_ROLE", role.to_owned()));
        variables.push(("ESCAPE_PHASE", phase.to_owned()));
        variables
    }

    pub(crate) fn in_box(
        &self,
        ask: &Ask,
        options: &[&str],
        phase: &str,
        whole: bool,
    ) -> io::Result<Running> {
        let (language, mut input) = source(self.attempt.script);
        let mut arguments: Vec<OsString> = words(["run", "--quiet"]).collect();
        if whole {
            arguments.push("--json".into());
        }
        arguments.extend(ask.options.iter().cloned());
        if !options.contains(&"--timeout") {
            arguments.extend(words(["--timeout", ask.life()]));
        }
        arguments.extend(words(options.iter().copied()));
        if self.attempt.has(Prop::Workspace) {
            let mut place = self.props.scene.directory.join("workspace").into_os_string();
            place.push(":cow");
            arguments.extend([OsString::from("--workspace"), place]);
        }
        let mut told = self.variables("box", phase);
        told.extend(ask.lifted.map(|layer| ("ESCAPE_LIFTED", layer.as_str().to_owned())));
        if ask.lifted == Some(Layer::Mounts) {
            told.push(("ESCAPE_HOSTROOT", HOST_ROOT.to_owned()));
            // Every user of the host reads command lines, and would know the way to a stage that lets them pass.
            told.retain(|(name, _)| *name != STAGE);
            let place = serde_json::Value::from(self.props.scene.directory.display().to_string());
            input = format!("import os; os.environ['{STAGE}'] = {place}\n{input}");
        }
        for (name, value) in told {
            arguments.extend([OsString::from("--env"), format!("{name}={value}").into()]);
        }
        arguments.extend(words(["--lang", language]));
        ask.start((Kind::Blastbox, &ask.program), arguments, self.props.scene.decoys(), Input::Text(&input))
    }

    pub(crate) fn outside(
        &self,
        ask: &Ask,
        python: &Path,
        surround: &str,
        phase: &str,
    ) -> io::Result<Running> {
        let (language, input) = source(self.attempt.script);
        let shell = Path::new("/bin/sh");
        let (program, arguments) = match language {
            "python" => (python, words(["-I", "-"]).collect()),
            _ => (shell, words(["-s"]).collect()),
        };
        let mut variables = self.variables("control", phase);
        variables.push(("ESCAPE_SURROUND", surround.to_owned()));
        variables.extend(self.props.scene.decoys());
        ask.start((Kind::Control, program), arguments, variables, Input::Text(&input))
    }
}

/// Waits until the first of two neighbours says that it is there.
fn wait_ready(running: &mut Running, patience: Duration, stop: &Stop) -> bool {
    let until = Instant::now() + patience;
    while Instant::now() < until && !running.has_ended() && !stop.is_said() {
        if running.printed().contains("READY") {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    running.printed().contains("READY")
}

/// What the first of two came to.
pub(crate) enum First {
    /// It has left what it was to leave.
    Left,
    /// There is nothing to leave here, for this reason.
    Unfit(String),
    /// It did not get that far: what was never left is not found whatever holds.
    Failed,
}

/// Performs an attempt of this kind with `run`, which starts one phase: whole output wanted or not. `first`: what became of the first of
/// two. The reason instead, where there is nothing to perform.
pub(crate) fn perform(
    attempt: &Attempt,
    ask: &Ask,
    kind: Kind,
    run: impl Fn(&'static str, bool) -> io::Result<Running>,
    first_of_two: impl Fn(Ended) -> First,
) -> io::Result<Result<Ended, String>> {
    if attempt.has(Prop::Neighbours) {
        let mut first = run("leave", false)?;
        if !wait_ready(&mut first, ask.limit(kind), &ask.stop) {
            return match said(&first.printed()) {
                Said::NotApplicable(reason) | Said::Absent(reason) => Ok(Err(reason)),
                _ => Err(io::Error::other("the neighbour did not come up")),
            };
        }
        let second = run("look", true)?.end();
        first.stop()?;
        return second.map(Ok);
    }
    if attempt.has(Prop::TwoBoxes) {
        match first_of_two(run("leave", true)?.end()?) {
            First::Left => {}
            First::Unfit(reason) => return Ok(Err(reason)),
            First::Failed => {
                let why = "the first of two boxes did not get as far as leaving anything";
                return Err(io::Error::other(why));
            }
        }
    }
    run("look", true)?.end().map(Ok)
}
