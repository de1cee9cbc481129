//! The engine: seals nothing and mounts nothing, but knows the host, chooses the tier and starts the boxes.

mod adopt;
mod launch;
mod prepared;
mod seat;
mod snapshot;
mod variables;
mod way_out;

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use blastbox_images::Image;
use blastbox_isolation::{Choice, Facts, Request, Warden, choose, preparation};
use blastbox_policy::{Gpu, SealedPolicy};
use blastbox_wire::BoxId;
use blastbox_wire::plan::WorkspaceAccess;
use blastbox_wire::warden::Powers;
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;

use crate::driver::Stir;
use crate::error::{CreateError, EngineError};
use crate::leases::{Broker, GivenSecret, News, Tell};
use crate::link::{self, Link, Supply};
use crate::live::LiveBox;
use crate::shelf::Shelf;
use crate::tenancy::Tenancy;
use crate::volume::VolumeDir;
use crate::workspace::WorkspaceDir;
pub(crate) use prepared::Machine;
pub(crate) use seat::{Seat, connect};
pub(crate) use snapshot::{Afterwards, Whose};
pub use snapshot::{Snapshot, SnapshotError};
use variables::path_of_root;

/// Boxes that may be in the making at the same time. More would only wait in the warden's socket.
const MAKING: usize = 32;
/// Disks of machines that may be in the making at the same time: each copies a whole image.
const DISKS: usize = 2;

/// What a caller wants to have.
#[derive(Debug)]
pub struct BoxSpec<'a> {
    /// What may happen.
    pub policy: &'a SealedPolicy,
    /// The root file system.
    pub image: &'a Image,
    /// A directory of the caller, where the policy has a place for one.
    pub workspace: Option<&'a WorkspaceDir>,
    /// Directories that it writes to for good: jail alone.
    pub volumes: &'a [VolumeDir],
    /// Secrets of its owner's own that the policy binds.
    pub secrets: &'a [GivenSecret],
}

/// Starts, watches and ends boxes.
#[derive(Debug)]
pub struct Engine {
    facts: Facts,
    powers: Powers,
    house: Arc<House>,
    /// Who lends secrets, where the operator has named some.
    broker: Option<Arc<Broker>>,
    /// Whether the lines to machines stay open, so that boxes can be put to sleep and copied.
    snapshots: bool,
    /// Where the kernel of the next box says what it does. One box has it, and whoever hears it learns of its end.
    console: Mutex<Option<OwnedFd>>,
}

/// What every box of an engine shares, for as long as one of them is left.
#[derive(Debug)]
pub(crate) struct House {
    pub(crate) link: Arc<Link>,
    pub(crate) making: Arc<Semaphore>,
    disks: Semaphore,
    copies: Shelf,
    /// Whether guests of the tier `wasm` come one after the other.
    pub(crate) stir: Stir,
    listener: AbortHandle,
}

impl House {
    pub(crate) fn new(link: Arc<Link>) -> Arc<Self> {
        let listener = tokio::spawn(link::listen(Arc::downgrade(&link))).abort_handle();
        Arc::new(Self {
            link,
            making: Arc::new(Semaphore::new(MAKING)),
            disks: Semaphore::new(DISKS),
            copies: Shelf::default(),
            stir: Stir::new(Instant::now()),
            listener,
        })
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl Engine {
    /// Starts a warden, waits until it is ready, and looks at the host. Inside a tokio runtime.
    pub fn start() -> Result<Self, EngineError> {
        Self::with_warden(Warden::start().map_err(EngineError::Warden)?)
    }

    /// Goes on with a warden that was started already, which may still be getting ready.
    pub fn with_warden(warden: Warden) -> Result<Self, EngineError> {
        let program = warden.program().to_owned();
        // While it gets ready.
        let seen = Facts::look();
        Self::with_supply(warden, Box::new(move || Warden::start_program(&program)), seen)
    }

    /// The same; when that warden dies, the next one comes from `supply`. `seen` is what was found out about the host: by
    /// whoever confines itself, before that, because it cannot ask the kernel for everything afterwards.
    pub fn with_supply(mut warden: Warden, supply: Supply, seen: Facts) -> Result<Self, EngineError> {
        let powers = warden.wait_ready(link::READY).map_err(EngineError::Warden)?;
        let facts = seen.with(&powers);
        let link = Link::new(warden, supply).map_err(EngineError::Watch)?;
        Ok(Self {
            facts,
            powers,
            house: House::new(link),
            broker: None,
            snapshots: false,
            console: Mutex::default(),
        })
    }

    /// Reads no directory of callers itself: a daemon that did would read for a tenant what is its operator's.
    #[must_use]
    pub fn reading_no_directories(mut self) -> Self {
        self.facts.reads_directories = false;
        self
    }

    /// Has the kernel of its first box say what it does to a socket. A box without a kernel of its own is refused.
    #[must_use]
    pub fn with_console(mut self, console: OwnedFd) -> Self {
        self.facts.hears_console = true;
        Self { console: Mutex::new(Some(console)), ..self }
    }

    /// Can put boxes to sleep and copy them.
    #[must_use]
    pub fn taking_snapshots(mut self) -> Self {
        self.snapshots = true;
        // Now, as what boxes are promised: those that come first would leave templates little for as long as this process lives.
        self.house.copies.budget();
        self
    }

    /// Lends what the operator's file of secrets names.
    #[must_use]
    pub fn lending(self, broker: Arc<Broker>) -> Self {
        Self { broker: Some(broker), ..self }
    }

    /// Who lends secrets.
    #[must_use]
    pub fn broker(&self) -> Option<&Arc<Broker>> {
        self.broker.as_ref()
    }

    /// What this host can do.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// What the warden said about itself.
    #[must_use]
    pub fn powers(&self) -> &Powers {
        &self.powers
    }

    /// No other box will be asked for: the warden ends those that there are, and then itself, while their owners wait for
    /// their ends and go on.
    pub fn dismiss(&self) {
        self.house.link.dismiss();
    }

    /// Which tier a policy gets here, why, and the plan. Starts nothing, and makes what a machine would start from.
    pub async fn choose(
        &self,
        policy: &SealedPolicy,
        image: &Image,
        workspace: Option<WorkspaceAccess>,
        volumes: &[VolumeDir],
    ) -> Result<Choice, CreateError> {
        let volumes = &VolumeDir::places(volumes);
        Ok(self.weigh(policy, &Request { box_id: new_id()?, image, workspace, volumes }).await)
    }

    async fn weigh(&self, policy: &SealedPolicy, request: &Request<'_>) -> Choice {
        if let Some((workshop, agent)) = preparation(policy, &self.facts, request) {
            // Never closed, so this fails for nobody.
            let turn = self.house.disks.acquire().await.ok();
            // On a thread of its own: nobody else waits for a disk. What goes wrong is the refusal's to say.
            tokio::task::spawn_blocking(move || workshop.prepare(&agent)).await.ok();
            drop(turn);
        }
        let chosen = match policy.kernel().gpu {
            Gpu::None => choose(policy, &self.facts, request),
            // A driver may have been loaded or gone since this process began.
            Gpu::One => choose(policy, &self.facts.clone().looked_for_gpu(), request),
        };
        self.survivable(policy, request.image, chosen)
    }

    /// Makes a box and waits until its agent has answered.
    pub async fn create(&self, spec: BoxSpec<'_>) -> Result<LiveBox, CreateError> {
        let mut live = self.launch(spec).await?;
        if let Err(error) = live.ready().await {
            live.give_back_secrets().await;
            return Err(error);
        }
        Ok(live)
    }

    /// A name that no other box has.
    pub(crate) fn new_id(&self) -> Result<BoxId, CreateError> {
        new_id()
    }

    /// The name of the warden that boxes are asked of now, where one was chosen for it.
    pub(crate) fn warden_name(&self) -> String {
        self.house.link.warden_name().map(|name| name.to_string()).unwrap_or_default()
    }

    /// Asks for a box and comes back at once: a command may be given to it while it is in the making, and what goes wrong
    /// then is that command's last event.
    pub async fn launch(&self, spec: BoxSpec<'_>) -> Result<LiveBox, CreateError> {
        let (launched, news) = self.launch_heard(spec).await;
        let mut live = launched?;
        live.lease_news = Mutex::new(Some(news));
        Ok(live)
    }

    /// The same for whoever has to hear what happens to the leases of its secrets also where there will be no box.
    pub async fn launch_heard(&self, spec: BoxSpec<'_>) -> (Result<LiveBox, CreateError>, News) {
        let (tell, news) = mpsc::unbounded_channel();
        let launched = match new_id() {
            Ok(id) => self.launch_as(id, spec, None, tell).await,
            Err(error) => Err(error),
        };
        (launched, news)
    }

    /// The same under a name that was taken for it, or as a copy of a box that slept. What happens to its leases is told, also where there will be no box.
    pub(crate) async fn launch_as(
        &self,
        box_id: BoxId,
        spec: BoxSpec<'_>,
        from: Option<&Snapshot>,
        tell: Tell,
    ) -> Result<LiveBox, CreateError> {
        let access = spec.workspace.map(WorkspaceDir::access);
        let volumes = &VolumeDir::places(spec.volumes);
        let request = Request { box_id: box_id.clone(), image: spec.image, workspace: access, volumes };
        let choice = self.weigh(spec.policy, &request).await;
        if let Err(refusal) = &choice.chosen {
            let refusal = refusal.clone();
            return Err(CreateError::Refused { refusal, choice: Box::new(choice) });
        }
        let begun = Tenancy::begin(self.broker.as_ref(), spec.secrets, &box_id, spec.policy, tell).await;
        let (tenancy, secrets) = begun.map_err(CreateError::Secret)?.unzip();
        match self.launch_chosen(choice, &spec, from, tenancy.as_ref(), secrets.unwrap_or_default()).await {
            Ok(mut live) => {
                live.tenancy = tenancy;
                Ok(live)
            }
            Err(error) => {
                // Waited for: where no daemon stays behind, nobody else would.
                if let Some(tenancy) = &tenancy {
                    tenancy.end().await;
                }
                Err(error)
            }
        }
    }
}

/// What an agent is asked with, so that its answer is known.
fn token() -> Result<u64, CreateError> {
    let mut token = [0_u8; 8];
    getrandom(&mut token, GetRandomFlags::empty()).map_err(|errno| CreateError::Randomness(errno.into()))?;
    Ok(u64::from_ne_bytes(token))
}

fn new_id() -> Result<BoxId, CreateError> {
    let mut random = [0_u8; 20];
    // 20 bytes come whole or not at all.
    getrandom(&mut random, GetRandomFlags::empty()).map_err(|errno| CreateError::Randomness(errno.into()))?;
    Ok(BoxId::from_random(random))
}
