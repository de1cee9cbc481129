//! What a gateway gives up before it sees the first byte of its box.

use std::io;
use std::os::fd::OwnedFd;

use blastbox_sys::identity::{self, Groups, Keep};
use blastbox_sys::landlock::{self, Tcp};
use blastbox_sys::seccomp::Filter;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use rustix::process::Resource;

/// First id of gateways. Below those of boxes, above what system managers and container tools hand out.
const FIRST_ID: u32 = 0x6800_0000;
const IDS: u32 = 1 << 24;
/// How many ids are tried. Each is taken at random: only a squatter makes one fail.
const TRIES: u32 = 64;
/// Memory of its own that a gateway may have: its buffers and connections fit several times.
const MEMORY: u64 = 1 << 30;
/// Descriptors: two for each connection that any policy allows, where the host's limit lets it.
const DESCRIPTORS: u64 = 1 << 16;
/// Descriptors beside those of connections: pipes, questions, those who knock at the gateway's own doors.
const BESIDE: u64 = 256;

/// What must be held for as long as the gateway lives.
#[derive(Debug)]
pub(crate) struct Held {
    /// Bound to the name of its user id.
    _id: Option<OwnedFd>,
    /// How many descriptors there may be.
    descriptors: u64,
}

/// More connections than there may be descriptors for: some would be let in that nobody could carry.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "network.limits.flows = {flows} takes {wanted} descriptors, and a process may have {held} here; write {most} or less there, or raise \
     the hard limit of whoever starts boxes (ulimit -Hn, LimitNOFILE=)"
)]
pub struct TooFew {
    flows: u32,
    wanted: u64,
    held: u64,
    most: u64,
}

impl Held {
    /// Whether there may be enough descriptors for so many connections at once: one to the target of each, and one to the box where the
    /// kernel carries it.
    pub(crate) fn room_for(&self, flows: u32, carrier: Carrier) -> Result<(), TooFew> {
        let each = match carrier {
            Carrier::Kernel => 2,
            Carrier::Gateway => 1,
        };
        let wanted = u64::from(flows) * each + BESIDE;
        let held = self.descriptors;
        if wanted <= held {
            return Ok(());
        }
        Err(TooFew { flows, wanted, held, most: held.saturating_sub(BESIDE) / each })
    }
}

/// Who carries the box's side of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// The kernel, in sockets.
    Kernel,
    /// The gateway, in packets.
    Gateway,
}

/// Gives up everything that a gateway does not need. Whatever cannot be given up is an error: there is no network then.
pub(crate) fn give_up() -> io::Result<Held> {
    identity::hide()?;
    let id = if rustix::process::geteuid().is_root() {
        let (id, held) = own_id()?;
        identity::become_user(id, id, Groups::Clear)?;
        Some(held)
    } else {
        None
    };
    identity::no_new_privileges()?;
    // An ordinary user has none to give up, and may not even say so.
    if !rustix::thread::capabilities(None)?.permitted.is_empty() {
        identity::reduce_capabilities(Keep::Nothing)?;
    }
    identity::limit(Resource::Data, MEMORY)?;
    identity::limit(Resource::Nproc, 0)?;
    identity::limit(Resource::Nofile, DESCRIPTORS)?;
    let descriptors = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(DESCRIPTORS);
    // Once more after the change of ids, which undoes it; and its parent is whoever started it.
    identity::hide()?;
    identity::die_with_parent()?;
    // Where the kernel knows Landlock, no path can be opened at all; the filter says the same on its own.
    landlock::restrict(&[], Tcp::AllowAll, 0).map(drop)?;
    Filter::for_gateway().install()?;
    Ok(Held { _id: id, descriptors })
}

/// A user id that nobody has: held by binding an abstract socket of its name, which the kernel gives up with the process.
fn own_id() -> io::Result<(u32, OwnedFd)> {
    for _ in 0..TRIES {
        let mut random = [0_u8; 4];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let id = FIRST_ID + u32::from_ne_bytes(random) % IDS;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let address = SocketAddrUnix::new_abstract_name(format!("blastbox/egress/{id}").as_bytes())?;
        if bind(&socket, &address).is_ok() {
            return Ok((id, socket));
        }
    }
    Err(io::Error::other("no free user id was found for the gateway"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_connections_as_there_are_descriptors_for_and_not_one_more() {
        let held = Held { _id: None, descriptors: 1024 };
        assert_eq!(held.room_for(384, Carrier::Kernel), Ok(()));
        assert_eq!(held.room_for(768, Carrier::Gateway), Ok(()));
        assert!(held.room_for(769, Carrier::Gateway).is_err());
        let complaint = held.room_for(385, Carrier::Kernel).unwrap_err().to_string();
        assert!(complaint.starts_with(
            "network.limits.flows = 385 takes 1026 descriptors, and a process may have 1024 here; write 384 or less"
        ), "{complaint}");
        // The ceiling of policies fits below the gateway's own.
        let all = Held { _id: None, descriptors: DESCRIPTORS };
        assert_eq!(all.room_for(16_384, Carrier::Kernel), Ok(()));
    }
}
