//! Places at which a test can stop this program to kill somebody: before and after each step of a box's life.
//!
//! Only a program that was built with the feature `failpoints` has them, and no release is: there the functions below are
//! empty, and no variable of the environment is read, so that a hostile environment has nothing to say.

use crate::state::State;

/// The places between the states of a box, as `from>to`.
pub const TRANSITIONS: &[&str] = &[
    "provisioning>ready",
    "ready>executing",
    "executing>completed",
    "completed>executing",
    "executing>paused",
    "paused>executing",
    "executing>teardown",
    "teardown>gone",
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

/// This process is at one of [`STEPS`].
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

#[cfg(feature = "failpoints")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use rustix::process::{Signal, getpid, kill_process};

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
