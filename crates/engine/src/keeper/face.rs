//! The keeper as the daemon's faces hold it.

use std::sync::Arc;
use std::time::Duration;

use blastbox_images::machine::Snapshots;
use blastbox_wire::BoxId;
use blastbox_wire::event::{Event, KilledBy, Label};
use blastbox_wire::receipt::Receipt;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::admission::Admission;
use super::album::Album;
use super::cards::{BoxCard, ExecCard, Phase, Tenant};
use super::cause::Cause;
use super::config::{KeeperConfig, NewBox};
use super::error::KeepError;
use super::events::{EventReader, Happened};
use super::house::House;
use super::kept::Kept;
use super::metrics::Metrics;
use super::on_disk::OnDisk;
use super::past::Past;
use super::pen::Pen;
use super::pool::Pool;
use super::register::Register;
use super::snapshot_id::SnapshotId;
use super::{make, tend, to_disk};
use crate::engine::Engine;
use crate::failpoint;
use crate::ledger::{Ledger, LedgerError};
use crate::live::LiveBox;
use crate::store::{BoxRow, BoxState, Leftovers, Store};

/// How long a keeper that stops waits for its boxes.
const STOP: Duration = Duration::from_secs(15);
/// How long boxes may take to learn that their end is not acknowledged.
const UNTOLD: Duration = Duration::from_secs(1);
/// How long whoever ends a box waits for its end, and for a sink that must acknowledge it.
pub(super) const ACKNOWLEDGED: Duration = Duration::from_secs(30);

/// How long the agent of a box may take for a sign of life, on a busy host too, and how soon it is asked again where somebody else
/// asks it.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// Keeps many boxes for many owners. Cheap to clone; all clones are one keeper.
///
/// A tenant sees its own boxes and no other: what belongs to somebody else is [`KeepError::NotFound`], as if it had
/// never been. End it with [`Keeper::stop`]: boxes do not go because nobody holds their keeper.
#[derive(Debug, Clone)]
pub struct Keeper(pub(super) Arc<House>);

impl Keeper {
    /// Starts a keeper and its background work. Inside a tokio runtime.
    #[must_use]
    pub fn start(engine: Engine, config: KeeperConfig) -> Self {
        Self::begin(engine, config, None, None, Past::default())
    }

    /// Starts a keeper that announces in a ledger what it is about to do. What cannot be written there is not begun.
    pub fn start_recorded(
        engine: Engine,
        config: KeeperConfig,
        mut ledger: Ledger,
    ) -> Result<Self, LedgerError> {
        ledger.append(None, &Event::DaemonStarted { version: Label::new(env!("CARGO_PKG_VERSION")) })?;
        Ok(Self::begin(engine, config, Some(ledger), None, Past::default()))
    }

    /// The same with a store, from which a new daemon knows what a killed one left. What it left is in `leftovers`, is
    /// released already, and is recorded here; [`Keeper::tell_past`] tells it.
    pub fn start_kept(
        engine: Engine,
        config: KeeperConfig,
        mut ledger: Ledger,
        store: Arc<Store>,
        leftovers: &Leftovers,
    ) -> Result<Self, LedgerError> {
        ledger.append(None, &Event::DaemonStarted { version: Label::new(env!("CARGO_PKG_VERSION")) })?;
        let (lies, missing) = present(&config, &leftovers.on_disk);
        let past = Past::record(&mut ledger, &store, leftovers, &missing)?;
        let keeper = Self::begin(engine, config, Some(ledger), Some(store), past);
        keeper.0.find_on_disk(&lies);
        Ok(keeper)
    }

    fn begin(
        engine: Engine,
        config: KeeperConfig,
        ledger: Option<Ledger>,
        store: Option<Arc<Store>>,
        past: Past,
    ) -> Self {
        let admission = Admission::new(&config);
        let pool = Pool::new(config.pool);
        let (pen, register) = (Pen::of(ledger), Register::of(store));
        let album = Album::new(config.snapshots);
        let house = Arc::new(House::new(engine, admission, Arc::clone(&pool), pen, register, past, album));
        tokio::spawn(tend::tend(Arc::downgrade(&house), pool));
        Self(house)
    }

    /// The engine, for what it knows of the host.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// Makes a box, or takes one from a pool, and waits until it is ready. A caller that goes away meanwhile gets none
    /// and leaves nothing.
    pub async fn create(&self, tenant: &Tenant, new: NewBox) -> Result<BoxCard, KeepError> {
        make::make(&self.0, tenant, new, None).await
    }

    /// The boxes of a tenant, oldest first.
    #[must_use]
    pub fn list(&self, tenant: &Tenant) -> Vec<BoxCard> {
        let boxes = self.0.boxes().into_iter().filter(|kept| kept.card.tenant == *tenant);
        let mut cards: Vec<BoxCard> = boxes.map(|kept| kept.card()).collect();
        cards.extend(self.0.all_on_disk(tenant).iter().map(|lies| lies.card()));
        cards.sort_by(|a, b| (&a.created_at, &a.id).cmp(&(&b.created_at, &b.id)));
        cards
    }

    /// One box, and the commands in it. Does not count as a request.
    pub fn get(&self, tenant: &Tenant, id: &BoxId) -> Result<(BoxCard, Vec<ExecCard>), KeepError> {
        let on_disk = || self.0.on_disk(tenant, id).map(|lies| (lies.card(), lies.execs()));
        if let Some(found) = on_disk() {
            return Ok(found);
        }
        match self.0.find(tenant, id) {
            Ok(kept) => Ok((kept.card(), kept.commands.cards())),
            // It came to lie there in this moment.
            Err(error) => on_disk().ok_or(error),
        }
    }

    /// The command that a box had begun before it was anybody's, where it came from a pool that does that.
    pub fn prepared(&self, tenant: &Tenant, id: &BoxId) -> Result<Option<u32>, KeepError> {
        Ok(self.0.find(tenant, id)?.prepared)
    }

    /// The receipt of a box that is gone: of the last 1,000.
    #[must_use]
    pub fn receipt(&self, tenant: &Tenant, id: &BoxId) -> Option<Arc<Receipt>> {
        self.0.receipt(tenant, id)
    }

    /// Ends a box with everything in it, and waits until nothing is left. All that come before its end is told get the same
    /// receipt, later ones [`KeepError::Gone`]. It ends also when its killer does not wait.
    pub async fn kill(&self, tenant: &Tenant, id: &BoxId) -> Result<Receipt, KeepError> {
        if let Some(lies) = self.0.on_disk(tenant, id) {
            return to_its_end(to_disk::kill(Arc::clone(&self.0), lies)).await;
        }
        let kept = match self.0.find(tenant, id) {
            // It came to lie there in this moment.
            Err(error @ KeepError::WrongPhase(_)) => return self.kill_on_disk(tenant, id, error).await,
            found => found?,
        };
        if matches!(kept.fate().cause, None | Some(Cause::OnDisk)) {
            // Before the act, like everything; but what the ledger says to it does not keep the box alive.
            self.0.pen.record(&kept.about(), &Event::KillAsked { by: KilledBy::Caller });
        }
        failpoint::reach("kill-recorded");
        let receipt = match kept.kill() {
            Ok(receipt) => receipt,
            // Nothing of it ran any more; but it may lie on disk.
            Err(error) => return self.kill_on_disk(tenant, id, error).await,
        };
        match timeout(ACKNOWLEDGED, receipt).await {
            Ok(Ok(receipt)) => Ok(receipt),
            // It ends all the same; its receipt comes when the sink has it, or the next daemon tells its end.
            Ok(Err(_)) | Err(_) => Err(KeepError::Unacknowledged),
        }
    }

    /// Takes away a box that lies on disk; where it does not, this is the answer.
    async fn kill_on_disk(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        otherwise: KeepError,
    ) -> Result<Receipt, KeepError> {
        match self.0.on_disk(tenant, id) {
            Some(lies) => to_its_end(to_disk::kill(Arc::clone(&self.0), lies)).await,
            None => Err(otherwise),
        }
    }

    /// Stops everything in a box where it stands. Its life goes on; it does not become idle.
    pub async fn pause(&self, tenant: &Tenant, id: &BoxId) -> Result<BoxCard, KeepError> {
        let kept = self.touch(tenant, id)?;
        let house = Arc::clone(&self.0);
        to_its_end(async move {
            house.pen.announce(Some(&kept.about()), &Event::BoxPaused)?;
            kept.pause().await?;
            house.register.moved(&kept.card.id, BoxState::Paused);
            house.hub.tell(whose(&kept), Happened::BoxPaused);
            Ok(kept.card())
        })
        .await
    }

    /// Whether the agent of a box that runs gives a sign of life, within a bounded time.
    pub async fn answers(&self, tenant: &Tenant, id: &BoxId) -> Result<bool, KeepError> {
        let kept = self.touch(tenant, id)?;
        if let phase @ Phase::Paused = kept.phase() {
            return Err(KeepError::WrongPhase(phase));
        }
        let late = Instant::now() + SIGN_OF_LIFE;
        let asked = async {
            // Only one at a time hears the answer; nothing is said of an agent because another one asks it too.
            while !kept.live.answers().await {
                kept.touch()?;
                sleep(ASK_AGAIN).await;
            }
            Ok(true)
        };
        timeout_at(late, asked).await.unwrap_or(Ok(false))
    }

    /// Lets a paused box go on. One that was paused because its life was over begins it anew.
    pub async fn resume(&self, tenant: &Tenant, id: &BoxId) -> Result<BoxCard, KeepError> {
        let kept = self.touch(tenant, id)?;
        let house = Arc::clone(&self.0);
        to_its_end(async move {
            house.pen.announce(Some(&kept.about()), &Event::BoxResumed)?;
            kept.resume().await?;
            house.register.moved(&kept.card.id, BoxState::Live);
            house.write_deadlines(&kept);
            house.hub.tell(whose(&kept), Happened::BoxResumed);
            Ok(kept.card())
        })
        .await
    }

    /// Sets when a box's life is over; of one that lies on disk, how much of it is left when it goes on.
    pub fn set_deadline(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        life_from_now: Duration,
    ) -> Result<BoxCard, KeepError> {
        if let Some(lies) = self.0.on_disk(tenant, id) {
            lies.set_left(life_from_now);
            self.0.register.extended(id, &lies.deadlines());
            // One that goes on meanwhile may have read what was left before: then it is the box itself that is told.
            if self.0.is_on_disk(id) {
                return Ok(lies.card());
            }
        }
        let kept = self.touch(tenant, id)?;
        kept.set_life(life_from_now)?;
        self.0.write_deadlines(&kept);
        Ok(kept.card())
    }

    /// The box itself, for file operations. Counts as a request. Holding it does not keep the box.
    pub fn live(&self, tenant: &Tenant, id: &BoxId) -> Result<Arc<LiveBox>, KeepError> {
        let kept = self.touch(tenant, id)?;
        match kept.phase() {
            phase @ Phase::Paused => Err(KeepError::WrongPhase(phase)),
            _ => Ok(Arc::clone(&kept.live)),
        }
    }

    /// What happens from now on, to the boxes of one tenant or of all.
    #[must_use]
    pub fn subscribe(&self, tenant: Option<&Tenant>) -> EventReader {
        self.0.hub.subscribe(tenant, None)
    }

    /// What happened after this event, as far as it is kept, and what happens from now on.
    #[must_use]
    pub fn subscribe_after(&self, tenant: Option<&Tenant>, after: Option<u64>) -> EventReader {
        self.0.hub.subscribe(tenant, after)
    }

    /// Writes down what is about to be done and is no box's matter. On an error it must not be done. Looks at the disk.
    pub fn announce(&self, event: &Event) -> Result<(), KeepError> {
        self.0.pen.announce(None, event)
    }

    /// What was counted so far.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.0.metrics()
    }

    /// Takes nothing new, ends every box, and waits until nothing is left, for a bounded time. Ends that a sink has not
    /// acknowledged by then are not told, and counted in [`Keeper::untold`].
    pub async fn stop(&self) {
        let house = &self.0;
        house.close();
        house.admission.close();
        house.pool.bell.notify_one();
        let deadline = Instant::now() + STOP;
        let pooled = tend::end_all(house.pool.shed());
        for kept in house.boxes() {
            kept.condemn(Cause::Stopped);
        }
        let empty = async {
            for ending in pooled {
                // A task that was aborted with its runtime has nothing to say.
                ending.await.ok();
            }
            house.empty().await;
        };
        // What is not gone by then is the warden's to end, when the engine goes.
        timeout_at(deadline, empty).await.ok();
        let last = Arc::clone(house);
        // Sinks get a moment for what they do not have yet: on a thread of its own, since some of them need this one.
        tokio::task::spawn_blocking(move || last.pen.lay_down()).await.ok();
        // Those that waited for a sink hear now that it will not acknowledge anything more.
        timeout(UNTOLD, house.empty()).await.ok();
        house.hub.close();
        house.traffic.close();
    }

    /// Boxes of which nothing is left, and whose end is not told because a sink has not acknowledged it.
    #[must_use]
    pub fn untold(&self) -> usize {
        self.0.past.len()
    }

    pub(super) fn touch(&self, tenant: &Tenant, id: &BoxId) -> Result<Arc<Kept>, KeepError> {
        let kept = self.0.find(tenant, id)?;
        kept.touch()?;
        Ok(kept)
    }
}

/// The boxes on disk whose files are there, and those whose are not.
fn present(config: &KeeperConfig, rows: &[BoxRow]) -> (Vec<BoxRow>, Vec<BoxRow>) {
    let files = config.snapshots.place.as_deref().map(Snapshots::at);
    let is_missing = |row: &BoxRow| {
        files.as_ref().is_none_or(|files| files.is_missing(SnapshotId::of_box(&row.id).as_str()))
    };
    rows.iter().cloned().partition(|row| !is_missing(row) && OnDisk::found(row).is_some())
}

pub(super) fn whose(kept: &Kept) -> Option<(&Tenant, &BoxId)> {
    Some((&kept.card.tenant, &kept.card.id))
}

/// What must not stop halfway when the caller goes away.
pub(super) async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, KeepError>> + Send + 'static,
) -> Result<T, KeepError> {
    tokio::spawn(work).await.unwrap_or(Err(KeepError::Stopping))
}
