//! The native API, one room per thing: boxes, commands in them, their files, one-shot runs, and what tells about the
//! daemon.

pub(crate) mod about;
pub(crate) mod attach;
pub(crate) mod boxes;
pub(crate) mod calls;
pub(crate) mod execs;
pub(crate) mod files;
pub(crate) mod modules;
pub(crate) mod network;
pub(crate) mod output;
pub(crate) mod pause;
pub(crate) mod run;
pub(crate) mod snapshots;
pub(crate) mod stdin;
pub(crate) mod trees;
