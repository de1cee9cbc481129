//! Families of sockets that are doors into rarely used kernel code.

use blastbox_policy::Boundary;

use crate::attempt::Control::{self, Namespaces, OwnNet, Plain};
use crate::attempt::{Attempt, Class, Issue, Script, nothing_false};
use crate::layer::Layer::Seccomp;
use crate::layer::Second::{self, Behind, Surface};

const EMPTY_NET: Second = Surface("it speaks to the box's own, empty network alone");
const NO_POWER: Second =
    Behind(Seccomp, "raw sockets want a capability over the box's network, and it has none");

/// Name, what it tries, what it stands for, the socket, where it must succeed, what is behind.
type Line = (&'static str, &'static str, &'static str, &'static str, Control, Second);

#[rustfmt::skip]
const SOCKETS: &[Line] = &[
    ("packet", "Read every packet of an interface", "CVE-2017-7308, CVE-2020-14386 (AF_PACKET)", "socket_of(17, 3, 768)", OwnNet, NO_POWER),
    ("raw-icmp", "Send packets of one's own making", "raw sockets", "socket_of(2, 3, 1)", OwnNet, NO_POWER),
    ("netlink-route", "Change interfaces and routes", "netlink", "socket_of(16, 3, 0)", Plain, EMPTY_NET),
    ("netlink-netfilter", "Speak to the packet filter", "CVE-2024-1086, CVE-2023-32233 (nf_tables)", "socket_of(16, 3, 12)", Plain, EMPTY_NET),
    ("netlink-audit", "Speak to the audit system", "forged audit records", include_str!("../../attempts/kernel/audit.py"), Plain, Behind(Seccomp, "the kernel takes no message from a user namespace, and wants a capability over the host")),
    ("netlink-uevent", "Hear and forge device events", "udev as root acting on forged events", "socket_of(16, 3, 15)", Plain, EMPTY_NET),
    ("netlink-generic", "Reach generic netlink families", "dozens of drivers behind one door", "socket_of(16, 3, 16)", Plain, EMPTY_NET),
    ("netlink-xfrm", "Change IPsec states", "CVE-2017-16939, CVE-2022-27666 (xfrm)", "socket_of(16, 3, 6)", Plain, EMPTY_NET),
    ("alg", "Reach the kernel's ciphers", "CVE-2017-13215 (AF_ALG)", "socket_of(38, 5, 0)", Plain, Surface("ciphers act on the box's own memory")),
    ("vsock", "Speak to the hypervisor", "CVE-2021-26708 (vsock)", "socket_of(40, 1, 0)", Plain, Surface("on a host with a hypervisor's channel nothing else stops it; the filter alone does")),
    ("xdp", "Map packets into memory", "AF_XDP", "socket_of(44, 3, 0)", OwnNet, NO_POWER),
    ("key", "Speak to the key manager", "CVE-2017-7184 class (PF_KEY)", "socket_of(15, 3, 2)", OwnNet, NO_POWER),
    ("can", "Reach the CAN bus", "CVE-2021-3609 (CAN BCM)", "socket_of(29, 3, 1)", Plain, EMPTY_NET),
    ("bluetooth", "Reach Bluetooth", "CVE-2020-12351 (BleedingTooth)", "socket_of(31, 3, 1)", Plain, EMPTY_NET),
    ("tipc", "Reach cluster messaging", "CVE-2021-43267 (TIPC)", "socket_of(30, 5, 0)", Plain, EMPTY_NET),
    ("rds", "Reach reliable datagrams", "CVE-2010-3904 (RDS)", "socket_of(21, 5, 0)", Plain, EMPTY_NET),
    ("sctp", "Use another stream protocol, which no rule about TCP sees", "SCTP past Landlock", "socket_of(2, 1, 132)", Plain, EMPTY_NET),
    ("mptcp", "Use several paths at once, which no rule about TCP sees", "MPTCP past Landlock", "socket_of(2, 1, 262)", Plain, EMPTY_NET),
    ("udplite", "Use another datagram protocol", "UDP-Lite past filters", "socket_of(2, 2, 136)", Plain, EMPTY_NET),
    ("smc", "Use shared-memory TCP", "SMC past Landlock", "socket_of(43, 1, 0)", Plain, EMPTY_NET),
    ("socket-filter", "Attach a program to a socket", "classic BPF as a tool for JIT spraying", "s = socket.socket(socket.AF_UNIX); p = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0)); f = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 1, ctypes.addressof(p))); call(54, s.fileno(), 1, 26, ctypes.c_char_p(ctypes.addressof(f)), 16)", Plain, Surface("it filters the box's own socket")),
    ("tcp-ulp", "Stack kernel TLS on a connection", "CVE-2023-0461 (ULP use after free)", "CONTROL and 'tls' not in setting('net/ipv4/tcp_available_ulp') and (na('kernel TLS is not loaded, and a control loads nothing') if loads_modules() else nothing_there('this kernel has no kernel TLS: tcp_available_ulp does not name it')); s = socket.socket(); call(54, s.fileno(), 6, 31, b'tls', 3)", Plain, EMPTY_NET),
    ("unix-raw", "Open a raw Unix socket", "odd types of a common family", "socket_of(1, 3, 0)", Namespaces, Surface("a Unix socket like any other")),
];

/// Their names.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    SOCKETS.iter().map(|line| line.0)
}

pub(super) fn attempts() -> Vec<Attempt> {
    let make = |&(name, title, stands_for, line, control, second): &Line| Attempt {
        class: Class::Kernel,
        name,
        title,
        boundary: Boundary::Kernel,
        issue: Issue::Escape,
        stands_for,
        first: "the filter of system calls: Unix, TCP and UDP sockets only",
        second,
        script: Script::Line(line),
        control,
        props: &[],
        options: &[],
        stopped_by: &[],
        lie: nothing_false,
        unless: &[],
    };
    SOCKETS.iter().map(make).collect()
}
