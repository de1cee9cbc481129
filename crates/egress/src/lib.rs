//! The only door out of a box.
//!
//! One process for each box that has network. Packets of the box come in over a link (a TUN device in the box's own
//! network namespace), are ended by a TCP/IP stack of our own, and leave as new connections that this process makes —
//! if [`decide`] says so. There is no route, no NAT and no shared table: what this process does not carry does not go
//! anywhere, and when it dies the box has no network.
//!
//! Read in this order: `link` (what is a packet of this box), `dns` (a name gets an address that means only that
//! name), [`decide`] (pure: may it go there), [`connect`] (look up, check, dial exactly what was checked),
//! `passthrough` and `door` (how TLS and proxies reach the same decision), [`report`] (all of it is told).

#![forbid(unsafe_code)]

pub mod card;
pub mod connect;
pub mod control;
pub mod credentials;
pub mod decide;
pub mod dns;
pub mod door;
mod end;
pub mod flow;
pub mod gateway;
mod harden;
pub mod house;
pub mod http;
mod inlet;
pub mod inspection;
pub mod limits;
pub mod link;
pub mod netstack;
pub mod passthrough;
mod pipes;
mod relay;
pub mod report;
pub mod resolve;
pub mod serve;
mod side;
pub mod tls;
