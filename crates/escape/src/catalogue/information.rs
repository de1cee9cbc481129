//! What the host is and what runs on it.

use blastbox_policy::Boundary;

use crate::attempt::Control::{self, Namespaces, Plain, PlainRoot};
use crate::attempt::Prop::{Decoy, HostFacts, HostFile, HostLog};
use crate::attempt::{Attempt, Class, Issue, Prop, Script, nothing_false};
use crate::layer::Layer::{Mounts, Processes};
use crate::layer::Second::{self, Behind, Nothing};

const HOSTS_OWN: Second = Behind(
    Mounts,
    "Landlock grants nothing beneath the host's /proc, /sys and /dev, and what is root's own their modes keep",
);
const NOT_LISTED: Second = Behind(
    Processes,
    "what a box may not trace it does not see (hidepid): another user id (as root), and Landlock",
);
const OWN_NET: Second =
    Nothing("the network namespace alone: whose network it is, its tables and addresses are told");

/// Name, what it tries, what it stands for, the statement, where it must succeed, what is behind, props.
type Line = (&'static str, &'static str, &'static str, &'static str, Control, Second, &'static [Prop]);

#[rustfmt::skip]
const LINES: &[Line] = &[
    ("host-processes", "See a process of the host", "/proc of the host", include_str!("../../attempts/credentials/cmdline.py"), Plain, NOT_LISTED, &[Decoy]),
    ("host-process-by-id", "Look at a process of the host by its id", "/proc/PID without listing", "take('/proc/%s/cmdline' % os.environ['ESCAPE_DECOY']); held('another process has that id')", Plain, NOT_LISTED, &[Decoy]),
    ("boot-id", "Learn the boot id", "telling hosts apart", "take(shown('/proc/sys/kernel/random/boot_id')); held('one that is not the host\\'s')", Plain, HOSTS_OWN, &[HostFacts]),
    ("machine-id", "Learn the machine id", "/etc/machine-id", include_str!("../../attempts/information/machine_id.py"), Plain, HOSTS_OWN, &[HostFacts]),
    ("host-name", "Learn the host's name", "uname", "print('nodename=' + os.uname().nodename); held('the name of the box')", Plain, Nothing("the namespace of names alone: whose it is, its name is told"), &[HostFacts]),
    ("mac-address", "Learn the host's hardware addresses", "/sys/class/net", include_str!("../../attempts/information/mac.py"), Plain, OWN_NET, &[HostFacts]),
    ("host-paths", "Learn paths of the host from the table of mounts", "mountinfo", include_str!("../../attempts/information/mountinfo.py"), Namespaces, Nothing("the mount namespace alone: it is made of detached mounts, whose places on the host it does not know"), &[Prop::Workspace]),
    ("kernel-log", "Read the kernel's log as a file", "/dev/kmsg", "read_kmsg()", PlainRoot, HOSTS_OWN, &[HostLog]),
    ("kernel-symbols", "Learn kernel addresses", "/proc/kallsyms", "may_open('/proc/kallsyms')", Plain, HOSTS_OWN, &[]),
    ("kernel-memory", "Read kernel memory", "/proc/kcore", "may_open('/proc/kcore', read=False)", PlainRoot, HOSTS_OWN, &[]),
    ("kernel-command-line", "Read the kernel's command line", "/proc/cmdline holds tokens on some hosts", "reveal('/proc/cmdline')", Plain, HOSTS_OWN, &[HostFile("/proc/cmdline")]),
    ("kernel-config", "Read how the kernel was built", "/proc/config.gz", "may_open('/proc/config.gz')", Plain, HOSTS_OWN, &[]),
    ("modules", "List kernel modules", "/proc/modules", "may_open('/proc/modules')", Plain, HOSTS_OWN, &[]),
    ("iomem", "Learn the physical layout", "/proc/iomem", "may_open('/proc/iomem')", Plain, HOSTS_OWN, &[]),
    ("interrupts", "Time the host by its interrupts", "/proc/interrupts: keystroke timing", "may_open('/proc/interrupts')", Plain, HOSTS_OWN, &[]),
    ("scheduler", "Time the host by its scheduler", "/proc/schedstat", "may_open('/proc/schedstat')", Plain, HOSTS_OWN, &[]),
    ("partitions", "List the host's disks", "/proc/partitions", "may_open('/proc/partitions')", Plain, HOSTS_OWN, &[]),
    ("connections", "List the host's connections", "/proc/net/tcp", include_str!("../../attempts/information/connections.py"), Plain, OWN_NET, &[]),
    ("unix-names", "List the host's Unix sockets", "/proc/net/unix", include_str!("../../attempts/information/unix_names.py"), Plain, OWN_NET, &[]),
    ("dmi", "Read the machine's serial numbers", "/sys/class/dmi", "reveal('/sys/class/dmi/id/product_name')", Plain, HOSTS_OWN, &[HostFile("/sys/class/dmi/id/product_name")]),
    ("debugfs", "Read the kernel's debugging files", "/sys/kernel/debug", include_str!("../../attempts/information/debugfs.py"), Plain, HOSTS_OWN, &[]),
    ("cgroup-path", "Learn where on the host the box's cgroup lies", "/proc/self/cgroup", include_str!("../../attempts/information/cgroup_path.py"), Plain, Nothing("the cgroup namespace alone; the path is a name and no way to it"), &[]),
    ("keys", "List keys of the host", "/proc/keys", "may_open('/proc/keys', read=False)", Plain, HOSTS_OWN, &[]),
    ("locks", "List locks of the host", "/proc/locks", "may_open('/proc/locks', read=False)", Plain, HOSTS_OWN, &[]),
    ("host-users", "List the host's users", "/etc/passwd", include_str!("../../attempts/information/users.py"), Plain, HOSTS_OWN, &[]),
];

pub(super) fn attempts() -> Vec<Attempt> {
    let make = |&(name, title, stands_for, line, control, second, props): &Line| Attempt {
        class: Class::Information,
        name,
        title,
        boundary: Boundary::Files,
        issue: Issue::HostLeak,
        stands_for,
        first: "namespaces and a root of its own: /proc shows processes of the box alone, and /sys is not there",
        second,
        script: Script::Line(line),
        control,
        props,
        options: &[],
        stopped_by: &[],
        lie: nothing_false,
        unless: &[],
    };
    LINES.iter().map(make).collect()
}
