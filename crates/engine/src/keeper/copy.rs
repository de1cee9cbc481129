//! Copies a box that runs, for whoever has a turn at it.

use std::sync::Arc;
use std::time::Duration;

use blastbox_policy::SealedPolicy;
use blastbox_wire::event::{Event, Label};
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep};

use super::admission::Room;
use super::begin::Inherited;
use super::cards::Phase;
use super::copy_queue::busy;
use super::error::KeepError;
use super::gate::Need;
use super::house::House;
use super::kept::Kept;
use super::tend;
use crate::engine::{Afterwards, Snapshot, SnapshotError};
use crate::failpoint;
use crate::store::ExecRow;

/// Commands of a box that are written down with it.
const MOST_EXECS: usize = 256;
/// How long room for a machine is waited for, and how often it is looked for.
const ROOM: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(100);

/// A box as it was when it slept, and the commands that ran in it.
pub(super) struct Copied {
    pub(super) snapshot: Snapshot,
    pub(super) execs: Vec<ExecRow>,
    pub(super) inherited: Vec<Inherited>,
    /// The rules that held while it slept.
    pub(super) policy: Arc<SealedPolicy>,
    /// Until this is dropped nobody else puts the box to sleep or pauses it, nor changes the rules of one that stands still.
    pub(super) whole: (OwnedMutexGuard<()>, Option<OwnedMutexGuard<()>>),
}

/// Copies a box. What is told to the ledger before.
pub(super) async fn copy(
    house: &House,
    kept: &Kept,
    to: &str,
    afterwards: Afterwards,
) -> Result<Copied, KeepError> {
    let whole = Arc::clone(&kept.copying).lock_owned().await;
    // One that does not go on has the rules that are written down. Of one that goes on they can be changed all the while: nobody who
    // takes a rule away waits until a copy is whole.
    let rules = match afterwards {
        Afterwards::StandsStill => Some(Arc::clone(&kept.changing).lock_owned().await),
        Afterwards::GoesOn => None,
    };
    match kept.phase() {
        Phase::Ready | Phase::Executing => {}
        Phase::Ending | Phase::Gone => return Err(KeepError::Gone),
        phase @ (Phase::Paused | Phase::Provisioning) => return Err(KeepError::WrongPhase(phase)),
    }
    let Some(image) = &kept.image else {
        return Err(KeepError::Snapshot(SnapshotError::Tier(kept.card.tier)));
    };
    house.engine.may_snapshot(&kept.live, &kept.policy()).map_err(KeepError::Snapshot)?;
    house.pen.announce(Some(&kept.about()), &Event::BoxCopied { to: Label::new(to) })?;
    failpoint::reach("box-copying");
    // While it sleeps: it goes on before its copy is whole, and what ends by then in the box runs in the copy.
    let commands = || {
        let execs = house.register.execs(&kept.card.id).into_iter();
        let running = execs.filter(|exec| exec.ended.is_none()).take(MOST_EXECS);
        (running.collect::<Vec<ExecRow>>(), kept.commands.inherited(), kept.policy())
    };
    let copied = house.engine.snapshot(&kept.live, &kept.policy(), image, afterwards, commands).await;
    let (snapshot, (execs, inherited, policy)) = copied.map_err(|error| {
        // One that was ended meanwhile, or because it did not answer, does not go on.
        if kept.live.is_stopped() { KeepError::Gone } else { KeepError::Snapshot(error) }
    })?;
    // Those of then: they may have been changed since it was asked whether it can be copied. Not of one that stands still, whose rules
    // nobody changes: whoever returns here lets nothing go on.
    if rules.is_none() {
        house.engine.may_snapshot(&kept.live, &policy).map_err(KeepError::Snapshot)?;
    }
    Ok(Copied { snapshot, execs, inherited, policy, whole: (whole, rules) })
}

impl House {
    /// Room on the host for the memory of a machine that others will be copies of. It is in no tenant's quota, and the host's all the
    /// same.
    pub(super) async fn room_for_machine(&self, memory: u64) -> Result<Arc<Room>, KeepError> {
        // Beside a box that has more than half of the host there is never enough, whoever makes room.
        let beside_its_box = Need { memory: memory.saturating_mul(2), ..of_machine(memory) };
        if !self.admission.fits(beside_its_box) {
            return Err(KeepError::QuotaSpent { what: "host_memory" });
        }
        let until = Instant::now() + ROOM;
        let mut shed = false;
        loop {
            if let Some(room) = self.try_room_for_machine(memory) {
                return Ok(room);
            }
            if self.is_closed() {
                return Err(KeepError::Stopping);
            }
            if Instant::now() >= until {
                return Err(busy());
            }
            // What waits in pools is nobody's. Once: what is made in its place meanwhile would only be made in vain.
            if !std::mem::replace(&mut shed, true) {
                tend::end_all(self.pool.shed());
            }
            sleep(LOOK).await;
        }
    }

    /// The same where there is some now.
    pub(super) fn try_room_for_machine(&self, memory: u64) -> Option<Arc<Room>> {
        self.admission.try_room(of_machine(memory)).map(Arc::new)
    }
}

fn of_machine(memory: u64) -> Need {
    Need { boxes: 0, memory, millicpus: 0 }
}
