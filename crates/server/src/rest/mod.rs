//! The native API, one room per thing: boxes, commands in them, one-shot runs, and what tells about the daemon.

pub(crate) mod about;
pub(crate) mod boxes;
pub(crate) mod execs;
pub(crate) mod run;
pub(crate) mod stdin;
