//! The ledger: what blastbox did, in an order that nobody can change afterwards without being found out. Not a log.
//!
//! - [`Ledger`]: appends events, each *before* the effect that it announces. An event that cannot be written is an
//!   error, and the effect must not happen.
//! - [`verify`]: walks the chain and names the first line that is wrong.
//! - [`Courier`] and [`Sink`]: copies to somewhere else, with acknowledgement.
//! - [`alert`]: which events a person should hear about, pure.
//!
//! ```text
//! ledger-000001.jsonl   header · key_created · … · checkpoint · … · rotated · checkpoint
//! ledger-000002.jsonl   header · … · checkpoint · … · closed · checkpoint
//! ```
//! No thread, no queue, no async: an append is one `write(2)`. Whoever shares a ledger puts it behind a lock.
//!
//! Must not: hold a secret of a box, or lose a byte without a record that says so.

mod alert;
mod book;
mod chain;
mod copies;
mod courier;
mod disk;
mod error;
mod key;
mod lines;
mod options;
mod place;
mod recover;
mod syslog;
#[cfg(test)]
mod tests;
mod verify;

pub use alert::{Alert, AlertCode, Severity, alert};
pub use book::Ledger;
pub use chain::{Fault, Head};
pub use copies::FileSink;
pub use courier::{Courier, Entry, Grade, Need, Sink, SinkError};
pub use error::LedgerError;
pub use key::report_signed_by;
pub use options::{Moment, Options, Sync};
pub use syslog::SyslogSink;
pub use verify::{Completeness, Finding, Report, Trust, records, verify};
