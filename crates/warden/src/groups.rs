//! Groups in stock: making one costs more than all mounts of a box, so the next one is made while nobody waits.

use std::os::fd::OwnedFd;

use blastbox_sys::cgroup::{Controller, Counts, Flavour, Group, Limits, Room, Site};
use blastbox_wire::BoxId;
use blastbox_wire::plan::{Cgroups, Plan};

use crate::ids::{Block, Slot};
use crate::lifted;
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
    /// Those that could not be removed. What is left in one may still run under the ids of its box: they stay with it.
    lingering: Vec<(Group, Option<Slot>)>,
    /// Whole blocks of such groups, held until none of them is left.
    blocks: Vec<Block>,
}

impl Groups {
    /// Looks for a place to make groups in.
    pub(crate) fn find(name: Option<u64>, room: Room) -> Result<Self, Trouble> {
        let site = Site::find(name, room).tried("look for cgroups")?;
        Ok(Self {
            site,
            stock: Vec::new(),
            likely: LIKELY,
            taken: 0,
            most: STOCK,
            lingering: Vec::new(),
            blocks: Vec::new(),
        })
    }

    /// The kind of interface, as the caller is told: 0 none, 1 the old one, 2 the unified one, 3 both.
    pub(crate) fn flavour(&self) -> u8 {
        let uses = |flavour| u8::from(self.site.as_ref().is_some_and(|site| site.uses(flavour)));
        uses(Flavour::V1) + 2 * uses(Flavour::V2)
    }

    /// Whether a controller works.
    pub(crate) fn has(&self, controller: Controller) -> bool {
        self.site.as_ref().is_some_and(|site| site.has(controller))
    }

    /// The limits that a plan wants of a group; `None` where it wants none.
    pub(crate) fn wanted(&self, plan: &Plan) -> Result<Option<Limits>, Trouble> {
        let Cgroups::Enforce { memory, cpu, pids } = plan.cgroups else { return Ok(None) };
        let wanted = [(memory, Controller::Memory), (cpu, Controller::Cpu), (pids, Controller::Pids)];
        for (_, controller) in wanted.iter().filter(|(wanted, _)| *wanted) {
            if !self.has(*controller) {
                return Err(Trouble::plain(format!("limit the box: no {controller:?} controller")));
            }
        }
        let pids = if lifted::PIDS { lifted::MANY } else { plan.limits.pids };
        Ok(Some(Limits { memory: plan.limits.memory, millicpus: plan.limits.millicpus, pids }))
    }

    /// One from stock, for whoever takes it as it is, and what it is limited to.
    pub(crate) fn take_from_stock(&mut self) -> Option<(Limits, Group)> {
        let taken = self.stock.pop()?;
        self.taken += 1;
        Some(taken)
    }

    /// Nobody had a use for the one that was taken so: it is not counted as a box's.
    pub(crate) fn was_no_use(&mut self) {
        self.taken = self.taken.saturating_sub(1);
    }

    /// A group with the limits of a plan; `None` where the plan wants none.
    pub(crate) fn take(&mut self, plan: &Plan) -> Result<Option<Group>, Trouble> {
        let Some(limits) = self.wanted(plan)? else { return Ok(None) };
        let Some(site) = &self.site else {
            return Err(Trouble::plain("limit the box: this host gives the warden no cgroups"));
        };
        self.taken += 1;
        self.likely = limits;
        let (set, group) = match self.stock.pop() {
            Some((set, group)) => (set == limits, group),
            None => (false, site.make(new_name()?.as_str()).tried("make the box's cgroup")?),
        };
        // Setting a processor limit can cost as much as a whole process: not twice.
        if !set && let Err(error) = site.set(&group, &limits) {
            self.give_back(group, None);
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

    /// What a group has counted.
    pub(crate) fn counts(&self, group: &Group) -> Counts {
        self.site.as_ref().map_or_else(Counts::default, |site| site.counts(group))
    }

    /// Takes a group away that no process should be in, and says which ids nobody has any more: those of a group that
    /// cannot be removed stay taken. Never used again: what was counted for one box is not another's.
    pub(crate) fn give_back(&mut self, group: Group, slot: Option<Slot>) -> Option<Slot> {
        match self.site.as_ref().map_or(Ok(()), |site| site.remove(&group)) {
            Ok(()) => slot,
            // One box whose group stays must not cost all others their warden.
            Err(_) => {
                self.lingering.push((group, slot));
                None
            }
        }
    }

    /// Holds a box's whole block for as long as a group may be left of it.
    pub(crate) fn hold(&mut self, block: Option<Block>) {
        self.blocks.extend(block.filter(|_| self.has_lingering()));
    }

    /// Whether there are groups that should be gone.
    pub(crate) fn has_lingering(&self) -> bool {
        !self.lingering.is_empty()
    }

    /// Says which groups are there although nothing should be.
    pub(crate) fn all_gone(&self) -> Result<(), Trouble> {
        match self.lingering.len() {
            0 => Ok(()),
            left => Err(Trouble::plain(format!(
                "remove the cgroups of {left} boxes: something in them does not end. The next warden tries again; see \
                 `cgroup.procs` in the directories named blastbox-warden-*"
            ))),
        }
    }

    /// Tries again to remove those that could not be, and ends what is left in them. The ids that are free by that.
    pub(crate) fn release_lingering(&mut self) -> Vec<Slot> {
        let Some(site) = &self.site else { return Vec::new() };
        let gone = self.lingering.extract_if(.., |(group, _)| site.release(group).is_ok());
        let free = gone.filter_map(|(_, slot)| slot).collect();
        if self.lingering.is_empty() {
            self.blocks.clear();
        }
        free
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

    fn make_for_later(&mut self) -> Result<Group, Trouble> {
        let Some(site) = &self.site else { return Err(Trouble::plain("make a cgroup: there are none")) };
        let group = site.make(new_name()?.as_str()).tried("make a cgroup for later")?;
        if let Err(error) = site.set(&group, &self.likely) {
            self.give_back(group, None);
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
            self.give_back(group, None);
        }
        // A group that stays even now is found by the sweep of the next warden.
        self.release_lingering();
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

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use super::*;
    use crate::ids::Block;

    /// Every directory beneath `place` that has this name.
    fn named(place: &Path, name: &str, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name() == *name {
                    found.push(entry.path());
                } else {
                    named(&entry.path(), name, found);
                }
            }
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "somebody who stays in a group although its box has ended")]
    fn ids_stay_taken_until_their_group_is_gone() {
        let number = u64::from(std::process::id()) << 32 | 0xBB;
        let mut groups = Groups::find(Some(number), Room::Many).unwrap();
        let Some(site) = &groups.site else {
            blastbox_skips::skip_this("this host gives the tests no cgroups");
            return;
        };
        let Ok(group) = site.make(new_name().unwrap().as_str()) else {
            blastbox_skips::skip_this("the tests may make no cgroups here");
            return;
        };
        let mut block = Block::take().unwrap();
        let slot = block.slot().unwrap();
        let mut nests = Vec::new();
        named(Path::new("/sys/fs/cgroup"), &format!("blastbox-warden-{number:016x}"), &mut nests);
        assert!(!nests.is_empty());
        let mut straggler = Command::new("/bin/sleep").arg("60").spawn().unwrap();
        for entry in nests.iter().flat_map(|nest| std::fs::read_dir(nest).unwrap().flatten()) {
            if entry.file_type().unwrap().is_dir() {
                std::fs::write(entry.path().join("cgroup.procs"), straggler.id().to_string()).unwrap();
            }
        }

        let free = groups.give_back(group, Some(slot));
        let alive = straggler.try_wait().unwrap().is_none();
        let lingers = groups.has_lingering();
        let mut freed = groups.release_lingering();
        let status = straggler.wait().unwrap();
        // The kernel forgets the dead in its own time.
        for _ in 0..10_000 {
            if !groups.has_lingering() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
            freed.extend(groups.release_lingering());
        }
        groups.clear();

        assert!(alive, "nobody is ended who was not looked at twice");
        assert_eq!(free, None, "ids of a group that is still there are not free");
        assert!(lingers);
        assert_eq!(status.signal(), Some(9), "what stays in a group is ended");
        assert_eq!(freed, [slot], "then they are");
        assert!(nests.iter().all(|nest| !nest.exists()));
    }

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "somebody who stays in a group although its warden is gone"
    )]
    fn the_only_group_has_no_directory_around_it_and_is_found_when_its_warden_is_gone() {
        let mut lasting = Groups::find(None, Room::Many).unwrap();
        let mut groups = Groups::find(None, Room::One).unwrap();
        let name = new_name().unwrap();
        let Some(Ok(group)) = groups.site.as_ref().map(|site| site.make(name.as_str())) else {
            blastbox_skips::skip_this("this host gives the tests no cgroups");
            return;
        };
        let mut places = Vec::new();
        named(Path::new("/sys/fs/cgroup"), &format!("blastbox-warden-{}", name.as_str()), &mut places);
        let mut straggler = Command::new("/bin/sleep").arg("60").spawn().unwrap();
        for place in &places {
            std::fs::write(place.join("cgroup.procs"), straggler.id().to_string()).unwrap();
        }

        lasting.sweep();
        let (alive, there) =
            (straggler.try_wait().unwrap().is_none(), places.iter().all(|place| place.exists()));
        // As if it were killed: nothing is given back, and the locks are open.
        drop((group, groups.site.take()));
        // A process that another test is starting has every lock for a moment, and the kernel forgets the dead in its own time.
        let (mut swept, mut status) = (0, None);
        for _ in 0..10_000 {
            swept += lasting.sweep();
            status = status.or(straggler.try_wait().unwrap());
            if status.is_some() && !places.iter().any(|place| place.exists()) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        lasting.clear();

        assert!(!places.is_empty() && alive && there, "whose warden lives is left alone: {places:?}");
        assert!(swept >= 1, "a box was swept");
        assert_eq!(status.and_then(|status| status.signal()), Some(9), "who was in it is ended");
        assert!(!places.iter().any(|place| place.exists()), "{places:?}");
    }

    #[test]
    fn ids_of_a_box_without_a_group_or_with_one_that_goes_are_free_at_once() {
        let mut groups = Groups { site: None, ..Groups::find(None, Room::One).unwrap() };
        assert!(!groups.has_lingering() && groups.release_lingering().is_empty());
        let mut found = Groups::find(None, Room::One).unwrap();
        let made = found.site.as_ref().map(|site| site.make(new_name().unwrap().as_str()));
        if let Some(Ok(group)) = made {
            let slot = Block::take().unwrap().slot().unwrap();
            assert_eq!(found.give_back(group, Some(slot)), Some(slot));
            assert!(!found.has_lingering());
        }
        found.clear();
        groups.clear();
    }
}
