//! More than one's share. Every bomb is capped by itself, far below what a host would notice.

use blastbox_policy::{Boundary, Gap};

use crate::attempt::Control::{self, Box, Namespaces, Plain};
use crate::attempt::{Attempt, Class, Issue, Script, nothing_false};
use crate::layer::Layer::{Pids, Scratch};
use crate::layer::Second::{self, Behind, Surface, Unlifted};

const PER_USER: Second = Behind(Pids, "RLIMIT_NPROC counts processes and threads of the box's user");
/// A limit of single processes stands there only where no group counts memory.
const VOLUNTEERS: Second = Unlifted(
    "commands volunteer for the kernel's OOM killer; RLIMIT_DATA where no group counts memory",
    NOT_WOKEN,
);
const NOT_WOKEN: &str = "behind the group is the host's own OOM killer, which nobody wakes for a proof";
/// Limits of single things whose memory is counted.
const COUNTED: Second = Unlifted(
    "kernel memory counts against the box's",
    "a wider bound and no second refusal: what the attempt takes, which is bounded by itself, fits into any box",
);
const WINDOW: Second = Unlifted(
    "the box waits while nobody reads",
    "whoever reads without end is read to without end: the wall clock is what is left, which lifecycle.outlive-deadline tries",
);
const TMPFS: Second = Behind(Scratch, "the memory limit of the box's cgroup counts it too");

/// Name, what it tries, what it stands for, first control, second, the script, its options, where it must succeed, outcomes that stop it, gaps.
type Line = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    Second,
    &'static str,
    &'static [&'static str],
    Control,
    &'static [&'static str],
    &'static [Gap],
);

const OOM: &[&str] = &["out_of_memory"];
const SMALL: &[&str] = &["--memory", "96MiB"];
const LARGE: Control = Box(&["--memory", "1GiB"]);
/// More memory too: a kernel of the box's own spends it on every process.
const MANY: Control = Box(&["--pids", "256", "--memory", "2GiB"]);
const MEMORY: &str = "the memory limit of the box's cgroup";
const PIDS: &str = "the limit of processes of the box's cgroup";

#[rustfmt::skip]
const LINES: &[Line] = &[
    ("fork-bomb", "Have more processes than allowed", "fork bombs", PIDS, PER_USER, include_str!("../../attempts/resources/forks.py"), &["--pids", "32"], MANY, &["pids_exhausted", "out_of_memory"], &[]),
    ("thread-bomb", "Have more threads than allowed", "thread bombs", PIDS, PER_USER, include_str!("../../attempts/resources/threads.py"), &["--pids", "32"], MANY, &["pids_exhausted"], &[]),
    ("memory", "Have more memory than allowed, in one process", "memory bombs", MEMORY, VOLUNTEERS, include_str!("../../attempts/resources/memory.py"), SMALL, LARGE, OOM, &[]),
    ("memory-children", "Have more memory than allowed, in many processes", "limits of single processes alone", MEMORY, Unlifted("the limit of processes bounds the product", NOT_WOKEN), include_str!("../../attempts/resources/children.py"), SMALL, LARGE, OOM, &[Gap::NoMemoryLimit]),
    ("memory-shared", "Have more memory than allowed, as shared memory", "memory that no process is charged with", MEMORY, VOLUNTEERS, include_str!("../../attempts/resources/shared.py"), SMALL, LARGE, OOM, &[Gap::NoMemoryLimit]),
    ("memory-memfd", "Have more memory than allowed, as a file without a name", "memfd", MEMORY, VOLUNTEERS, include_str!("../../attempts/resources/memfd.py"), SMALL, LARGE, OOM, &[Gap::NoMemoryLimit]),
    ("memory-pipes", "Have more memory than allowed, in pipes", "kernel memory", "limits on pipes of one user, and of open files", COUNTED, include_str!("../../attempts/resources/pipes.py"), &["--memory", "48MiB"], LARGE, OOM, &[Gap::NoMemoryLimit]),
    ("memory-lock", "Lock memory into place", "memory that cannot be swapped", "RLIMIT_MEMLOCK", COUNTED, include_str!("../../attempts/resources/lock.py"), &[], Control::PlainRoot, &[], &[]),
    ("disk", "Write more than allowed", "full disks", "the size of the scratch space", TMPFS, include_str!("../../attempts/resources/disk.py"), &["--disk", "32MiB"], Box(&["--disk", "128MiB"]), OOM, &[]),
    ("disk-holes", "Have a file larger than allowed", "sparse files that others copy", "RLIMIT_FSIZE", Surface("a hole holds nothing: what is written counts against the scratch space"), include_str!("../../attempts/resources/holes.py"), &[], Namespaces, &[], &[]),
    ("inodes", "Have more files than allowed", "full inode tables", "the number of files of the scratch space", TMPFS, include_str!("../../attempts/resources/inodes.py"), &[], Namespaces, OOM, &[]),
    ("descriptors", "Have more open files than allowed", "full file tables", "RLIMIT_NOFILE", COUNTED, include_str!("../../attempts/resources/descriptors.py"), &[], Plain, &[], &[]),
    ("processor", "Use more processors than allowed", "miners", "the processor quota of the box's cgroup", Unlifted("the wall clock ends it", "time is all that is behind a share of time: lifecycle.outlive-deadline tries that"), include_str!("../../attempts/resources/processor.py"), &["--cpus", "0.1"], Plain, &[], &[Gap::NoCpuLimit]),
    ("output", "Print more than allowed", "logs without end", "the limit on output", WINDOW, include_str!("../../attempts/resources/output.py"), &["--output-limit", "1MiB"], Box(&["--output-limit", "8MiB"]), &["output_limit"], &[]),
    ("output-error", "Complain more than allowed", "standard error is output too", "the limit on output", WINDOW, include_str!("../../attempts/resources/output_error.py"), &["--output-limit", "1MiB"], Box(&["--output-limit", "8MiB"]), &["output_limit"], &[]),
    ("terminals", "Take every terminal", "the host's pseudo-terminals are counted for all", "terminals of the box's own (devpts), 256 at most", COUNTED, include_str!("../../attempts/resources/terminals.py"), &[], Namespaces, &[], &[]),
    ("signals", "Queue signals without end", "kernel memory per user", "RLIMIT_SIGPENDING", COUNTED, include_str!("../../attempts/resources/signals.py"), &[], Plain, &[], &[]),
];

pub(super) fn attempts() -> Vec<Attempt> {
    let make =
        |&(name, title, stands_for, first, second, line, options, control, stopped_by, unless): &Line| {
            Attempt {
                class: Class::Resources,
                name,
                title,
                boundary: Boundary::Kernel,
                issue: Issue::HostDoS,
                stands_for,
                first,
                second,
                script: Script::Line(line),
                control,
                props: &[],
                options,
                stopped_by,
                lie: nothing_false,
                unless,
            }
        };
    LINES.iter().map(make).collect()
}
