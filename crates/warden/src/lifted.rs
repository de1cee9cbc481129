//! Layers that a test build leaves out, one each, to show that the next one holds alone (`blastbox escape --lifted`).
//!
//! Chosen when the program is built and by nothing that a caller could say: a shipped warden has no such switch. One that
//! lacks a layer says so on standard error, with a word that no other warden holds, and a test looks for that word.

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
/// A limit of processes that nothing meets.
pub(crate) const MANY: u32 = 1 << 20;

/// Says which layer is missing, where one is.
pub(crate) fn confess() {
    #[cfg(any(
        feature = "lift-seccomp",
        feature = "lift-landlock",
        feature = "lift-mounts",
        feature = "lift-network",
        feature = "lift-pids",
        feature = "lift-scratch",
        feature = "lying-agent"
    ))]
    {
        let text = format!(
            "BLASTBOX_LIFTED_LAYER: a test build; seccomp {SECCOMP}, landlock {LANDLOCK}, mounts {MOUNTS}, network {NETWORK}, pids {PIDS}, scratch {SCRATCH} are lifted; its agent lies: {}\n",
            cfg!(feature = "lying-agent")
        );
        rustix::io::write(rustix::stdio::stderr(), text.as_bytes()).ok();
    }
}
