//! `[host]`, `[default_quota]`, `[quotas]`, `[snapshots]` and `[modules]`: how much is given away, and to whom.

use std::time::Duration;

use blastbox_engine::keeper::{KeeperConfig, Quota, SnapshotLimits};
use blastbox_policy::{Bytes, Cpus, Seconds};
use serde::Deserialize;

use super::set;
use crate::modules::ModuleLimits;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Host {
    boxes: Option<usize>,
    memory: Option<Bytes>,
    cpus: Option<Cpus>,
    queue: Option<usize>,
    patience: Option<Seconds>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Share {
    boxes: Option<usize>,
    memory: Option<Bytes>,
    cpus: Option<Cpus>,
}

impl Host {
    pub(super) fn apply(self, keeper: &mut KeeperConfig) {
        let Self { boxes, memory, cpus, queue, patience } = self;
        // A tenant without a quota of its own may have what the host may give.
        set(&mut keeper.host.boxes, boxes);
        keeper.host.memory_is_said |= memory.is_some();
        set(&mut keeper.host.memory, memory.map(|memory| memory.0));
        set(&mut keeper.host.millicpus, cpus.map(|cpus| cpus.millis().into()));
        set(&mut keeper.host.queue, queue);
        set(&mut keeper.host.patience, patience.map(|time| Duration::from_secs(time.0)));
        keeper.tenant_default =
            Quota { boxes: keeper.host.boxes, memory: keeper.host.memory, millicpus: keeper.host.millicpus };
    }
}

impl Share {
    pub(super) fn over(self, mut quota: Quota) -> Quota {
        let Self { boxes, memory, cpus } = self;
        set(&mut quota.boxes, boxes);
        set(&mut quota.memory, memory.map(|memory| memory.0));
        set(&mut quota.millicpus, cpus.map(|cpus| cpus.millis().into()));
        quota
    }
}

/// What each tenant may keep of snapshots, and all of them together.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SnapshotText {
    count: Option<usize>,
    tenant_bytes: Option<Bytes>,
    bytes: Option<Bytes>,
}

impl SnapshotText {
    pub(super) fn apply(self, limits: &mut SnapshotLimits) {
        let Self { count, tenant_bytes, bytes } = self;
        set(&mut limits.count, count);
        set(&mut limits.tenant_bytes, tenant_bytes.map(|bytes| bytes.0));
        set(&mut limits.bytes, bytes.map(|bytes| bytes.0));
    }
}

/// What each tenant may keep of modules for the tier `wasm`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ModulesText {
    enabled: Option<bool>,
    count: Option<usize>,
    largest: Option<Bytes>,
    disk: Option<Bytes>,
}

impl ModulesText {
    pub(super) fn limits(&self) -> Option<ModuleLimits> {
        let limits = ModuleLimits {
            count: self.count.unwrap_or(16),
            largest: self.largest.unwrap_or(Bytes::mib(64)).0,
            disk: self.disk.unwrap_or(Bytes::mib(1_024)).0,
        };
        self.enabled.unwrap_or(true).then_some(limits)
    }
}
