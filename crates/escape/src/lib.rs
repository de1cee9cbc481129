//! The burglars: a catalogue of break-out attempts, run under every profile that a host can keep.
//!
//! ```text
//! catalogue ── attempts: data and a script
//!     │
//! campaign ──► carry_out ──► process (blastbox run --json) ──► judge ──► report ──► text, page
//!                  └──► scene (canaries, listeners, secrets: the host's side)
//! ```
//! Uses nothing of blastbox but its command line and its receipts, so that it works against any installed blastbox and
//! any policy. Outside a box run only controls that are chosen to harm nobody.

mod archive;
mod ask;
mod attempt;
mod campaign;
mod carry_out;
pub mod catalogue;
mod columns;
mod controls;
mod count;
mod embedded;
mod findings;
mod foot;
mod frames;
mod head;
mod judge;
mod layer;
mod lifted;
pub mod page;
mod pages;
mod performance;
mod process;
mod props;
mod reply;
mod report;
mod scene;
mod stage;
mod stop;
mod subject;
mod sweep;
pub mod text;
mod trusted_core;

pub use attempt::{Attempt, Class, Control, Ending, Issue, Prop, Script, Word};
pub use campaign::{EscapeError, Order, Progress, Whose, choose, run};
pub use count::Count;
pub use embedded::{BadPage, data};
pub use layer::{Layer, Second};
pub use pages::Page;
pub use reply::Reply;
pub use report::{Cell, Column, ControlState, Missing, Report, Row, Seal, SecondState, VERSION, Verdict};
pub use stop::Stop;
pub use subject::{Builds, CoreShare, Fuzzed, Host, Named};
