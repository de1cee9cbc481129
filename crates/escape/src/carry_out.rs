//! Carries out one attempt: in a box, in a box without a layer, or outside of boxes.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use blastbox_policy::{Gap, Tier};
use blastbox_wire::receipt::Receipt;

use crate::attempt::{Attempt, Layer, Prop, Script};
use crate::frames::{Agent, Liar, ask_liar};
use crate::judge::{Said, Seen, ended_well, judge, judge_copy, said, unfit};
use crate::process::{Ended, Input, Kind, Running, Start, start};
use crate::props::Props;
use crate::reply::Copying;
use crate::report::{Cell, Verdict};
use crate::stop::Stop;

/// No box takes longer, whatever is tried in it; the limit of the box itself is shorter.
const BOX: Duration = Duration::from_secs(60);
const BOX_LIFE: &str = "20s";
/// The same where a box begins with the boot of a kernel, which an emulated processor takes seconds for.
const MACHINE: Duration = Duration::from_secs(120);
const MACHINE_LIFE: &str = "90s";
/// No control takes longer.
const CONTROL: Duration = Duration::from_secs(15);
const PRELUDE: &str = include_str!("../attempts/prelude.py");
const NAIVE: &str = include_str!("../attempts/control/naive_copy.py");
/// Where a build that lifts the mounts shows the host's root.
const HOST_ROOT: &str = "/host";
/// Tells an attempt where the stage is.
const STAGE: &str = "ESCAPE_STAGE";

/// How boxes are asked for.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) program: PathBuf,
    pub(crate) tier: Tier,
    /// Options of `blastbox run` that make the column.
    pub(crate) options: Vec<OsString>,
    pub(crate) lifted: Option<Layer>,
    /// The `blastbox` of a test build whose agent lies.
    pub(crate) liar: Liar,
    /// What is weaker here than it could be, accepted by name.
    pub(crate) gaps: Vec<Gap>,
    /// Boxes are slow to begin here: only a few attempts are tried.
    pub(crate) few: bool,
    /// The `blastbox` through which everything is started, so that it ends with us.
    pub(crate) tether: PathBuf,
    pub(crate) stop: Stop,
}

impl Ask {
    /// Who answers system calls of the payload, if it is not the host's kernel.
    fn kernel(&self) -> Option<&'static str> {
        match self.tier {
            Tier::Jail => None,
            Tier::Gvisor => Some("gVisor's own kernel"),
            Tier::Microvm => Some("the machine's own kernel"),
            Tier::Wasm => Some("the Wasm worker"),
        }
    }

    fn life(&self) -> &'static str {
        if self.tier == Tier::Microvm { MACHINE_LIFE } else { BOX_LIFE }
    }

    pub(crate) fn start(
        &self,
        (kind, program): (Kind, &Path),
        arguments: Vec<OsString>,
        variables: Vec<(&'static str, String)>,
        input: Input<'_>,
    ) -> io::Result<Running> {
        let limit = match kind {
            Kind::Blastbox if self.tier == Tier::Microvm => MACHINE,
            Kind::Blastbox => BOX,
            Kind::Control => CONTROL,
        };
        let (tether, stop) = (self.tether.as_path(), &self.stop);
        start(Start { tether, kind, program, arguments, variables, input, stop }, limit)
    }
}

/// A box that ended.
#[derive(Debug)]
pub(crate) struct Boxed {
    pub(crate) receipt: Option<Receipt>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn read(ended: Ended) -> Boxed {
    let document: Option<serde_json::Value> = serde_json::from_str(&ended.stdout).ok();
    // Bytes and not text: what an attempt prints need not be any.
    let part = |at: &str| {
        let coded = document.as_ref().and_then(|document| document.pointer(at)?.as_str());
        let bytes = coded.and_then(|coded| BASE64_STANDARD.decode(coded).ok()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let receipt = document.as_ref().and_then(|document| document.get("receipt").cloned());
    Boxed {
        receipt: receipt.and_then(|receipt| serde_json::from_value(receipt).ok()),
        stdout: part("/stdout/base64"),
        stderr: format!("{}{}", ended.stderr, part("/stderr/base64")),
    }
}

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

pub(crate) fn words<'a>(list: impl IntoIterator<Item = &'a str>) -> impl Iterator<Item = OsString> {
    list.into_iter().map(OsString::from)
}

/// Runs something small in a box: whether there are such boxes here, and under which rules.
pub(crate) fn probe(ask: &Ask) -> io::Result<Boxed> {
    let mut arguments: Vec<OsString> = words(["run", "--json", "--quiet"]).collect();
    arguments.extend(ask.options.iter().cloned());
    arguments.extend(words(["--timeout", ask.life()]));
    // A machine whose image has no Python, and a worker that has nothing else, are asked for what attempts need.
    match ask.tier {
        Tier::Jail | Tier::Gvisor => arguments.extend(words(["--", "/bin/true"])),
        Tier::Wasm | Tier::Microvm => arguments.extend(words(["--lang", "python"])),
    }
    ask.start((Kind::Blastbox, &ask.program), arguments, Vec::new(), Input::Text("pass\n"))?.end().map(read)
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
fn wait_ready(running: &mut Running, stop: &Stop) -> bool {
    let until = Instant::now() + CONTROL;
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

/// Performs an attempt with `run`, which starts one phase: whole output wanted or not. `first`: what became of the first of
/// two. The reason instead, where there is nothing to perform.
pub(crate) fn perform(
    attempt: &Attempt,
    stop: &Stop,
    run: impl Fn(&'static str, bool) -> io::Result<Running>,
    first_of_two: impl Fn(Ended) -> First,
) -> io::Result<Result<Ended, String>> {
    if attempt.has(Prop::Neighbours) {
        let mut first = run("leave", false)?;
        if !wait_ready(&mut first, stop) {
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

/// What the receipt of the first of two boxes says.
fn first_box(attempt: &Attempt, ended: Ended) -> First {
    let boxed = read(ended);
    match &boxed.receipt {
        Some(receipt) if ended_well(receipt) => First::Left,
        Some(receipt) if receipt.outcome.as_str() == "refused" => {
            let reason = receipt.reason.as_ref();
            First::Unfit(reason.map_or_else(String::new, |reason| format!("refused: {}", reason.message)))
        }
        Some(receipt) => unfit(attempt, receipt).map_or(First::Failed, First::Unfit),
        None => First::Failed,
    }
}

/// One attempt in a box.
pub(crate) fn in_box(attempt: &Attempt, ask: &Ask) -> Cell {
    let began = Instant::now();
    let done = in_box_with(attempt, ask, attempt.options, ask.kernel());
    let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    match done {
        Ok((verdict, evidence, denied)) => Cell { denied, millis, ..Cell::new(verdict, evidence) },
        Err(error) => {
            let evidence = format!("it could not be set up: {error}");
            Cell { millis, ..Cell::new(Verdict::CouldNotRun, evidence) }
        }
    }
}

/// `kernel`: who answers there, if what is only answered is not to count.
pub(crate) fn in_box_with(
    attempt: &Attempt,
    ask: &Ask,
    options: &[&str],
    kernel: Option<&'static str>,
) -> io::Result<(Verdict, String, Vec<String>)> {
    if let Script::Frames(lie, ending) = attempt.script {
        let (verdict, evidence) = ask_liar(attempt, (lie, ending), ask, Agent::Lying)?;
        return Ok((verdict, evidence, Vec::new()));
    }
    let mut props = Props::for_attempt(attempt, ask)?;
    if let Some(copying) = &props.copying {
        let (ended, asked) = copy(copying, ask)?;
        let signs = props.signs(&format!("{}{}", ended.stdout, ended.stderr));
        let (verdict, evidence) = judge_copy(&ended, asked, &signs);
        return Ok((verdict, evidence, Vec::new()));
    }
    let boxed = {
        let performance = Performance { attempt, props: &props };
        let run = |phase, whole| performance.in_box(ask, options, phase, whole);
        match perform(attempt, &ask.stop, run, |ended| first_box(attempt, ended))? {
            Ok(ended) => read(ended),
            Err(reason) => return Ok((Verdict::NotApplicable, reason, Vec::new())),
        }
    };
    let signs = props.signs(&format!("{}{}", boxed.stdout, boxed.stderr));
    let receipt = boxed.receipt.as_ref();
    let (output, complaint) = (boxed.stdout.as_str(), boxed.stderr.as_str());
    let compared = props.can_compare();
    let seen = Seen { output, complaint, signs: &signs, receipt, kernel, compared };
    let (verdict, evidence) = judge(attempt, seen);
    let denied = receipt.map(|receipt| receipt.denied.iter().filter_map(|call| call.name.clone()).collect());
    Ok((verdict, evidence, denied.unwrap_or_default()))
}

/// `blastbox cp` from somebody who lies; and whether it came as far as being lied to.
fn copy(copying: &Copying, ask: &Ask) -> io::Result<(Ended, bool)> {
    let liar = copying.lie()?;
    let question = copying.question();
    let running = ask.start((Kind::Blastbox, &ask.program), question, Vec::new(), Input::Text(""))?;
    Ok((running.end()?, liar.was_asked()))
}
