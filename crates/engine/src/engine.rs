//! The engine: seals nothing and mounts nothing, but knows the host, chooses the tier and starts the boxes.

mod adopt;
mod snapshot;
mod variables;
mod way_out;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use blastbox_images::Image;
use blastbox_isolation::{Choice, Facts, Lowered, Request, Warden, choose, preparation};
use blastbox_policy::{Boundary, Gpu, OnDenied, Refusal, SealedPolicy, SurvivesDaemon};
use blastbox_wire::BoxId;
use blastbox_wire::agent::{HostFrame, OnDenied as Reaction, VERSION};
use blastbox_wire::egress::LentSecret;
use blastbox_wire::plan::WorkspaceAccess;
use blastbox_wire::warden::{Ask, Powers};
use rustix::fs::{Mode, OFlags};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::copies::{self, Birth, Origin};
use crate::desk::Bells;
use crate::driver::{Driver, Launch, Log, Rest};
use crate::error::{CreateError, EngineError};
use crate::leases::{Broker, Tell};
use crate::link::{self, Link, Supply, Word};
use crate::live::LiveBox;
use crate::monitor::Monitor;
use crate::state::State;
use crate::tenancy::Tenancy;
use crate::workspace::WorkspaceDir;
pub use snapshot::{Snapshot, SnapshotError};
use variables::{libraries_of_gpu, path_of_root, wishes};
use way_out::WayOut;

/// Orders that may wait for a driver.
const ORDERS: usize = 32;
/// Boxes that may be in the making at the same time. More would only wait in the warden's socket.
const MAKING: usize = 32;
/// Disks of machines that may be in the making at the same time: each copies a whole image.
const DISKS: usize = 2;
/// Longest life of a box that a clock can add.
const FOR_EVER: Duration = Duration::from_secs(365 * 86_400);

/// What a caller wants to have.
#[derive(Debug)]
pub struct BoxSpec<'a> {
    /// What may happen.
    pub policy: &'a SealedPolicy,
    /// The root file system.
    pub image: &'a Image,
    /// A directory of the caller, where the policy has a place for one.
    pub workspace: Option<&'a WorkspaceDir>,
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
}

/// What every box of an engine shares, for as long as one of them is left.
#[derive(Debug)]
pub(crate) struct House {
    pub(crate) link: Arc<Link>,
    pub(crate) making: Arc<Semaphore>,
    disks: Semaphore,
    copies: copies::Shelf,
    listener: AbortHandle,
}

impl House {
    pub(crate) fn new(link: Arc<Link>) -> Arc<Self> {
        let listener = tokio::spawn(link::listen(Arc::downgrade(&link))).abort_handle();
        Arc::new(Self {
            link,
            making: Arc::new(Semaphore::new(MAKING)),
            disks: Semaphore::new(DISKS),
            copies: copies::Shelf::default(),
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
        Ok(Self { facts, powers, house: House::new(link), broker: None, snapshots: false })
    }

    /// Reads no directory of callers itself: a daemon that did would read for a tenant what is its operator's.
    #[must_use]
    pub fn reading_no_directories(mut self) -> Self {
        self.facts.reads_directories = false;
        self
    }

    /// Can put boxes to sleep and copy them.
    #[must_use]
    pub fn taking_snapshots(mut self) -> Self {
        self.snapshots = true;
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
    ) -> Result<Choice, CreateError> {
        Ok(self.weigh(policy, &Request { box_id: new_id()?, image, workspace }).await)
    }

    async fn weigh(&self, policy: &SealedPolicy, request: &Request<'_>) -> Choice {
        if let Some((workshop, agent)) = preparation(policy, &self.facts, request) {
            // Never closed, so this fails for nobody.
            let turn = self.house.disks.acquire().await.ok();
            // On a thread of its own: nobody else waits for a disk. What goes wrong is the refusal's to say.
            tokio::task::spawn_blocking(move || workshop.prepare(&agent)).await.ok();
            drop(turn);
        }
        self.survivable(policy, request.image, choose(policy, &self.facts, request))
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
        let (tell, news) = mpsc::unbounded_channel();
        let mut live = self.launch_as(new_id()?, spec, None, tell).await?;
        live.lease_news = Mutex::new(Some(news));
        Ok(live)
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
        let request = Request { box_id: box_id.clone(), image: spec.image, workspace: access };
        let choice = self.weigh(spec.policy, &request).await;
        if let Err(refusal) = &choice.chosen {
            let refusal = refusal.clone();
            return Err(CreateError::Refused { refusal, choice: Box::new(choice) });
        }
        let begun = Tenancy::begin(self.broker.as_ref(), &box_id, spec.policy, tell).await;
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

    async fn launch_chosen(
        &self,
        mut choice: Choice,
        spec: &BoxSpec<'_>,
        from: Option<&Snapshot>,
        tenancy: Option<&Tenancy>,
        secrets: Vec<LentSecret>,
    ) -> Result<LiveBox, CreateError> {
        let BoxSpec { policy, image, workspace } = *spec;
        let (mut plan, shows) = match &choice.chosen {
            Ok(lowered) => (lowered.plan.clone(), open_shows(&lowered.shows)?),
            Err(refusal) => {
                let refusal = refusal.clone();
                return Err(CreateError::Refused { refusal, choice: Box::new(choice) });
            }
        };
        let template = match &mut choice.chosen {
            Ok(lowered) => match from {
                Some(from) => Some(from.source(lowered)?),
                None => self.template(lowered, spec, &shows).await?,
            },
            Err(_) => None,
        };
        let held = template.as_ref().map(|source| Arc::clone(&source.template));
        if let (Some(_), Ok(Lowered { copies: Some(copies), .. })) = (&template, &choice.chosen) {
            plan = copies.copy.clone();
        }
        let copied = match (&choice.chosen, workspace) {
            (Ok(Lowered { tier, workspace_disk: Some(caps), .. }), Some(directory)) => {
                match directory.copy(*caps).await {
                    Ok(disk) => Some(disk),
                    Err(why) => {
                        let refusal = Refusal::TierUnavailable { tier: *tier, why };
                        return Err(CreateError::Refused { refusal, choice: Box::new(choice) });
                    }
                }
            }
            _ => None,
        };
        // Never closed, so this fails for nobody. After the secrets were read: a source that hangs holds up its own box.
        let making = Arc::clone(&self.house.making).acquire_owned().await.ok();
        let (ours, theirs) = StdStream::pair().map_err(CreateError::Channel)?;
        ours.set_nonblocking(true).map_err(CreateError::Channel)?;
        let born = template.map(|template| copies::bear(template, &plan.box_id, ours.as_fd())).transpose()?;
        let (birth, more) = born.unzip();
        let monitor = birth.as_ref().filter(|_| self.snapshots).and_then(Birth::line);
        let agent = UnixStream::from_std(ours).map_err(CreateError::Channel)?;

        let id = plan.box_id.clone();
        let way_out = WayOut::open(&mut plan, policy, tenancy, secrets, agent.as_fd()).await?;
        let (line, wire) = way_out.as_ref().map_or((None, None), |way| (Some(&way.line), way.wire.as_ref()));
        let words = self.house.link.expect(id.clone());
        let asked = Instant::now();
        let own = [Some(theirs.as_fd()), image.dir(), workspace.map(AsFd::as_fd), line.map(AsFd::as_fd)];
        let fds: Vec<BorrowedFd<'_>> = own
            .into_iter()
            .flatten()
            .chain(shows.iter().chain(more.iter().flatten()).chain(wire).chain(&copied).map(AsFd::as_fd))
            .collect();
        let plan = Box::new(plan);
        if let Err(error) = self.house.link.ask(&Ask::Launch(plan.clone()), &fds) {
            self.house.link.forget(&id);
            return Err(CreateError::Ask(error));
        }
        // Held until the agent has spoken, because the host may have to be asked more than once.
        let directories = [image.dir(), workspace.map(AsFd::as_fd)].into_iter().flatten();
        let directories = directories.map(|dir| dir.try_clone_to_owned());
        let directories = directories.chain(shows.into_iter().map(Ok)).collect::<io::Result<_>>();
        // Not where there is a gateway, which goes with the box that it was started for, nor of a copy, which has read what
        // it goes on from.
        let alone = way_out.is_none() && birth.is_none() && copied.is_none();
        let again = directories.ok().filter(|_| alone).map(|directories| Launch { plan, directories });
        // The agent's end is the agent's alone, so that its end is an end; and so is the line to the gateway the warden's.
        drop((theirs, more));
        let way_out =
            way_out.map(|WayOut { uplink, hears, line: _, wire: _, variables }| (uplink, hears, variables));

        let lifetime = policy.lifetime();
        let (mut live, mut driver) = connect(Seat {
            id,
            choice,
            house: Arc::clone(&self.house),
            agent,
            words,
            asked,
            timeout: Duration::from_secs(lifetime.timeout.0),
            output: lifetime.output.0,
            making,
            again,
            birth,
        });
        // Waits in the socket until there is an agent to read it: one round trip less for every box.
        let heritable = lifetime.survives_daemon == SurvivesDaemon::Yes;
        match from {
            // Its agent began long ago.
            Some(_) => live.stood = Mutex::new(Some(driver.take_copy(token()?))),
            None => {
                driver.send(&HostFrame::Begin { version: VERSION, on_denied: reaction(policy), heritable })
            }
        }
        if heritable {
            driver.bequeath();
        }
        tokio::spawn(driver.run());
        live.variables.extend(image.config().into_iter().flat_map(wishes));
        live.variables.extend(path_of_root(policy, image));
        if policy.kernel().gpu == Gpu::One {
            libraries_of_gpu(image, &mut live.variables);
        }
        live.image = image.hold();
        live.begun_from = held.filter(|_| self.snapshots);
        live.monitor = tokio::sync::Mutex::new(monitor.and_then(|line| Monitor::new(line).ok()));
        if let Some((uplink, hears, variables)) = way_out {
            live.uplink = Some(uplink);
            // In front: what makes programs believe the gateway goes before what their image says.
            live.variables.splice(0..0, variables);
            // No command runs in a box whose gateway is not there yet. A box that could not be made takes its gateway
            // along, and then the box knows why.
            if let Err(error) = hears.ready().await {
                live.ready().await?;
                return Err(CreateError::Gateway(error));
            }
        }
        Ok(live)
    }
}

impl Engine {
    /// What a box of this plan begins as a copy of; `None`: it boots. The receipt is told which of both.
    async fn template(
        &self,
        lowered: &mut Lowered,
        spec: &BoxSpec<'_>,
        shows: &[OwnedFd],
    ) -> Result<Option<copies::Source>, CreateError> {
        let Some(copies) = &lowered.copies else { return Ok(None) };
        let timeout = Duration::from_secs(spec.policy.lifetime().timeout.0);
        let (link, image, id) = (&self.house.link, spec.image, new_id()?);
        let need = copies::Need { link, copies, image, shows, id, timeout };
        let (from, told) = match self.house.copies.origin(need).await {
            Origin::Copy { from, told } => (Some(from), told),
            Origin::Boot { told } => (None, told),
        };
        if let Some(kernel) = lowered.report.iter_mut().find(|line| line.boundary == Boundary::Kernel) {
            kernel.how.push(told);
        }
        Ok(from)
    }
}

/// What a tier shows of the host, opened as whoever asks for the box: it shows nothing that its caller cannot reach.
fn open_shows(paths: &[PathBuf]) -> Result<Vec<OwnedFd>, CreateError> {
    let opened = paths.iter().map(|path| {
        rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|source| CreateError::Show { path: path.clone(), source: source.into() })
    });
    opened.collect()
}

/// What a box and its driver are made from, once the warden was asked.
pub(crate) struct Seat {
    pub(crate) id: BoxId,
    pub(crate) choice: Choice,
    pub(crate) house: Arc<House>,
    pub(crate) agent: UnixStream,
    pub(crate) words: mpsc::UnboundedReceiver<Word>,
    pub(crate) asked: Instant,
    pub(crate) timeout: Duration,
    pub(crate) output: u64,
    pub(crate) making: Option<OwnedSemaphorePermit>,
    pub(crate) again: Option<Launch>,
    pub(crate) birth: Option<Birth>,
}

/// The two ends of a box in this process: what its owner holds, and what drives it.
pub(crate) fn connect(seat: Seat) -> (LiveBox, Driver) {
    let Seat { id, choice, house, agent, words, asked, timeout, output, making, again, birth } = seat;
    let (orders_to, orders) = mpsc::channel(ORDERS);
    let (ready_to, ready) = oneshot::channel();
    let (report_to, report) = oneshot::channel();
    let bells = Arc::new(Bells::default());
    let driver = Driver {
        id: id.clone(),
        state: State::Provisioning,
        house: Arc::clone(&house),
        agent,
        words,
        orders,
        bells: Arc::clone(&bells),
        asked,
        deadline: asked + timeout.min(FOR_EVER),
        output_left: output,
        making,
        pausing: None,
        ready: Some(ready_to),
        report: Some(report_to),
        again,
        birth,
        retry_at: asked,
        heritable: false,
        mark: None,
        rest: Rest::default(),
        log: Log::default(),
    };
    let live = LiveBox {
        id,
        choice: Arc::new(choice),
        house,
        orders: orders_to,
        bells,
        ready: Some(ready),
        report: Mutex::new(Some(report)),
        next_exec: AtomicU32::new(1),
        uplink: None,
        variables: Vec::new(),
        tenancy: None,
        lease_news: Mutex::default(),
        image: None,
        monitor: tokio::sync::Mutex::default(),
        begun_from: None,
        stood: Mutex::default(),
    };
    (live, driver)
}

fn reaction(policy: &SealedPolicy) -> Reaction {
    match policy.kernel().on_denied_syscall {
        OnDenied::Record => Reaction::Record,
        OnDenied::Kill => Reaction::Kill,
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
