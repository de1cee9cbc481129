//! The whole campaign: which columns this host has, then every attempt in each of them, its control, and its second layer.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use blastbox_policy::{Gap, Profile, Tier};
use blastbox_wire::receipt::rfc3339;

use crate::ask::Ask;
use crate::attempt::{Attempt, Control, Script};
use crate::carry_out::in_box;
use crate::columns::{columns, left_out};
use crate::controls::control;
use crate::frames::Liar;
use crate::layer::Layer;
use crate::lifted::{Lifted, lifted, only_with_control, without};
use crate::report::{Cell, ControlState, Report, Row, VERSION, Verdict};
use crate::stop::Stop;
use crate::subject::{Builds, Host, Named};
use crate::trusted_core;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Order {
    /// The program `blastbox` that is put to the proof.
    pub program: PathBuf,
    /// Whose it is.
    pub whose: Whose,
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

/// Whose program is put to the proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The build that the campaign itself is part of.
    Own,
    /// One that somebody has named: of it nothing is known but what it says.
    Named,
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
    let program = match order.whose {
        Whose::Own => None,
        Whose::Named => Some(Named::ask(&order.program, &order.tether, &order.stop).map_err(|source| {
            let program = order.program.clone();
            if order.stop.is_said() { EscapeError::Stopped } else { EscapeError::Start { program, source } }
        })?),
    };
    let (asks, columns, missing) = columns(order)?;
    // Layers are lifted from the jail, which the other tiers have around them.
    let jail = asks.iter().find(|ask| ask.tier == Tier::Jail);
    let lifted = order.lifted.as_deref().map(|place| lifted(place, jail));
    let test_builds = lifted.as_deref().map(|lifted| builds(&attempts, lifted, jail));
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
    let (blastbox, trusted_core, fuzzed) = match &program {
        Some(named) => (named.says.clone(), Vec::new(), None),
        None => {
            let (trusted_core, fuzzed) = trusted_core::of_this_build();
            (env!("CARGO_PKG_VERSION").to_owned(), trusted_core, fuzzed)
        }
    };
    Ok(Report {
        version: VERSION,
        blastbox,
        program,
        started_at: rfc3339(started.duration_since(UNIX_EPOCH).unwrap_or_default()),
        seconds: whole_millis(began.elapsed()),
        host: Host { kernel, architecture: std::env::consts::ARCH, caller },
        columns,
        missing,
        rows,
        test_builds,
        trusted_core,
        fuzzed,
        seal: None,
    })
}

/// Seconds with at most three decimals: read back from text, such a number is the same one, as a seal needs.
fn whole_millis(time: Duration) -> f64 {
    f64::from(u32::try_from(time.as_millis()).unwrap_or(u32::MAX)) / 1000.0
}

/// Which of the test builds that these attempts need cannot be used.
fn builds(attempts: &[Attempt], lifted: &[Lifted], jail: Option<&Ask>) -> Builds {
    let root = rustix::process::geteuid().is_root();
    let needs = |layer: Layer| {
        // What this caller cannot have anyway is said in its rows.
        (root || layer.needs_root().is_none())
            && attempts.iter().any(|attempt| attempt.second.layer() == Some(layer))
    };
    let mut unusable: Vec<String> = lifted
        .iter()
        .filter(|(layer, _)| needs(*layer))
        .filter_map(|(_, found)| found.as_ref().err().cloned())
        .collect();
    unusable.dedup();
    let lies = attempts.iter().any(|attempt| matches!(attempt.script, Script::Frames(..)));
    if let Some(Liar::Unusable(why)) = jail.filter(|_| lies).map(|ask| &ask.liar) {
        unusable.push(why.clone());
    }
    Builds { unusable }
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
        // One outside of boxes is every tier's; a box that is weakened on purpose is its own tier's alone.
        let shared = controls.first().filter(|_| !matches!(attempt.control, Control::Box(_)));
        let own = controls.iter().find(|(tier, _)| *tier == ask.tier).or(shared);
        proven(cell, own.map(|(_, state)| state));
    }
    let mut row = Row::of(attempt, cells);
    // Of an attempt that nobody tries nothing needs to be shown.
    if let Some((_, state)) = controls.into_iter().next() {
        row.control = state;
    }
    if let Some(layer) = attempt.second.layer() {
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
        _ if cell.verdict != Verdict::Held => {}
        Some(ControlState::Fired(_)) => cell.proven = true,
        Some(ControlState::Failed(why)) => {
            cell.verdict = Verdict::Broken;
            cell.evidence = format!("its control did not succeed: {why} (here: {})", cell.evidence);
        }
        // Nothing was there to be held: whatever refused it here shows nothing.
        Some(ControlState::Absent(why)) => {
            cell.verdict = Verdict::Absent;
            cell.evidence = format!("{why} (here: {})", cell.evidence);
        }
        Some(ControlState::Unavailable(_)) | None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_held_is_proven_or_broken_by_its_control() {
        let after = |verdict, control: Option<ControlState>| {
            let mut cell = Cell::new(verdict, String::new());
            proven(&mut cell, control.as_ref());
            (cell.verdict, cell.proven)
        };
        let (fired, failed) = (ControlState::Fired(String::new()), ControlState::Failed(String::new()));
        assert_eq!(after(Verdict::Held, Some(fired.clone())), (Verdict::Held, true));
        assert_eq!(after(Verdict::Held, Some(failed.clone())), (Verdict::Broken, false));
        assert_eq!(after(Verdict::Held, None), (Verdict::Held, false));
        let absent = ControlState::Absent(String::new());
        assert_eq!(after(Verdict::Held, Some(absent.clone())), (Verdict::Absent, false));
        for verdict in Verdict::ALL.into_iter().filter(|verdict| *verdict != Verdict::Held) {
            assert_eq!(after(verdict, Some(fired.clone())), (verdict, false));
            assert_eq!(after(verdict, Some(failed.clone())), (verdict, false));
            assert_eq!(after(verdict, Some(absent.clone())), (verdict, false), "nothing hides what came out");
        }
    }
}
