//! The whole campaign: which columns this host has, then every attempt in each of them, its control, and its second layer.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use blastbox_policy::{Gap, Profile, Tier};
use blastbox_wire::receipt::rfc3339;

use crate::attempt::{Attempt, Control, Layer, Second};
use crate::carry_out::{Ask, control, in_box, probe};
use crate::columns::{columns, left_out};
use crate::report::{Cell, ControlState, Host, Report, Row, SecondState, VERSION, Verdict};
use crate::stop::Stop;
use crate::trusted_core;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Order {
    /// The program `blastbox` that is put to the proof.
    pub program: PathBuf,
    /// A `blastbox` of this version, through which everything is started, so that it ends with us.
    pub tether: PathBuf,
    /// Tiers; empty means every one.
    pub tiers: Vec<Tier>,
    /// Gaps that are accepted besides those of the policy.
    pub accept: Vec<Gap>,
    /// The image that virtual machines start from; it must hold Python.
    pub machine_image: Option<String>,
    /// The store in which images and kernels lie.
    pub store: Option<PathBuf>,
    /// Shipped profiles; empty means every one, unless a policy is named.
    pub profiles: Vec<Profile>,
    /// A policy of one's own.
    pub policy: Option<PathBuf>,
    /// Names of attempts, classes, or beginnings of names; empty means everything.
    pub only: Vec<String>,
    /// Directory of test builds that each lack one layer.
    pub lifted: Option<PathBuf>,
    /// What ends it before its time.
    pub stop: Stop,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum EscapeError {
    /// Nothing in the catalogue has such a name.
    #[error("no attempt is called {0:?}; `blastbox escape --list` names them all")]
    Unknown(String),
    /// Not one column can be had.
    #[error("no box can be made under what was asked for: {0}")]
    NoColumn(String),
    /// Somebody has said so. What ran is ended, and what was made for it removed.
    #[error("the campaign was told to end: there is no report")]
    Stopped,
    /// The program could not be started.
    #[error("cannot start {}", program.display())]
    Start {
        /// Which.
        program: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// How far it is.
#[derive(Debug)]
pub struct Progress<'a> {
    /// Attempts done.
    pub done: usize,
    /// Attempts in all.
    pub all: usize,
    /// The last one.
    pub row: &'a Row,
}

/// The attempts that were asked for.
///
/// # Errors
/// Where a word names none.
pub fn choose(only: &[String]) -> Result<Vec<Attempt>, EscapeError> {
    let all = crate::catalogue::all();
    if only.is_empty() {
        return Ok(all);
    }
    let named = |attempt: &Attempt, word: &String| {
        let id = attempt.id();
        id == *word
            || attempt.class.as_str() == word
            || id.starts_with(&format!("{word}."))
            || attempt.name == word
    };
    if let Some(word) = only.iter().find(|word| !all.iter().any(|attempt| named(attempt, word))) {
        return Err(EscapeError::Unknown(word.clone()));
    }
    Ok(all.into_iter().filter(|attempt| only.iter().any(|word| named(attempt, word))).collect())
}

/// Runs everything.
///
/// # Errors
/// Where nothing can be tried at all.
pub fn run(order: &Order, tell: &(dyn Fn(Progress<'_>) + Sync)) -> Result<Report, EscapeError> {
    let attempts = choose(&order.only)?;
    crate::sweep::sweep(&std::env::temp_dir());
    let (started, began) = (SystemTime::now(), Instant::now());
    let (asks, columns, missing) = columns(order)?;
    // Layers are lifted from the jail, which the other tiers have around them.
    let jail = asks.iter().find(|ask| ask.tier == Tier::Jail);
    let lifted = order.lifted.as_deref().map(|place| lifted(place, jail));
    let python = ["/usr/bin/python3", "/usr/local/bin/python3"].map(Path::new);
    let python = python.into_iter().find(|path| path.is_file());
    let rows: Mutex<Vec<Option<Row>>> = Mutex::new(attempts.iter().map(|_| None).collect());
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let workers = std::thread::available_parallelism().map_or(1, |count| count.get().min(4));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(attempt) = attempts.get(index) else { return };
                    let row = row(attempt, &asks, lifted.as_deref(), python);
                    if order.stop.is_said() {
                        return;
                    }
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    let Ok(mut rows) = rows.lock() else { return };
                    tell(Progress { done, all: attempts.len(), row: &row });
                    if let Some(place) = rows.get_mut(index) {
                        *place = Some(row);
                    }
                }
            });
        }
    });
    if order.stop.is_said() {
        return Err(EscapeError::Stopped);
    }
    let rows = rows.into_inner().unwrap_or_default().into_iter().flatten().collect();
    let caller = if rustix::process::geteuid().is_root() { "root" } else { "user" };
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let (trusted_core, fuzzed) = trusted_core::of_this_build();
    Ok(Report {
        version: VERSION,
        blastbox: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: rfc3339(started.duration_since(UNIX_EPOCH).unwrap_or_default()),
        seconds: whole_millis(began.elapsed()),
        host: Host { kernel, architecture: std::env::consts::ARCH, caller },
        columns,
        missing,
        rows,
        trusted_core,
        fuzzed,
        seal: None,
    })
}

/// Seconds with at most three decimals: read back from text, such a number is the same one, as a seal needs.
fn whole_millis(time: Duration) -> f64 {
    f64::from(u32::try_from(time.as_millis()).unwrap_or(u32::MAX)) / 1000.0
}

/// One attempt everywhere.
fn row(attempt: &Attempt, asks: &[Ask], lifted: Option<&[Lifted]>, python: Option<&Path>) -> Row {
    let cell = |ask: &Ask| match left_out(attempt, ask) {
        Some(evidence) => Cell::new(Verdict::NotApplicable, evidence),
        None => in_box(attempt, ask),
    };
    let mut cells: Vec<Cell> = asks.iter().map(cell).collect();
    let controls = controls(attempt, asks, python);
    for (cell, ask) in cells.iter_mut().zip(asks) {
        let own = controls.iter().find(|(tier, _)| *tier == ask.tier).or(controls.first());
        proven(cell, own.map(|(_, state)| state));
    }
    let mut row = Row::of(attempt, cells);
    // Of an attempt that nobody tries nothing needs to be shown.
    if let Some((_, state)) = controls.into_iter().next() {
        row.control = state;
    }
    if let Second::Behind(layer, _) = attempt.second {
        row.second_state = only_with_control(without(attempt, layer, lifted), &row.control);
    }
    row
}

/// The positive controls of an attempt. One outside of boxes is the same for every tier; a box that is weakened on purpose is one
/// of each tier, because what holds in one kernel says nothing about another.
fn controls(attempt: &Attempt, asks: &[Ask], python: Option<&Path>) -> Vec<(Tier, ControlState)> {
    let mut found: Vec<(Tier, ControlState)> = Vec::new();
    for ask in asks.iter().filter(|ask| left_out(attempt, ask).is_none()) {
        let again = matches!(attempt.control, Control::Box(_));
        if found.is_empty() || (again && found.iter().all(|(tier, _)| *tier != ask.tier)) {
            found.push((ask.tier, control(attempt, ask, python)));
        }
    }
    found
}

/// What a control makes of a cell.
fn proven(cell: &mut Cell, control: Option<&ControlState>) {
    match control {
        Some(ControlState::Fired(_)) => cell.proven = true,
        Some(ControlState::Failed(why)) if cell.verdict == Verdict::Held => {
            cell.verdict = Verdict::Broken;
            cell.evidence = format!("its control did not succeed: {why} (here: {})", cell.evidence);
        }
        Some(ControlState::Failed(_) | ControlState::Unavailable(_) | ControlState::None(_)) | None => {}
    }
}

/// A build that lacks a layer, or why there is none.
type Lifted = (Layer, Result<Ask, String>);

/// The word with which a warden that lacks a layer begins.
const CONFESSION: &str = "BLASTBOX_LIFTED_LAYER";

/// Whether a warden said that it lacks this layer and no other.
fn lacks(layer: Layer, complaint: &str) -> bool {
    let line = complaint.lines().find(|line| line.starts_with(CONFESSION)).unwrap_or_default();
    let says = |one: Layer| line.contains(&format!(" {} {}", one.as_str(), one == layer));
    Layer::ALL.into_iter().all(says)
}

/// The builds that lack a layer. One that does not say itself that it does shows nothing: a layer that was never lifted
/// holds whatever is behind it.
fn lifted(place: &Path, ask: Option<&Ask>) -> Vec<Lifted> {
    let find = |layer: Layer| {
        let name = layer.as_str();
        let program = place.join(name).join("blastbox");
        let Some(ask) = ask else {
            return Err("no jail was asked for, from which to lift a layer".to_owned());
        };
        if !program.is_file() {
            return Err(format!("there is no test build without {name}"));
        }
        let ask = Ask { program, lifted: Some(layer), ..ask.clone() };
        match probe(&ask) {
            Ok(boxed) if lacks(layer, &boxed.stderr) => Ok(ask),
            Ok(_) => Err(format!("the build in {name} does not say that it lacks {name}, and nothing else")),
            Err(error) => Err(format!("the build without {name} cannot be started: {error}")),
        }
    };
    Layer::ALL.into_iter().map(|layer| (layer, find(layer))).collect()
}

/// What was stopped where it is stopped everywhere shows nothing about the layer that stopped it.
fn only_with_control(state: SecondState, control: &ControlState) -> SecondState {
    match (state, control) {
        (SecondState::Held(evidence), ControlState::Failed(why)) => {
            SecondState::NotTried(format!("its control did not succeed: {why} (here: {evidence})"))
        }
        (state, _) => state,
    }
}

/// The same attempt in a box that lacks its first layer.
fn without(attempt: &Attempt, layer: Layer, lifted: Option<&[Lifted]>) -> SecondState {
    let ask = match lifted.and_then(|all| all.iter().find(|(one, _)| *one == layer)) {
        None => return SecondState::NotTried("no test build that lacks a layer was named".to_owned()),
        Some((_, Err(why))) => return SecondState::NotTried(why.clone()),
        Some((_, Ok(ask))) => ask,
    };
    let cell = in_box(attempt, ask);
    match cell.verdict {
        // An old Landlock is what the policy accepts by name: it cannot hold alone what it does not know.
        Verdict::Escaped if layer.leaves_landlock() && ask.gaps.contains(&Gap::WeakLandlock) => {
            SecondState::NotTried(format!("gap {} is accepted: {}", Gap::WeakLandlock, cell.evidence))
        }
        Verdict::Held => SecondState::Held(cell.evidence),
        Verdict::Escaped => SecondState::Fell(cell.evidence),
        Verdict::NotApplicable | Verdict::CouldNotRun | Verdict::Broken => {
            SecondState::NotTried(cell.evidence)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_warden_that_says_so_lacks_a_layer() {
        let says = "BLASTBOX_LIFTED_LAYER: a test build; seccomp true, landlock false, mounts false, network false are lifted\n";
        assert!(lacks(Layer::Seccomp, says));
        assert!(!lacks(Layer::Landlock, says), "another one");
        assert!(!lacks(Layer::Seccomp, ""), "a warden that is shipped says nothing");
        assert!(
            !lacks(Layer::Seccomp, &says.replace("mounts false", "mounts true")),
            "and not only this one"
        );
    }

    #[test]
    fn a_second_layer_does_not_hold_where_the_control_failed() {
        let held = || SecondState::Held("EPERM".to_owned());
        let failed = ControlState::Failed("EPERM".to_owned());
        assert!(matches!(only_with_control(held(), &failed), SecondState::NotTried(_)));
        assert_eq!(only_with_control(held(), &ControlState::Fired(String::new())), held());
        let fell = SecondState::Fell(String::new());
        assert_eq!(only_with_control(fell.clone(), &failed), fell, "what came out came out");
    }
}
