//! Who gets room, and whose turn it is. Pure: no clock, no waiting, no locks.
//!
//! A tenant's quota is reserved before the host is asked, also for what waits, so no tenant is ever over it. Room on the
//! host goes round: one box for each tenant that waits, in the order in which they came; first come, first served within
//! a tenant. Whoever's turn it is gets the room that is freed until it is enough: nobody overtakes, so that a large box
//! is not starved by small ones.

use std::collections::{BTreeMap, VecDeque};

use super::cards::Tenant;
use super::config::{HostLimits, KeeperConfig, Quota};

/// What one box may use, or what is no box and takes room all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) boxes: usize,
    pub(crate) memory: u64,
    pub(crate) millicpus: u64,
}

/// What several boxes may use together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    boxes: usize,
    memory: u64,
    millicpus: u64,
}

impl Sum {
    fn with(self, need: Need) -> Self {
        Self {
            boxes: self.boxes.saturating_add(need.boxes),
            memory: self.memory.saturating_add(need.memory),
            millicpus: self.millicpus.saturating_add(need.millicpus),
        }
    }

    fn without(self, need: Need) -> Self {
        Self {
            boxes: self.boxes.saturating_sub(need.boxes),
            memory: self.memory.saturating_sub(need.memory),
            millicpus: self.millicpus.saturating_sub(need.millicpus),
        }
    }

    fn within(self, host: &HostLimits) -> bool {
        self.boxes <= host.boxes && self.memory <= host.memory && self.millicpus <= host.millicpus
    }
}

/// The answer to somebody who asks for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It is theirs.
    Admitted,
    /// They wait, under this number.
    Waiting(u64),
    /// Too many wait already.
    Full,
}

/// Who has what, and who waits.
#[derive(Debug)]
pub(crate) struct Gate {
    host: HostLimits,
    quota: Quota,
    quotas: BTreeMap<Tenant, Quota>,
    given: Sum,
    tenants: BTreeMap<Tenant, Sum>,
    lines: BTreeMap<Tenant, VecDeque<(u64, Need)>>,
    /// The tenants that wait, next one first. Each once.
    turns: VecDeque<Tenant>,
    waiting: usize,
    last_ticket: u64,
}

impl Gate {
    pub(crate) fn new(config: &KeeperConfig) -> Self {
        Self {
            host: config.host.clone(),
            quota: config.tenant_default,
            quotas: config.quotas.clone(),
            given: Sum::default(),
            tenants: BTreeMap::new(),
            lines: BTreeMap::new(),
            turns: VecDeque::new(),
            waiting: 0,
            last_ticket: 0,
        }
    }

    /// Whether the host has room for all of these at once, with nobody else on it; or which of its limits they are over.
    pub(crate) fn could_hold(
        &self,
        all: impl IntoIterator<Item = (Need, usize)>,
    ) -> Result<(), &'static str> {
        let several = |(need, count)| std::iter::repeat_n(need, count);
        let sum = all.into_iter().flat_map(several).fold(Sum::default(), Sum::with);
        match () {
            () if sum.boxes > self.host.boxes => Err("boxes"),
            // A host that is short of memory just now is no reason to start no daemon: boxes that were taken over would end.
            () if self.host.memory_is_said && sum.memory > self.host.memory => Err("memory"),
            () if sum.millicpus > self.host.millicpus => Err("cpus"),
            () => Ok(()),
        }
    }

    /// Whether this fits on the host at all, with nobody else on it.
    pub(crate) fn fits(&self, need: Need) -> bool {
        Sum::default().with(need).within(&self.host)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Takes one box out of a tenant's quota; or says what is spent.
    pub(crate) fn reserve(&mut self, tenant: &Tenant, need: Need) -> Result<(), &'static str> {
        if need.memory > self.host.memory {
            return Err("host_memory");
        }
        if need.millicpus > self.host.millicpus {
            return Err("host_millicpus");
        }
        if self.host.boxes == 0 {
            return Err("host_boxes");
        }
        let quota = self.quotas.get(tenant).unwrap_or(&self.quota);
        let sum = self.tenants.get(tenant).copied().unwrap_or_default().with(need);
        if sum.boxes > quota.boxes {
            return Err("boxes");
        }
        if sum.memory > quota.memory {
            return Err("memory");
        }
        if sum.millicpus > quota.millicpus {
            return Err("millicpus");
        }
        self.tenants.insert(tenant.clone(), sum);
        Ok(())
    }

    /// Gives one box back to a tenant's quota.
    pub(crate) fn unreserve(&mut self, tenant: &Tenant, need: Need) {
        let Some(sum) = self.tenants.get_mut(tenant) else { return };
        *sum = sum.without(need);
        if sum.boxes == 0 {
            self.tenants.remove(tenant);
        }
    }

    /// Counts a box that is there already, whatever there is room for.
    pub(crate) fn count(&mut self, tenant: &Tenant, need: Need) {
        let sum = self.tenants.entry(tenant.clone()).or_default();
        *sum = sum.with(need);
        self.given = self.given.with(need);
    }

    /// Asks the host for room.
    pub(crate) fn ask(&mut self, tenant: &Tenant, need: Need) -> Asked {
        if self.try_take(need) {
            return Asked::Admitted;
        }
        if self.waiting >= self.host.queue {
            return Asked::Full;
        }
        self.last_ticket += 1;
        self.waiting += 1;
        let line = self.lines.entry(tenant.clone()).or_default();
        if line.is_empty() {
            self.turns.push_back(tenant.clone());
        }
        line.push_back((self.last_ticket, need));
        Asked::Waiting(self.last_ticket)
    }

    /// Takes room where there is some and nobody waits for it.
    pub(crate) fn try_take(&mut self, need: Need) -> bool {
        let sum = self.given.with(need);
        let free = self.turns.is_empty() && sum.within(&self.host);
        if free {
            self.given = sum;
        }
        free
    }

    /// Room is free again. Tells who gets it.
    pub(crate) fn release(&mut self, need: Need) -> Vec<(u64, Need)> {
        self.given = self.given.without(need);
        self.admit()
    }

    /// Somebody does not wait any longer. Tells who comes in, now that they do not stand in the way.
    pub(crate) fn leave(&mut self, tenant: &Tenant, ticket: u64) -> Vec<(u64, Need)> {
        let Some(line) = self.lines.get_mut(tenant) else { return Vec::new() };
        let before = line.len();
        let was_next = line.front().is_some_and(|(other, _)| *other == ticket);
        line.retain(|(other, _)| *other != ticket);
        self.waiting -= before - line.len();
        if line.is_empty() {
            self.lines.remove(tenant);
            self.turns.retain(|other| other != tenant);
        } else if was_next && self.turns.front() == Some(tenant) {
            // Its turn is used up. Otherwise a tenant that asks and gives up, over and over, keeps everybody else from theirs.
            self.turns.rotate_left(1);
        }
        self.admit()
    }

    fn admit(&mut self) -> Vec<(u64, Need)> {
        let mut admitted = Vec::new();
        while let Some(tenant) = self.turns.front().cloned() {
            let line = self.lines.entry(tenant.clone()).or_default();
            let Some((ticket, need)) = line.front().copied() else {
                self.turns.pop_front();
                self.lines.remove(&tenant);
                continue;
            };
            let sum = self.given.with(need);
            if !sum.within(&self.host) {
                break;
            }
            self.given = sum;
            self.waiting -= 1;
            line.pop_front();
            self.turns.pop_front();
            if line.is_empty() {
                self.lines.remove(&tenant);
            } else {
                self.turns.push_back(tenant);
            }
            admitted.push((ticket, need));
        }
        admitted
    }
}

#[cfg(test)]
mod tests;
