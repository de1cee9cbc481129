//! From one box to the next, and to a neighbour: what one leaves, another must not find.

use blastbox_policy::{Boundary, Gap};

use crate::attempt::Control::{self, Namespaces, Plain};
use crate::attempt::Prop::{Neighbours, TwoBoxes, Workspace};
use crate::attempt::{Attempt, Class, Issue, Prop, Script, nothing_false};
use crate::layer::Layer::{Landlock, Network, Overlay, Processes, Seccomp};
use crate::layer::Second::{self, Behind, Nothing, Unlifted};

const OWN_FILES: &str = "a scratch space of its own that goes with the box";
const OWN_IPC: &str = "an IPC namespace of its own that goes with the box";
const GONE: Second = Nothing(
    "two boxes that had one scratch space would share it: it is made anew, and goes with its mount namespace",
);
const OWN_IDS: Second = Unlifted(
    "user ids of its own (as root)",
    "what a box leaves in the host's own IPC namespace would stay on the host",
);
const AFTER: &[Prop] = &[TwoBoxes];
const BESIDE: &[Prop] = &[Neighbours];

/// Name, what it tries, what it stands for, first control, second, the script, where it must succeed, props, gaps.
type Line = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    Second,
    &'static str,
    Control,
    &'static [Prop],
    &'static [Gap],
);

#[rustfmt::skip]
const LINES: &[Line] = &[
    ("tmp", "Leave a file in /tmp for the next box", "shared /tmp", OWN_FILES, GONE, include_str!("../../attempts/persistence/tmp.py"), Plain, AFTER, &[]),
    ("shm", "Leave a file in /dev/shm for the next box", "POSIX shared memory", OWN_FILES, GONE, include_str!("../../attempts/persistence/shm.py"), Plain, AFTER, &[]),
    ("home", "Leave a start file in the home for the next box", "shell start files", OWN_FILES, GONE, include_str!("../../attempts/persistence/home.py"), Plain, AFTER, &[]),
    ("workspace", "Leave a file in the workspace for the next box", "copy-on-write layers that are kept", "the layer is thrown away with the box", Behind(Overlay, "the directory itself is mounted read-only"), include_str!("../../attempts/persistence/workspace.py"), Plain, &[TwoBoxes, Workspace], &[]),
    ("sysv-shm", "Leave System V shared memory", "shmget", OWN_IPC, OWN_IDS, include_str!("../../attempts/persistence/sysv_shm.py"), Namespaces, AFTER, &[]),
    ("sysv-sem", "Leave System V semaphores", "semget", OWN_IPC, OWN_IDS, include_str!("../../attempts/persistence/sysv_sem.py"), Namespaces, AFTER, &[]),
    ("user-keyring", "Leave a key in the user's keyring", "keys outlive processes", "the filter of system calls", Behind(Seccomp, "keyrings of a user namespace of its own"), include_str!("../../attempts/persistence/keyring.py"), Plain, AFTER, &[]),
    ("bytecode", "Leave compiled code where the next box loads it", "poisoned __pycache__", "Landlock grants reading alone there", Behind(Landlock, "the image is another user's, on a read-only mount"), include_str!("../../attempts/persistence/bytecode.py"), Plain, AFTER, &[]),
    ("process", "Leave a process for the next box to speak to", "daemons between boxes", "pid 1's end is everybody's", Behind(Processes, "the agent ends whatever is left, and whatever comes to it"), include_str!("../../attempts/persistence/process.py"), Plain, AFTER, &[]),
    ("neighbour-abstract", "Speak to a neighbour over an abstract socket", "network namespaces that boxes share", "a network namespace of its own", Behind(Network, "Landlock keeps abstract sockets inside the box"), include_str!("../../attempts/persistence/neighbour_abstract.py"), Plain, BESIDE, &[]),
    ("neighbour-shm", "Share System V memory with a neighbour", "IPC namespaces that boxes share", OWN_IPC, OWN_IDS, include_str!("../../attempts/persistence/neighbour_shm.py"), Namespaces, BESIDE, &[]),
    ("neighbour-file", "Share a file with a neighbour", "scratch spaces that boxes share", OWN_FILES, GONE, include_str!("../../attempts/persistence/neighbour_file.py"), Plain, BESIDE, &[]),
    ("neighbour-process", "See a neighbour's process", "process ids that boxes share", "process ids of the box's own", Behind(Processes, "what a box may not trace it does not see (hidepid): another user id (as root), and Landlock"), include_str!("../../attempts/persistence/neighbour_process.py"), Plain, BESIDE, &[]),
    ("neighbour-lock", "Signal a neighbour by a lock on a file that both see", "covert channels over shared files", "files of the image are other mounts of the same inodes", Nothing("a lock on a shared read-only file is a covert channel between two boxes that both want it"), include_str!("../../attempts/persistence/neighbour_lock.py"), Plain, BESIDE, &[Gap::HostImage]),
];

pub(super) fn attempts() -> Vec<Attempt> {
    let make = |&(name, title, stands_for, first, second, line, control, props, unless): &Line| Attempt {
        class: Class::Persistence,
        name,
        title,
        boundary: Boundary::Files,
        issue: Issue::Lateral,
        stands_for,
        first,
        second,
        script: Script::Line(line),
        control,
        props,
        options: &[],
        stopped_by: &[],
        lie: nothing_false,
        unless,
    };
    LINES.iter().map(make).collect()
}
