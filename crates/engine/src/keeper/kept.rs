//! One box as the keeper holds it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use blastbox_images::Image;
use blastbox_policy::SealedPolicy;
use blastbox_wire::limits::MAX_EXECS;
use blastbox_wire::receipt::Receipt;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::cards::{BoxCard, Phase};
use super::cause::Cause;
use super::clock::{Clock, Motion, Now};
use super::commands::Commands;
use super::error::KeepError;
use super::events::wall_clock;
use super::register::Register;
use crate::live::LiveBox;

/// One box.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Its card as it was when it was made; phase and end are filled in when somebody asks.
    pub(crate) card: BoxCard,
    pub(crate) live: Arc<LiveBox>,
    /// Its image; `None`: of a box that an earlier daemon made.
    pub(crate) image: Option<Arc<Image>>,
    /// Its policy as it is now: rules can change while it lives.
    policy: Mutex<Arc<SealedPolicy>>,
    /// Where that is written down.
    register: Arc<Register>,
    /// Held while they do, and while the box is copied: one after the other.
    pub(crate) changing: Arc<tokio::sync::Mutex<()>>,
    pub(crate) asked: SystemTime,
    /// How long it waited in a pool. That time was nobody's.
    pub(crate) pooled: Duration,
    pub(crate) commands: Commands,
    /// The command that it had begun before it was anybody's.
    pub(crate) prepared: Option<u32>,
    /// Wakes the task of the box.
    pub(crate) bell: Notify,
    /// Held while the box is copied, and before it is paused because its time is over: asleep it takes no such order, and would end.
    pub(crate) copying: Arc<tokio::sync::Mutex<()>>,
    /// Held while the box is paused or resumed: one after the other, whoever asks.
    pausing: tokio::sync::Mutex<()>,
    fate: Mutex<Fate>,
}

#[derive(Debug)]
pub(crate) struct Fate {
    pub(crate) clock: Clock,
    /// Set once, by whoever ends it.
    pub(crate) cause: Option<Cause>,
    /// Commands that have ended.
    pub(crate) ends: u64,
    /// One of them did all the work that it may.
    pub(crate) fuel_spent: bool,
    /// Those that ended it, or came while it was ended; `None` once they were told.
    waiting: Option<Vec<oneshot::Sender<Receipt>>>,
}

/// What is known of a box when it is made.
pub(crate) struct Made {
    pub(crate) card: BoxCard,
    pub(crate) live: LiveBox,
    pub(crate) image: Option<Arc<Image>>,
    pub(crate) policy: SealedPolicy,
    pub(crate) register: Arc<Register>,
    pub(crate) asked: SystemTime,
    pub(crate) pooled: Duration,
    pub(crate) clock: Clock,
    pub(crate) prepared: Option<u32>,
}

impl Kept {
    pub(crate) fn new(made: Made) -> Arc<Self> {
        let Made { card, live, image, policy, register, asked, pooled, clock, prepared } = made;
        live.live_until(clock.backstop());
        Arc::new(Self {
            card,
            live: Arc::new(live),
            image,
            policy: Mutex::new(Arc::new(policy)),
            register,
            changing: Arc::default(),
            asked,
            pooled,
            commands: Commands::default(),
            prepared,
            bell: Notify::new(),
            copying: Arc::default(),
            pausing: tokio::sync::Mutex::default(),
            fate: Mutex::new(Fate {
                clock,
                cause: None,
                ends: 0,
                fuel_spent: false,
                waiting: Some(Vec::new()),
            }),
        })
    }

    pub(crate) fn fate(&self) -> MutexGuard<'_, Fate> {
        // Nobody panics while holding it.
        self.fate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn phase(&self) -> Phase {
        self.fate().phase()
    }

    /// Its policy as it is now.
    pub(crate) fn policy(&self) -> Arc<SealedPolicy> {
        Arc::clone(&self.policy.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Other rules hold from now on, for whoever asks and for the daemon after this one.
    pub(crate) fn set_policy(&self, policy: SealedPolicy) {
        self.register.ruled(&self.card.id, &policy);
        *self.policy.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }

    pub(crate) fn card(&self) -> BoxCard {
        let fate = self.fate();
        let (phase, ends_at) = (fate.phase(), wall_clock(fate.clock.ends_at()));
        drop(fate);
        let policy = self.policy().digest().to_string();
        BoxCard { phase, ends_at, policy, ..self.card.clone() }
    }

    /// Somebody asks for something of a box that can still give it.
    pub(crate) fn touch(&self) -> Result<(), KeepError> {
        let mut fate = self.fate();
        match fate.cause {
            Some(Cause::OnDisk) => return Err(KeepError::WrongPhase(Phase::Paused)),
            Some(_) => return Err(KeepError::Gone),
            None if self.live.is_stopped() => return Err(KeepError::Gone),
            None => {}
        }
        fate.clock.touch(Instant::now());
        Ok(())
    }

    /// Ends it, for this reason. The first one stays.
    pub(crate) fn condemn(&self, cause: Cause) {
        self.fate().cause.get_or_insert(cause);
        self.bell.notify_one();
    }

    /// Ends it for its owner, who learns what it used. Whoever comes while it is ended learns the same at the same time:
    /// an earlier answer would tell an end that is perhaps acknowledged nowhere.
    pub(crate) fn kill(&self) -> Result<oneshot::Receiver<Receipt>, KeepError> {
        let mut fate = self.fate();
        let Some(waiting) = &mut fate.waiting else { return Err(KeepError::Gone) };
        let (to, from) = oneshot::channel();
        // Not those that went away: whoever asks again and again holds one place.
        waiting.retain(|caller| !caller.is_closed());
        waiting.push(to);
        fate.cause.get_or_insert(Cause::Killed);
        drop(fate);
        self.bell.notify_one();
        Ok(from)
    }

    /// It ends because its machine lies on disk, unless it ends already for another reason.
    pub(crate) fn leave_for_disk(&self) -> bool {
        let stays = *self.fate().cause.get_or_insert(Cause::OnDisk) == Cause::OnDisk;
        self.bell.notify_one();
        stays
    }

    /// Nobody can kill it any more where it runs, unless somebody has.
    pub(crate) fn close_unless_killed(&self) -> bool {
        let mut fate = self.fate();
        if fate.waiting.as_ref().is_none_or(Vec::is_empty) {
            fate.waiting = None;
            return true;
        }
        fate.cause = Some(Cause::Killed);
        false
    }

    /// Those that wait for its end. There will be no more of them.
    pub(crate) fn take_waiting(&self) -> Vec<oneshot::Sender<Receipt>> {
        self.fate().waiting.take().unwrap_or_default()
    }

    /// Stops everything in it.
    pub(crate) async fn pause(&self) -> Result<(), KeepError> {
        let _one_at_a_time = self.pausing.lock().await;
        match self.phase() {
            Phase::Ready | Phase::Executing => {}
            Phase::Ending | Phase::Gone => return Err(KeepError::Gone),
            phase @ (Phase::Paused | Phase::Provisioning) => return Err(KeepError::WrongPhase(phase)),
        }
        self.live.pause().await.map_err(|error| self.not_paused(error))?;
        self.fate().clock.motion = Motion::Paused;
        self.bell.notify_one();
        Ok(())
    }

    /// Lets it go on.
    pub(crate) async fn resume(&self) -> Result<(), KeepError> {
        let _one_at_a_time = self.pausing.lock().await;
        match self.phase() {
            Phase::Paused => {}
            Phase::Ending | Phase::Gone => return Err(KeepError::Gone),
            phase @ (Phase::Ready | Phase::Executing | Phase::Provisioning) => {
                return Err(KeepError::WrongPhase(phase));
            }
        }
        self.live.resume().await.map_err(|error| self.not_paused(error))?;
        let mut fate = self.fate();
        fate.clock.resume(Now::read());
        let backstop = fate.clock.backstop();
        drop(fate);
        self.live.live_until(backstop);
        self.bell.notify_one();
        Ok(())
    }

    fn not_paused(&self, error: crate::error::PauseError) -> KeepError {
        use crate::error::PauseError;
        match error {
            PauseError::Over => KeepError::Gone,
            PauseError::NotNow(_) => KeepError::WrongPhase(self.phase()),
            error @ (PauseError::Host { .. } | PauseError::Unanswered(_)) => KeepError::Pause(error),
        }
    }

    /// Its life is over in so long from now.
    pub(crate) fn set_life(&self, life: Duration) -> Result<(), KeepError> {
        self.touch()?;
        let mut fate = self.fate();
        fate.clock.set_life(life, Now::read());
        let backstop = fate.clock.backstop();
        drop(fate);
        self.live.live_until(backstop);
        self.bell.notify_one();
        Ok(())
    }
}

impl Fate {
    pub(crate) fn phase(&self) -> Phase {
        match (self.cause, self.clock.motion, self.clock.running) {
            (Some(Cause::OnDisk), ..) => Phase::Paused,
            (Some(_), ..) => Phase::Ending,
            (None, Motion::Paused, _) => Phase::Paused,
            (None, Motion::Going, 0) => Phase::Ready,
            (None, Motion::Going, _) => Phase::Executing,
        }
    }
}

/// A command that counts as running before the box has it, so that the box is not idle meanwhile.
pub(crate) struct Starting<'a>(Option<&'a Kept>);

impl<'a> Starting<'a> {
    pub(crate) fn begin(kept: &'a Kept) -> Result<Self, KeepError> {
        let mut fate = kept.fate();
        match fate.phase() {
            Phase::Ready | Phase::Executing => {}
            Phase::Ending | Phase::Gone => return Err(KeepError::Gone),
            phase @ (Phase::Paused | Phase::Provisioning) => return Err(KeepError::WrongPhase(phase)),
        }
        if fate.clock.running >= MAX_EXECS {
            return Err(KeepError::QuotaSpent { what: "commands" });
        }
        fate.clock.running += 1;
        drop(fate);
        Ok(Self(Some(kept)))
    }

    /// The pump counts it from here.
    pub(crate) fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        if let Some(kept) = self.0 {
            let mut fate = kept.fate();
            fate.clock.running = fate.clock.running.saturating_sub(1);
        }
    }
}
