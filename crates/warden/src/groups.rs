//! Groups in stock: making one costs more than all mounts of a box, so the next one is made while nobody waits.

use std::os::fd::OwnedFd;

use blastbox_sys::cgroup::{Controller, Counts, Flavour, Group, Limits, Site};
use blastbox_wire::BoxId;
use blastbox_wire::plan::{Cgroups, Plan};

use crate::trouble::{Trouble, Trying};

/// Most groups in stock. A burst of boxes takes these and makes the rest itself.
const STOCK: usize = 4;

/// The limits that groups in stock have until a caller has shown which ones it wants: those of the profile that a run
/// without options gets.
const LIKELY: Limits = Limits { memory: 512 << 20, millicpus: 1000, pids: 128 };

/// Where groups are made, and those that are ready.
#[derive(Debug)]
pub(crate) struct Groups {
    site: Option<Site>,
    stock: Vec<(Limits, Group)>,
    likely: Limits,
    taken: u64,
    /// How large the stock may become.
    most: usize,
}

impl Groups {
    /// Looks for a place to make groups in.
    pub(crate) fn find(name: Option<u64>) -> Result<Self, Trouble> {
        let site = Site::find(name).tried("look for cgroups")?;
        Ok(Self { site, stock: Vec::new(), likely: LIKELY, taken: 0, most: STOCK })
    }

    /// The kind of interface, as the caller is told: 0 none, 1 the old one, 2 the unified one.
    pub(crate) fn flavour(&self) -> u8 {
        self.site.as_ref().map_or(0, |site| match site.flavour {
            Flavour::V1 => 1,
            Flavour::V2 => 2,
        })
    }

    /// Whether a controller works.
    pub(crate) fn has(&self, controller: Controller) -> bool {
        self.site.as_ref().is_some_and(|site| site.has(controller))
    }

    /// A group with the limits of a plan; `None` where the plan wants none.
    pub(crate) fn take(&mut self, plan: &Plan) -> Result<Option<Group>, Trouble> {
        let Cgroups::Enforce { memory, cpu, pids } = plan.cgroups else { return Ok(None) };
        let wanted = [(memory, Controller::Memory), (cpu, Controller::Cpu), (pids, Controller::Pids)];
        for (_, controller) in wanted.iter().filter(|(wanted, _)| *wanted) {
            if !self.has(*controller) {
                return Err(Trouble::plain(format!("limit the box: no {controller:?} controller")));
            }
        }
        let Some(site) = &self.site else {
            return Err(Trouble::plain("limit the box: this host gives the warden no cgroups"));
        };
        let limits =
            Limits { memory: plan.limits.memory, millicpus: plan.limits.millicpus, pids: plan.limits.pids };
        self.taken += 1;
        self.likely = limits;
        let (set, group) = match self.stock.pop() {
            Some((set, group)) => (set == limits, group),
            None => (false, site.make(new_name()?.as_str()).tried("make the box's cgroup")?),
        };
        // Setting a processor limit can cost as much as a whole process: not twice.
        if !set && let Err(error) = site.set(&group, &limits) {
            self.give_back(group)?;
            return Err(error).tried("set the limits of the box's cgroup");
        }
        Ok(Some(group))
    }

    /// The directory into which the first process of a box is born, where the interface has that.
    pub(crate) fn birthplace(&self, group: &Group) -> Result<Option<OwnedFd>, Trouble> {
        self.site.as_ref().map_or(Ok(None), |site| site.birthplace(group)).tried("open the box's cgroup")
    }

    /// Moves the calling process into a group, where it was not born there.
    pub(crate) fn join(&self, group: &Group) -> Result<(), Trouble> {
        self.site.as_ref().map_or(Ok(()), |site| site.join(group)).tried("join the box's cgroup")
    }

    /// Stops everything in a group.
    pub(crate) fn freeze(&self, group: &Group) -> Result<(), Trouble> {
        self.site.as_ref().map_or(Ok(()), |site| site.freeze(group)).tried("stop the processes of the box")
    }

    /// Lets everything in a group go on.
    pub(crate) fn thaw(&self, group: &Group) -> Result<(), Trouble> {
        self.site.as_ref().map_or(Ok(()), |site| site.thaw(group)).tried("let the processes of the box go on")
    }

    /// What a group has counted. Then it is gone.
    pub(crate) fn close(&self, group: Group) -> Counts {
        let counts = self.site.as_ref().map_or_else(Counts::default, |site| site.counts(&group));
        // One box whose group stays behind must not cost all others their warden: a later sweep takes it away.
        self.give_back(group).ok();
        counts
    }

    /// Takes a group away that no process is in. Never used again: what was counted for one box is not another's.
    pub(crate) fn give_back(&self, group: Group) -> Result<(), Trouble> {
        self.site.as_ref().map_or(Ok(()), |site| site.remove(group)).tried("remove a cgroup")
    }

    /// Whether the stock should grow. One that has made a single box is probably a single command, which would only
    /// have to take the next group away again.
    pub(crate) fn wants_stock(&self) -> bool {
        let wanted = match self.taken {
            0 => 1,
            1 => 0,
            _ => STOCK,
        };
        self.site.is_some() && self.stock.len() < self.most.min(wanted)
    }

    /// Makes one for later. If that fails there is no stock any more: whoever then needs a group makes one and learns why.
    pub(crate) fn restock(&mut self) {
        match self.make_for_later() {
            Ok(group) => self.stock.push((self.likely, group)),
            Err(_) => self.most = 0,
        }
    }

    fn make_for_later(&self) -> Result<Group, Trouble> {
        let Some(site) = &self.site else { return Err(Trouble::plain("make a cgroup: there are none")) };
        let group = site.make(new_name()?.as_str()).tried("make a cgroup for later")?;
        if let Err(error) = site.set(&group, &self.likely) {
            self.give_back(group)?;
            return Err(error).tried("set the limits of a cgroup for later");
        }
        Ok(group)
    }

    /// Releases what killed wardens have left. Returns how many boxes that was.
    pub(crate) fn sweep(&self) -> u32 {
        self.site.as_ref().map_or(0, Site::sweep)
    }

    /// Leaves nothing behind.
    pub(crate) fn clear(&mut self) {
        for (_, group) in std::mem::take(&mut self.stock) {
            // A group that stays is found by the next sweep.
            self.give_back(group).ok();
        }
        if let Some(site) = &self.site {
            site.close();
        }
    }
}

/// Groups are told apart by their locks; the name only says that they are ours.
pub(crate) fn new_name() -> Result<BoxId, Trouble> {
    let mut random = [0_u8; 20];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .tried("ask for randomness")?;
    Ok(BoxId::from_random(random))
}
