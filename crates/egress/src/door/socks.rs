//! SOCKS5, as far as a box needs it: no authentication, CONNECT, names and addresses.
//!
//! Trust: guest. A name with a NUL in it is no name here, whatever another program made of it.

use std::net::IpAddr;

use blastbox_policy::Host;
use blastbox_wire::egress::Reason;

use super::{Asked, Wish};

const VERSION: u8 = 5;
const CONNECT: u8 = 1;

fn answer(code: u8) -> Vec<u8> {
    vec![VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

/// "Not allowed by the rules", or what comes nearest.
pub(super) fn denied(reason: Reason) -> Vec<u8> {
    answer(match reason {
        Reason::FlowLimit | Reason::RateLimit => 1,
        _ => 2,
    })
}

/// Reads what has come so far.
#[must_use]
pub fn read(bytes: &[u8], greeted: bool) -> Wish {
    if greeted { request(bytes) } else { greeting(bytes) }
}

fn refused(code: u8, reason: Reason, shown: &str) -> Wish {
    Wish::Refused { answer: answer(code), reason, shown: shown.to_owned() }
}

fn greeting(bytes: &[u8]) -> Wish {
    match bytes {
        [VERSION, count, methods @ ..] if methods.len() >= usize::from(*count) => {
            let length = 2 + usize::from(*count);
            if methods.iter().take(usize::from(*count)).any(|method| *method == 0) {
                Wish::Greeting { answer: vec![VERSION, 0], length }
            } else {
                Wish::Refused {
                    answer: vec![VERSION, 0xff],
                    reason: Reason::BadRequest,
                    shown: "socks".to_owned(),
                }
            }
        }
        [] | [VERSION, ..] => Wish::Unfinished,
        [..] => refused(1, Reason::BadRequest, "socks"),
    }
}

fn request(bytes: &[u8]) -> Wish {
    let Some((&[version, command, _, kind], rest)) = bytes.split_first_chunk::<4>() else {
        return Wish::Unfinished;
    };
    if version != VERSION {
        return refused(1, Reason::BadRequest, "socks");
    }
    if command != CONNECT {
        return refused(7, Reason::Transport, "socks");
    }
    let (target, length) = match kind {
        1 => match rest.split_first_chunk::<4>() {
            Some((octets, _)) => (Asked::Address(IpAddr::from(*octets)), 4),
            None => return Wish::Unfinished,
        },
        4 => match rest.split_first_chunk::<16>() {
            Some((octets, _)) => (Asked::Address(IpAddr::from(*octets)), 16),
            None => return Wish::Unfinished,
        },
        3 => {
            let Some((&length, name)) = rest.split_first() else { return Wish::Unfinished };
            let Some(name) = name.get(..usize::from(length)) else { return Wish::Unfinished };
            match Host::from_bytes(name) {
                Ok(host) => (Asked::Name(host), 1 + usize::from(length)),
                // Programs send addresses as text too; only the one strict form of them is taken.
                Err(_) => match std::str::from_utf8(name).ok().and_then(|text| text.parse().ok()) {
                    Some(address) => (Asked::Address(address), 1 + usize::from(length)),
                    None => return refused(2, Reason::BadName, &String::from_utf8_lossy(name)),
                },
            }
        }
        _ => return refused(8, Reason::BadRequest, "socks"),
    };
    match rest.get(length..length + 2) {
        Some(&[high, low]) => {
            Wish::Connect { target, port: u16::from_be_bytes([high, low]), length: 4 + length + 2 }
        }
        _ => Wish::Unfinished,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_name(name: &[u8]) -> Vec<u8> {
        [&[5, 1, 0, 3, u8::try_from(name.len()).unwrap()][..], name, &[1, 187]].concat()
    }

    #[test]
    fn a_wish_is_read_however_it_comes() {
        let bytes = by_name(b"api.example.com");
        for length in 0..bytes.len() {
            assert_eq!(read(&bytes[..length], true), Wish::Unfinished);
        }
        let target = Asked::Name("api.example.com".parse().unwrap());
        assert_eq!(read(&bytes, true), Wish::Connect { target, port: 443, length: bytes.len() });
        let v4 = [5, 1, 0, 1, 198, 18, 1, 0, 0, 80];
        assert!(matches!(read(&v4, true), Wish::Connect { target: Asked::Address(_), port: 80, .. }));
    }

    #[test]
    fn tricks_with_names_are_refused() {
        for name in [&b"api.example.com\0.evil.test"[..], b"0x7f.1", b"2130706433", b"a@b", b""] {
            assert!(
                matches!(read(&by_name(name), true), Wish::Refused { reason: Reason::BadName, .. }),
                "{name:?}"
            );
        }
        assert!(matches!(read(&[5, 2, 0, 1, 0, 0, 0, 0, 0, 0], true), Wish::Refused { .. }));
        assert!(matches!(read(&[4, 1], false), Wish::Refused { .. }));
        assert!(matches!(read(&[5, 1, 2], false), Wish::Refused { .. }));
        assert_eq!(read(&[5, 2, 2, 0], false), Wish::Greeting { answer: vec![5, 0], length: 4 });
    }
}
