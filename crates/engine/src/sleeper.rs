//! Boots a machine until it falls asleep, and takes its memory and the state of its devices.
//!
//! Nothing of anybody runs in it: its first process is the agent, which waits. It is bounded all the same, and believed nothing.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::time::Duration;

use blastbox_images::machine::{Template, blank};
use blastbox_isolation::{MachineEngine, MonitorOrder};
use blastbox_wire::BoxId;
use blastbox_wire::agent::ASLEEP;
use blastbox_wire::plan::Plan;
use blastbox_wire::warden::Ask;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::copies::Need;
use crate::error::because;
use crate::link::{Link, Word};
use crate::monitor::{Monitor, pair};

/// How long the warden may take to confirm that the machine is gone.
const RELEASE: Duration = Duration::from_secs(10);

/// A machine in the making; gone with this.
struct Sleeper {
    link: Arc<Link>,
    id: BoxId,
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // Harmless where it is gone already.
        self.link.say(Ask::Kill(self.id.clone())).ok();
        self.link.forget(&self.id);
    }
}

/// Why there is no template.
#[derive(Debug)]
pub(crate) enum Unmade {
    /// The time was over.
    Late(Duration),
    /// Something failed, in words.
    Failed(String),
}

impl fmt::Display for Unmade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late(after) => {
                write!(f, "the machine did not fall asleep within {} seconds", after.as_secs())
            }
            Self::Failed(why) => f.write_str(why),
        }
    }
}

/// A template, or why there is none.
pub(crate) async fn make(need: Need<'_>, patience: Duration) -> Result<Template, Unmade> {
    match timeout(patience, try_to(need, patience)).await {
        Ok(made) => made.map_err(Unmade::Failed),
        Err(_) => Err(Unmade::Late(patience)),
    }
}

async fn try_to(need: Need<'_>, patience: Duration) -> Result<Template, String> {
    let plan = need.copies.template.clone();
    let mut bed = lay(need, plan, patience).await?;
    fall_asleep(&mut bed.control, &mut bed.words).await?;
    let mut line = bed.monitor()?;
    line.order(MonitorOrder::Begin, None).await?;
    let state = line.take_state().await?;
    bed.rise(state).await
}

/// A way to seal a memory, with the state of its machine's devices.
type Seal = fn(OwnedFd, Vec<u8>) -> io::Result<Template>;

/// A machine in the making, whose memory others will have; gone with this.
pub(crate) struct Bed {
    sleeper: Sleeper,
    engine: MachineEngine,
    /// Held: a guest whose host is gone does not sleep.
    control: UnixStream,
    words: mpsc::UnboundedReceiver<Word>,
    orders: Option<StdStream>,
    memory: OwnedFd,
    /// The other end of its card, where it has one.
    _wire: Option<StdStream>,
}

impl Bed {
    /// The line to its engine, once.
    pub(crate) fn monitor(&mut self) -> Result<Monitor, String> {
        let orders = self.orders.take().ok_or_else(|| "its line for orders is in use".to_owned())?;
        let title = self.engine.title();
        Monitor::new(self.engine, orders).map_err(|error| format!("{title} cannot be spoken to: {error}"))
    }

    /// Ends it, and has its memory. Nobody has it any more, so that it can be sealed.
    pub(crate) async fn rise(self, state: Vec<u8>) -> Result<Template, String> {
        self.sealed(state, Template::seal).await
    }

    /// The same where it has touched all of its memory.
    pub(crate) async fn rise_sparse(self, state: Vec<u8>) -> Result<Template, String> {
        self.sealed(state, Template::seal_sparse).await
    }

    async fn sealed(self, state: Vec<u8>, seal: Seal) -> Result<Template, String> {
        let memory = self.end().await?;
        let sealed = tokio::task::spawn_blocking(move || seal(memory, state)).await;
        let sealed = sealed.map_err(|_| "blastbox is stopping".to_owned())?;
        sealed.map_err(|error| format!("could not seal its memory: {error}"))
    }

    async fn end(mut self) -> Result<OwnedFd, String> {
        let kill = Ask::Kill(self.sleeper.id.clone());
        self.sleeper.link.say(kill).map_err(|error| format!("could not end it: {error}"))?;
        gone(&mut self.words).await?;
        drop(self.sleeper);
        Ok(self.memory)
    }
}

/// Starts a machine whose memory others will have.
pub(crate) async fn lay(need: Need<'_>, plan: Plan, patience: Duration) -> Result<Bed, String> {
    let failed = |tried: &'static str| move |error: io::Error| format!("could not {tried}: {error}");
    let Need { link, copies, image, shows, id, timeout: _ } = need;
    let memory = blank(copies.memory).map_err(failed("make its memory"))?;
    let (control, theirs) = pair().map_err(failed("make its channel"))?;
    let (orders, their_orders) = StdStream::pair().map_err(failed("make its line for orders"))?;
    let mut plan = Box::new(plan);
    plan.box_id = id.clone();
    let words = link.expect(id.clone());
    let sleeper = Sleeper { link: Arc::clone(link), id: id.clone() };
    // A card at whose other end nobody is; that end travels in the place of a copy's line to its gateway.
    let wire = copies.card.then(StdStream::pair).transpose().map_err(failed("make a wire for its card"))?;
    let (line, card) = wire.unzip();
    let own = [Some(theirs.as_fd()), image.dir(), line.as_ref().map(AsFd::as_fd)];
    let last = [Some(memory.as_fd()), Some(their_orders.as_fd()), card.as_ref().map(AsFd::as_fd)];
    let shown = shows.iter().map(|show| Some(show.as_fd()));
    let fds: Vec<BorrowedFd<'_>> = own.into_iter().chain(shown).chain(last).flatten().collect();
    link.ask(&Ask::Launch(plan), &fds).await.map_err(|error| format!("could not ask for it: {error}"))?;
    // Should this process hang, the warden ends it by its own clock.
    let millis = u64::try_from((patience + RELEASE).as_millis()).unwrap_or(u64::MAX);
    link.say(Ask::Until { box_id: id, millis }).ok();
    Ok(Bed { sleeper, engine: copies.engine, control, words, orders: Some(orders), memory, _wire: line })
}

/// Waits for the one word that a guest says when it is whole. Any other ends it.
async fn fall_asleep(
    control: &mut UnixStream,
    words: &mut mpsc::UnboundedReceiver<Word>,
) -> Result<(), String> {
    let mut said = [0_u8; ASLEEP.len()];
    let mut reading = std::pin::pin!(control.read_exact(&mut said));
    loop {
        tokio::select! {
            read = &mut reading => match read {
                Ok(_) => break,
                Err(error) => return Err(format!("its guest gave up before it was whole: {error}")),
            },
            word = words.recv() => match word {
                Some(Word::Failed { tried, errno }) => {
                    return Err(format!("could not {tried}{}", because(errno)));
                }
                Some(Word::Ended(_) | Word::WardenGone | Word::Swept) | None => {
                    return Err("it ended before it was whole".to_owned());
                }
                Some(Word::Launched | Word::Counted(_) | Word::Paused | Word::Resumed | Word::NotPaused { .. }) => {}
            },
        }
    }
    if said == ASLEEP { Ok(()) } else { Err("its guest says something else than that it sleeps".to_owned()) }
}

async fn gone(words: &mut mpsc::UnboundedReceiver<Word>) -> Result<(), String> {
    let waiting = async {
        loop {
            match words.recv().await {
                Some(Word::Ended(_)) => return Ok(()),
                Some(Word::WardenGone | Word::Swept) | None => return Err("the warden is gone".to_owned()),
                Some(_) => {}
            }
        }
    };
    timeout(RELEASE, waiting)
        .await
        .unwrap_or_else(|_| Err("the warden does not say that it has ended".to_owned()))
}
