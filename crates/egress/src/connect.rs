//! The way out: look a name up, hold its addresses against the floor, dial exactly one that was checked.
//!
//! The address that the box used is never dialled, and a name is never looked up twice for one connection: what was
//! checked is what is connected to, so an answer that changes in between (rebinding) changes nothing.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use blastbox_policy::{Below, PrivateOpening, may_dial};
use blastbox_wire::egress::Reason;
use rustix::net::sockopt::set_socket_oobinline;
use tokio::net::TcpStream;

use crate::decide::{Allowed, Target};
use crate::resolve::{LookupError, Resolver};

/// Addresses of one name that are tried.
const TRIES: usize = 4;
/// How long one address may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was not dialled, and where that was, as far as anybody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub reason: Reason,
    /// The address that it was about.
    pub address: Option<IpAddr>,
}

/// Dials the target of a permission, and says at which of its addresses.
pub async fn dial(
    allowed: &Allowed,
    opened: &[PrivateOpening],
    resolver: &Resolver,
) -> Result<(TcpStream, SocketAddr), Refused> {
    let nowhere = |reason| Refused { reason, address: None };
    let found = match allowed.target() {
        Target::Address(address) => vec![*address],
        Target::Name(name) => resolver.look_up(name).await.map_err(|error| match error {
            LookupError::NotFound => nowhere(Reason::NameNotFound),
            LookupError::NoAnswer => nowhere(Reason::Timeout),
        })?,
    };
    let mut refused = nowhere(Reason::NameNotFound);
    let mut passed = Vec::new();
    for address in found {
        match check(address, allowed.port(), opened) {
            Ok(()) => passed.push(address),
            Err(reason) => refused = Refused { reason, address: Some(address) },
        }
    }
    for address in passed.into_iter().take(TRIES) {
        let address = SocketAddr::new(address, allowed.port());
        let reason = match tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Small messages go at once; an error here costs nothing but speed.
                stream.set_nodelay(true).ok();
                // Urgent bytes are carried like any other, in their place; an error here costs them alone.
                set_socket_oobinline(&stream, true).ok();
                return Ok((stream, address));
            }
            Ok(Err(_)) => Reason::Unreachable,
            Err(_) => Reason::Timeout,
        };
        refused = Refused { reason, address: Some(address.ip()) };
    }
    Err(refused)
}

/// Holds one address against the floor and against the host's own addresses.
pub fn check(address: IpAddr, port: u16, opened: &[PrivateOpening]) -> Result<(), Reason> {
    match may_dial(address, port, opened) {
        Err(Below::Metadata) => return Err(Reason::MetadataAddress),
        Err(_) => return Err(Reason::ForbiddenAddress),
        Ok(()) => {}
    }
    let by_name = opened.iter().any(|open| open.covers(address, port));
    if by_name { Ok(()) } else { not_own(address) }
}

/// Whether an address is none of this host's. Nothing is sent: the kernel lets a socket have exactly those addresses that
/// are its own, secondary ones among them. Where it does not say, nothing is dialled.
fn not_own(address: IpAddr) -> Result<(), Reason> {
    match UdpSocket::bind((address, 0)) {
        Ok(_) => Err(Reason::OwnAddress),
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Ok(()),
        Err(_) => Err(Reason::Unreachable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_addresses_are_named_as_what_they_are() {
        let check = |text: &str| check(text.parse().unwrap(), 80, &[]);
        assert_eq!(check("127.0.0.1"), Err(Reason::ForbiddenAddress));
        assert_eq!(check("169.254.169.254"), Err(Reason::MetadataAddress));
        assert_eq!(check("::ffff:169.254.169.254"), Err(Reason::MetadataAddress));
        assert_eq!(check("64:ff9b::a00:1"), Err(Reason::ForbiddenAddress));
    }

    #[test]
    fn the_hosts_own_addresses_are_found_without_sending_anything() {
        assert_eq!(not_own(IpAddr::from([127, 0, 0, 1])), Err(Reason::OwnAddress));
        // The kernel would talk to it from another of its addresses, as it does with every secondary one.
        assert_eq!(not_own(IpAddr::from([127, 0, 0, 2])), Err(Reason::OwnAddress));
        // No host has an address that was set apart for examples.
        assert_eq!(not_own(IpAddr::from([192, 0, 2, 1])), Ok(()));
    }

    /// In a network of its own, which goes with the thread.
    #[test]
    fn where_the_kernel_calls_every_address_its_own_nothing_is_dialled() {
        let seen = std::thread::spawn(|| {
            blastbox_sys::namespaces::own_network().ok()?;
            std::fs::write("/proc/sys/net/ipv4/ip_nonlocal_bind", "1").ok()?;
            Some(not_own(IpAddr::from([192, 0, 2, 1])))
        });
        match seen.join().unwrap() {
            Some(verdict) => assert_eq!(verdict, Err(Reason::OwnAddress)),
            None => blastbox_skips::skip_this("no network namespace can be made and set up here"),
        }
    }

    #[test]
    fn what_the_kernel_cannot_say_is_not_dialled() {
        // Needs a scope, so that it can be asked about by nobody.
        assert_eq!(not_own("fe80::1".parse().unwrap()), Err(Reason::Unreachable));
    }
}
