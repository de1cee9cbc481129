//! Ways out: nothing leaves a box unless the policy names it.

use blastbox_policy::Boundary;

use crate::attempt::Control::{self, OwnNet, Plain};
use crate::attempt::{Attempt, Class, Issue, Script, nothing_false};
use crate::layer::Layer::{Capabilities, Landlock, Network};
use crate::layer::Second::{self, Behind, Nothing, Surface};

const NO_TCP: Second =
    Behind(Network, "Landlock refuses every TCP connection where the policy has no network");
/// The same, for addresses beyond this host: no test build has the host's network for those, because nothing may leave it. There
/// it is Landlock that is asked first, and lifted.
const NO_WAY: Second = Behind(Landlock, OWN_NET);
const OWN_NET: &str = "a network namespace of its own in which no interface leads anywhere";
const SCOPED: Second = Behind(Network, "Landlock keeps abstract sockets inside the box");
const DATAGRAMS: Second =
    Surface("the network namespace alone: Landlock knows no datagrams yet, and the filter sees no addresses");
const GATEWAY: Second = Nothing(
    "datagrams have the network namespace alone; where a policy opens the network its gateway answers for itself, and a campaign under that policy asks it",
);
const NO_DOORS: Second = Nothing(
    "Landlock knows no sockets by their path: in the host's root the socket's own modes are all there is",
);
const NO_POWER: Second = Behind(Capabilities, "its network belongs to another user namespace than the box's");

/// What stops those first that have something else than a network of their own before them.
fn first(name: &str, second: Second) -> &'static str {
    match second.layer() {
        Some(Landlock) => "Landlock refuses every TCP connection where the policy has no network",
        Some(Capabilities) => "no capability in the box over any network",
        _ if name == "unix-socket" => "a root of the box's own, in which the host's sockets are not",
        _ => OWN_NET,
    }
}

/// Name, what it tries, what it stands for, the statement, where it must succeed, what is behind.
type Line = (&'static str, &'static str, &'static str, &'static str, Control, Second);

#[rustfmt::skip]
const LINES: &[Line] = &[
    ("host-loopback-tcp", "Connect to a service on the host's loopback", "databases and daemons that trust loopback", include_str!("../../attempts/network/loopback_tcp.py"), Plain, NO_TCP),
    ("host-loopback-tcp6", "The same over IPv6", "rules for IPv4 alone", include_str!("../../attempts/network/loopback_tcp6.py"), Plain, NO_TCP),
    ("host-loopback-udp", "Send a datagram to the host's loopback", "StatsD, syslog, DNS on loopback", include_str!("../../attempts/network/loopback_udp.py"), Plain, DATAGRAMS),
    ("abstract-socket", "Connect to an abstract socket of the host", "CVE-2020-15257 (containerd-shim)", include_str!("../../attempts/network/abstract_socket.py"), Plain, SCOPED),
    ("unix-socket", "Connect to a Unix socket of the host by its path", "Docker socket, D-Bus", include_str!("../../attempts/network/unix_socket.py"), Plain, NO_DOORS),
    ("metadata-v4", "Ask the cloud's metadata service", "Capital One, 2019: SSRF to 169.254.169.254", "reach_tcp('169.254.169.254', 80)", OwnNet, NO_WAY),
    ("metadata-v6", "Ask the cloud's metadata service over IPv6", "fd00:ec2::254", "reach_tcp('fd00:ec2::254', 80)", OwnNet, NO_WAY),
    ("metadata-alibaba", "Ask another cloud's metadata service", "100.100.100.200", "reach_tcp('100.100.100.200', 80)", OwnNet, NO_WAY),
    ("metadata-ecs", "Ask for the credentials of a task", "169.254.170.2", "reach_tcp('169.254.170.2', 80)", OwnNet, NO_WAY),
    ("private-10", "Reach the private network", "lateral movement: 10/8", "reach_tcp('10.0.0.1', 443)", OwnNet, NO_WAY),
    ("private-172", "Reach the bridge of a container runtime", "Docker's 172.17.0.1", "reach_tcp('172.17.0.1', 2375)", OwnNet, NO_WAY),
    ("private-192", "Reach the router", "lateral movement: 192.168/16", "reach_tcp('192.168.1.1', 80)", OwnNet, NO_WAY),
    ("kubernetes-api", "Reach the cluster's API", "10.96.0.1", "reach_tcp('10.96.0.1', 443)", OwnNet, NO_WAY),
    ("internet-tcp", "Connect to a host in the internet", "default deny", "reach_tcp('1.1.1.1', 443)", OwnNet, NO_WAY),
    ("internet-tcp6", "The same over IPv6", "rules for IPv4 alone", "reach_tcp('2606:4700:4700::1111', 443)", OwnNet, NO_WAY),
    ("mapped-address", "Connect to an IPv4 address inside an IPv6 one", "::ffff: past filters", "reach_tcp('::ffff:169.254.169.254', 80)", OwnNet, NO_WAY),
    ("unspecified-address", "Connect to 0.0.0.0, which means this host", "0.0.0.0 day", "reach_tcp('0.0.0.0', 8080)", OwnNet, NO_TCP),
    ("smtp", "Send mail", "spam from a sandbox", "reach_tcp('198.51.100.25', 25)", OwnNet, NO_WAY),
    ("proxy", "Use a proxy of the host", "proxies on loopback and in the network", "reach_tcp('127.0.0.1', 3128)", OwnNet, NO_TCP),
    ("dns-udp", "Carry bytes in the name of a DNS question", "DNS tunnelling (iodine)", include_str!("../../attempts/network/dns_udp.py"), OwnNet, DATAGRAMS),
    ("gateway-dns", "Carry bytes in a name that the box's own resolver is asked for", "DNS tunnelling through a resolver that asks on", include_str!("../../attempts/network/gateway_dns.py"), OwnNet, GATEWAY),
    ("gateway-proxy", "Reach a host that no policy names through the gateway's proxy", "open proxies", include_str!("../../attempts/network/gateway_proxy.py"), OwnNet, NO_WAY),
    ("dns-tcp", "Ask a DNS server over TCP", "DNS tunnelling", "reach_tcp('8.8.8.8', 53)", OwnNet, NO_WAY),
    ("dns-stub", "Ask the host's own resolver", "127.0.0.53", "reach_udp('127.0.0.53', 53)", OwnNet, DATAGRAMS),
    ("dns-over-tls", "Ask a resolver in a way that nobody reads", "DNS over TLS", "reach_tcp('9.9.9.9', 853)", OwnNet, NO_WAY),
    ("quic", "Send QUIC", "HTTP/3 past proxies", "reach_udp('1.1.1.1', 443)", OwnNet, DATAGRAMS),
    ("ntp", "Carry bytes in the time protocol", "NTP tunnelling", "reach_udp('192.0.2.123', 123)", OwnNet, DATAGRAMS),
    ("broadcast", "Shout into the network", "discovery by broadcast", "reach_udp('255.255.255.255', 9, broadcast=True)", OwnNet, DATAGRAMS),
    ("multicast", "Speak to every neighbour", "mDNS, SSDP", "reach_udp('224.0.0.251', 5353)", OwnNet, DATAGRAMS),
    ("ping", "Carry bytes in a ping", "ICMP tunnelling", include_str!("../../attempts/network/ping.py"), OwnNet, DATAGRAMS),
    ("interface-up", "Bring an interface up", "turning a network on", include_str!("../../attempts/network/interface_up.py"), OwnNet, NO_POWER),
    ("listen-and-wait", "Be reached from outside", "reverse connections", include_str!("../../attempts/network/listen.py"), OwnNet, NO_WAY),
];

pub(super) fn attempts() -> Vec<Attempt> {
    let make = |&(name, title, stands_for, line, control, second): &Line| Attempt {
        class: Class::Network,
        name,
        title,
        boundary: Boundary::Network,
        issue: Issue::Exfil,
        stands_for,
        first: first(name, second),
        second,
        script: Script::Line(line),
        control,
        props: &[],
        options: &[],
        stopped_by: &[],
        lie: nothing_false,
        unless: &[],
    };
    LINES.iter().map(make).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A build without the network namespace has the host's network: what it is sent to must be this host.
    #[test]
    fn nothing_that_leaves_the_host_is_tried_in_the_hosts_network() {
        let beyond = [
            "192.0.2", "198.51", "169.254", "10.", "172.", "192.168", "1.1.1.1", "8.8.8.8", "9.9.9.9",
            "::ffff", "fd00", "2606",
        ];
        for attempt in attempts() {
            let (Some(Network), Script::Line(line)) = (attempt.second.layer(), attempt.script) else {
                continue;
            };
            assert!(!beyond.iter().any(|address| line.contains(address)), "{}: {line}", attempt.name);
        }
    }
}
