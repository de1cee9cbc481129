//! Empty networks in stock, one for each box and never used again.
//!
//! Boxes do not share one, empty as it is: its tables in `/proc/self/net` would list the names of everybody's sockets,
//! and names would collide. Making one takes the kernel longer than any other namespace, so the next is made while
//! nobody waits. None belongs to the user namespace of its box.

use std::os::fd::{BorrowedFd, OwnedFd};

use blastbox_sys::namespaces;

use crate::trouble::{Trouble, Trying};

/// Most networks in stock.
const STOCK: usize = 4;

/// Those that are ready.
#[derive(Debug, Default)]
pub(crate) struct Networks {
    stock: Vec<OwnedFd>,
    taken: u64,
}

impl Networks {
    /// A network in which nobody has ever been.
    pub(crate) fn take(&mut self, proc: BorrowedFd<'_>) -> Result<OwnedFd, Trouble> {
        self.taken += 1;
        self.stock.pop().map_or_else(|| make(proc), Ok)
    }

    /// Whether the stock should grow. The first is made before anybody asks; one that has made a single box is probably
    /// a single command, which needs no second.
    pub(crate) fn wants_stock(&self) -> bool {
        let wanted = match self.taken {
            0 => 1,
            1 => 0,
            _ => STOCK,
        };
        self.stock.len() < wanted
    }

    /// Makes one for later.
    pub(crate) fn restock(&mut self, proc: BorrowedFd<'_>) {
        match make(proc) {
            Ok(network) => self.stock.push(network),
            // Whoever needs one then makes it, and learns why it cannot be made.
            Err(_) => self.taken = self.taken.max(1),
        }
    }
}

/// The warden itself moves into the new network, which is how it is made, and stays there without using it.
fn make(proc: BorrowedFd<'_>) -> Result<OwnedFd, Trouble> {
    namespaces::own_network().tried("make an empty network")?;
    namespaces::open(proc, "self", "net").tried("open an empty network")
}
