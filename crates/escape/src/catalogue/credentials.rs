//! Secrets of the caller and the host: none of them is in a box.

use blastbox_policy::{Boundary, Gap};

use crate::attempt::Control::{self, Namespaces, Plain, PlainRoot};
use crate::attempt::Prop::Decoy;
use crate::attempt::{Attempt, Class, Issue, Prop, Script, nothing_false};
use crate::layer::Layer::{Mounts, Processes, Users};
use crate::layer::Second::{self, Behind, Nothing};

const LANDLOCK: Second = Behind(Mounts, "Landlock grants nothing beneath the host's root");
const NOT_DUMPABLE: Second = Behind(Users, "pid 1 is not dumpable: the kernel shows and opens nothing of it");
const NOT_LISTED: Second = Behind(
    Processes,
    "another user id (as root), and Landlock: what a box may not trace it does not see (hidepid)",
);
const NO_DOORS: Second = Nothing(
    "Landlock knows no sockets by their path: in the host's root the socket's own modes are all there is",
);

/// Name, what it tries, what it stands for, the statement, where it must succeed, what is behind, props, gaps.
type Line = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    Control,
    Second,
    &'static [Prop],
    &'static [Gap],
);

#[rustfmt::skip]
const LINES: &[Line] = &[
    ("environment", "Read the caller's environment", "keys in variables", "print(dict(os.environ)); held('%d variables, none of the caller' % len(os.environ))", Plain, Nothing("an environment that is built from nothing has nothing to hide: what nobody put in is not there"), &[], &[]),
    ("environment-proc", "Read the environment of every process in sight", "/proc/*/environ", include_str!("../../attempts/credentials/environ.py"), Plain, NOT_LISTED, &[Decoy], &[]),
    ("command-lines", "Read the command line of every process in sight", "passwords in argv", include_str!("../../attempts/credentials/cmdline.py"), Plain, NOT_LISTED, &[Decoy], &[]),
    ("parent-environment", "Read the environment of the parent", "/proc/PPID/environ", include_str!("../../attempts/credentials/parent.py"), Plain, NOT_LISTED, &[], &[]),
    ("pid-1-environment", "Read the environment of pid 1", "/proc/1/environ", "reveal('/proc/%d/environ' % PID_1)", Plain, NOT_DUMPABLE, &[Decoy], &[]),
    ("pid-1-memory", "Read the memory of pid 1", "/proc/1/mem", include_str!("../../attempts/control/memory.py"), Plain, NOT_DUMPABLE, &[Decoy], &[]),
    ("pid-1-maps", "Read the layout of pid 1", "/proc/1/maps", "may_open('/proc/%d/maps' % PID_1)", Plain, NOT_DUMPABLE, &[Decoy], &[]),
    ("pid-1-descriptors", "List the descriptors of pid 1", "/proc/1/fd", include_str!("../../attempts/credentials/descriptors.py"), Plain, NOT_DUMPABLE, &[Decoy], &[]),
    ("agent-socket", "Speak to the caller's SSH agent", "SSH_AUTH_SOCK", include_str!("../../attempts/credentials/agent_socket.py"), Plain, NO_DOORS, &[], &[]),
    ("aws", "Read cloud keys in a home", "~/.aws/credentials", "take(host('home/.aws/credentials'))", Plain, LANDLOCK, &[], &[]),
    ("ssh-key", "Read a private key in a home", "~/.ssh/id_ed25519", "take(host('home/.ssh/id_ed25519'))", Plain, LANDLOCK, &[], &[]),
    ("netrc", "Read passwords in a home", "~/.netrc", "take(host('home/.netrc'))", Plain, LANDLOCK, &[], &[]),
    ("git-credentials", "Read git's passwords", "~/.git-credentials", "take(host('home/.git-credentials'))", Plain, LANDLOCK, &[], &[]),
    ("docker-config", "Read registry tokens", "~/.docker/config.json", "take(host('home/.docker/config.json'))", Plain, LANDLOCK, &[], &[]),
    ("npm-token", "Read a package registry's token", "Shai-Hulud worm, 2025: ~/.npmrc", "take(host('home/.npmrc'))", Plain, LANDLOCK, &[], &[]),
    ("root-ssh", "Read root's private key", "/root/.ssh", "steal('/root/.ssh/id_rsa')", Namespaces, LANDLOCK, &[], &[]),
    ("root-history", "Read root's history", "passwords typed by mistake", "steal('/root/.bash_history')", Namespaces, LANDLOCK, &[], &[]),
    ("kubernetes-token", "Read the token of a pod", "orchestrators mount it everywhere", "steal('/var/run/secrets/kubernetes.io/serviceaccount/token')", Namespaces, LANDLOCK, &[], &[]),
    ("docker-secret", "Read a swarm's secret", "/run/secrets", "steal('/run/secrets/password')", Namespaces, LANDLOCK, &[], &[]),
    ("systemd-credentials", "Read a service's credentials", "/run/credentials", "steal('/run/credentials/unit/token')", Namespaces, LANDLOCK, &[], &[]),
    ("cloud-init", "Read what the machine was set up with", "/var/lib/cloud", "steal('/var/lib/cloud/instance/user-data.txt')", Namespaces, LANDLOCK, &[], &[]),
    ("shadow", "Read the password hashes", "/etc/shadow", "HOST_ROOT and take(host('fixed/etc/shadow')); may_open('/etc/shadow')", PlainRoot, LANDLOCK, &[], &[]),
    ("gshadow", "Read the group passwords", "/etc/gshadow", "HOST_ROOT and take(host('fixed/etc/gshadow')); may_open('/etc/gshadow')", PlainRoot, LANDLOCK, &[], &[]),
    ("blastbox-state", "Read the daemon's keys", "/var/lib/blastbox", "steal('/var/lib/blastbox/ledger.key')", Namespaces, LANDLOCK, &[], &[]),
    ("docker-socket", "Ask the container runtime to start something privileged", "a reachable Docker socket", "connect_unix('/run/docker.sock')", Namespaces, NO_DOORS, &[], &[]),
    ("containerd-socket", "Ask containerd", "a reachable containerd socket", "connect_unix('/run/containerd/containerd.sock')", Namespaces, NO_DOORS, &[], &[]),
    ("dbus", "Ask the system bus", "systemd starts units over D-Bus", "connect_unix('/run/dbus/system_bus_socket')", Namespaces, NO_DOORS, &[], &[]),
    ("blastbox-socket", "Ask the blastbox daemon for another box", "policy from inside", "connect_unix('/run/blastbox/blastbox.sock')", Namespaces, NO_DOORS, &[], &[]),
    ("x11", "Read the screen and the keyboard", "X11 sockets", "connect_unix('/tmp/.X11-unix/X0')", Namespaces, NO_DOORS, &[], &[]),
];

pub(super) fn attempts() -> Vec<Attempt> {
    let make = |&(name, title, stands_for, line, control, second, props, unless): &Line| Attempt {
        class: Class::Credentials,
        name,
        title,
        boundary: Boundary::Credentials,
        issue: Issue::HostLeak,
        stands_for,
        first: match second.layer() {
            Some(Processes) => "process ids of the box's own: its /proc shows nobody else's",
            Some(Users) => "the agent is another user (as root)",
            _ => "nothing of any home, /root, /var, /run or the caller's environment is in a box",
        },
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
