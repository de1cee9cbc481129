//! Files of the host: reading them, changing them, and leaving something in a workspace that bites later.

use blastbox_policy::{Boundary, Gap};

use crate::attempt::Control::{self, Namespaces, Plain, PlainRoot};
use crate::attempt::Prop::{Decoy, LeakedDescriptor, Workspace};
use crate::attempt::{Attempt, Class, Issue, Prop, Script, nothing_false};
use crate::layer::Layer::{Descriptors, Landlock, Mounts, Overlay, Seccomp, Users};
use crate::layer::Second::{self, Behind, BehindUnless, Nothing, Unlifted};

const OWN_ROOT: &str = "a root of the box's own, in which the host's files are not";
const LANDLOCK: Second = Behind(Mounts, "Landlock grants nothing beneath the host's root");
const HOSTS_OWN: Second =
    Behind(Mounts, "Landlock grants nothing beneath the host's root, and what is root's own its modes keep");
const THROWN_AWAY: &str = "writes go to a layer that is thrown away with the box";
/// Two layers say no to writing what the image has: either alone does.
const NOT_GRANTED: &str = "Landlock grants reading alone there";
const READ_ONLY: Second = Behind(Landlock, "the mount is read-only");

const TEMPLATE: Attempt = Attempt {
    class: Class::Files,
    name: "",
    title: "",
    boundary: Boundary::Files,
    issue: Issue::Escape,
    stands_for: "",
    first: OWN_ROOT,
    second: LANDLOCK,
    script: Script::Line(""),
    control: Plain,
    props: &[],
    options: &[],
    stopped_by: &[],
    lie: nothing_false,
    unless: &[],
};

/// Name, what it tries, what it stands for, issue, the statement, where it must succeed, what is behind, props.
type Line = (&'static str, &'static str, &'static str, Issue, &'static str, Control, Second, &'static [Prop]);

#[rustfmt::skip]
const LINES: &[Line] = &[
    ("read-secret", "Read a file of the host that everybody may read", "any bind mount too much", Issue::HostLeak, "take(host('secret'))", Plain, LANDLOCK, &[]),
    ("write-canary", "Write a file of the host that everybody may write", "any bind mount too much", Issue::Escape, "open(there('canary'), 'w').write('changed')", Plain, LANDLOCK, &[]),
    ("append-canary", "Append to a file of the host without reading it", "log files that others parse", Issue::Escape, "os.write(os.open(there('canary'), os.O_WRONLY | os.O_APPEND), b'x')", Plain, LANDLOCK, &[]),
    ("truncate-canary", "Empty a file of the host", "destroying without writing", Issue::Escape, "os.truncate(there('canary'), 0)", Plain, LANDLOCK, &[]),
    ("create-on-stage", "Create a file in a directory of the host", "dropping a file for somebody else", Issue::Escape, "open(there('') + 'dropped', 'w').close()", Plain, LANDLOCK, &[]),
    ("unlink-canary", "Delete a file of the host", "destroying", Issue::Escape, "os.unlink(there('canary'))", Plain, LANDLOCK, &[]),
    ("rename-canary", "Rename a file of the host", "renameat2 and its family", Issue::Escape, "os.rename(there('canary'), host('other'))", Plain, LANDLOCK, &[]),
    ("symlink-on-stage", "Leave a link in a directory of the host", "links that root follows", Issue::Escape, "os.symlink('/etc/passwd', there('') + 'bait')", Plain, LANDLOCK, &[]),
    ("hardlink-canary", "Link a file of the host to another name", "hard links to files of others", Issue::Escape, "os.link(there('canary'), host('second'))", Plain, LANDLOCK, &[]),
    ("chmod-canary", "Change the mode of a file of the host", "making secrets readable for later", Issue::Escape, "os.chmod(there('canary'), 0o4777)", Plain, BehindUnless(Mounts, "it is another user's, and only its owner may: Landlock knows no modes", Gap::SharedUid), &[]),
    ("shared-tmp", "Leave a file in the host's /tmp, /dev/shm and /var/tmp", "shared temporary directories", Issue::Escape, include_str!("../../attempts/files/shared_tmp.py"), Plain, LANDLOCK, &[]),
    ("write-etc", "Write the host's /etc/passwd", "read-write /etc", Issue::Escape, "may_open('/etc/passwd', os.O_WRONLY)", PlainRoot, READ_ONLY, &[]),
    ("create-in-usr", "Create a program in /usr/bin", "writable images", Issue::Escape, "may_open('/usr/bin', os.O_TMPFILE | os.O_RDWR)", PlainRoot, READ_ONLY, &[]),
    ("create-in-lib", "Create a library in /usr/lib", "library poisoning (CVE-2019-14271)", Issue::Escape, "may_open('/usr/lib', os.O_TMPFILE | os.O_RDWR)", PlainRoot, READ_ONLY, &[]),
    ("create-in-root", "Create a file at the root", "writable roots", Issue::Escape, "may_open('/', os.O_TMPFILE | os.O_RDWR)", PlainRoot, READ_ONLY, &[]),
    ("core-pattern", "Have the kernel start a program at the next crash", "core_pattern escapes", Issue::Escape, "may_open('/proc/sys/kernel/core_pattern', os.O_WRONLY)", PlainRoot, HOSTS_OWN, &[]),
    ("modprobe-path", "Have the kernel start a program at the next unknown file", "modprobe_path escapes", Issue::Escape, "may_open('/proc/sys/kernel/modprobe', os.O_WRONLY)", PlainRoot, HOSTS_OWN, &[]),
    ("sysrq", "Press SysRq", "HostDoS by /proc", Issue::HostDoS, "may_open('/proc/sysrq-trigger', os.O_WRONLY)", PlainRoot, HOSTS_OWN, &[]),
    ("uevent-helper", "Have the kernel start a program at the next device", "uevent_helper escapes", Issue::Escape, "may_open('/sys/kernel/uevent_helper', os.O_WRONLY)", PlainRoot, HOSTS_OWN, &[]),
    ("binfmt", "Have the kernel start a program for a kind of file", "binfmt_misc escapes", Issue::Escape, include_str!("../../attempts/files/binfmt.py"), Namespaces, HOSTS_OWN, &[]),
    ("disk", "Read the host's disk", "device nodes", Issue::HostLeak, include_str!("../../attempts/files/disk.py"), Namespaces, HOSTS_OWN, &[]),
    ("dev-mem", "Read physical memory", "/dev/mem", Issue::HostLeak, "may_open('/dev/mem', os.O_RDONLY, read=False)", PlainRoot, HOSTS_OWN, &[]),
    ("dev-kvm", "Start a machine of one's own", "KVM bugs (CVE-2021-29657)", Issue::Escape, "may_open('/dev/kvm', os.O_RDWR)", PlainRoot, HOSTS_OWN, &[]),
    ("dev-fuse", "Serve a file system to the kernel", "FUSE as a tool to stop the kernel in a copy", Issue::Escape, "may_open('/dev/fuse', os.O_RDWR)", PlainRoot, HOSTS_OWN, &[]),
    ("dev-tun", "Make an interface", "TUN/TAP in one's own network", Issue::Exfil, "may_open('/dev/net/tun', os.O_RDWR)", PlainRoot, HOSTS_OWN, &[]),
    ("dev-loop", "Make a block device of a file", "mounting crafted file systems", Issue::Escape, "may_open('/dev/loop-control', os.O_RDWR)", PlainRoot, HOSTS_OWN, &[]),
    ("device-node", "Make a device node", "mknod of the host's disk", Issue::Escape, include_str!("../../attempts/files/device_node.py"), PlainRoot, Behind(Seccomp, "no capability: a user namespace makes no device nodes; mounts are nodev"), &[]),
    ("file-capability", "Give a file capabilities", "security.capability in an image", Issue::Escape, include_str!("../../attempts/files/file_capability.py"), PlainRoot, Unlifted("no new privileges: file capabilities mean nothing", "to give one is the success; what it would be good for is asked by kernel.new-privileges"), &[]),
    ("workspace-link", "Follow a link in the workspace to a secret of the host", "CVE-2025-53109 and every prefix check", Issue::HostLeak, "take(WORKSPACE + '/link')", Plain, SAME_FILE, &[Workspace]),
    ("workspace-up", "Climb out of the workspace", "dot-dot through a link", Issue::HostLeak, "take(WORKSPACE + '/up/secret')", Plain, SAME_FILE, &[Workspace]),
    ("workspace-socket", "Speak to a socket that lies in the workspace", "a Docker socket in a project", Issue::Exfil, include_str!("../../attempts/files/workspace_socket.py"), Plain, NO_DOORS, &[Workspace]),
    ("workspace-write", "Change a file of the workspace", "the checkout of whoever runs the agent", Issue::Escape, "open(WORKSPACE + '/notes.txt', 'w').write('changed'); held('written in the box')", Plain, COPY, &[Workspace]),
    ("workspace-delete", "Delete the workspace", "rm -rf", Issue::Escape, "import shutil; shutil.rmtree(WORKSPACE + '/.git'); held('deleted in the box')", Plain, COPY, &[Workspace]),
    ("workspace-chmod", "Make a file of the workspace setuid", "modes that outlive the box", Issue::Escape, "os.chmod(WORKSPACE + '/notes.txt', 0o6777); held('changed in the box')", Plain, COPY, &[Workspace]),
    ("workspace-rename", "Exchange a file of the workspace for a link", "TOCTOU against whoever reads it next", Issue::Escape, "os.rename(WORKSPACE + '/notes.txt', WORKSPACE + '/old'); os.symlink('/etc/passwd', WORKSPACE + '/notes.txt'); held('exchanged in the box')", Plain, COPY, &[Workspace]),
    ("workspace-fifo", "Leave a pipe where a file was", "whoever reads it next hangs", Issue::Escape, "os.unlink(WORKSPACE + '/notes.txt'); os.mkfifo(WORKSPACE + '/notes.txt'); held('exchanged in the box')", Plain, COPY, &[Workspace]),
    ("climb-dotdot", "Climb out with a hundred dot-dots", "path checks by text", Issue::HostLeak, "take('../' * 100 + host('secret').lstrip('/'))", Plain, LANDLOCK, &[]),
    ("proc-1-root", "Read the host through /proc/1/root", "/proc/1/root", Issue::HostLeak, "take('/proc/%d/root' % PID_1 + host('secret'))", Plain, NOT_DUMPABLE, &[Decoy]),
    ("proc-cwd", "Read the host through the directory of another process", "CVE-2024-21626 (leaked working directory)", Issue::HostLeak, include_str!("../../attempts/files/proc_cwd.py"), Plain, LANDLOCK, &[]),
    ("proc-1-exe", "Open the program behind pid 1", "CVE-2019-5736 (overwriting runc)", Issue::Escape, include_str!("../../attempts/files/pid_1_exe.py"), Plain, NOT_DUMPABLE, &[Decoy]),
    ("self-exe", "Open one's own program for writing", "CVE-2019-5736 (/proc/self/exe)", Issue::Escape, include_str!("../../attempts/files/self_exe.py"), Plain, Behind(Landlock, "the image's files are another user's, on a read-only mount"), &[]),
    ("leaked-descriptor", "Use a descriptor that the caller forgot to close", "CVE-2024-21626 (Leaky Vessels)", Issue::HostLeak, "take('/proc/self/fd/%s/secret' % os.environ['ESCAPE_FD'])", Plain, NOT_INHERITED, &[LeakedDescriptor]),
    ("any-descriptor", "Look for any descriptor beyond the standard streams", "inherited descriptors", Issue::Escape, include_str!("../../attempts/files/any_descriptor.py"), Plain, NOT_INHERITED, &[LeakedDescriptor]),
    ("fchdir-out", "Leave by a descriptor of a directory outside", "leaving a chroot by fchdir", Issue::HostLeak, include_str!("../../attempts/files/fchdir_out.py"), Plain, NOT_INHERITED, &[LeakedDescriptor]),
];

const SAME_FILE: Second = Unlifted(
    "Landlock grants nothing beneath the host's root",
    "the file behind the link is the one of files.read-secret, where Landlock is asked alone; a workspace is named on a command line, and a stage that lets a box pass must not be",
);
const NO_DOORS: Second = Nothing(
    "Landlock knows no sockets by their path: without the layer over the workspace the socket's own modes are all there is",
);
const COPY: Second = Behind(Overlay, "the directory itself is mounted read-only");
const NOT_DUMPABLE: Second =
    Behind(Users, "pid 1 is not dumpable: the kernel opens nothing of it, and its root is the box's own");
const NOT_INHERITED: Second = Behind(
    Descriptors,
    "the warden closes what its caller has left open, and a command keeps nothing from 3 on",
);

/// What stops those first that have something else than a root of the box's own before them.
fn first(name: &str, second: Second) -> &'static str {
    match second.layer() {
        _ if name == "file-capability" => "no capability in the box to give a file one",
        _ if name == "workspace-socket" => "a layer over the workspace, in which a socket is another one",
        Some(Landlock) => NOT_GRANTED,
        Some(Seccomp) => "the filter of system calls",
        Some(Overlay) => THROWN_AWAY,
        Some(Users) => "the agent is another user (as root)",
        Some(Descriptors) => "the agent closes every descriptor before the first command",
        _ => OWN_ROOT,
    }
}

/// Files that somebody else's program will run, trust or load: `(name, what, path)`. Some exist, most do not yet.
#[rustfmt::skip]
const POISON: &[(&str, &str, &str)] = &[
    ("git-hook", "Leave a git hook", ".git/hooks/post-checkout"),
    ("git-config", "Change the git configuration (core.fsmonitor runs a program)", ".git/config"),
    ("git-attributes", "Leave a git filter", ".gitattributes"),
    ("envrc", "Leave a file that a shell runs on entering", ".envrc"),
    ("bashrc", "Leave a shell's start file", ".bashrc"),
    ("vscode-tasks", "Leave a task that an editor starts", ".vscode/tasks.json"),
    ("idea", "Leave a run configuration", ".idea/workspace.xml"),
    ("mcp-json", "Leave the configuration of a tool server (CVE-2025-54135 class)", ".mcp.json"),
    ("cursor-mcp", "Leave an editor's tool servers", ".cursor/mcp.json"),
    ("claude-settings", "Leave an agent's settings", ".claude/settings.json"),
    ("agents-md", "Leave instructions for the next agent", "AGENTS.md"),
    ("npmrc", "Leave a package manager's configuration", ".npmrc"),
    ("makefile", "Leave a Makefile", "Makefile"),
    ("pth", "Leave a Python start file", "sitecustomize.py"),
];

/// One statement for each file of [`POISON`]: the path is the only difference.
fn poison(path: &str) -> &'static str {
    // Made once per campaign, a dozen short texts.
    Box::leak(
        format!(
            "p = WORKSPACE + '/{path}'; os.makedirs(os.path.dirname(p), exist_ok=True); open(p, 'w').write('#!/bin/sh\\n'); held('written in the box')"
        )
        .into_boxed_str(),
    )
}

pub(super) fn attempts() -> Vec<Attempt> {
    let line = |&(name, title, stands_for, issue, line, control, second, props): &Line| Attempt {
        name,
        title,
        stands_for,
        issue,
        script: Script::Line(line),
        control,
        first: first(name, second),
        second,
        props,
        ..TEMPLATE
    };
    let poisoned = |&(name, title, path): &(&'static str, &'static str, &'static str)| Attempt {
        name,
        title,
        stands_for: "configuration-based escape: what a person or an agent runs later",
        first: THROWN_AWAY,
        second: COPY,
        script: Script::Line(poison(path)),
        props: &[Workspace],
        ..TEMPLATE
    };
    let race = Attempt {
        name: "race-link",
        title: "Exchange a file for a link while it is opened",
        stands_for: "TOCTOU: CVE-2018-15664 (docker cp), CVE-2021-30465 (runc mounts)",
        issue: Issue::HostLeak,
        script: Script::Python(include_str!("../../attempts/files/race_link.py")),
        props: &[Workspace],
        second: SAME_FILE,
        ..TEMPLATE
    };
    let crash = Attempt {
        name: "core-dump",
        title: "Crash, and have the host write or pipe the memory",
        stands_for: "core_pattern handlers that run as root (CVE-2025-4598)",
        first: "a limit on core files that stops pipes too",
        second: Unlifted(
            "no capability to raise the limit again",
            "a core that is made starts the host's own handler of crashes, or fills its disk",
        ),
        script: Script::Python(include_str!("../../attempts/files/core_dump.py")),
        control: Namespaces,
        ..TEMPLATE
    };
    let cgroup = Attempt {
        name: "release-agent",
        title: "Have the kernel start a program when a cgroup empties",
        stands_for: "CVE-2022-0492 (release_agent)",
        second: HOSTS_OWN,
        script: Script::Python(include_str!("../../attempts/files/release_agent.py")),
        control: PlainRoot,
        ..TEMPLATE
    };
    LINES.iter().map(line).chain(POISON.iter().map(poisoned)).chain([race, crash, cgroup]).collect()
}
