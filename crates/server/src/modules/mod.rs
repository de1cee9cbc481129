//! Modules of tenants: programs of the tier `wasm` that callers bring, compiled once and kept.
//!
//! - [`draft`]: one on its way in. [`place`]: where they lie. [`trouble`]: why there is none.
//!
//! Trust: caller, who brings any bytes. Must not: look into a module. The compiler does, in a process that has given up everything else.

mod draft;
mod place;
#[cfg(test)]
mod tests;
mod trouble;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use blastbox_engine::keeper::Tenant;
use blastbox_images::{Form, Image, ModuleImage};
use blastbox_isolation::tiers::wasm::{
    CompileError, Compilers, Compiling, Effort, Guests, Metering, compile,
};
use blastbox_policy::{GuestName, SealedPolicy};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use self::draft::Draft;
use self::place::Place;
pub use self::trouble::ModuleTrouble;

/// Modules that are compiled at the same time: each may take gigabytes while it is.
const AT_ONCE: usize = 2;
/// How long a module waits for its turn.
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
    seats: Arc<Semaphore>,
    /// Those at work. A daemon that ends does not wait for them.
    compilers: Compilers,
    /// What was compiled, or held against its hashes, by this daemon.
    known: Mutex<BTreeMap<Key, ModuleImage>>,
}

/// Whose, called what, and whether it counts its work.
type Key = (Tenant, String, bool);

/// A tenant's turn: nobody brings or compiles two at once.
#[derive(Debug)]
struct Turn {
    modules: Arc<Modules>,
    tenant: Tenant,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.modules.underway().remove(&self.tenant);
    }
}

impl Modules {
    /// Those that are kept in this directory. What a daemon that was killed has left half made is removed.
    pub(crate) fn open(path: &Path, limits: ModuleLimits, guests: Option<Guests>) -> io::Result<Self> {
        let place = Place::open(path)?;
        let (underway, known, compilers) = Default::default();
        let seats = Arc::new(Semaphore::new(AT_ONCE));
        Ok(Self { place, limits, guests, underway, known, seats, compilers })
    }

    /// Nothing is compiled any more, and what is being compiled is ended: the daemon is ending.
    pub(crate) fn stop(&self) {
        self.seats.close();
        self.compilers.end();
    }

    fn underway(&self) -> MutexGuard<'_, BTreeSet<Tenant>> {
        // Nobody panics while holding it.
        self.underway.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Key, ModuleImage>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(self: &Arc<Self>, tenant: &Tenant) -> Result<Turn, ModuleTrouble> {
        if self.underway().insert(tenant.clone()) {
            Ok(Turn { modules: Arc::clone(self), tenant: tenant.clone() })
        } else {
            Err(ModuleTrouble::Underway)
        }
    }

    /// Those of a tenant, by name. Looks at the disk.
    pub(crate) fn list(&self, tenant: &Tenant) -> Result<Vec<ModuleCard>, ModuleTrouble> {
        Ok(self.place.list(tenant)?)
    }

    /// Takes one away. Boxes that run it go on. `false`: there is none of this name. Looks at the disk.
    pub(crate) fn remove(self: &Arc<Self>, tenant: &Tenant, name: &GuestName) -> Result<bool, ModuleTrouble> {
        let _turn = self.turn(tenant)?;
        let removed = self.place.remove(tenant, name)?;
        self.forget(tenant, name.as_str());
        Ok(removed)
    }

    fn forget(&self, tenant: &Tenant, name: &str) {
        self.known().retain(|(whose, called, _), _| whose != tenant || called != name);
    }

    /// Begins to take one in. It is there once the draft is compiled.
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
    /// compiled it.
    pub(crate) async fn image(
        self: &Arc<Self>,
        tenant: &Tenant,
        name: &str,
        policy: &SealedPolicy,
    ) -> Result<Image, ModuleTrouble> {
        let metering = if policy.kernel().fuel.is_some() { Metering::Fuel } else { Metering::None };
        let key = (tenant.clone(), name.to_owned(), metering == Metering::Fuel);
        let known = self.known().get(&key).cloned();
        let module = match known {
            Some(module) => module,
            None => self.compiled(tenant, name, metering).await?,
        };
        Ok(Image::Module(Box::new(module)))
    }

    async fn compiled(
        self: &Arc<Self>,
        tenant: &Tenant,
        name: &str,
        metering: Metering,
    ) -> Result<ModuleImage, ModuleTrouble> {
        let turn = self.turn(tenant)?;
        let name: GuestName = name.parse().map_err(ModuleTrouble::BadName)?;
        let (modules, whose) = (Arc::clone(self), tenant.clone());
        let seat = self.seat().await?;
        // Everything that is held goes along: whoever asked may go away, and the compiler does not.
        let work = move || {
            let _held = (seat, turn);
            let found = modules.place.find(&whose, &name)?;
            let Some(file) = found else {
                let known = modules.place.list(&whose)?.into_iter().map(|card| card.name).collect();
                return Err(ModuleTrouble::Unknown { name: name.to_string(), known });
            };
            let home = modules.place.home(&whose, &name);
            let module = modules.compile(&file, &name, metering, &home)?;
            if !place::is_of(&file, &module.digest) {
                std::fs::remove_dir_all(&module.directory).ok();
                return Err(ModuleTrouble::Damaged { name: name.to_string() });
            }
            if modules.place.used(&whose) > modules.limits.disk {
                std::fs::remove_dir_all(&module.directory).ok();
                return Err(ModuleTrouble::Full { most: modules.limits.disk });
            }
            modules.learn(&whose, metering, &module);
            Ok(module)
        };
        tokio::task::spawn_blocking(work).await.unwrap_or(Err(ModuleTrouble::Defect))
    }

    async fn seat(&self) -> Result<OwnedSemaphorePermit, ModuleTrouble> {
        match timeout(PATIENCE, Arc::clone(&self.seats).acquire_owned()).await {
            Ok(Ok(seat)) => Ok(seat),
            Ok(Err(_)) => Err(ModuleTrouble::Stopping),
            Err(_) => Err(ModuleTrouble::Busy),
        }
    }

    fn learn(&self, tenant: &Tenant, metering: Metering, module: &ModuleImage) {
        let key = (tenant.clone(), module.name.clone(), metering == Metering::Fuel);
        self.known().insert(key, module.clone());
    }

    /// Has it compiled, unless it was. Waits for that.
    fn compile(
        &self,
        module: &Path,
        name: &GuestName,
        metering: Metering,
        cache: &Path,
    ) -> Result<ModuleImage, ModuleTrouble> {
        let guests = self.guests.as_ref().ok_or(ModuleTrouble::NotInstalled)?;
        let among = &self.compilers;
        let what = Compiling { module, name, metering, effort: Effort::Brief, cache, among };
        compile(guests, what).map_err(|error| match error {
            CompileError::Refused(said) if said.starts_with("wasm_") => ModuleTrouble::Unfit(said),
            CompileError::NoComponentWorker(_) => ModuleTrouble::NoComponentWorker,
            CompileError::Ended(_) => ModuleTrouble::TooMuch,
            CompileError::Stopped => ModuleTrouble::Stopping,
            broken => ModuleTrouble::Compiler(broken),
        })
    }
}
