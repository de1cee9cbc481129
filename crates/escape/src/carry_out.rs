//! Carries out one attempt: in a box, in a box without a layer, or as its positive control.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use blastbox_policy::Gap;
use blastbox_wire::receipt::Receipt;

use crate::attempt::{Attempt, Control, Layer, Prop, Script};
use crate::judge::{Said, judge, said};
use crate::process::{Ended, Input, Kind, Running, Start, start};
use crate::report::{Cell, ControlState, Verdict};
use crate::scene::Scene;
use crate::stop::Stop;

/// No box takes longer, whatever is tried in it; the limit of the box itself is shorter.
const BOX: Duration = Duration::from_secs(60);
const BOX_LIFE: &str = "20s";
/// No control takes longer.
const CONTROL: Duration = Duration::from_secs(15);
const PRELUDE: &str = include_str!("../attempts/prelude.py");
/// Where a build that lifts the mounts shows the host's root.
const HOST_ROOT: &str = "/host";

/// How boxes are asked for.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) program: PathBuf,
    /// Options of `blastbox run` that make the column.
    pub(crate) options: Vec<OsString>,
    pub(crate) lifted: Option<Layer>,
    /// What is weaker here than it could be, accepted by name.
    pub(crate) gaps: Vec<Gap>,
    /// The `blastbox` through which everything is started, so that it ends with us.
    pub(crate) tether: PathBuf,
    pub(crate) stop: Stop,
}

impl Ask {
    fn start(
        &self,
        (kind, program): (Kind, &Path),
        arguments: Vec<OsString>,
        variables: Vec<(&'static str, String)>,
        input: Input<'_>,
    ) -> io::Result<Running> {
        let limit = match kind {
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

fn read(ended: Ended) -> Boxed {
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

/// Whether what ran in it came to its own end, and a good one.
fn exited(boxed: &Boxed) -> bool {
    let good = |receipt: &Receipt| receipt.outcome.as_str() == "exited" && receipt.exit_code == 0;
    boxed.receipt.as_ref().is_some_and(good)
}

fn source(script: Script) -> (&'static str, String) {
    match script {
        Script::Line(line) => ("python", format!("{PRELUDE}\n{line}\n")),
        Script::Python(text) => ("python", format!("{PRELUDE}\n{text}")),
        Script::Shell(text) => ("sh", text.to_owned()),
    }
}

fn words<'a>(list: impl IntoIterator<Item = &'a str>) -> impl Iterator<Item = OsString> {
    list.into_iter().map(OsString::from)
}

/// Runs something small in a box: whether there are such boxes here, and under which rules.
pub(crate) fn probe(ask: &Ask) -> io::Result<Boxed> {
    let mut arguments: Vec<OsString> = words(["run", "--json", "--quiet"]).collect();
    arguments.extend(ask.options.iter().cloned());
    arguments.extend(words(["--timeout", BOX_LIFE, "--", "/bin/true"]));
    ask.start((Kind::Blastbox, &ask.program), arguments, Vec::new(), Input::Text(""))?.end().map(read)
}

/// What one performance needs besides the script.
struct Performance<'a> {
    attempt: &'a Attempt,
    scene: &'a Scene,
    decoy: Option<&'a Decoy>,
    leaked: Option<&'a OwnedFd>,
}

impl Performance<'_> {
    fn variables(&self, role: &str, phase: &str) -> Vec<(&'static str, String)> {
        let mut variables = self.scene.variables();
        variables.push(("ESCAPE_ROLE", role.to_owned()));
        variables.push(("ESCAPE_PHASE", phase.to_owned()));
        if let Some(decoy) = self.decoy {
            variables.push(("ESCAPE_DECOY", decoy.0.id().to_string()));
        }
        if let Some(leaked) = self.leaked {
            variables.push(("ESCAPE_FD", leaked.as_raw_fd().to_string()));
        }
        variables
    }

    fn in_box(&self, ask: &Ask, options: &[&str], phase: &str, whole: bool) -> io::Result<Running> {
        let (language, input) = source(self.attempt.script);
        let mut arguments: Vec<OsString> = words(["run", "--quiet"]).collect();
        if whole {
            arguments.push("--json".into());
        }
        arguments.extend(ask.options.iter().cloned());
        if !options.contains(&"--timeout") {
            arguments.extend(words(["--timeout", BOX_LIFE]));
        }
        arguments.extend(words(options.iter().copied()));
        if self.attempt.has(Prop::Workspace) {
            let mut place = self.scene.directory.join("workspace").into_os_string();
            place.push(":cow");
            arguments.extend([OsString::from("--workspace"), place]);
        }
        let mut told = self.variables("box", phase);
        if ask.lifted == Some(Layer::Mounts) {
            told.push(("ESCAPE_HOSTROOT", HOST_ROOT.to_owned()));
        }
        for (name, value) in told {
            arguments.extend([OsString::from("--env"), format!("{name}={value}").into()]);
        }
        arguments.extend(words(["--lang", language]));
        ask.start((Kind::Blastbox, &ask.program), arguments, self.scene.decoys(), Input::Text(&input))
    }

    fn outside(&self, ask: &Ask, python: &Path, surround: &str, phase: &str) -> io::Result<Running> {
        let (language, input) = source(self.attempt.script);
        let shell = Path::new("/bin/sh");
        let (program, arguments) = match language {
            "python" => (python, words(["-I", "-"]).collect()),
            _ => (shell, words(["-s"]).collect()),
        };
        let mut variables = self.variables("control", phase);
        variables.push(("ESCAPE_SURROUND", surround.to_owned()));
        variables.extend(self.scene.decoys());
        ask.start((Kind::Control, program), arguments, variables, Input::Text(&input))
    }
}

/// A process of the host that holds a secret and must not be reached. It waits for a word that never comes.
#[derive(Debug)]
struct Decoy(Running);

impl Decoy {
    fn start(ask: &Ask, scene: &Scene) -> io::Result<Self> {
        let arguments = words(["-c", "read word; :", &scene.secret]).collect();
        let variables = vec![("DECOY_TOKEN", scene.secret.clone())];
        ask.start((Kind::Control, Path::new("/bin/sh")), arguments, variables, Input::Open).map(Self)
    }

    fn sign(&mut self) -> Option<String> {
        self.0.has_ended().then(|| "a process of the host was ended".to_owned())
    }
}

/// Facts about the host that boxes must not learn.
fn facts() -> Vec<String> {
    let one = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let mut facts: Vec<String> =
        ["/proc/sys/kernel/random/boot_id", "/etc/machine-id"].into_iter().filter_map(one).collect();
    let cards = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    facts.extend(cards.filter_map(|card| one(card.path().join("address").to_str()?)));
    // Shorter ones, and the address of a loopback, say nothing about this host.
    facts.retain(|fact| fact.len() > 5 && fact != "00:00:00:00:00:00");
    // With the word that the attempt puts before it: the name of a host may be a word that stands anywhere.
    facts.extend(one("/proc/sys/kernel/hostname").map(|name| format!("nodename={name}\n")));
    facts
}

/// Everything around one performance; goes with it.
struct Props {
    scene: Scene,
    decoy: Option<Decoy>,
    leaked: Option<OwnedFd>,
    facts: Vec<String>,
}

impl Props {
    fn for_attempt(attempt: &Attempt, ask: &Ask) -> io::Result<Self> {
        let scene = Scene::new()?;
        let decoy = if attempt.has(Prop::Decoy) { Some(Decoy::start(ask, &scene)?) } else { None };
        let leaked = if attempt.has(Prop::LeakedDescriptor) {
            let open = OwnedFd::from(File::open(&scene.directory)?);
            let high = rustix::io::fcntl_dupfd_cloexec(&open, 60)?;
            rustix::io::fcntl_setfd(&high, rustix::io::FdFlags::empty())?;
            Some(high)
        } else {
            None
        };
        let facts = if attempt.has(Prop::HostFacts) { facts() } else { Vec::new() };
        Ok(Self { scene, decoy, leaked, facts })
    }

    fn performance<'a>(&'a self, attempt: &'a Attempt) -> Performance<'a> {
        Performance { attempt, scene: &self.scene, decoy: self.decoy.as_ref(), leaked: self.leaked.as_ref() }
    }

    fn signs(&mut self, output: &str) -> Vec<String> {
        let mut signs = self.scene.signs(output, &self.facts);
        signs.extend(self.decoy.as_mut().and_then(Decoy::sign));
        signs
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

/// Performs an attempt with `run`, which starts one phase: whole output wanted or not. `done`: whether the first of two
/// came to its end; what was never left is not found whatever holds.
fn perform(
    attempt: &Attempt,
    stop: &Stop,
    run: impl Fn(&'static str, bool) -> io::Result<Running>,
    done: impl Fn(Ended) -> bool,
) -> io::Result<Ended> {
    if attempt.has(Prop::Neighbours) {
        let mut first = run("leave", false)?;
        let there = wait_ready(&mut first, stop);
        let second = run("look", true)?.end();
        first.stop()?;
        return if there { second } else { Err(io::Error::other("the neighbour did not come up")) };
    }
    if attempt.has(Prop::TwoBoxes) {
        let first = run("leave", true)?.end()?;
        if !done(first) {
            return Err(io::Error::other("the first of two boxes did not get as far as leaving anything"));
        }
    }
    run("look", true)?.end()
}

/// One attempt in a box.
pub(crate) fn in_box(attempt: &Attempt, ask: &Ask) -> Cell {
    let began = Instant::now();
    let done = in_box_with(attempt, ask, attempt.options);
    let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    match done {
        Ok((verdict, evidence, denied)) => Cell { verdict, evidence, denied, millis },
        Err(error) => {
            let evidence = format!("it could not be set up: {error}");
            Cell { verdict: Verdict::CouldNotRun, evidence, denied: Vec::new(), millis }
        }
    }
}

fn in_box_with(attempt: &Attempt, ask: &Ask, options: &[&str]) -> io::Result<(Verdict, String, Vec<String>)> {
    let mut props = Props::for_attempt(attempt, ask)?;
    let boxed = {
        let performance = props.performance(attempt);
        let run = |phase, whole| performance.in_box(ask, options, phase, whole);
        read(perform(attempt, &ask.stop, run, |first| exited(&read(first)))?)
    };
    let signs = props.signs(&format!("{}{}", boxed.stdout, boxed.stderr));
    let receipt = boxed.receipt.as_ref();
    let (verdict, evidence) = judge(attempt, &boxed.stdout, &boxed.stderr, &signs, receipt);
    let denied = receipt.map(|receipt| receipt.denied.iter().filter_map(|call| call.name.clone()).collect());
    Ok((verdict, evidence, denied.unwrap_or_default()))
}

/// The positive control of an attempt.
pub(crate) fn control(attempt: &Attempt, ask: &Ask, python: Option<&Path>) -> ControlState {
    let root = rustix::process::geteuid().is_root();
    let surround = match attempt.control {
        Control::None(reason) => return ControlState::None(reason.to_owned()),
        Control::Box(options) => {
            return match in_box_with(attempt, ask, options) {
                Ok((Verdict::Escaped, evidence, _)) => ControlState::Fired(evidence),
                Ok((Verdict::NotApplicable, evidence, _)) => ControlState::Unavailable(evidence),
                Ok((_, evidence, _)) => ControlState::Failed(evidence),
                Err(error) => ControlState::Failed(error.to_string()),
            };
        }
        Control::PlainRoot if !root => {
            return ControlState::Unavailable("only root could do it outside a box".to_owned());
        }
        Control::Plain | Control::PlainRoot => "plain",
        Control::Namespaces => "namespaces",
        Control::OwnNet => "net",
    };
    let Some(python) = python else {
        return ControlState::Unavailable(
            "this host has no python3 in /usr/bin or /usr/local/bin".to_owned(),
        );
    };
    match outside(attempt, ask, python, surround) {
        Ok(state) => state,
        Err(error) => ControlState::Failed(format!("it could not be set up: {error}")),
    }
}

fn outside(attempt: &Attempt, ask: &Ask, python: &Path, surround: &str) -> io::Result<ControlState> {
    let mut props = Props::for_attempt(attempt, ask)?;
    let ended = {
        let performance = props.performance(attempt);
        let run = |phase, _| performance.outside(ask, python, surround, phase);
        perform(attempt, &ask.stop, run, |first| first.code == Some(0))?
    };
    let signs = props.signs(&ended.stdout);
    Ok(match (signs.first(), said(&ended.stdout)) {
        (Some(_), _) => ControlState::Fired(signs.join("; ")),
        (None, Said::Escaped(evidence)) => ControlState::Fired(evidence),
        (None, Said::NotApplicable(reason)) => ControlState::Unavailable(reason),
        (None, Said::Held(evidence)) => ControlState::Failed(evidence),
        (None, Said::Nothing) => {
            let last: String = ended.stderr.lines().last().unwrap_or_default().chars().take(200).collect();
            let how = if ended.overdue { "it took too long".to_owned() } else { format!("{:?}", ended.code) };
            ControlState::Failed(format!("it said nothing ({how}, signal {:?}): {last}", ended.signal))
        }
    })
}
