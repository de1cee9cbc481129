//! What only test builds have: the word with which one says at its start what it lacks.

use crate::lifted::{
    CAPABILITIES, LANDLOCK, MOUNTS, NETWORK, OVERLAY, PIDS, PROCESSES, SCRATCH, SECCOMP, USERS,
};

/// Says which layer is missing, and whether the agent lies.
pub(crate) fn confess() {
    let layers = [
        ("seccomp", SECCOMP),
        ("landlock", LANDLOCK),
        ("mounts", MOUNTS),
        ("network", NETWORK),
        ("pids", PIDS),
        ("scratch", SCRATCH),
        ("overlay", OVERLAY),
        ("users", USERS),
        ("capabilities", CAPABILITIES),
        ("processes", PROCESSES),
        ("descriptors", cfg!(feature = "lift-descriptors")),
    ];
    let layers = layers.map(|(name, lifted)| format!("{name} {lifted}")).join(", ");
    let lies = cfg!(feature = "lying-agent");
    let text = format!("BLASTBOX_LIFTED_LAYER: a test build; {layers} are lifted; its agent lies: {lies}\n");
    rustix::io::write(rustix::stdio::stderr(), text.as_bytes()).ok();
}
