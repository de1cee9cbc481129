//! The system call filter: an allowlist with reasons, compiled to a balanced tree of classic BPF.
//!
//! Trust: none in the caller. Number and arguments that the filter and [`verdict`] judge are chosen by an attacker; they
//! arrive as fixed fields that the kernel fills in, and no byte of the box's memory is ever read.
//!
//! ```text
//! table (reviewed text) ──► tree (compile) ──► Filter::install ──► the kernel judges every call
//!          │                                                          │ denied, visible
//!          └──► verdict, errno_for ◄── supervisor ◄── notify::receive ┘ ──► notify::refuse
//! ```
//!
//! - What the table does not allow is *noticed*: the caller sleeps, the supervisor that holds the listener learns number
//!   and arguments, and answers with an errno. It never lets a denied call continue: what an argument points to can change
//!   between look and use.
//! - Where writes are reported, calls that change a file or a name are *watched*: the supervisor looks at the name and lets
//!   the call go on, whatever it saw. Nothing is decided by it, so a name that changes in between cheats the report only.
//! - A denied call whose listener has been closed returns `ENOSYS`: still refused, no longer seen.
//! - Whoever holds the listener and lives under the filter itself must never make a denied call: it would wait for its
//!   own answer.
//! - A program in the box may stack its own filter on top. The strictest answer wins, so it can only take more away
//!   from itself; it can hide its own denied calls from the supervisor by refusing them first, and they still fail.

mod arguments;
mod check;
mod daemon;
#[cfg(test)]
mod emulate;
mod gateway;
mod install;
mod monitors;
mod notify;
mod table;
/// Against the running kernel.
#[cfg(test)]
mod tests {
    pub(crate) mod live;
    mod live_numbers;
    mod live_worker;
}
mod tree;

pub use check::Verdict;
pub use install::{Filter, Visibility};
pub use monitors::{Monitor, monitor_program};
pub use notify::{Denied, let_pass, receive, refuse};
pub use table::{errno_for, verdict};
#[cfg(test)]
pub(crate) use tests::live;
