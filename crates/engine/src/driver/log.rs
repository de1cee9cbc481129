//! What a driver has learned of its box and not yet sent, and its commands that are not over.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use blastbox_wire::agent::BootFacts;
use blastbox_wire::plan::Plan;
use blastbox_wire::warden::Spent;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

use super::Adopting;
use crate::desk::Tally;
use crate::errands::Errand;
use crate::files::FileTable;
use crate::inbox::Inbox;
use crate::outcome::Ending;
use crate::outlet::Outlet;
use crate::tools::Offer;

/// A command that was sent to the agent and is not over.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) outlet: Arc<Outlet>,
    pub(crate) room: Arc<Semaphore>,
    /// Standard input that the agent has not passed on yet.
    pub(crate) stdin_out: u32,
    /// Output that the agent may still send.
    pub(crate) window: u32,
    /// The functions that it may call.
    pub(crate) offer: Offer,
    /// The request that is under way for it, which ends with it.
    pub(crate) errand: Option<Errand>,
    /// The agent has said that it runs, which it says once.
    pub(crate) has_begun: bool,
}

/// Everything that a warden needs to make the box.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) plan: Box<Plan>,
    /// The directories that travel with it.
    pub(crate) directories: Vec<OwnedFd>,
}

/// What the driver has learned and not yet sent.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) execs: HashMap<u32, Running>,
    pub(crate) files: FileTable,
    pub(crate) inbox: Inbox,
    pub(crate) outbox: Vec<u8>,
    pub(crate) tally: Tally,
    /// Whether it has a kernel of its own, which says what it has met.
    pub(crate) own_kernel: bool,
    /// Whether its agent refuses memory itself, and says so.
    pub(crate) refuses_memory: bool,
    pub(crate) facts: Option<BootFacts>,
    pub(crate) ending: Option<Ending>,
    pub(crate) spent: Spent,
    pub(crate) greeted: Option<Instant>,
    pub(crate) stopped: Option<Instant>,
    /// The agent's channel closed before it said a word. The deadline as it was before the warden's word was waited for.
    pub(crate) mute: Option<Instant>,
    /// Launches that failed.
    pub(crate) failures: u32,
    /// What was sent before the agent spoke: another try sends it again. Let go when it has spoken.
    pub(crate) unheard: Vec<u8>,
    /// The agent was told that no other command follows: that it goes after the last one is what it should do.
    pub(crate) farewell: bool,
    /// What the agent was asked to repeat, and who waits for that.
    pub(crate) ping: Option<(u64, oneshot::Sender<()>)>,
    /// A box of an earlier process, whose agent has not said yet how it stands.
    pub(crate) adopting: Option<Adopting>,
}
