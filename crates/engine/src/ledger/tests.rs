//! The promises of the ledger: nothing is lost unseen, nothing is changed unseen, nothing is written by two.

mod crash;
mod room;
mod sinks;
mod tamper;
