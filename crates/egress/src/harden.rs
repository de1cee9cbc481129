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

/// What must be held for as long as the gateway lives.
#[derive(Debug)]
pub(crate) struct Held {
    /// Bound to the name of its user id.
    _id: Option<OwnedFd>,
}

/// Gives up everything that a gateway does not need. Whatever cannot be given up is an error: there is no network then.
pub(crate) fn give_up() -> io::Result<Held> {
    identity::hide()?;
    let held = if rustix::process::geteuid().is_root() {
        let (id, held) = own_id()?;
        identity::become_user(id, id, Groups::Clear)?;
        Held { _id: Some(held) }
    } else {
        Held { _id: None }
    };
    identity::no_new_privileges()?;
    // An ordinary user has none to give up, and may not even say so.
    if !rustix::thread::capabilities(None)?.permitted.is_empty() {
        identity::reduce_capabilities(Keep::Nothing)?;
    }
    identity::limit(Resource::Data, MEMORY)?;
    identity::limit(Resource::Nproc, 0)?;
    identity::limit(Resource::Nofile, DESCRIPTORS)?;
    // Once more after the change of ids, which undoes it; and its parent is whoever started it.
    identity::hide()?;
    identity::die_with_parent()?;
    // Where the kernel knows Landlock, no path can be opened at all; the filter says the same on its own.
    landlock::restrict(&[], Tcp::AllowAll, 0).map(drop)?;
    Filter::for_gateway().install()?;
    Ok(held)
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
