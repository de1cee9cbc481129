//! A box that runs, put to sleep for a moment and copied: what others begin as copies of, with everything that runs in it.
//!
//! ```text
//! box, asleep ── its whole state, memory and all ──► heir, a machine in a jail of its own ──► sealed memory + state of devices
//! ```
//! The state is written by one engine and read by another of its kind, over a socket between the two; nobody else parses it. The heir is what a
//! template is: it runs nothing but an agent that waits, and what it leaves is what a box begins with.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::time::Duration;

use blastbox_images::Image;
use blastbox_images::machine::Template;
use blastbox_isolation::{Copies, Lowered, MonitorOrder};
use blastbox_policy::{Boundary, NetworkMode, SealedPolicy, Tier};
use blastbox_wire::event::Hash;
use blastbox_wire::warden::Ask;
use tokio::time::{sleep, timeout};

use super::launch::open_shows;
use super::{Engine, new_id};
use crate::copies::{self, Source, Useless};
use crate::driver::Sleepless;
use crate::error::{Blame, CreateError};
use crate::live::LiveBox;
use crate::monitor::Monitor;
use crate::sleeper::{self, Bed};

/// How long a machine may take to be copied, at most. Nobody else is copied meanwhile.
const MOST: Duration = Duration::from_secs(120);
/// How long a guest may take to come to it, or the heir: whoever does not answer holds up the next one no longer.
const ANSWER: Duration = Duration::from_secs(30);
/// Bytes of memory that are copied in a second on a slow and busy host.
const SLOWEST: u64 = 16 << 20;
/// How long a machine may take to hear that it goes on.
const GOING_ON: Duration = Duration::from_secs(10);
/// How soon one that did not is told again.
const AGAIN: Duration = Duration::from_millis(20);

const TOLD: &str = "it began as a copy of a box that ran, with everything that ran in it; randomness, clock and name were its own \
                    before any of that went on";

const PREPARED: &str = "it began as a copy of a machine that was prepared once, before it was anybody's, with everything that ran in \
                        it; randomness, clock and name were its own before any of that went on";

/// How long a machine of this size may take.
fn patience(memory: u64) -> Duration {
    (ANSWER + Duration::from_secs(memory / SLOWEST)).min(MOST)
}

/// Why a box cannot be copied. Each has a code that stays.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The tier has none, or not of such a box.
    #[error(
        "a box of the tier {} cannot be copied as it is: only virtual machines can (--tier microvm), below level critical and without a workspace", .0.as_str()
    )]
    Tier(Tier),
    /// Credentials are never inherited.
    #[error("the box holds credentials, and those are never inherited: it cannot be copied")]
    Credentials,
    /// What its network is now is not what its machine was made for, or its gateway is gone.
    #[error(
        "the rules of the box were changed so that its machine would be another one, with or without a network card or an authority of its own, or its gateway is gone: it cannot be copied"
    )]
    Network,
    /// It booted by itself.
    #[error(
        "the machine of the box booted by itself, because no template could be made, and has no line by which it could be copied"
    )]
    BootedAlone,
    /// It is paused, being made or being ended.
    #[error("the box cannot be put to sleep now: it is paused, being made or being ended")]
    NotNow,
    /// It is being copied already, or waits for that.
    #[error("the box is being copied already, or waits for its turn")]
    Copying,
    /// Its guest could not stop what runs in it.
    #[error("the guest could not stop what runs in the box (errno {0})")]
    Guest(i32),
    /// The host could not do it.
    #[error("the box could not be copied: {0}")]
    Failed(String),
    /// It was made for another machine.
    #[error(
        "the snapshot is bound to another machine: its image, kernel, agent, engine (or build of it) or processor is not what it was"
    )]
    Foreign,
    /// What it reached when it was paused, nobody may reach now.
    #[error(
        "the box reached everything when it was paused to disk, and the operator lets none do that any more: it stays where it is"
    )]
    Reach,
    /// There is no room for its file.
    #[error(
        "the disk for snapshots is full: it has no room for all of the box's memory, beside what is left free for the ledger"
    )]
    DiskFull,
    /// Its file is not what was written.
    #[error(transparent)]
    File(blastbox_images::machine::SnapshotFault),
    /// The daemon keeps none.
    #[error("no snapshots are kept here: only a daemon (`blastbox serve`) keeps them")]
    NotKept,
}

impl SnapshotError {
    /// The stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        use blastbox_images::machine::SnapshotFault;
        match self {
            Self::Tier(_) => "snapshot_tier",
            Self::Credentials => "snapshot_credentials",
            Self::Network => "snapshot_network",
            Self::BootedAlone => "snapshot_booted_alone",
            Self::NotNow => "snapshot_not_now",
            Self::Copying => "snapshot_copying",
            Self::DiskFull => "snapshot_disk_full",
            Self::Guest(_) => "snapshot_guest",
            Self::Failed(_) => "snapshot_failed",
            Self::Foreign | Self::File(SnapshotFault::Foreign) => "snapshot_foreign",
            Self::Reach => "snapshot_reach",
            Self::File(SnapshotFault::Truncated) => "snapshot_truncated",
            Self::File(SnapshotFault::Altered) => "snapshot_altered",
            Self::File(SnapshotFault::Place(_)) => "snapshot_io",
            Self::NotKept => "snapshot_not_kept",
        }
    }

    /// Whose fault it is.
    #[must_use]
    pub const fn blame(&self) -> Blame {
        use blastbox_images::machine::SnapshotFault;
        match self {
            Self::Tier(_)
            | Self::Credentials
            | Self::Network
            | Self::BootedAlone
            | Self::NotNow
            | Self::Copying
            | Self::Foreign
            | Self::Reach
            | Self::File(SnapshotFault::Foreign)
            | Self::NotKept => Blame::Caller,
            Self::Guest(_) => Blame::Guest,
            Self::Failed(_) | Self::DiskFull | Self::File(_) => Blame::Host,
        }
    }
}

/// What a box does when it was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Afterwards {
    /// It goes on.
    GoesOn,
    /// It stands still until [`Engine::go_on`], or its end.
    StandsStill,
}

/// A box as it was when it slept.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(crate) template: Arc<Template>,
    /// What a copy relies on.
    pub(crate) bound: Hash,
    pub(crate) whose: Whose,
}

/// Whose box it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Somebody's.
    Owners,
    /// Nobody's: it was prepared so that others begin as copies of it.
    Nobodys,
}

impl Snapshot {
    /// What a box of this plan begins as a copy of. Its receipt is told.
    pub(super) fn source(&self, lowered: &mut Lowered) -> Result<Source, CreateError> {
        let Some(copies) = lowered.copies.as_ref().filter(|copies| copies.bound == self.bound) else {
            return Err(CreateError::Foreign);
        };
        let engine = copies.engine;
        if let Some(kernel) = lowered.report.iter_mut().find(|line| line.boundary == Boundary::Kernel) {
            let told = match self.whose {
                Whose::Owners => TOLD,
                Whose::Nobodys => PREPARED,
            };
            kernel.how.push(told.to_owned());
        }
        let source = Source::snapshot(engine, Arc::clone(&self.template), self.bound);
        Ok(match self.whose {
            Whose::Owners => source,
            Whose::Nobodys => Source { useless: Useless::Forget, ..source },
        })
    }
}

impl Engine {
    /// Copies a box that runs. It stands still for as long as its memory takes to be copied, and longer where it is to. One that
    /// could not be copied goes on. `asleep` is asked while it stands still: what is known of the box then holds for the copy.
    pub(crate) async fn snapshot<T: Send>(
        &self,
        live: &LiveBox,
        policy: &SealedPolicy,
        image: &Image,
        afterwards: Afterwards,
        asleep: impl FnOnce() -> T + Send,
    ) -> Result<(Snapshot, T), SnapshotError> {
        self.may_snapshot(live, policy)?;
        let Ok(lowered) = &live.choice.chosen else { return Err(SnapshotError::NotNow) };
        let mut monitor = live.monitor.lock().await;
        let (Some(copies), Some(line), Some(origin)) =
            (&lowered.copies, monitor.as_mut(), live.begun_from.clone())
        else {
            return Err(SnapshotError::BootedAlone);
        };
        let filled = tokio::task::spawn_blocking(move || origin.fill()).await;
        let filled = filled.map_err(|_| SnapshotError::NotNow)?;
        filled.map_err(|error| SnapshotError::Failed(format!("no memory for it: {error}")))?;
        let shows = open_shows(&lowered.shows).map_err(|error| SnapshotError::Failed(error.to_string()))?;
        let id = new_id().map_err(|error| SnapshotError::Failed(error.to_string()))?;
        let link = &self.house.link;
        let need = copies::Need { link, copies, image, shows: &shows, id, timeout: MOST };
        let (template, known) = take(need, live, line, afterwards, asleep).await?;
        let (template, bound) = (Arc::new(template), copies.bound);
        Ok((Snapshot { template, bound, whose: Whose::Owners }, known))
    }

    /// Lets a box go on that was copied and stands still.
    pub(crate) async fn go_on(&self, live: &LiveBox) {
        if let Some(line) = live.monitor.lock().await.as_mut() {
            morning(live, line).await;
        }
    }

    /// Whether a box with this policy now is one that could be copied, as far as that can be said without trying.
    pub(crate) fn may_snapshot(&self, live: &LiveBox, policy: &SealedPolicy) -> Result<(), SnapshotError> {
        let Ok(lowered) = &live.choice.chosen else { return Err(SnapshotError::NotNow) };
        let looks = Looks {
            credentials: live.tenancy.is_some(),
            copies: lowered.copies.is_some(),
            network: lowered.copies.as_deref().is_some_and(|copies| is_network_of(copies, policy))
                && !live.has_lost_gateway(),
            begun: live.begun_from.is_some(),
        };
        looks.may_be_copied(lowered.tier)
    }
}

/// Whether a machine that is made under this policy has the network of these. Rules change while a box lives; a copy is made under those that hold
/// then, of a machine that has or has not a card, and an authority.
fn is_network_of(copies: &Copies, policy: &SealedPolicy) -> bool {
    let network = policy.network();
    copies.card == (network.mode != NetworkMode::Off) && copies.authority == network.needs_authority()
}

/// What says whether a box can be copied.
#[derive(Debug, Clone, Copy)]
struct Looks {
    /// It holds some.
    credentials: bool,
    /// Boxes of its kind begin as copies.
    copies: bool,
    /// Its network is what its machine was made for.
    network: bool,
    /// It began as a copy itself, and has a line by which it can be copied.
    begun: bool,
}

impl Looks {
    fn may_be_copied(self, tier: Tier) -> Result<(), SnapshotError> {
        match self {
            Self { credentials: true, .. } => Err(SnapshotError::Credentials),
            Self { copies: false, .. } => Err(SnapshotError::Tier(tier)),
            Self { network: false, .. } => Err(SnapshotError::Network),
            Self { begun: false, .. } => Err(SnapshotError::BootedAlone),
            Self { credentials: false, copies: true, network: true, begun: true } => Ok(()),
        }
    }
}

async fn take<T: Send>(
    need: copies::Need<'_>,
    live: &LiveBox,
    line: &mut Monitor,
    afterwards: Afterwards,
    asleep: impl FnOnce() -> T + Send,
) -> Result<(Template, T), SnapshotError> {
    let copies: &Copies = need.copies;
    let longest = patience(copies.memory);
    let late = || SnapshotError::Failed(format!("it took longer than {} s", longest.as_secs()));
    // Before the box sleeps: what takes time and can fail without it.
    let mut bed = sleeper::lay(need, copies.heir.clone(), MOST).await.map_err(SnapshotError::Failed)?;
    let mut heir =
        timeout(ANSWER, greet(&mut bed)).await.map_err(|_| late())?.map_err(SnapshotError::Failed)?;
    live.sleep(ANSWER).await.map_err(|why| match why {
        Some(Sleepless::Guest(errno)) => SnapshotError::Guest(errno),
        Some(Sleepless::Late) => late(),
        Some(Sleepless::NotNow(_)) | None => SnapshotError::NotNow,
    })?;
    // Nothing between here and the morning returns early.
    let known = asleep();
    let moved = timeout(longest, move_over(line, &mut heir)).await;
    if !matches!(moved, Ok(Ok(()))) {
        timeout(GOING_ON, line.order(MonitorOrder::Cancel, None)).await.ok();
    }
    if afterwards == Afterwards::GoesOn {
        morning(live, line).await;
    }
    let taken = async {
        moved.map_err(|_| late())?.map_err(SnapshotError::Failed)?;
        let state = timeout(ANSWER, heir.take_state()).await.map_err(|_| late())?;
        bed.rise_sparse(state.map_err(SnapshotError::Failed)?).await.map_err(SnapshotError::Failed)
    };
    let taken = taken.await;
    if afterwards == Afterwards::StandsStill && taken.is_err() {
        morning(live, line).await;
    }
    Ok((taken?, known))
}

/// A machine that slept goes on. One that does not is of no use to anybody: it would stand still for all of its life while commands
/// wait in it, so it is ended.
async fn morning(live: &LiveBox, line: &mut Monitor) {
    if !goes_on(line).await {
        // An error means that the warden is gone, and the box with it.
        live.house.link.say(Ask::Kill(live.id.clone())).ok();
    }
    live.wake();
}

/// Whether its engine says that the machine goes on. QEMU says that a state is written a moment before it takes this order ("Migration
/// is not finalized yet"): until then it is asked again.
async fn goes_on(line: &mut Monitor) -> bool {
    let asking = async {
        while line.order(MonitorOrder::GoOn, None).await.is_err() {
            sleep(AGAIN).await;
        }
    };
    timeout(GOING_ON, asking).await.is_ok()
}

/// Waits until the heir can take a state.
async fn greet(bed: &mut Bed) -> Result<Monitor, String> {
    let mut heir = bed.monitor()?;
    heir.order(MonitorOrder::Begin, None).await?;
    heir.order(MonitorOrder::WithMemory, None).await?;
    Ok(heir)
}

/// The whole state of a machine that sleeps, memory and all, goes to another one.
async fn move_over(line: &mut Monitor, heir: &mut Monitor) -> Result<(), String> {
    let (from, to) = StdStream::pair().map_err(|error| format!("no wire between two machines: {error}"))?;
    heir.order(MonitorOrder::Take, Some(to.as_fd())).await?;
    heir.order(MonitorOrder::Read, None).await?;
    line.order(MonitorOrder::WithMemory, None).await?;
    line.order(MonitorOrder::Fast, None).await?;
    line.order(MonitorOrder::Take, Some(from.as_fd())).await?;
    line.order(MonitorOrder::Write, None).await?;
    // Theirs alone, so that the end of one is seen by the other.
    drop((from, to));
    line.whole().await?;
    heir.whole().await
}

#[cfg(test)]
mod tests;
