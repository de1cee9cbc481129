//! The rules of packets that the short way is made of.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{MARK, PORT, VOICE, small};
use crate::netlink::{APPEND, CREATE, Message};

const NAME: &str = "blastbox";
const BEGIN: u16 = 16;
const END: u16 = 17;
const NEW_TABLE: u16 = 0;

/// `gateway`: where the ears are. `shut`: the loopback interface of a box that does not talk to itself.
pub(super) fn rules(index: u32, gateway: (Ipv4Addr, Ipv6Addr), shut: Option<u32>) -> Vec<Message> {
    const PREROUTING: u32 = 0;
    const OUTPUT: u32 = 3;
    let mut all = vec![
        of_packets(NEW_TABLE, CREATE).text(1, NAME),
        chain("in", "filter", PREROUTING),
        chain("out", "route", OUTPUT),
    ];
    // What the gateway puts back is handed to its ear.
    for (family, address) in [(2, gateway.0.octets().to_vec()), (10, gateway.1.octets().to_vec())] {
        let opening = opening_over(meta::COMING_FROM, index, Opens::Yes);
        all.push(rule("in", [opening, to_ear(family, &address), marked()].concat()));
    }
    if let Some(home) = shut {
        let over_home = [load(meta::GOING_TO), equal(&home.to_ne_bytes())];
        let not_gateways = [load(meta::MARK), compared(NOT_EQUAL, &VOICE.to_ne_bytes()), dropped()];
        all.push(rule("out", [over_home.to_vec(), not_gateways.to_vec()].concat()));
    }
    // What follows an opening stays here.
    all.push(rule("out", [opening_over(meta::GOING_TO, index, Opens::No), marked()].concat()));
    at_once(all)
}

/// Takes all of them away.
pub(super) fn no_rules() -> Vec<Message> {
    const DELETE_TABLE: u16 = 2;
    at_once(vec![of_packets(DELETE_TABLE, 0).text(1, NAME)])
}

fn at_once(changes: Vec<Message>) -> Vec<Message> {
    let edge = |kind| vec![Message::silent(kind, &[0, 0, 0, small(libc::NFNL_SUBSYS_NFTABLES)])];
    [edge(BEGIN), changes, edge(END)].concat()
}

fn of_packets(kind: u16, flags: u16) -> Message {
    const BOTH_FAMILIES: u8 = 1;
    let subsystem = u16::try_from(libc::NFNL_SUBSYS_NFTABLES).unwrap_or(0) << 8;
    Message::new(subsystem | kind, flags, &[BOTH_FAMILIES, 0, 0, 0])
}

fn chain(name: &str, kind: &str, hook: u32) -> Message {
    const NEW_CHAIN: u16 = 3;
    // Before whatever else there could be.
    let priority = (-150_i32).cast_unsigned();
    let hook = Message::default().big(1, hook).big(2, priority);
    of_packets(NEW_CHAIN, CREATE).text(1, NAME).text(3, name).list(4, hook).text(7, kind)
}

/// One step of a rule.
type Step = (&'static str, Message);

fn rule(chain: &str, steps: Vec<Step>) -> Message {
    const NEW_RULE: u16 = 6;
    const ELEMENT: u16 = 1;
    let list = steps.into_iter().fold(Message::default(), |list, (name, data)| {
        list.list(ELEMENT, Message::default().text(1, name).list(2, data))
    });
    // Appended, not put in front.
    of_packets(NEW_RULE, APPEND).text(1, NAME).text(2, chain).list(4, list)
}

/// What is known of a packet beside its bytes.
mod meta {
    pub(super) const MARK: u32 = 3;
    pub(super) const COMING_FROM: u32 = 4;
    pub(super) const GOING_TO: u32 = 5;
    pub(super) const PROTOCOL: u32 = 16;
}

/// Whether it opens a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opens {
    Yes,
    No,
}

fn opening_over(side: u32, index: u32, opens: Opens) -> Vec<Step> {
    const TCP: u8 = 6;
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    vec![
        load(side),
        equal(&index.to_ne_bytes()),
        load(meta::PROTOCOL),
        equal(&[TCP]),
        flags_of_tcp(),
        masked(SYN | ACK),
        compared(if opens == Opens::Yes { EQUAL } else { NOT_EQUAL }, &[SYN]),
    ]
}

/// The register that every step here works with.
const REGISTER: u32 = 1;
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;

fn value(bytes: &[u8]) -> Message {
    Message::default().attribute(1, bytes)
}

fn load(key: u32) -> Step {
    ("meta", Message::default().big(1, REGISTER).big(2, key))
}

fn flags_of_tcp() -> Step {
    const TRANSPORT: u32 = 2;
    const FLAGS: u32 = 13;
    ("payload", Message::default().big(1, REGISTER).big(2, TRANSPORT).big(3, FLAGS).big(4, 1))
}

fn masked(mask: u8) -> Step {
    let both = Message::default().big(1, REGISTER).big(2, REGISTER).big(3, 1);
    ("bitwise", both.list(4, value(&[mask])).list(5, value(&[0])))
}

fn equal(bytes: &[u8]) -> Step {
    compared(EQUAL, bytes)
}

fn compared(how: u32, bytes: &[u8]) -> Step {
    ("cmp", Message::default().big(1, REGISTER).big(2, how).list(3, value(bytes)))
}

fn immediate(register: u32, bytes: &[u8]) -> Step {
    ("immediate", Message::default().big(1, register).list(2, value(bytes)))
}

fn dropped() -> Step {
    const VERDICT: u32 = 0;
    const DROP: u32 = 0;
    let verdict = Message::default().list(2, Message::default().big(1, DROP));
    ("immediate", Message::default().big(1, VERDICT).list(2, verdict))
}

fn marked() -> Vec<Step> {
    let set = Message::default().big(2, meta::MARK).big(3, REGISTER);
    vec![immediate(REGISTER, &MARK.to_ne_bytes()), ("meta", set)]
}

fn to_ear(family: u32, address: &[u8]) -> Vec<Step> {
    const OTHER_REGISTER: u32 = 2;
    let ear = Message::default().big(1, family).big(2, OTHER_REGISTER).big(3, REGISTER);
    vec![immediate(REGISTER, &PORT.to_be_bytes()), immediate(OTHER_REGISTER, address), ("tproxy", ear)]
}
