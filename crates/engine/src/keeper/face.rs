//! The keeper as the daemon's faces hold it.

use std::sync::Arc;
use std::time::Duration;

use blastbox_isolation::Lowered;
use blastbox_wire::BoxId;
use blastbox_wire::event::{Event, KilledBy, Label};
use blastbox_wire::receipt::Receipt;
use tokio::time::{Instant, timeout, timeout_at};

use super::admission::Admission;
use super::album::Album;
use super::calls::{CallCard, NoMore};
use super::cards::{BoxCard, ExecCard, Phase, Tenant};
use super::commands::{KeptExec, Purpose, Title};
use super::config::{KeeperConfig, NewBox};
use super::error::KeepError;
use super::events::{EventReader, Happened};
use super::house::House;
use super::kept::{Cause, Kept, Starting};
use super::metrics::Metrics;
use super::past::Past;
use super::pen::{self, Pen};
use super::pool::Pool;
use super::pump::{Terms, answer_call, pump};
use super::register::Register;
use super::tape::TapeReader;
use super::{make, tend};
use crate::engine::Engine;
use crate::failpoint;
use crate::ledger::{Ledger, LedgerError};
use crate::live::{Command, LiveBox};
use crate::store::{BoxState, Leftovers, Store};
use crate::tools::ToolAnswer;

/// How long a keeper that stops waits for its boxes.
const STOP: Duration = Duration::from_secs(15);
/// How long boxes may take to learn that their end is not acknowledged.
const UNTOLD: Duration = Duration::from_secs(1);
/// How long whoever ends a box waits for its end, and for a sink that must acknowledge it.
const ACKNOWLEDGED: Duration = Duration::from_secs(30);

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
        let past = Past::record(&mut ledger, &store, leftovers)?;
        Ok(Self::begin(engine, config, Some(ledger), Some(store), past))
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
        cards.sort_by(|a, b| (&a.created_at, &a.id).cmp(&(&b.created_at, &b.id)));
        cards
    }

    /// One box, and the commands in it. Does not count as a request.
    pub fn get(&self, tenant: &Tenant, id: &BoxId) -> Result<(BoxCard, Vec<ExecCard>), KeepError> {
        let kept = self.0.find(tenant, id)?;
        Ok((kept.card(), kept.commands.cards()))
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
        let kept = self.0.find(tenant, id)?;
        if kept.fate().cause.is_none() {
            // Before the act, like everything; but what the ledger says to it does not keep the box alive.
            self.0.pen.record(&kept.about(), &Event::KillAsked { by: KilledBy::Caller });
        }
        failpoint::reach("kill-recorded");
        let receipt = kept.kill()?;
        match timeout(ACKNOWLEDGED, receipt).await {
            Ok(Ok(receipt)) => Ok(receipt),
            // It ends all the same; its receipt comes when the sink has it, or the next daemon tells its end.
            Ok(Err(_)) | Err(_) => Err(KeepError::Unacknowledged),
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

    /// Sets when a box's life is over.
    pub fn set_deadline(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        life_from_now: Duration,
    ) -> Result<BoxCard, KeepError> {
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

    /// Runs a command. It goes on when nobody listens; what it prints goes on a tape.
    pub async fn exec(&self, tenant: &Tenant, id: &BoxId, command: Command) -> Result<u32, KeepError> {
        self.exec_within(tenant, id, command, None).await
    }

    /// Runs a command that is killed (signal 9, to its process group) when this time is over. Its end is then
    /// `Signalled { signal: 9 }` with `timed_out` on its card and in the event; its box goes on. Until its first reader has
    /// come, for the time that its terms say, nothing that it prints is overwritten.
    pub async fn exec_within(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        command: Command,
        terms: impl Into<Terms>,
    ) -> Result<u32, KeepError> {
        let exec = self.run_for(tenant, id, command, terms.into(), Purpose::Owner).await?;
        Ok(exec.exec.number())
    }

    /// Runs a command that carries bytes for somebody else than the owner of the box, such as whoever asks for one of its
    /// ports. It is in the ledger like any other, never in the list of commands, and forgotten when it ends: what it
    /// prints is for this reader alone.
    pub async fn carry(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        command: Command,
    ) -> Result<(u32, TapeReader), KeepError> {
        let exec = self.run_for(tenant, id, command, Terms::default(), Purpose::Carrier).await?;
        Ok((exec.exec.number(), exec.tape.reader(None)))
    }

    async fn run_for(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        command: Command,
        terms: Terms,
        purpose: Purpose,
    ) -> Result<Arc<KeptExec>, KeepError> {
        let kept = self.touch(tenant, id)?;
        let calls_tools = || kept.live.choice().chosen.as_ref().is_ok_and(Lowered::calls_tools);
        if !terms.tools.is_empty() && !calls_tools() {
            return Err(KeepError::NoTools(kept.card.tier));
        }
        let starting = Starting::begin(&kept)?;
        let title = Title::of(&command, purpose);
        let number = kept.live.take_number();
        self.0.pen.announce(Some(&kept.about()), &pen::asked(number, &command))?;
        if purpose == Purpose::Owner {
            self.0.register.exec_begun(id, number, &command);
        }
        failpoint::reach("exec-noted");
        let exec = kept.live.exec_as(number, command, terms.tools.clone()).await;
        failpoint::reach("exec-sent");
        // From here to the pump nothing waits, so that no caller who goes away leaves a command without one.
        let exec = kept.commands.add(title, exec, terms.tape());
        // Whoever watches over the box looks at it from now on, as long as something runs.
        kept.bell.notify_one();
        starting.done();
        self.0.count(|metrics| metrics.execs += 1);
        if purpose == Purpose::Owner {
            self.0.hub.tell(whose(&kept), Happened::ExecStarted { exec: number });
        }
        tokio::spawn(pump(Arc::clone(&self.0), kept, Arc::clone(&exec), terms));
        Ok(exec)
    }

    /// What a command printed, from after this place on its tape, and then live. Counts as a request.
    pub fn tape(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        exec: u32,
        after: Option<u64>,
    ) -> Result<TapeReader, KeepError> {
        Ok(self.command(tenant, id, exec)?.tape.reader(after))
    }

    /// Passes bytes to a command; waits while it does not read. A caller that goes away may have passed a part.
    pub async fn write_stdin(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        exec: u32,
        bytes: &[u8],
    ) -> Result<(), KeepError> {
        self.command(tenant, id, exec)?.write(bytes).await
    }

    /// Tells a command that there will be no more input.
    pub async fn end_stdin(&self, tenant: &Tenant, id: &BoxId, exec: u32) -> Result<(), KeepError> {
        self.command(tenant, id, exec)?.end_input().await
    }

    /// Signals a command's process group.
    pub async fn signal(&self, tenant: &Tenant, id: &BoxId, exec: u32, signal: u8) -> Result<(), KeepError> {
        let command = self.command(tenant, id, exec)?;
        command.running()?.signal(signal).await.map_err(|_| KeepError::CommandOver)
    }

    /// Tells a command that its terminal has another size.
    pub async fn resize(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        exec: u32,
        rows: u16,
        columns: u16,
    ) -> Result<(), KeepError> {
        let command = self.command(tenant, id, exec)?;
        command.running()?.resize(rows, columns).await.map_err(|_| KeepError::CommandOver)
    }

    /// The call that a command waits with, or will within this time. It stays until it is answered.
    pub async fn wait_for_call(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        exec: u32,
        patience: Duration,
    ) -> Result<Option<CallCard>, KeepError> {
        let command = self.command(tenant, id, exec)?;
        match timeout(patience, command.calls.wait()).await {
            Ok(Ok(card)) => Ok(Some(card)),
            Ok(Err(NoMore)) => Err(KeepError::CommandOver),
            Err(_) => Ok(None),
        }
    }

    /// Answers a call: what the function gave, or why it gave nothing.
    pub async fn answer_call(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        exec: u32,
        call: u32,
        answer: ToolAnswer,
    ) -> Result<(), KeepError> {
        let kept = self.touch(tenant, id)?;
        let command = kept.commands.find(exec)?;
        if !command.calls.take(call) {
            return Err(KeepError::CallOver);
        }
        let house = Arc::clone(&self.0);
        // Taken is answered: a caller that goes away meanwhile must not leave the command waiting.
        to_its_end(async move {
            answer_call(&house, &kept, &command, call, answer, None).await;
            Ok(())
        })
        .await
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

    fn command(&self, tenant: &Tenant, id: &BoxId, exec: u32) -> Result<Arc<KeptExec>, KeepError> {
        let kept = self.0.find(tenant, id)?;
        // What a command printed can be read while its box is being ended.
        kept.touch().ok();
        kept.commands.find(exec)
    }
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
