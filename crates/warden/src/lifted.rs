//! Layers that a test build leaves out, one each, to show that the next one holds alone (`blastbox escape --lifted`).
//!
//! Chosen when the program is built and by nothing that a caller could say: a shipped warden has no such switch. One that
//! lacks a layer says so (`test_build.rs`), with a word that no other warden holds, and a test looks for that word.

/// No filter of system calls.
pub(crate) const SECCOMP: bool = cfg!(feature = "lift-seccomp");
/// No Landlock.
pub(crate) const LANDLOCK: bool = cfg!(feature = "lift-landlock");
/// The host's whole root, writable, at `/host` in every box.
pub(crate) const MOUNTS: bool = cfg!(feature = "lift-mounts");
/// The host's network in every box.
pub(crate) const NETWORK: bool = cfg!(feature = "lift-network");
/// No limit of processes in a box's cgroup.
pub(crate) const PIDS: bool = cfg!(feature = "lift-pids");
/// No limit on bytes and files of a box's scratch space.
pub(crate) const SCRATCH: bool = cfg!(feature = "lift-scratch");
/// No layer over the caller's directory: what a box changes would change it.
pub(crate) const OVERLAY: bool = cfg!(feature = "lift-overlay");
/// No user of the agent's own: commands are the same one.
pub(crate) const USERS: bool = cfg!(feature = "lift-users");
/// Commands keep every capability of the box's user namespace.
pub(crate) const CAPABILITIES: bool = cfg!(feature = "lift-capabilities");
/// No process ids of the box's own: it has those of whoever started it.
pub(crate) const PROCESSES: bool = cfg!(feature = "lift-processes");
/// A limit of processes that nothing meets.
pub(crate) const MANY: u32 = 1 << 20;
