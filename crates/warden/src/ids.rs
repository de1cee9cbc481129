//! Host ids that belong to one box alone.
//!
//! A warden with privilege takes a block of ids and cuts it into slots, one a box. Two wardens never share a block: a
//! block is held by binding an abstract socket of its name, which the kernel gives up with the process that holds it.

use std::os::fd::OwnedFd;

use blastbox_sys::namespaces::IdRow;
use blastbox_wire::plan::Ids;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};

use crate::trouble::{Trouble, Trying};

/// First id that blastbox uses. Above what system managers and container tools hand out, below the 31-bit border.
const FIRST: u32 = 0x7000_0000;
const IDS_A_SLOT: u32 = 16;
const SLOTS: u32 = 4096;
const BLOCKS: u32 = 4096;
/// How many blocks are tried. Each is taken at random: only a crowd of wardens, or a squatter, makes one fail.
const TRIES: u32 = 256;
/// The number of a slot that is a whole block.
const WHOLE: u32 = u32::MAX;

/// The ids of one box, as its user namespace shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Which slot of the block; [`WHOLE`]: all of them.
    number: u32,
    /// The host id behind the agent (uid 0 in the box).
    pub(crate) agent: u32,
    /// The host id behind the payload (uid 1000 in the box).
    pub(crate) payload: u32,
}

impl Slot {
    /// How the ids of the box stand for those of the host.
    pub(crate) fn rows(self) -> Vec<IdRow> {
        if self.number == WHOLE {
            return vec![IdRow { inside: 0, outside: self.agent, count: SLOTS * IDS_A_SLOT }];
        }
        let row = |inside, outside| IdRow { inside, outside, count: 1 };
        vec![row(0, self.agent), row(1000, self.payload)]
    }
}

/// The block that this warden holds.
#[derive(Debug)]
pub(crate) struct Block {
    first: u32,
    next: u32,
    taken: Vec<bool>,
    /// Bound to the block's name for as long as it lives.
    _hold: OwnedFd,
}

impl Block {
    /// Takes a block that no other warden has.
    pub(crate) fn take() -> Result<Self, Trouble> {
        let mut random = [0_u8; 4];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .tried("ask for randomness")?;
        let start = u32::from_ne_bytes(random) % BLOCKS;
        for step in 0..TRIES {
            let number = (start + step) % BLOCKS;
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .tried("make a socket")?;
            let name = format!("blastbox/ids/{number}");
            let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).tried("name a block of ids")?;
            if bind(&socket, &address).is_ok() {
                let taken = vec![false; usize::try_from(SLOTS).unwrap_or(0)];
                return Ok(Self {
                    first: FIRST + number * SLOTS * IDS_A_SLOT,
                    next: 0,
                    taken,
                    _hold: socket,
                });
            }
        }
        Err(Trouble::plain("find a block of user ids that no other warden holds"))
    }

    /// Takes a slot. The one that was freed last comes back last.
    pub(crate) fn slot(&mut self) -> Result<Slot, Trouble> {
        for _ in 0..SLOTS {
            let number = self.next;
            self.next = (self.next + 1) % SLOTS;
            if let Some(taken) = self.taken.get_mut(usize::try_from(number).unwrap_or(usize::MAX))
                && !*taken
            {
                *taken = true;
                let first = self.first + number * IDS_A_SLOT;
                return Ok(Slot { number, agent: first, payload: first + 1 });
            }
        }
        Err(Trouble::plain(format!("find user ids for another box: {SLOTS} boxes are alive")))
    }

    /// All ids of the block, for the one box that it was taken for.
    pub(crate) fn whole(&self) -> Slot {
        Slot { number: WHOLE, agent: self.first, payload: self.first + 1000 }
    }

    /// Gives a slot back.
    pub(crate) fn free(&mut self, slot: Slot) {
        if let Some(taken) = self.taken.get_mut(usize::try_from(slot.number).unwrap_or(usize::MAX)) {
            *taken = false;
        }
    }
}

/// Whether these ids can be had from a warden that has, or has no, block.
pub(crate) fn fits(ids: Ids, has_block: bool) -> Result<(), Trouble> {
    match (ids, has_block) {
        (Ids::OwnRange | Ids::OwnBlock, false) => {
            Err(Trouble::plain("give the box ids of its own: the warden has no privilege"))
        }
        (Ids::CallerOnly, true) => {
            // The caller is root: its id inside a box would be host root, which never happens.
            Err(Trouble::plain("run the box as its caller: the caller is root"))
        }
        (Ids::OwnRange | Ids::OwnBlock, true) | (Ids::CallerOnly, false) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_wardens_never_hold_the_same_ids_and_none_is_the_hosts_root() {
        let (mut one, mut other) = (Block::take().unwrap(), Block::take().unwrap());
        assert_ne!(one.first, other.first);
        let (a, b) = (one.slot().unwrap(), other.slot().unwrap());
        assert!(a.agent >= FIRST && a.agent != a.payload);
        assert!(a.agent.abs_diff(b.agent) >= SLOTS * IDS_A_SLOT);
    }

    #[test]
    fn a_slot_is_not_given_twice_until_it_is_free() {
        let mut block = Block::take().unwrap();
        let first = block.slot().unwrap();
        for _ in 1..SLOTS {
            assert_ne!(block.slot().unwrap(), first);
        }
        assert!(block.slot().is_err());
        block.free(first);
        assert_eq!(block.slot().unwrap(), first);
    }

    #[test]
    fn a_box_never_runs_as_the_hosts_root() {
        assert!(fits(Ids::CallerOnly, true).is_err());
        assert!(fits(Ids::CallerOnly, false).is_ok());
    }
}
