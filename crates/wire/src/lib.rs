//! What the processes of blastbox say to each other.
//!
//! Pure vocabulary: no I/O, no clock, no async, no unsafe. These conversations meet here:
//!
//! - [`agent`]: the host and the agent inside a box. Every byte from the agent is chosen by an attacker.
//! - [`plan`]: what a tier wants done on the host, as data that can be printed, checked and diffed.
//! - [`egress`]: the engine and the gateway of a box that has network.
//! - [`warden`]: the closed list of verbs that the privileged program understands.
//! - [`receipt`]: what happened, for people and for machines.
//! - `event`: what the ledger tells, hash-chained.
//! - [`tar`], [`untar`]: directories on their way in and out of a box.
//! - [`websocket`]: terminals on their way to whoever looks at them.

pub mod agent;
mod codec;
pub mod egress;
#[cfg(feature = "text")]
pub mod event;
mod ids;
pub mod limits;
pub mod plan;
#[cfg(feature = "text")]
pub mod receipt;
pub mod tar;
#[cfg(feature = "text")]
pub mod tools;
pub mod untar;
pub mod warden;
pub mod websocket;

pub use codec::{CodecError, Reader, Writer};
pub use ids::{BadBoxId, BoxId};
