//! System calls and other doors of the kernel that a box has no business in.
//!
//! Most attempts are one raw call with arguments that change nothing even where it is let through. A call that is
//! answered by anything but a refusal has reached the kernel.

use blastbox_policy::Boundary;

use crate::attempt::Control::{self, Namespaces, Plain, PlainRoot};
use crate::attempt::{Attempt, Class, Issue, Prop, Script, nothing_false};

use crate::layer::Layer::Seccomp;
use crate::layer::Second::{self, Behind, Surface, Unlifted};

const FILTER: &str = "the filter of system calls";
const NO_POWER: Second = Behind(Seccomp, "no capability in the box's user namespace, which owns nothing");
const NO_NAMESPACES: Second = Behind(Seccomp, "the box's user namespace may make no further ones");
const ROOT_ONLY: Second =
    Behind(Seccomp, "the kernel wants a capability over the host, and the box has none");
const OWN_PROCESSES: Second =
    Surface("it reaches processes of the box alone: it has its own process ids, and pid 1 is not dumpable");
const OWN_QUEUES: Second =
    Surface("queues of the box's own IPC namespace, with its own limits; their memory counts as the box's");
const ONLY_SURFACE: Second =
    Surface("what it makes has the box's own rights; Landlock and mounts hold for it too");

const TEMPLATE: Attempt = Attempt {
    class: Class::Kernel,
    name: "",
    title: "",
    boundary: Boundary::Kernel,
    issue: Issue::Escape,
    stands_for: "",
    first: FILTER,
    second: NO_POWER,
    script: Script::Line(""),
    control: Plain,
    props: &[],
    options: &[],
    stopped_by: &[],
    lie: nothing_false,
    unless: &[],
};

/// Name, what it tries, what it stands for, the call, where it must succeed, what holds behind the filter.
type Line = (&'static str, &'static str, &'static str, &'static str, Control, Second);

#[rustfmt::skip]
const CALLS: &[Line] = &[
    ("unshare-user", "Make a user namespace, to be root in it", "CVE-2022-0185, CVE-2023-32233: most kernel escapes begin here", "call(272, 0x10000000)", Plain, NO_NAMESPACES),
    ("unshare-mount", "Make a mount namespace", "CVE-2022-0185 (fsconfig overflow)", "call(272, 0x20000)", Namespaces, NO_POWER),
    ("unshare-net", "Make a network namespace", "CVE-2024-1086 (nf_tables)", "call(272, 0x40000000)", Namespaces, NO_POWER),
    ("unshare-pid", "Make a process-id namespace", "nested containers", "call(272, 0x20000000)", Namespaces, NO_POWER),
    ("unshare-cgroup", "Make a cgroup namespace", "CVE-2022-0492 (release_agent)", "call(272, 0x2000000)", Namespaces, NO_POWER),
    ("unshare-time", "Make a time namespace", "shifted clocks", "call(272, 0x80)", Namespaces, NO_POWER),
    ("setns-self", "Enter a namespace by descriptor", "nsenter into the host", "call(308, os.open('/proc/self/ns/uts', 0), 0)", Namespaces, NO_POWER),
    ("mount-tmpfs", "Mount a file system", "covering files that others trust", "call(165, b'none', b'/tmp', b'tmpfs', 0, 0)", Namespaces, NO_POWER),
    ("remount-root", "Remount the root writable", "privileged containers", "call(165, b'none', b'/', b'none', 0x1020, 0)", Namespaces, NO_POWER),
    ("umount-proc", "Uncover what lies beneath a mount", "unmasking /proc", "call(166, b'/proc', 2)", Namespaces, NO_POWER),
    ("pivot-root", "Exchange the root", "leaving a root file system", "call(155, b'/tmp', b'/tmp')", Namespaces, NO_POWER),
    ("chroot", "Change the root, then climb out", "the classic chroot escape", "call(161, b'/tmp')", Namespaces, NO_POWER),
    ("open-tree", "Copy a mount by descriptor", "the new mount interface, unknown to old filters", "call(428, -100, b'/', 1)", Namespaces, NO_POWER),
    ("move-mount", "Attach a mount by descriptor", "the new mount interface", "call(429, -1, b'', -1, b'', 0)", Namespaces, NO_POWER),
    ("fsopen", "Open a file system context", "CVE-2022-0185 (fsconfig overflow)", "call(430, b'tmpfs', 0)", Namespaces, NO_POWER),
    ("fsmount", "Make a mount of a context", "the new mount interface", "call(432, -1, 0, 0)", Namespaces, NO_POWER),
    ("fspick", "Pick a mounted file system to reconfigure", "the new mount interface", "call(433, -100, b'/', 0)", Namespaces, NO_POWER),
    ("mount-setattr", "Make a mount writable by attribute", "the new mount interface", "call(442, -1, b'', 0, struct.pack('QQQQ', 1, 0, 0, 0), 32)", Namespaces, NO_POWER),
    ("ptrace", "Trace a process", "CVE-2019-13272; steering whoever has more rights", "call(101, 0, 0, 0, 0)", Plain, OWN_PROCESSES),
    ("process-vm-read", "Read the memory of another process", "secrets of neighbours", "call(310, os.getpid(), 0, 0, 0, 0, 0)", Plain, OWN_PROCESSES),
    ("process-vm-write", "Write the memory of another process", "code into neighbours", "call(311, os.getpid(), 0, 0, 0, 0, 0)", Plain, OWN_PROCESSES),
    ("pidfd-getfd", "Take a descriptor out of another process", "the control channel of pid 1", "call(438, -1, 0, 0)", Plain, OWN_PROCESSES),
    ("kcmp", "Compare kernel pointers of processes", "defeating address randomisation", "call(312, os.getpid(), os.getpid(), 0, 0, 0)", Plain, OWN_PROCESSES),
    ("process-madvise", "Advise on memory of another process", "races over memory that another process uses", "call(440, -1, 0, 0, 0, 0)", Plain, OWN_PROCESSES),
    ("move-pages", "Ask where another's pages lie", "physical layout for Rowhammer", "call(279, 0, 0, 0, 0, 0, 0)", Plain, OWN_PROCESSES),
    ("io-uring-enter", "Submit to a ring", "CVE-2022-29582, CVE-2023-2598: io_uring does the work of other calls unseen", "call(426, -1, 0, 0, 0, 0)", Plain, ONLY_SURFACE),
    ("io-uring-register", "Register buffers with a ring", "CVE-2021-41073 (io_uring)", "call(427, -1, 0, 0, 0)", Plain, ONLY_SURFACE),
    ("perf-event", "Open a performance counter", "CVE-2013-2094; side channels", "attr = ctypes.create_string_buffer(128); attr[0] = b'\\x01'; attr[4] = b'\\x80'; call(298, ctypes.cast(attr, ctypes.c_char_p), 0, -1, -1, 0)", PlainRoot, ONLY_SURFACE),
    ("userfaultfd", "Stop the kernel in the middle of a copy", "CVE-2021-22555 and every race that needs time", "call(323, 1)", Plain, ONLY_SURFACE),
    ("vmsplice", "Give pages to a pipe", "CVE-2008-0600; CVE-2022-0847 (Dirty Pipe) class", "call(278, -1, 0, 0, 0)", Plain, ONLY_SURFACE),
    ("memfd-secret", "Have memory that nobody can inspect", "hiding from a scanner", "call(447, 0)", Plain, ONLY_SURFACE),
    ("add-key", "Add a key to a keyring", "CVE-2016-0728; keyrings are not namespaced", "call(248, b'user', b'bbx', b'x', 1, -2)", Plain, ONLY_SURFACE),
    ("request-key", "Have the kernel start a helper for a key", "request_key upcalls run as root on the host", "call(249, b'user', b'bbx-none', 0, 0)", Plain, ONLY_SURFACE),
    ("keyctl", "Use the caller's keyring", "CVE-2017-7472; keys of the session", "call(250, 0, -2, 1)", Plain, Surface("what it reaches are keyrings of the box's own user namespace: persistence.user-keyring shows that without the filter")),
    ("fanotify", "Watch whole file systems", "watching the host's files", "call(300, 0x200, 0)", Plain, ONLY_SURFACE),
    ("name-to-handle", "Turn a path into a file handle", "Shocker (open_by_handle_at)", "h = ctypes.create_string_buffer(136); m = ctypes.c_int(); call(303, -100, b'/', ctypes.addressof(h), ctypes.addressof(m), 0)", Plain, ONLY_SURFACE),
    ("open-by-handle", "Open a file of the host by its handle", "Shocker (open_by_handle_at)", "h = struct.pack('Ii8x', 8, 1); call(304, -100, h, 0)", PlainRoot, ROOT_ONLY),
    ("msgget", "Shape kernel memory with message queues", "CVE-2021-22555 and most heap exploits", "call(68, 0x62627801, 0)", Plain, OWN_QUEUES),
    ("mq-open", "Shape kernel memory with POSIX queues", "heap exploits", "call(240, b'bbx-none', 0, 0, 0)", Plain, OWN_QUEUES),
    ("modify-ldt", "Set 16-bit segments", "CVE-2015-5157, CVE-2017-17053", "call(154, 0, 0, 0)", Plain, ONLY_SURFACE),
    ("kexec-load", "Load another kernel", "replacing the host's kernel", "call(246, 0, 0, 0, 0x1234)", PlainRoot, ROOT_ONLY),
    ("kexec-file-load", "Load another kernel from a file", "replacing the host's kernel", "call(320, -1, -1, 0, 0, 0xff00)", PlainRoot, ROOT_ONLY),
    ("init-module", "Load a kernel module", "code in the kernel", "call(175, 0, 0, b'')", PlainRoot, ROOT_ONLY),
    ("finit-module", "Load a kernel module from a file", "code in the kernel", "call(313, -1, b'', 0)", PlainRoot, ROOT_ONLY),
    ("delete-module", "Unload a kernel module", "taking protection away", "call(176, b'bbx-none-of-this-name', 2048)", PlainRoot, ROOT_ONLY),
    ("reboot", "Reboot the host (with a magic number that no kernel takes)", "HostDoS", "call(169, 0, 0, 0, 0)", Namespaces, NO_POWER),
    ("swapon", "Add swap", "belongs to the host", "call(167, b'/nowhere/bbx', 0)", PlainRoot, ROOT_ONLY),
    ("swapoff", "Take swap away", "belongs to the host", "call(168, b'/nowhere/bbx')", PlainRoot, ROOT_ONLY),
    ("acct", "Write an accounting file", "writing files as the kernel", "call(163, b'/nowhere/bbx')", PlainRoot, ROOT_ONLY),
    ("syslog", "Read the kernel's log", "kernel addresses, what the host does", "read_log()", PlainRoot, Unlifted("no capability over the host", "where dmesg_restrict is 0 the kernel lets everybody read it: the setting is the host's")),
    ("iopl", "Have the processor's ports", "hardware without a driver", "call(172, 3)", PlainRoot, ROOT_ONLY),
    ("ioperm", "Have one port of the processor", "hardware without a driver", "call(173, 0x80, 1, 1)", PlainRoot, ROOT_ONLY),
    ("sethostname", "Rename the host", "fooling who reads logs", "call(170, b'bbx', 3)", Namespaces, NO_POWER),
    ("setdomainname", "Rename the host's domain", "fooling who reads logs", "call(171, b'bbx', 3)", Namespaces, NO_POWER),
    ("settimeofday", "Set the clock", "expired certificates, later deadlines", "call(164, 0, 0)", PlainRoot, ROOT_ONLY),
    ("clock-settime", "Set a clock by number", "the newer call for the same", "call(227, 0, 0)", Plain, ROOT_ONLY_TIME),
    ("adjtimex", "Slew the clock", "longer seconds", "t = ctypes.create_string_buffer(208); t[1] = b'\\x40'; call(159, ctypes.cast(t, ctypes.c_char_p))", PlainRoot, ROOT_ONLY),
    ("quotactl", "Change quotas of the host's file systems", "HostDoS", "call(179, 0x800007 << 8, 0, 0, 0)", Plain, ROOT_ONLY_TIME),
    ("lookup-sysfs", "Ask which file systems there are by number", "obsolete call, old code", "call(139, 3)", Plain, ONLY_SURFACE),
    ("ustat", "Ask about a device by number", "obsolete call, old code", "call(136, 0, 0)", Plain, ONLY_SURFACE),
    ("remap-file-pages", "Rearrange a mapping", "obsolete call, old code", "call(216, 0, 0, 0, 0, 0)", Plain, ONLY_SURFACE),
    ("migrate-pages", "Move another's pages", "belongs to the host", "call(256, 0, 0, 0, 0)", Plain, OWN_PROCESSES),
    ("set-mm", "Move one's own arguments and heap", "PR_SET_MM: hiding from ps", "n = ctypes.c_int(); call(157, 35, 15, ctypes.addressof(n), 0, 0, absent=('EINVAL',))", Plain, ONLY_SURFACE),
    ("speculation", "Change how the processor speculates", "Spectre v4 mitigations off", "call(157, 53, 0, 4, 0, 0, absent=('EINVAL',))", Plain, ONLY_SURFACE),
    ("user-dispatch", "Have system calls delivered elsewhere", "syscall user dispatch around filters", "call(157, 59, 0, 0, 0, 0, absent=('EINVAL',))", Plain, ONLY_SURFACE),
    ("memory-merge", "Have pages merged with those of neighbours", "deduplication as a side channel", "call(157, 67, 0, 0, 0, 0, absent=('EINVAL',))", Plain, ONLY_SURFACE),
    ("personality", "Turn address randomisation off", "CVE-2009-1895 class: personality across setuid", "call(135, 0x0040000)", Plain, ONLY_SURFACE),
];

/// The kernel looks at the arguments before it asks for the capability: what is behind is the same.
const ROOT_ONLY_TIME: Second =
    Surface("the kernel refuses whoever has no capability over the host, after it has read the arguments");

/// A bug of the kernel that a jail shares with the host has nothing behind it.
const NO_KERNEL_BEHIND: Second = Second::Nothing(
    "the kernel that has such a bug is the host's own; in a tier with a kernel of its own the file is not the host's",
);

/// What stops those first that the filter has to let through.
fn first(name: &str) -> &'static str {
    match name {
        "become-root" | "capset" => "no capability in the box to become anybody or to gain one",
        "new-privileges" => "no program gains anything by being executed (no_new_privs)",
        "dirty-pipe" | "dirty-cow" => "a kernel without the bug, and a mount that is read-only",
        _ => FILTER,
    }
}

/// Attempts that need more than one call.
const PROGRAMS: &[(Line2, &str)] = &[
    (
        (
            "bpf",
            "Load a program into the kernel",
            "CVE-2020-8835, CVE-2021-3490 (BPF verifier)",
            PlainRoot,
            ROOT_ONLY,
        ),
        include_str!("../../attempts/kernel/bpf.py"),
    ),
    (
        ("io-uring-setup", "Make a ring", "CVE-2022-29582, CVE-2023-2598 (io_uring)", Plain, ONLY_SURFACE),
        include_str!("../../attempts/kernel/io_uring.py"),
    ),
    (
        (
            "clone-user",
            "Make a user namespace with clone",
            "filters that know only unshare",
            Plain,
            NO_NAMESPACES,
        ),
        include_str!("../../attempts/kernel/clone_user.py"),
    ),
    (
        (
            "clone3-user",
            "Make a user namespace with clone3",
            "filters cannot see behind its pointer",
            Plain,
            NO_NAMESPACES,
        ),
        include_str!("../../attempts/kernel/clone3_user.py"),
    ),
    (
        (
            "nested-root",
            "Become root of namespaces of one's own, then go for the host",
            "CVE-2022-0185, CVE-2024-1086: what a user namespace is made for",
            Namespaces,
            NO_NAMESPACES,
        ),
        include_str!("../../attempts/kernel/nested_root.py"),
    ),
    (
        (
            "seccomp-listener",
            "Listen to system calls of others",
            "answering calls in another's name",
            Plain,
            ONLY_SURFACE,
        ),
        include_str!("../../attempts/kernel/listener.py"),
    ),
    (
        (
            "tiocsti",
            "Type into the terminal",
            "CVE-2017-5226, CVE-2023-28100 (TIOCSTI)",
            Plain,
            Surface("it types into a terminal of the box's own (devpts)"),
        ),
        include_str!("../../attempts/kernel/tiocsti.py"),
    ),
    (
        (
            "tiocsetd",
            "Load a line discipline",
            "CVE-2017-2636 (n_hdlc), CVE-2023-52564 (n_gsm)",
            Plain,
            ONLY_SURFACE,
        ),
        include_str!("../../attempts/kernel/tiocsetd.py"),
    ),
    (
        (
            "int80",
            "Call the kernel through the 32-bit door",
            "filters that know only one architecture",
            Plain,
            ONLY_SURFACE,
        ),
        include_str!("../../attempts/kernel/int80.py"),
    ),
    (
        (
            "x32",
            "Call the kernel through the x32 door",
            "filters that know only one architecture",
            Plain,
            ONLY_SURFACE,
        ),
        include_str!("../../attempts/kernel/x32.py"),
    ),
    (
        (
            "become-root",
            "Become user 0",
            "setuid and its family",
            Namespaces,
            Unlifted(
                "the table of users holds no id of the host: user 0 of a box is its agent",
                "a box that keeps the capability becomes its own user 0, which is the success; what that one reaches is asked in the class lifecycle",
            ),
        ),
        include_str!("../../attempts/kernel/become_root.py"),
    ),
    (
        (
            "capset",
            "Raise a capability",
            "capset, ambient and bounding sets",
            Namespaces,
            Unlifted(
                "it would be a capability of the box's own user namespace, which owns nothing",
                "to have one is the success; what one is good for is asked where commands keep them all: lifecycle.nice, network.interface-up",
            ),
        ),
        include_str!("../../attempts/kernel/capset.py"),
    ),
    (
        (
            "new-privileges",
            "Gain rights by a setuid program",
            "CVE-2021-4034 (pkexec) and every setuid bug",
            Plain,
            Unlifted(
                "mounts are nosuid, and ids of the file are nobody's",
                "without it the kernel takes neither a filter nor Landlock from whoever has no power: lifting one would lift three",
            ),
        ),
        include_str!("../../attempts/kernel/new_privileges.py"),
    ),
    (
        (
            "dirty-pipe",
            "Write into the page cache of a read-only file",
            "CVE-2022-0847 (Dirty Pipe)",
            Plain,
            NO_KERNEL_BEHIND,
        ),
        include_str!("../../attempts/kernel/dirty_pipe.py"),
    ),
    (
        (
            "dirty-cow",
            "Write through a private mapping of a read-only file",
            "CVE-2016-5195 (Dirty COW)",
            Plain,
            NO_KERNEL_BEHIND,
        ),
        include_str!("../../attempts/kernel/dirty_cow.py"),
    ),
];

type Line2 = (&'static str, &'static str, &'static str, Control, Second);

pub(super) fn attempts() -> Vec<Attempt> {
    let calls = CALLS.iter().map(|&(name, title, stands_for, line, control, second)| Attempt {
        name,
        title,
        stands_for,
        script: Script::Line(line),
        control,
        second,
        props: if name == "syslog" { &[Prop::HostLog] } else { &[] },
        ..TEMPLATE
    });
    let programs = PROGRAMS.iter().map(|&((name, title, stands_for, control, second), text)| Attempt {
        name,
        title,
        stands_for,
        script: Script::Python(text),
        control,
        first: first(name),
        second,
        ..TEMPLATE
    });
    calls.chain(programs).collect()
}
