//! The keeper as the daemon's faces hold it.

use std::sync::Arc;
use std::time::Duration;

use blastbox_wire::BoxId;
use blastbox_wire::receipt::Receipt;

use super::cards::{BoxCard, ExecCard, Tenant};
use super::config::{KeeperConfig, NewBox};
use super::error::KeepError;
use super::events::{EventReader, Hub};
use super::metrics::Metrics;
use super::tape::TapeReader;
use crate::engine::Engine;
use crate::live::{Command, LiveBox};

/// Keeps many boxes for many owners. Cheap to clone; all clones are one keeper.
#[derive(Debug, Clone)]
pub struct Keeper(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    hub: Hub,
}

impl Keeper {
    /// Starts a keeper and its background work. Inside a tokio runtime.
    #[must_use]
    pub fn start(_engine: Engine, _config: KeeperConfig) -> Self {
        Self(Arc::new(Inner { hub: Hub::default() }))
    }

    /// Makes a box, or takes one from a pool, and waits until it is ready.
    pub async fn create(&self, _tenant: &Tenant, _new: NewBox) -> Result<BoxCard, KeepError> {
        Err(KeepError::NotFound)
    }

    /// The boxes of a tenant.
    #[must_use]
    pub fn list(&self, _tenant: &Tenant) -> Vec<BoxCard> {
        Vec::new()
    }

    /// One box, and the commands in it.
    pub fn get(&self, _tenant: &Tenant, _id: &BoxId) -> Result<(BoxCard, Vec<ExecCard>), KeepError> {
        Err(KeepError::NotFound)
    }

    /// The receipt of a box that is gone, while it is remembered.
    #[must_use]
    pub fn receipt(&self, _tenant: &Tenant, _id: &BoxId) -> Option<Arc<Receipt>> {
        None
    }

    /// Ends a box with everything in it, and waits until nothing is left. Of several that kill it, one wins.
    pub async fn kill(&self, _tenant: &Tenant, _id: &BoxId) -> Result<Receipt, KeepError> {
        Err(KeepError::NotFound)
    }

    /// Stops everything in a box where it stands.
    pub async fn pause(&self, _tenant: &Tenant, _id: &BoxId) -> Result<BoxCard, KeepError> {
        Err(KeepError::NotFound)
    }

    /// Lets a paused box go on.
    pub async fn resume(&self, _tenant: &Tenant, _id: &BoxId) -> Result<BoxCard, KeepError> {
        Err(KeepError::NotFound)
    }

    /// Sets when a box's life is over.
    pub fn set_deadline(
        &self,
        _tenant: &Tenant,
        _id: &BoxId,
        _life_from_now: Duration,
    ) -> Result<BoxCard, KeepError> {
        Err(KeepError::NotFound)
    }

    /// The box itself, for file operations. Counts as a request.
    pub fn live(&self, _tenant: &Tenant, _id: &BoxId) -> Result<Arc<LiveBox>, KeepError> {
        Err(KeepError::NotFound)
    }

    /// Runs a command. It goes on when nobody listens.
    pub async fn exec(&self, tenant: &Tenant, id: &BoxId, command: Command) -> Result<u32, KeepError> {
        self.exec_within(tenant, id, command, None).await
    }

    /// Runs a command that is killed (signal 9, to its process group) when this time is over.
    pub async fn exec_within(
        &self,
        _tenant: &Tenant,
        _id: &BoxId,
        _command: Command,
        _timeout: Option<Duration>,
    ) -> Result<u32, KeepError> {
        Err(KeepError::NotFound)
    }

    /// What a command printed, from after this place on its tape, and then live.
    pub fn tape(
        &self,
        _tenant: &Tenant,
        _id: &BoxId,
        _exec: u32,
        _after: Option<u64>,
    ) -> Result<TapeReader, KeepError> {
        Err(KeepError::NotFound)
    }

    /// Passes bytes to a command; waits while it does not read.
    pub async fn write_stdin(
        &self,
        _tenant: &Tenant,
        _id: &BoxId,
        _exec: u32,
        _bytes: &[u8],
    ) -> Result<(), KeepError> {
        Err(KeepError::NotFound)
    }

    /// Tells a command that there will be no more input.
    pub async fn end_stdin(&self, _tenant: &Tenant, _id: &BoxId, _exec: u32) -> Result<(), KeepError> {
        Err(KeepError::NotFound)
    }

    /// Signals a command's process group.
    pub async fn signal(
        &self,
        _tenant: &Tenant,
        _id: &BoxId,
        _exec: u32,
        _signal: u8,
    ) -> Result<(), KeepError> {
        Err(KeepError::NotFound)
    }

    /// Tells a command that its terminal has another size.
    pub async fn resize(
        &self,
        _tenant: &Tenant,
        _id: &BoxId,
        _exec: u32,
        _rows: u16,
        _columns: u16,
    ) -> Result<(), KeepError> {
        Err(KeepError::NotFound)
    }

    /// What happens from now on, to the boxes of one tenant or of all.
    #[must_use]
    pub fn subscribe(&self, tenant: Option<&Tenant>) -> EventReader {
        self.0.hub.subscribe(tenant, None)
    }

    /// What happened after this event, and what happens from now on.
    #[must_use]
    pub fn subscribe_after(&self, tenant: Option<&Tenant>, after: Option<u64>) -> EventReader {
        self.0.hub.subscribe(tenant, after)
    }

    /// What was counted so far.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics::default()
    }

    /// Ends every box, and waits until nothing is left, for a bounded time.
    pub async fn stop(&self) {
        self.0.hub.close();
    }
}
