//! Empty networks in stock, one for each box and never used again.
//!
//! Boxes do not share one, empty as it is: its tables in `/proc/self/net` would list the names of everybody's sockets,
//! and names would collide. Making one takes the kernel longer than any other namespace, so the next is made while
//! nobody waits; where none is ready, the box's first process makes its places meanwhile. None belongs to the user
//! namespace of its box.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use blastbox_sys::shortcut::{self, Loopback};
use blastbox_sys::{channel, namespaces, tun};
use blastbox_wire::egress::{
    BOX_V4, BOX_V6, EARS_WORD, GATEWAY_V4, GATEWAY_V6, INTERFACE_WORD, LINK_MTU, LINK_NAME,
};
use rustix::fs::{Mode, OFlags, openat};

use crate::lifted;
use crate::standing::Standing;
use crate::trouble::{Trouble, Trying};

/// Most networks in stock.
const STOCK: usize = 4;

/// Those that are ready.
#[derive(Debug)]
pub(crate) struct Networks {
    stock: Vec<OwnedFd>,
    taken: u64,
    /// How large the stock may become.
    most: usize,
}

impl Default for Networks {
    fn default() -> Self {
        Self { stock: Vec::new(), taken: 0, most: STOCK }
    }
}

impl Networks {
    /// A network in which nobody has ever been, if one is ready.
    pub(crate) fn take_ready(&mut self) -> Option<OwnedFd> {
        self.taken += 1;
        self.stock.pop()
    }

    /// Whether the stock should grow. Not before the second box: a warden that has made one is probably a single command,
    /// whose only network is made while its box is put together.
    pub(crate) fn wants_stock(&self) -> bool {
        self.taken > 1 && self.stock.len() < self.most
    }

    /// Makes one for later.
    pub(crate) fn restock(&mut self, proc: BorrowedFd<'_>) {
        match make(proc) {
            Ok(network) => self.stock.push(network),
            // Whoever needs one then makes it, and learns why it cannot be made.
            Err(_) => self.most = 0,
        }
    }
}

/// The warden itself moves into the new network, which is how it is made, and stays there without using it.
pub(crate) fn make(proc: BorrowedFd<'_>) -> Result<OwnedFd, Trouble> {
    if !lifted::NETWORK {
        namespaces::own_network().tried("make an empty network")?;
    }
    namespaces::open(proc, "self", "net").tried("open an empty network")
}

/// Makes the box's interface and sends its other end to the gateway. The line that comes back is to be kept as long as
/// the box lives: the gateway ends when it closes.
pub(crate) fn link(
    standing: &Standing,
    network: BorrowedFd<'_>,
    gateway: &OwnedFd,
    loopback: Loopback,
) -> Result<OwnedFd, Trouble> {
    namespaces::enter_network(network).tried("enter the box's network")?;
    let device = standing
        .tun
        .as_ref()
        .ok_or_else(|| Trouble::plain("find /dev/net/tun, which boxes with network need"))?;
    // By its own descriptor, because the mounts of a template have no such device; and anew for each box, because an
    // opened one keeps the network that it was opened in.
    let path = format!("self/fd/{}", device.as_raw_fd());
    let device =
        openat(&standing.proc, path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
            .tried("open /dev/net/tun")?;
    let interface = tun::Interface { name: LINK_NAME, mtu: LINK_MTU, v4: BOX_V4, v6: BOX_V6 };
    tun::make(&device, &interface).tried("make the box's interface")?;
    let line = gateway.try_clone().tried("keep the line to the box's gateway")?;
    // A kernel that has no short way is no worse kernel: the gateway then carries every packet itself.
    let ears = shortcut::lay(standing.proc.as_fd(), &interface, (GATEWAY_V4, GATEWAY_V6), loopback).ok();
    tun::without_loopback().tried("let the addresses of the loopback lead nowhere")?;
    let word = if ears.is_some() { EARS_WORD } else { INTERFACE_WORD };
    let ears = ears.iter().flat_map(|ears| std::iter::once(&ears.v4).chain(&ears.v6));
    let all: Vec<BorrowedFd<'_>> = std::iter::once(&device).chain(ears).map(AsFd::as_fd).collect();
    channel::send(gateway, word, &all).tried("hand the box's interface to its gateway")?;
    Ok(line)
}
