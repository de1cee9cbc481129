//! A box that is put to sleep to be copied: what is said to its agent before, and after.
//!
//! ```text
//! Awake ── Sleep sent ──► Falling ── Asleep heard ──► Asleep ── the morning ──► Awake
//!                            └── it could not, and goes on ────────────────────────┘
//! ```
//! From the order to sleep until the morning no frame is sent, and from `Asleep` on none may come: whatever machine goes on from
//! here finds an empty channel.

use std::time::Duration;

use blastbox_wire::agent::{HostFrame, Morning};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Driver;
use crate::outcome::{Ending, Loss};
use crate::state::{State, Stop};

/// How long a guest may take to stop what runs in it. Longer than its own patience.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why a box does not sleep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sleepless {
    /// It is paused, being made or being ended.
    NotNow(State),
    /// Its guest could not stop what runs in it.
    Guest(i32),
    /// It did not come to it in time.
    Late,
}

/// Where the outcome is waited for.
pub(crate) type Sleeping = oneshot::Sender<Result<(), Sleepless>>;

/// Whether it sleeps.
#[derive(Debug, Default)]
pub(crate) enum Rest {
    #[default]
    Awake,
    Falling(Sleeping, Instant),
    Asleep,
}

impl Rest {
    pub(crate) fn is_awake(&self) -> bool {
        matches!(self, Self::Awake)
    }

    pub(crate) fn is_asleep(&self) -> bool {
        matches!(self, Self::Asleep)
    }

    /// When its guest has taken too long to fall asleep.
    pub(crate) fn late_at(&self) -> Option<Instant> {
        match self {
            Self::Falling(_, late) => Some(*late),
            Self::Awake | Self::Asleep => None,
        }
    }
}

impl Driver {
    pub(super) fn put_to_sleep(&mut self, to: Sleeping) {
        // Whoever wanted it has gone away.
        if to.is_closed() {
            return;
        }
        let up = matches!(self.state, State::Ready | State::Executing | State::Completed);
        if !up || self.pausing.is_some() || self.log.adopting.is_some() {
            to.send(Err(Sleepless::NotNow(self.state))).ok();
            return;
        }
        self.send(&HostFrame::Sleep);
        self.rest = Rest::Falling(to, Instant::now() + PATIENCE);
    }

    /// The agent says that it sleeps, or could not.
    pub(crate) fn fell_asleep(&mut self, errno: i32) -> Result<(), &'static str> {
        match std::mem::take(&mut self.rest) {
            Rest::Falling(to, _) if errno == 0 => {
                self.rest = Rest::Asleep;
                // Whoever wanted it went away.
                if to.send(Ok(())).is_err() {
                    self.wake();
                }
            }
            Rest::Falling(to, _) => {
                to.send(Err(Sleepless::Guest(errno))).ok();
                self.send_credit();
            }
            Rest::Awake | Rest::Asleep => return Err("a sleep that nobody asked for"),
        }
        Ok(())
    }

    /// The box is still itself, and goes on.
    pub(super) fn wake(&mut self) {
        if self.rest.is_asleep() {
            self.rest = Rest::Awake;
            self.log.outbox.extend(Morning::Same.encode());
            self.flush();
            self.send_credit();
        }
    }

    /// Its guest does not stop what runs in it, and does not say so either: nobody can speak with it any more.
    pub(super) fn never_slept(&mut self) {
        let how = "it was asked to sleep and did not answer".to_owned();
        self.stop(Stop::GuestLied, Ending::Lost(Loss::GuestLied(how)));
    }
}
