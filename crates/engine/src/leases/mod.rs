//! Secrets on the host's side: where they come from, for how long they are lent, and that they are taken back.
//!
//! The operator says in a file of their own what each name stands for and to which hosts it may ever go ([`Sources`]). A
//! policy only names secrets. When a box is made, each of its secrets is read anew ([`Sources::mint`]) and sent to the
//! box's gateway; what can be revoked is written into the [`Register`] first, so that a daemon that was killed leaves a
//! list behind, and the next one works it off. What its source does not end while the daemon lives is tried again and again
//! ([`Broker::work_off`]).
//!
//! Must not: write a value anywhere. There is no text form to write ([`SecretValue`]).

mod ask;
mod broker;
mod clerk;
mod command;
mod error;
mod given;
mod mint;
mod overdue;
mod read;
mod register;
mod sources;
mod told;
mod value;
mod vault;

pub use broker::{Broker, Lent, Renewable, leases};
pub use clerk::serve_commands;
pub use error::{BadSources, MintError, RegisterError};
pub use given::GivenSecret;
pub use register::{Found, Register, Revocable};
pub use sources::{Sources, WhichSource};
pub use told::{News, Tell, Told};
pub use value::SecretValue;
pub use vault::VaultAccess;
