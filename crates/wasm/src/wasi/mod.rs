//! What a guest may call: WASI preview 1, made here, in memory, and narrow.
//!
//! Trust: every number is a guest's. Addresses are checked against its memory, counts are bounded, and nothing waits
//! without hearing that it is to end. There are no sockets, no links and no way to a file of the host.

mod about;
mod descriptors;
mod errno;
mod facts;
mod memory;
mod moving;
pub(crate) mod paths;
mod poll;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use wasmtime::{AsContextMut, Caller, Extern, Linker, Memory, ResourceLimiter, Trap};

pub(crate) use self::descriptors::{Descriptor, Descriptors};
pub(crate) use self::errno::Errno;
pub(crate) use self::memory::Memory as GuestMemory;
use crate::budget::{Budget, Limit};
use crate::chance::Chance;
use crate::clock::Clock;
use crate::engine::{MOST_ENTRIES, Parts};
use crate::files::Tree;
use crate::ready::Ready;
use crate::streams::{Streams, Told};

/// Where guests look for these functions.
pub(crate) const MODULE: &str = "wasi_snapshot_preview1";

/// Everything that belongs to one guest.
pub(crate) struct Guest {
    /// Its memory, once it is known.
    pub(crate) memory: Option<Memory>,
    pub(crate) limiter: Limiter,
    pub(crate) host: Host,
}

/// What the guest's calls work on.
pub(crate) struct Host {
    pub(crate) arguments: Vec<Vec<u8>>,
    pub(crate) environment: Vec<Vec<u8>>,
    /// The same in the words of a guest that is not asked for them by WASI.
    pub(crate) about: String,
    /// Whether the guest waits for further pieces of code when its program is over.
    pub(crate) turns: bool,
    /// Whether it has ever set a timer.
    pub(crate) timed: bool,
    /// Whether its work is counted.
    pub(crate) metered: bool,
    /// Whether it is offered functions of the caller.
    pub(crate) tools: bool,
    /// Whether HTTP requests are made for it.
    pub(crate) http: bool,
    pub(crate) descriptors: Descriptors,
    /// What a component has instead of them.
    #[cfg(feature = "components")]
    pub(crate) handles: crate::component::Handles,
    /// Where a component's command begins.
    #[cfg(feature = "components")]
    pub(crate) directory: Vec<u8>,
    pub(crate) tree: Arc<Mutex<Tree>>,
    /// `None` until the guest is handed out: then it has nothing to read and nobody hears it.
    pub(crate) streams: Option<Arc<Streams>>,
    pub(crate) clock: Clock,
    pub(crate) chance: Chance,
}

impl Host {
    /// A thread that panicked aborts the worker, so no lock is ever poisoned.
    pub(crate) fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl Host {
    /// What a guest of a test works on: no files, and streams that nobody hears.
    pub(crate) fn alone(deterministic: bool, has_input: bool) -> Self {
        use crate::files::Caps;
        let caps = Caps { bytes: 1000, entries: 8, file: 1000 };
        let tree = Arc::new(Mutex::new(Tree::new(caps, Budget::new(1 << 20))));
        let voice = crate::voice::Voice::unheard().unwrap();
        Self {
            arguments: Vec::new(),
            environment: Vec::new(),
            about: String::new(),
            turns: false,
            timed: false,
            metered: false,
            tools: false,
            http: false,
            descriptors: Descriptors::new(8, Arc::clone(&tree)),
            #[cfg(feature = "components")]
            handles: crate::component::Handles::new(8, Arc::clone(&tree)),
            #[cfg(feature = "components")]
            directory: Vec::new(),
            tree,
            streams: Some(Arc::new(Streams::new(0, has_input, voice))),
            clock: Clock::new(deterministic),
            chance: Chance::new(deterministic),
        }
    }
}

/// The guest wants to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the guest ended with code {0}")]
pub(crate) struct Exited(pub(crate) u32);

/// How a call ends other than well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It fails.
    Errno(Errno),
    /// The guest is to end.
    Told(Told),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<Told> for Stop {
    fn from(told: Told) -> Self {
        Self::Told(told)
    }
}

impl From<crate::files::Trouble> for Stop {
    fn from(trouble: crate::files::Trouble) -> Self {
        Self::Errno(trouble.into())
    }
}

/// Calls the function with the guest's memory and what is the guest's.
pub(crate) fn enter(
    caller: &mut Caller<'_, Guest>,
    call: impl FnOnce(&mut GuestMemory<'_>, &mut Host) -> Result<(), Stop>,
) -> wasmtime::Result<i32> {
    let memory = match caller.data().memory {
        Some(memory) => memory,
        None => match caller.get_export("memory") {
            Some(Extern::Memory(memory)) => memory,
            _ => return Ok(Errno::Fault.number()),
        },
    };
    let (bytes, guest) = memory.data_and_store_mut(&mut *caller);
    let mut memory = GuestMemory::new(bytes);
    let ended = call(&mut memory, &mut guest.host);
    let moved = memory.moved();
    if moved > 0 {
        pay(&mut *caller, moved)?;
    }
    match ended {
        Ok(()) => Ok(0),
        Err(Stop::Errno(errno)) => Ok(errno.number()),
        Err(Stop::Told(told)) => Err(wasmtime::Error::new(told)),
    }
}

/// Takes work that was done for the guest off its fuel, or else a guest would have the host do what it may not do itself.
pub(crate) fn pay(mut call: impl AsContextMut<Data = Guest>, units: u64) -> wasmtime::Result<()> {
    let mut call = call.as_context_mut();
    if !call.data().host.metered {
        return Ok(());
    }
    let left = call.get_fuel()?;
    call.set_fuel(left.saturating_sub(units))?;
    if units > left { Err(Trap::OutOfFuel.into()) } else { Ok(()) }
}

/// Defines calls: name, arguments, and what they do with the guest's memory and what is the guest's.
macro_rules! calls {
    ($linker:ident; $($name:literal => |$memory:ident, $host:ident $(, $arg:ident: $kind:ty)*| $body:expr;)*) => {
        $($linker.func_wrap(
            crate::wasi::MODULE,
            $name,
            |mut caller: wasmtime::Caller<'_, crate::wasi::Guest> $(, $arg: $kind)*| -> wasmtime::Result<i32> {
                crate::wasi::enter(&mut caller, |$memory, $host| $body)
            },
        )?;)*
    };
}
pub(crate) use calls;

/// Puts everything within a guest's reach.
pub(crate) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    about::link(linker)?;
    facts::link(linker)?;
    moving::link(linker)?;
    paths::link(linker)?;
    poll::link(linker)
}

/// How much a guest may grow.
pub(crate) struct Limiter {
    budget: Budget,
    /// Who gives memory up first.
    ready: Weak<Ready>,
    /// What the guest begins with and has in common with others: it counts from there on.
    shared: u64,
    held: u64,
    peak: u64,
    /// What it may consist of.
    parts: Parts,
    /// Entries of all its tables.
    entries: usize,
    /// Whether it was refused memory.
    refused: bool,
}

impl Limiter {
    pub(crate) fn new(budget: Budget, ready: Weak<Ready>, shared: u64, parts: Parts) -> Self {
        Self { budget, ready, shared, held: 0, peak: 0, parts, entries: 0, refused: false }
    }

    fn take(&self, bytes: u64) -> bool {
        let give_up = || self.ready.upgrade().is_some_and(|ready| ready.give_up());
        self.budget.take(bytes) || (give_up() && self.budget.take(bytes))
    }

    /// The most that it held.
    pub(crate) fn peak(&self) -> u64 {
        self.peak
    }

    /// Whether it asked for more than there is.
    pub(crate) fn refused(&self) -> bool {
        self.refused
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let more = u64::try_from(desired.saturating_sub(current)).unwrap_or(u64::MAX);
        let shared = more.min(self.shared);
        let more = more.saturating_sub(shared);
        if !self.take(more) {
            self.refused = true;
            self.budget.meet(Limit::Memory);
            return Ok(false);
        }
        self.shared = self.shared.saturating_sub(shared);
        self.held = self.held.saturating_add(more);
        self.peak = self.peak.max(self.held);
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let entries = self.entries.saturating_add(desired.saturating_sub(current));
        let fits = entries <= MOST_ENTRIES;
        if fits {
            self.entries = entries;
        }
        Ok(fits)
    }

    fn instances(&self) -> usize {
        count(self.parts.instances)
    }

    fn tables(&self) -> usize {
        count(self.parts.tables)
    }

    fn memories(&self) -> usize {
        count(self.parts.memories)
    }
}

fn count(most: u32) -> usize {
    usize::try_from(most).unwrap_or(usize::MAX)
}

impl Drop for Limiter {
    fn drop(&mut self) {
        self.budget.give(self.held);
    }
}
