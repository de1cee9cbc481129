//! How much a keeper may give away, and what a caller asks it for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use blastbox_images::Image;
use blastbox_policy::SealedPolicy;

use super::begin::Begin;
use super::cards::{OnTimeout, Tenant};
use super::prepare::Preparation;
use super::snapshot_card::SnapshotLimits;
use crate::host_memory;
use crate::leases::GivenSecret;
use crate::volume::VolumeDir;
use crate::workspace::WorkspaceDir;

/// Longest life of a box whose owner says nothing.
pub const DEFAULT_LIFE: Duration = Duration::from_secs(3_600);
/// Longest idleness of a box whose owner says nothing.
pub const DEFAULT_IDLE: Duration = Duration::from_secs(900);

const MOST_BOXES: usize = 10_000;
/// Thousandths of a processor that are promised for each that there is.
const PROMISES: u64 = 64_000;

/// How much a keeper may give away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeeperConfig {
    /// To everybody together.
    pub host: HostLimits,
    /// To a tenant that `quotas` does not name.
    pub tenant_default: Quota,
    /// To these tenants.
    pub quotas: BTreeMap<Tenant, Quota>,
    /// Boxes that are made before they are asked for.
    pub pool: PoolConfig,
    /// Snapshots of boxes.
    pub snapshots: SnapshotLimits,
}

/// What all boxes together may have: the sums of what their policies allow them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostLimits {
    /// Boxes, those in pools and in the making included.
    pub boxes: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// Whether somebody wrote that number down. Else it is what was free when the daemon started, which may be more the next time.
    pub memory_is_said: bool,
    /// Thousandths of a processor.
    pub millicpus: u64,
    /// Askers that may wait for room.
    pub queue: usize,
    /// How long one of them waits at most.
    pub patience: Duration,
}

/// What the boxes of one tenant together may have, those that wait for room included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Boxes.
    pub boxes: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// Thousandths of a processor.
    pub millicpus: u64,
}

/// Boxes that are made before they are asked for, for each (image, policy, tier) that was asked for lately.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolConfig {
    /// Never fewer, for as long as the key is remembered.
    pub min: usize,
    /// Never more. 0: no pools.
    pub max: usize,
    /// How long one waits to be asked for before it is replaced, and for how long an ask counts as demand.
    pub ttl: Duration,
}

impl Default for KeeperConfig {
    /// What this host has: three quarters of the memory that is free now, and each processor promised 64 times.
    ///
    /// Memory is what runs out: a box that uses what it was promised takes it from nobody only if all promises can be
    /// kept. Processors are not used up: most boxes wait for something most of the time, and those that do not share what
    /// there is, because the kernel holds each to its own limit and divides the rest. So memory bounds how many boxes
    /// there are, and processors only keep the absurd out.
    fn default() -> Self {
        let memory = host_memory::free() / 4 * 3;
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let millicpus = u64::try_from(cores).unwrap_or(1).saturating_mul(PROMISES);
        Self {
            host: HostLimits {
                boxes: MOST_BOXES,
                memory,
                memory_is_said: false,
                millicpus,
                queue: 4_096,
                patience: Duration::from_secs(10),
            },
            tenant_default: Quota { boxes: MOST_BOXES, memory, millicpus },
            quotas: BTreeMap::new(),
            pool: PoolConfig { min: 0, max: 8, ttl: Duration::from_secs(60) },
            snapshots: SnapshotLimits::default(),
        }
    }
}

/// What a caller asks a keeper for.
#[derive(Debug)]
pub struct NewBox {
    /// What may happen in it.
    pub policy: SealedPolicy,
    /// Its root file system.
    pub image: Arc<Image>,
    /// What a member of the pool has begun before it is handed out. One that is made now has begun nothing: its owner sees that
    /// with [`Keeper::prepared`](super::Keeper::prepared).
    pub preparation: Option<Preparation>,
    /// A directory of the caller, where the policy has a place for one. Such a box never comes from a pool.
    pub workspace: Option<WorkspaceDir>,
    /// Directories that it writes to for good, where the policy accepts that. Such a box never comes from a pool.
    pub volumes: Vec<VolumeDir>,
    /// Secrets of its owner's own that the policy binds. Such a box never comes from a pool.
    pub secrets: Vec<GivenSecret>,
    /// What its owner writes on it.
    pub metadata: BTreeMap<String, String>,
    /// How long it lives at most. The policy's own timeout is for `run` and does not count here.
    pub life: Duration,
    /// How long it lives without a running command and without a request.
    pub idle: Duration,
    /// What happens when either is over.
    pub on_timeout: OnTimeout,
    /// A box that ran, which it begins as a copy of. Such a box never comes from a pool.
    pub from: Option<Begin>,
}

impl NewBox {
    /// A box with this policy and image, and the defaults for the rest.
    #[must_use]
    pub fn new(policy: SealedPolicy, image: impl Into<Arc<Image>>) -> Self {
        Self {
            policy,
            image: image.into(),
            preparation: None,
            workspace: None,
            volumes: Vec::new(),
            secrets: Vec::new(),
            metadata: BTreeMap::new(),
            life: DEFAULT_LIFE,
            idle: DEFAULT_IDLE,
            on_timeout: OnTimeout::default(),
            from: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_says_nothing_gets_an_hour_and_a_quarter_of_one_idle_and_then_an_end() {
        let policy = blastbox_policy::Profile::Default.draft().unwrap().seal().unwrap();
        let NewBox { life, idle, on_timeout, .. } = NewBox::new(policy, Image::host());
        assert_eq!((life, idle), (Duration::from_secs(60 * 60), Duration::from_secs(15 * 60)));
        assert_eq!(on_timeout, OnTimeout::Destroy);
    }

    #[test]
    fn it_is_memory_and_not_processors_that_bounds_how_many_default_boxes_there_are() {
        let host = KeeperConfig::default().host;
        let policy = blastbox_policy::Profile::Default.draft().unwrap().seal().unwrap();
        let (memory, cpus) = (policy.kernel().memory.0, u64::from(policy.kernel().cpus.millis()));
        let cores = u64::try_from(std::thread::available_parallelism().unwrap().get()).unwrap();
        assert!(host.millicpus / cpus >= 64 * cores, "{host:?}");
        // Where there is not more than 32 GiB for each processor, memory ends first.
        assert!(host.memory > cores << 35 || host.memory / memory <= host.millicpus / cpus, "{host:?}");
    }
}
