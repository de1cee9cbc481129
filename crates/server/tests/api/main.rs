//! The API as callers meet it: a real daemon in this process, with a real engine, over a unix socket and a loopback port.
//!
//! Needs the built programs: `BLASTBOX_BIN_DIR`, or what `make build` leaves in `target/blastbox`. Where no warden can be
//! started every test says so and is counted as skipped.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

mod bad_input;
mod caller;
mod commands;
mod crowd;
mod e2b;
mod files;
mod life;
mod mcp;
mod rig;
mod tenants;
mod terminals;
