//! The faces of the daemon: a REST API with server-sent events, over a unix socket or over TCP with keys.
//!
//! - [`Doors`]: where callers come in; [`Hall`]: what every handler shares; [`router`]: every route.
//! - [`ask`]: what callers may ask for, typed and closed; [`Trouble`]: what they hear when the answer is no.
//! - [`Keys`]: API keys, hashed at rest. [`Config`]: the operator's file. [`StateDir`]: what outlives a daemon.
//!
//! Must not: hold a privilege, print, or believe a caller. Nobody sees another tenant's box: every question to the
//! keeper carries the tenant.

mod answer;
pub mod ask;
mod caller;
mod config;
mod door;
mod e2b;
mod entry;
mod error;
mod fault;
mod flow;
mod gallery;
mod gather;
mod hall;
mod keys;
pub mod mcp;
mod modules;
mod openapi;
pub mod outbound;
mod page;
pub mod places;
mod pull;
pub mod registry;
mod rest;
mod room;
mod routes;
mod sse;
mod start_place;
mod state_dir;
mod take;
#[cfg(test)]
mod testing;
mod trouble;
mod upgrade;
mod verdict;
mod warm;

pub use config::{Config, ConfigError, Https, Internet, MAX_CONFIG_TEXT, Roots, Shape};
pub use door::{DEFAULT_PORT, Doors, Log, Patience, Socket, TcpAddress, TlsDoor, open_port};
pub use error::DoorError;
pub use gallery::Gallery;
pub use hall::Hall;
pub use keys::{KeyCard, KeyError, KeyForm, KeyName, Keys, NewKey};
pub use modules::{ModuleLimits, ModuleTrouble};
pub use routes::router;
pub use state_dir::{StateDir, StateLock};
pub use trouble::Trouble;
pub use upgrade::accept as websocket_accept;
pub use warm::{NotWarm, WarmKernel, WarmText};
