//! Places at which a test can stop this program to kill somebody: before and after each step of a box's life.
//!
//! Only a program that was built with the feature `failpoints` has them, and no release is: there the functions below are
//! empty, and no variable of the environment is read, so that a hostile environment has nothing to say.

use std::time::Duration;

use crate::state::State;

/// The places between the states of a box that a life comes to, as `from>to`.
pub const TRANSITIONS: &[&str] = &[
    "provisioning>ready",
    "ready>executing",
    "ready>completed",
    "ready>paused",
    "ready>teardown",
    "executing>completed",
    "executing>paused",
    "executing>teardown",
    "completed>executing",
    "completed>paused",
    "completed>teardown",
    "paused>executing",
    "paused>completed",
    "paused>teardown",
    "teardown>gone",
];

/// Those that nobody can bring about when they like, and why. The tests of the driver go through them with a warden and an
/// agent of their own.
pub const OUT_OF_REACH: &[(&str, &str)] = &[
    ("dormant>provisioning", "a driver begins with a box that was asked for"),
    ("dormant>gone", "a driver begins with a box that was asked for"),
    ("provisioning>error", "the host has to lack something for a moment"),
    ("error>provisioning", "the host has to have it again"),
    ("error>gone", "its owner has to give up between two tries"),
    (
        "provisioning>teardown",
        "the host has to lack something for good, or the warden has to die in these milliseconds",
    ),
    ("provisioning>gone", "the warden has to tell of an end before the agent's channel does"),
    ("ready>gone", "the warden has to tell of an end before the agent's channel does"),
    ("executing>gone", "the warden has to tell of an end before the agent's channel does"),
    ("completed>gone", "the warden has to tell of an end before the agent's channel does"),
    ("paused>gone", "the warden has to tell of an end before the agent's channel does"),
];

/// The places around what is written down.
pub const STEPS: &[&str] = &[
    "warden-noted",
    "warden-started",
    "box-noted",
    "box-launched",
    "box-given",
    "box-moved-in",
    "exec-noted",
    "exec-sent",
    "exec-ended",
    "kill-recorded",
    "box-ended",
    "box-struck",
];

/// The places of a machine that is copied to a file.
pub const COPY_STEPS: &[&str] = &["box-copying", "snapshot-kept", "box-written", "box-on-disk"];

/// The places of a box that an earlier daemon made.
pub const ADOPTION_STEPS: &[&str] = &["box-adopting", "box-adopted"];

/// The places that one test each comes to by itself.
pub const OTHER_STEPS: &[&str] = &["box-overtime"];

/// This process is at one of [`STEPS`], [`COPY_STEPS`], [`ADOPTION_STEPS`] or [`OTHER_STEPS`].
#[inline]
pub(crate) fn reach(_point: &str) {
    #[cfg(feature = "failpoints")]
    armed::reach(_point);
}

/// A box goes from one state to another, and nothing was done about it yet.
#[inline]
pub(crate) fn cross(_from: State, _to: State) {
    #[cfg(feature = "failpoints")]
    if _from != _to {
        armed::reach(&format!("{_from:?}>{_to:?}").to_lowercase());
    }
}

/// How long an agent may keep silent: this long; in a program that was built for tests, as many seconds as the environment says.
#[inline]
pub(crate) fn silence(usual: Duration) -> Duration {
    #[cfg(feature = "failpoints")]
    let usual = armed::silence().unwrap_or(usual);
    usual
}

#[cfg(feature = "failpoints")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use rustix::process::{Signal, getpid, kill_process};

    pub(super) fn silence() -> Option<Duration> {
        std::env::var("BLASTBOX_SILENCE").ok()?.parse().ok().map(Duration::from_secs)
    }

    /// Stops the whole process, once, if this is the place that was chosen. Whoever watches sees that it is stopped.
    pub(super) fn reach(point: &str) {
        static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
        static REACHED: AtomicBool = AtomicBool::new(false);
        let chosen = CHOSEN.get_or_init(|| std::env::var("BLASTBOX_FAILPOINT").ok());
        if chosen.as_deref() == Some(point) && !REACHED.swap(true, Ordering::SeqCst) {
            kill_process(getpid(), Signal::STOP).ok();
            // The signal is the process's: this thread may run for a moment before it is stopped as well.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::state::step;
    use crate::state::tests::{STATES, events};

    /// One that is in no list is one that no test kills at.
    #[test]
    fn every_place_in_the_sources_is_in_one_list() {
        let mut named = BTreeSet::new();
        let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let text = std::fs::read_to_string(path).unwrap();
                    let after = text.split("failpoint::reach(\"").skip(1);
                    named.extend(after.filter_map(|rest| rest.split('"').next()).map(str::to_owned));
                }
            }
        }
        named.retain(|point| point.contains('-'));
        let lists = [STEPS, COPY_STEPS, ADOPTION_STEPS, OTHER_STEPS].concat();
        assert_eq!(lists.iter().map(|point| (*point).to_owned()).collect::<BTreeSet<_>>(), named);
        assert_eq!(lists.len(), named.len(), "one is named twice");
    }

    #[test]
    fn every_way_between_two_states_is_a_place_or_says_why_it_is_none() {
        let mut ways = BTreeSet::new();
        for from in STATES {
            for event in events() {
                if let Ok((to, _)) = step(from, event)
                    && to != from
                {
                    ways.insert(format!("{from:?}>{to:?}").to_lowercase());
                }
            }
        }
        let known = TRANSITIONS.iter().copied().chain(OUT_OF_REACH.iter().map(|(way, _)| *way));
        let known: Vec<String> = known.map(str::to_owned).collect();
        assert_eq!(known.iter().cloned().collect::<BTreeSet<_>>(), ways);
        assert_eq!(known.len(), ways.len(), "one is named twice");
    }
}
