//! Modules of tenants: programs of the tier `wasm` that callers bring, compiled once and kept.
//!
//! - [`draft`]: one on its way in. [`ready`]: one that a box wants. [`lease`]: what is left of one that is gone. [`place`]: where they lie.
//!   [`trouble`]: why there is none.
//!
//! Trust: caller, who brings any bytes. Must not: look into a module. The compiler does, in a process that has given up everything else.

mod draft;
mod lease;
mod place;
mod ready;
#[cfg(test)]
mod tests;
mod trouble;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use blastbox_engine::keeper::{Keeper, Tenant};
use blastbox_images::{Form, Image, ModuleImage};
use blastbox_isolation::tiers::wasm::{
    CompileError, Compilers, Compiling, Effort, Guests, Kept, Metering, compile, look,
};
use blastbox_policy::{GuestName, SealedPolicy};
use blastbox_wire::event::{Event, Label};
use serde::Serialize;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use self::draft::Draft;
pub(crate) use self::lease::Lease;
use self::place::Place;
use self::ready::{Asked, Looked};
pub use self::trouble::ModuleTrouble;

/// Modules that are compiled at the same time: each may take gigabytes while it is.
const AT_ONCE: usize = 2;
/// Those that are held against their hashes at the same time: each takes as much memory as it has bytes, for a moment.
const LOOKED_AT: usize = 2;
/// How long a module waits for its turn, and for a seat.
const PATIENCE: Duration = Duration::from_secs(60);

/// What each tenant may keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModuleLimits {
    /// Modules of one tenant.
    pub(crate) count: usize,
    /// Bytes of one of them, as it is brought.
    pub(crate) largest: u64,
    /// Bytes of all of them with their machine code.
    pub(crate) disk: u64,
}

/// A module, as its tenant knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ModuleCard {
    pub(crate) name: String,
    pub(crate) form: Form,
    /// The hash of what was brought.
    pub(crate) digest: String,
    pub(crate) bytes: u64,
    pub(crate) added_at: String,
}

/// Every module of this daemon.
#[derive(Debug)]
pub(crate) struct Modules {
    place: Place,
    limits: ModuleLimits,
    /// The compiler, where the tier is installed.
    guests: Option<Guests>,
    /// Tenants of whom something is brought or compiled.
    underway: Mutex<BTreeSet<Tenant>>,
    /// Whenever one of them is done.
    turns: Notify,
    seats: Arc<Semaphore>,
    looks: Arc<Semaphore>,
    /// Those at work. A daemon that ends does not wait for them.
    compilers: Compilers,
    known: Mutex<Known>,
    /// Who writes down what is done.
    keeper: Option<Keeper>,
}

/// What may be handed out.
#[derive(Debug, Default)]
struct Known {
    /// What was compiled, or held against its hashes, by this daemon.
    images: BTreeMap<Key, ModuleImage>,
    leases: BTreeMap<(Tenant, String), Arc<Lease>>,
}

/// Whose, called what, and whether it counts its work.
type Key = (Tenant, String, bool);

fn key(tenant: &Tenant, name: &str, metering: Metering) -> Key {
    (tenant.clone(), name.to_owned(), metering == Metering::Fuel)
}

/// A tenant's turn: nobody brings or compiles two at once.
#[derive(Debug)]
struct Turn {
    modules: Arc<Modules>,
    tenant: Tenant,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.modules.underway().remove(&self.tenant);
        self.modules.turns.notify_waiters();
    }
}

/// Work on files, and waiting for a compiler, are nobody else's to wait for.
async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ModuleTrouble> + Send + 'static,
) -> Result<T, ModuleTrouble> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(ModuleTrouble::Defect))
}

async fn seat(seats: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, ModuleTrouble> {
    match timeout(PATIENCE, Arc::clone(seats).acquire_owned()).await {
        Ok(Ok(seat)) => Ok(seat),
        Ok(Err(_)) => Err(ModuleTrouble::Stopping),
        Err(_) => Err(ModuleTrouble::Busy),
    }
}

impl Modules {
    /// Those that are kept in this directory. What a daemon that was killed has left half made is removed.
    pub(crate) fn open(path: &Path, limits: ModuleLimits, guests: Option<Guests>) -> io::Result<Self> {
        let place = Place::open(path)?;
        let (underway, known, turns, compilers) = Default::default();
        let [seats, looks] = [AT_ONCE, LOOKED_AT].map(|most| Arc::new(Semaphore::new(most)));
        let keeper = None;
        Ok(Self { place, limits, guests, underway, known, turns, seats, looks, compilers, keeper })
    }

    /// With whoever writes down what is done.
    pub(crate) fn recorded_by(mut self, keeper: Keeper) -> Self {
        self.keeper = Some(keeper);
        self
    }

    fn announce(&self, event: &Event) -> Result<(), ModuleTrouble> {
        let announced = self.keeper.as_ref().map(|keeper| keeper.announce(event)).transpose();
        announced.map(drop).map_err(ModuleTrouble::Unrecorded)
    }

    /// Nothing is compiled any more, and what is being compiled is ended: the daemon is ending.
    pub(crate) fn stop(&self) {
        self.seats.close();
        self.looks.close();
        self.compilers.end();
    }

    /// Most bytes of one.
    pub(crate) fn largest(&self) -> u64 {
        self.limits.largest
    }

    fn underway(&self) -> MutexGuard<'_, BTreeSet<Tenant>> {
        // Nobody panics while holding it.
        self.underway.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(self: &Arc<Self>, tenant: &Tenant) -> Result<Turn, ModuleTrouble> {
        if self.underway().insert(tenant.clone()) {
            Ok(Turn { modules: Arc::clone(self), tenant: tenant.clone() })
        } else {
            Err(ModuleTrouble::Underway)
        }
    }

    /// The same for whoever can wait: boxes that are made at once want the same module, or the next one.
    async fn turn_in_time(self: &Arc<Self>, tenant: &Tenant) -> Result<Turn, ModuleTrouble> {
        let in_turn = async {
            loop {
                // Before the look: a turn that ends in between is heard.
                let ended = self.turns.notified();
                match self.turn(tenant) {
                    Ok(turn) => return turn,
                    Err(_) => ended.await,
                }
            }
        };
        timeout(PATIENCE, in_turn).await.map_err(|_| ModuleTrouble::Underway)
    }

    /// Those of a tenant, by name. Looks at the disk.
    pub(crate) fn list(&self, tenant: &Tenant) -> Result<Vec<ModuleCard>, ModuleTrouble> {
        Ok(self.place.list(tenant)?)
    }

    /// Takes one away. Boxes that run it, or begin with it, go on. `false`: there is none of this name. Looks at the disk.
    pub(crate) fn remove(self: &Arc<Self>, tenant: &Tenant, name: &GuestName) -> Result<bool, ModuleTrouble> {
        let _turn = self.turn(tenant)?;
        if self.place.find(tenant, name)?.is_none() {
            return Ok(false);
        }
        let [whose, module] = [tenant.as_str(), name.as_str()].map(Label::new);
        self.announce(&Event::ModuleRemoved { tenant: whose, module })?;
        let lease = self.forget(tenant, name.as_str());
        let left = self.place.remove(tenant, name)?;
        Ok(left.map(|left| lease.end(left)).is_some())
    }

    /// Hands it out no more: done before the disk is touched, so that nobody is given what goes away. What those need who were given it
    /// goes with what is returned.
    fn forget(&self, tenant: &Tenant, name: &str) -> Arc<Lease> {
        let mut known = self.known();
        known.images.retain(|(whose, called, _), _| whose != tenant || called != name);
        known.leases.remove(&(tenant.clone(), name.to_owned())).unwrap_or_default()
    }

    /// Begins to take one in. It is there once the draft is compiled. Looks at the disk.
    pub(crate) fn begin(self: &Arc<Self>, tenant: &Tenant, name: &GuestName) -> Result<Draft, ModuleTrouble> {
        if self.guests.is_none() {
            return Err(ModuleTrouble::NotInstalled);
        }
        let turn = self.turn(tenant)?;
        let others = self.place.list(tenant)?.into_iter().filter(|card| card.name != name.as_str()).count();
        if others >= self.limits.count {
            return Err(ModuleTrouble::Many { most: self.limits.count });
        }
        Draft::new(turn, name.clone())
    }

    /// What a box of this policy begins with that names this module: compiled by now, or held against its hashes where an earlier daemon has
    /// compiled it. It stays where it is for as long as the lease is held.
    pub(crate) async fn image(
        self: &Arc<Self>,
        tenant: &Tenant,
        name: &str,
        policy: &SealedPolicy,
    ) -> Result<(Image, Arc<Lease>), ModuleTrouble> {
        let metering = if policy.kernel().fuel.is_some() { Metering::Fuel } else { Metering::None };
        let (module, lease) = match self.handed_out(&key(tenant, name, metering)) {
            Some(known) => known,
            None => self.readied(tenant, name, metering).await?,
        };
        Ok((Image::Module(Box::new(module)), lease))
    }

    fn handed_out(&self, key: &Key) -> Option<(ModuleImage, Arc<Lease>)> {
        let mut known = self.known();
        let module = known.images.get(key).cloned()?;
        let lease = known.leases.entry((key.0.clone(), key.1.clone())).or_default();
        Some((module, Arc::clone(lease)))
    }

    async fn readied(
        self: &Arc<Self>,
        tenant: &Tenant,
        name: &str,
        metering: Metering,
    ) -> Result<(ModuleImage, Arc<Lease>), ModuleTrouble> {
        let name: GuestName = name.parse().map_err(ModuleTrouble::BadName)?;
        let (modules, whose, called) = (Arc::clone(self), tenant.clone(), name.clone());
        // What is not there is waited for by nobody.
        on_thread(move || modules.brought(&whose, &called)).await?;
        let turn = self.turn_in_time(tenant).await?;
        // Whoever went before may have wanted the same.
        if let Some(known) = self.handed_out(&key(tenant, name.as_str(), metering)) {
            return Ok(known);
        }
        // Everything that is held goes along: whoever asked may go away, and the compiler does not.
        let (held, asked) = (seat(&self.looks).await?, Asked { turn, name, metering });
        let looked = on_thread(move || {
            let _held = held;
            asked.look()
        });
        let asked = match looked.await? {
            Looked::Ready(module, lease) => return Ok((module, lease)),
            Looked::Bare(asked) => asked,
        };
        let held = seat(&self.seats).await?;
        let compiled = on_thread(move || {
            let _held = held;
            asked.compile()
        });
        compiled.await
    }

    /// What a tenant has brought under this name.
    fn brought(&self, tenant: &Tenant, name: &GuestName) -> Result<PathBuf, ModuleTrouble> {
        if let Some(file) = self.place.find(tenant, name)? {
            return Ok(file);
        }
        let known = self.place.list(tenant)?.into_iter().map(|card| card.name).collect();
        Err(ModuleTrouble::Unknown { name: name.to_string(), known })
    }

    /// From now on it is handed out.
    fn learn(&self, tenant: &Tenant, metering: Metering, module: ModuleImage) -> (ModuleImage, Arc<Lease>) {
        let mut known = self.known();
        let lease = known.leases.entry((tenant.clone(), module.name.clone())).or_default();
        let lease = Arc::clone(lease);
        known.images.insert(key(tenant, &module.name, metering), module.clone());
        (module, lease)
    }

    /// Looks whether it was compiled, and is whole. Waits for that.
    fn look(
        &self,
        module: &Path,
        name: &GuestName,
        metering: Metering,
        cache: &Path,
    ) -> Result<Kept, ModuleTrouble> {
        self.ask(look, module, name, metering, cache)
    }

    /// Has it compiled, unless it was. Waits for that, and keeps room for it on the disk meanwhile.
    fn compile(
        &self,
        module: &Path,
        name: &GuestName,
        metering: Metering,
        cache: &Path,
    ) -> Result<ModuleImage, ModuleTrouble> {
        let _room = self.place.reserve(Effort::Brief.most_code())?;
        self.ask(compile, module, name, metering, cache)
    }

    fn ask<T>(
        &self,
        what: impl FnOnce(&Guests, Compiling<'_>) -> Result<T, CompileError>,
        module: &Path,
        name: &GuestName,
        metering: Metering,
        cache: &Path,
    ) -> Result<T, ModuleTrouble> {
        let guests = self.guests.as_ref().ok_or(ModuleTrouble::NotInstalled)?;
        let among = &self.compilers;
        let compiling = Compiling { module, name, metering, effort: Effort::Brief, cache, among };
        Ok(what(guests, compiling)?)
    }
}
