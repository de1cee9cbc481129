//! DNS: the small part of it that a gateway needs, on both sides.
//!
//! Trust: guest. The box's questions are bytes of an attacker. A name that no rule allows is answered with "no such
//! name" here and now: nothing of it reaches a resolver outside, so questions cannot carry data out.

pub mod names;
pub mod upstream;

use std::net::IpAddr;

use blastbox_policy::{Host, NetworkRules};
use blastbox_wire::egress::Reason;

use crate::decide::unnamed;
use names::{Names, Number};

const A: u16 = 1;
const PTR: u16 = 12;
const AAAA: u16 = 28;
const SVCB: u16 = 64;
const HTTPS: u16 = 65;
const INTERNET: u16 = 1;
/// The longest question that is read: a name, a type, a class and the options that resolvers add.
const LONGEST: usize = 1024;
/// An address keeps its meaning as long as the box lives; this is how long the box may believe that without asking.
const SECONDS: u32 = 300;

/// A question of the box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question<'p> {
    id: [u8; 2],
    /// The opcode and the wish for recursion, as they are copied into the answer.
    flags: u8,
    /// The question as it was asked, to be repeated.
    raw: &'p [u8],
    /// The labels, with dots between them, as sent.
    name: Vec<u8>,
    kind: u16,
    class: u16,
}

/// What a packet to port 53 is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked<'p> {
    /// A question.
    Question(Question<'p>),
    /// Something of which only the number can be read: it is told so.
    Unreadable {
        /// The number of the question.
        id: [u8; 2],
    },
    /// Nothing that can be answered.
    Nothing,
}

/// Reads a packet to port 53.
#[must_use]
pub fn read(packet: &[u8]) -> Asked<'_> {
    let Some((&[id0, id1, high, _low, q0, q1, a0, a1, n0, n1, _, _], rest)) =
        packet.split_first_chunk::<12>()
    else {
        return Asked::Nothing;
    };
    let id = [id0, id1];
    // An answer is never answered: two who do would do it for ever.
    if high & 0x80 != 0 {
        return Asked::Nothing;
    }
    let plain = [q0, q1, a0, a1, n0, n1] == [0, 1, 0, 0, 0, 0] && high & 0x78 == 0;
    match read_question(rest).filter(|_| plain && packet.len() <= LONGEST) {
        Some((name, raw, kind, class)) => {
            Asked::Question(Question { id, flags: high & 0x01, raw, name, kind, class })
        }
        None => Asked::Unreadable { id },
    }
}

/// The name with dots, the question as bytes, its type and its class. Pointers have nothing to point to in a question.
fn read_question(rest: &[u8]) -> Option<(Vec<u8>, &[u8], u16, u16)> {
    let mut name = Vec::new();
    let mut left = rest;
    loop {
        let (&length, after) = left.split_first()?;
        left = after;
        match length {
            0 => break,
            1..=63 => {
                let (label, after) = left.split_at_checked(usize::from(length))?;
                // A dot inside a label would make one label look like two.
                if label.contains(&b'.') || name.len() > 255 {
                    return None;
                }
                if !name.is_empty() {
                    name.push(b'.');
                }
                name.extend_from_slice(label);
                left = after;
            }
            64.. => return None,
        }
    }
    let (&[k0, k1, c0, c1], after) = left.split_first_chunk::<4>()?;
    let raw = rest.get(..rest.len() - after.len())?;
    Some((name, raw, u16::from_be_bytes([k0, k1]), u16::from_be_bytes([c0, c1])))
}

/// What is answered, and what is told about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The answer.
    pub bytes: Vec<u8>,
    /// The name, as far as it is one.
    pub name: String,
    /// The type that was asked for.
    pub kind: u16,
    /// Why it was answered with nothing.
    pub denied: Option<Reason>,
}

impl Question<'_> {
    /// Answers. `budget` is how many names may be given out under one wildcard.
    #[must_use]
    pub fn answer(&self, rules: &NetworkRules, names: &mut Names, budget: usize) -> Reply {
        if self.kind == PTR
            && let Some(name) = self.backwards().and_then(|address| names.name(address))
        {
            let data = wire_form(name);
            return self.reply(NO_ERROR, Some((PTR, &data)), None);
        }
        let host = match Host::from_bytes(&self.name) {
            Ok(host) if self.class == INTERNET => host,
            Ok(_) => return self.reply(NO_SUCH_NAME, None, Some(Reason::QuestionKind)),
            Err(_) => return self.reply(NO_SUCH_NAME, None, Some(Reason::BadName)),
        };
        let pattern = match rules.closest(&host) {
            Ok(pattern) => pattern,
            Err(why) => return self.reply(NO_SUCH_NAME, None, Some(unnamed(why))),
        };
        match self.kind {
            A | AAAA => match names.number(&host, pattern, budget) {
                Ok(number) => self.reply_address(number),
                Err(reason) => self.reply(NO_SUCH_NAME, None, Some(reason)),
            },
            // No keys for encrypted names, no hints to QUIC: the client goes on with the address alone.
            HTTPS | SVCB => self.reply(NO_ERROR, None, None),
            _ => self.reply(NO_ERROR, None, Some(Reason::QuestionKind)),
        }
    }

    /// Refuses because too many came.
    #[must_use]
    pub fn refuse(&self) -> Reply {
        self.reply(REFUSED, None, Some(Reason::RateLimit))
    }

    fn reply_address(&self, number: Number) -> Reply {
        match self.kind {
            A => self.reply(NO_ERROR, Some((A, &number.v4().octets())), None),
            _ => self.reply(NO_ERROR, Some((AAAA, &number.v6().octets())), None),
        }
    }

    fn reply(&self, code: u8, record: Option<(u16, &[u8])>, denied: Option<Reason>) -> Reply {
        let mut bytes = Vec::with_capacity(self.raw.len() + 64);
        bytes.extend_from_slice(&self.id);
        // A response, authoritative, recursion as it was wished for and available.
        bytes.extend_from_slice(&[0x84 | self.flags, 0x80 | code]);
        bytes.extend_from_slice(&[0, 1, 0, u8::from(record.is_some()), 0, 0, 0, 0]);
        bytes.extend_from_slice(self.raw);
        if let Some((kind, data)) = record {
            // The name of the question, by pointer.
            bytes.extend_from_slice(&[0xc0, 12]);
            bytes.extend_from_slice(&kind.to_be_bytes());
            bytes.extend_from_slice(&INTERNET.to_be_bytes());
            bytes.extend_from_slice(&SECONDS.to_be_bytes());
            bytes.extend_from_slice(&u16::try_from(data.len()).unwrap_or(0).to_be_bytes());
            bytes.extend_from_slice(data);
        }
        let name = String::from_utf8_lossy(&self.name).to_lowercase();
        Reply { bytes, name, kind: self.kind, denied }
    }

    /// The address behind `4.3.2.1.in-addr.arpa`.
    fn backwards(&self) -> Option<IpAddr> {
        let name = std::str::from_utf8(&self.name).ok()?.to_ascii_lowercase();
        let mut octets = [0_u8; 4];
        let mut parts = name.strip_suffix(".in-addr.arpa")?.split('.');
        for octet in octets.iter_mut().rev() {
            *octet = parts.next()?.parse().ok()?;
        }
        parts.next().is_none().then(|| IpAddr::from(octets))
    }
}

const NO_ERROR: u8 = 0;
const NOT_UNDERSTOOD: u8 = 1;
const NO_SUCH_NAME: u8 = 3;
const REFUSED: u8 = 5;

/// The answer to something of which only the number can be read.
#[must_use]
pub fn not_understood(id: [u8; 2]) -> Vec<u8> {
    [id[0], id[1], 0x84, 0x80 | NOT_UNDERSTOOD, 0, 0, 0, 0, 0, 0, 0, 0].to_vec()
}

/// A name as labels with their lengths.
pub(crate) fn wire_form(name: &Host) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.as_str().len() + 2);
    for label in name.labels() {
        bytes.push(u8::try_from(label.len()).unwrap_or(0));
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use blastbox_policy::parse;

    fn rules() -> NetworkRules {
        let text = "threat = \"medium\"\n[network]\nmode = \"allow\"\n\
                    allow = [{ host = \"a.example.com\" }, { host = \"*.example.org\" }]";
        parse(text).unwrap().network_rules().clone()
    }

    fn ask(labels: &[&[u8]], kind: u16) -> Vec<u8> {
        let mut bytes = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in labels {
            bytes.push(u8::try_from(label.len()).unwrap());
            bytes.extend_from_slice(label);
        }
        bytes.push(0);
        bytes.extend(kind.to_be_bytes());
        bytes.extend(INTERNET.to_be_bytes());
        bytes
    }

    fn answer(packet: &[u8]) -> Reply {
        let Asked::Question(question) = read(packet) else { panic!("not a question") };
        question.answer(&rules(), &mut Names::default(), 2)
    }

    fn code(reply: &Reply) -> (u8, u8) {
        (reply.bytes[3] & 0xf, reply.bytes[7])
    }

    #[test]
    fn allowed_names_get_an_address_and_others_do_not_exist() {
        let reply = answer(&ask(&[b"A", b"example", b"com"], A));
        assert_eq!((code(&reply), reply.denied), ((NO_ERROR, 1), None));
        assert_eq!(&reply.bytes[..2], &[0xab, 0xcd]);
        assert_eq!(&reply.bytes[reply.bytes.len() - 4..], &[198, 18, 1, 0]);
        let reply = answer(&ask(&[b"a", b"example", b"com"], AAAA));
        assert_eq!(code(&reply), (NO_ERROR, 1));
        for stranger in [
            &[&b"evil"[..], b"test"][..],
            &[b"example", b"org"],
            &[b"a", b"example", b"com", b"evil", b"test"],
        ] {
            let reply = answer(&ask(stranger, A));
            assert_eq!((code(&reply), reply.denied), ((NO_SUCH_NAME, 0), Some(Reason::HostNotAllowed)));
        }
    }

    #[test]
    fn names_that_are_tricks_do_not_exist() {
        for labels in
            [&[&b"a"[..], b"example\0", b"com"][..], &[b"a b", b"test"], &[b"127", b"0", b"0", b"1"], &[]]
        {
            let reply = answer(&ask(labels, A));
            assert_eq!(
                (code(&reply), reply.denied),
                ((NO_SUCH_NAME, 0), Some(Reason::BadName)),
                "{labels:?}"
            );
        }
        // One label that looks like three.
        assert!(matches!(read(&ask(&[b"a.example.com"], A)), Asked::Unreadable { .. }));
    }

    #[test]
    fn other_types_are_empty_so_that_nobody_learns_of_encrypted_names() {
        for kind in [HTTPS, SVCB] {
            let reply = answer(&ask(&[b"a", b"example", b"com"], kind));
            assert_eq!((code(&reply), reply.denied), ((NO_ERROR, 0), None));
        }
        let reply = answer(&ask(&[b"a", b"example", b"com"], 16));
        assert_eq!((code(&reply), reply.denied), ((NO_ERROR, 0), Some(Reason::QuestionKind)));
    }

    #[test]
    fn an_address_leads_back_to_its_name() {
        let mut names = Names::default();
        let packet = ask(&[b"a", b"example", b"com"], A);
        let Asked::Question(question) = read(&packet) else { panic!("not a question") };
        assert_eq!(question.answer(&rules(), &mut names, 2).denied, None);
        let packet = ask(&[b"0", b"1", b"18", b"198", b"in-addr", b"arpa"], PTR);
        let Asked::Question(question) = read(&packet) else { panic!("not a question") };
        let reply = question.answer(&rules(), &mut names, 2);
        assert_eq!(code(&reply), (NO_ERROR, 1));
        assert!(reply.bytes.ends_with(b"\x01a\x07example\x03com\x00"));
    }

    #[test]
    fn nonsense_is_answered_briefly_or_not_at_all() {
        assert_eq!(read(b"short"), Asked::Nothing);
        let mut response = ask(&[b"a", b"test"], A);
        response[2] |= 0x80;
        assert_eq!(read(&response), Asked::Nothing);
        let mut two = ask(&[b"a", b"test"], A);
        two[5] = 2;
        assert_eq!(read(&two), Asked::Unreadable { id: [0xab, 0xcd] });
        let pointer = [&ask(&[], A)[..12], &[0xc0, 12, 0, 1, 0, 1]].concat();
        assert_eq!(read(&pointer), Asked::Unreadable { id: [0xab, 0xcd] });
        assert_eq!(not_understood([1, 2]).len(), 12);
    }
}
