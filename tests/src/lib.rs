//! The rig for tests that run the built programs: who calls, how a program is started and held, what came of it.
//!
//! A test body is written once and takes a [`Caller`]; [`both_ways!`] makes two tests of it, `as_root` and `as_user`,
//! and the one that this host cannot do reports itself as skipped. Nothing here outlives its test: every process has a
//! bound and is ended by its id, every directory goes with its owner.
//!
//! ```text
//! fn the_exit_code_passes_through(caller: &Caller) {
//!     assert_eq!(caller.sh(&[], "exit 7").receipt.exit_code, 7);
//! }
//! both_ways!(the_exit_code_passes_through);
//! ```
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "only tests use this; one whose rig cannot work must fail at once"
)]

mod caller;
pub mod campaign;
pub mod census;
pub mod daemon;
pub mod ear;
pub mod freezer;
mod held;
pub mod herd;
mod host;
pub mod internet;
pub mod machines;
pub mod nested;
mod place;
mod programs;
mod remembered;
mod report;
mod served;
pub mod spoken;
pub mod suites;
mod terminal;
pub mod tiers;
mod tried;

pub use blastbox_skips::{left_out, skip};
pub use caller::{Caller, Start, Who};
pub use held::Held;
pub use host::{cc, fill_with, processes_naming, wait_slowly, wait_until};
pub use place::Place;
pub use remembered::remembered;
pub use report::{Boxed, Ended};
pub use served::Served;
pub use terminal::Terminal;
pub use tried::{TRIED, canary, text, tried};

/// Makes a test of each function that takes a [`Caller`] and in which it makes no difference who asks: `name::once`.
#[macro_export]
macro_rules! whoever_asks {
    ($($body:ident),+ $(,)?) => {
        $(
            mod $body {
                #[test]
                fn once() {
                    if let Some(caller) = $crate::Caller::either(concat!(module_path!(), "::once")) {
                        super::$body(&caller);
                    }
                }
            }
        )+
    };
}

/// Makes two tests of each function that takes a [`Caller`]: `name::as_root` and `name::as_user`.
#[macro_export]
macro_rules! both_ways {
    ($($body:ident),+ $(,)?) => {
        $(
            mod $body {
                #[test]
                fn as_root() {
                    if let Some(caller) = $crate::Caller::root(concat!(module_path!(), "::as_root")) {
                        super::$body(&caller);
                    }
                }

                #[test]
                fn as_user() {
                    if let Some(caller) = $crate::Caller::user(concat!(module_path!(), "::as_user")) {
                        super::$body(&caller);
                    }
                }
            }
        )+
    };
}
