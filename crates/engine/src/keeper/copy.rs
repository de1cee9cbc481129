//! Copies a box that runs, for whoever has a turn at it.

use std::sync::Arc;
use std::time::Duration;

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
    /// Until this is dropped nobody else puts the box to sleep or pauses it.
    pub(super) whole: OwnedMutexGuard<()>,
}

/// Copies a box. What is told to the ledger before.
pub(super) async fn copy(
    house: &House,
    kept: &Kept,
    to: &str,
    afterwards: Afterwards,
) -> Result<Copied, KeepError> {
    let whole = Arc::clone(&kept.copying).lock_owned().await;
    match kept.phase() {
        Phase::Ready | Phase::Executing => {}
        Phase::Ending | Phase::Gone => return Err(KeepError::Gone),
        phase @ (Phase::Paused | Phase::Provisioning) => return Err(KeepError::WrongPhase(phase)),
    }
    let Some(image) = &kept.image else {
        return Err(KeepError::Snapshot(SnapshotError::Tier(kept.card.tier)));
    };
    house.engine.may_snapshot(&kept.live).map_err(KeepError::Snapshot)?;
    house.pen.announce(Some(&kept.about()), &Event::BoxCopied { to: Label::new(to) })?;
    failpoint::reach("box-copying");
    let snapshot = house.engine.snapshot(&kept.live, image, afterwards).await.map_err(|error| {
        // One that was ended meanwhile, or because it did not answer, does not go on.
        if kept.live.is_stopped() { KeepError::Gone } else { KeepError::Snapshot(error) }
    })?;
    let inherited = kept.commands.inherited();
    let execs = house.register.execs(&kept.card.id);
    let execs = execs.into_iter().filter(|exec| exec.ended.is_none()).take(MOST_EXECS).collect();
    Ok(Copied { snapshot, execs, inherited, whole })
}

impl House {
    /// Room on the host for the memory of a machine that others will be copies of. It is in no tenant's quota, and the host's all the
    /// same. Whoever waits for it stands in nobody's way: beside a box that has more than half of the host there is never enough.
    pub(super) async fn room_for_machine(&self, memory: u64) -> Result<Arc<Room>, KeepError> {
        let need = Need { boxes: 0, memory, millicpus: 0 };
        let until = Instant::now() + ROOM;
        loop {
            if let Some(room) = self.admission.try_room(need) {
                return Ok(Arc::new(room));
            }
            if Instant::now() >= until {
                return Err(busy());
            }
            // What waits in pools is nobody's.
            tend::end_all(self.pool.shed());
            sleep(LOOK).await;
        }
    }
}
