//! HTTP CONNECT, as far as a box needs it.
//!
//! Trust: guest. One request line is read and the headers are passed over: nothing in them can change where it goes.

use blastbox_policy::Host;
use blastbox_wire::egress::Reason;

use super::{Asked, Wish};

/// The refusal of a request, with the reason for machines.
pub(super) fn denied(reason: Reason) -> Vec<u8> {
    let body = format!("{{\"error\":\"denied\",\"reason\":\"{reason}\"}}\n");
    let length = body.len();
    format!(
        "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

fn refused(reason: Reason, shown: &str) -> Wish {
    Wish::Refused { answer: denied(reason), reason, shown: shown.to_owned() }
}

/// Reads what has come so far.
#[must_use]
pub fn read(bytes: &[u8], _greeted: bool) -> Wish {
    let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") else { return Wish::Unfinished };
    let head = bytes.get(..end).unwrap_or_default();
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let Ok(line) = std::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line)) else {
        return refused(Reason::BadRequest, "proxy");
    };
    let mut words = line.split(' ');
    let (Some("CONNECT"), Some(authority), Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return refused(Reason::MethodNotAllowed, "proxy");
    };
    match place(authority) {
        Ok((target, port)) => Wish::Connect { target, port, length: end + 4 },
        Err(reason) => refused(reason, authority),
    }
}

/// Name and port, or why they are none.
pub(super) fn place(authority: &str) -> Result<(Asked, u16), Reason> {
    // Names only, or an address in its one strict form; a colon separates the port, and userinfo is nobody's business.
    let parts = match authority.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
        Some((address, port)) => {
            address.parse().ok().map(|v6: std::net::Ipv6Addr| (Asked::Address(v6.into()), port))
        }
        None => authority.rsplit_once(':').and_then(|(host, port)| {
            let name = host.parse::<Host>().map(Asked::Name).ok();
            let address = || host.parse::<std::net::Ipv4Addr>().ok().map(|v4| Asked::Address(v4.into()));
            Some((name.or_else(address)?, port))
        }),
    };
    let (target, port) = parts.ok_or(Reason::BadName)?;
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(port @ 1..) if digits => Ok((target, port)),
        _ => Err(Reason::BadRequest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Wish {
        read(format!("{line}\r\nHost: other.test:443\r\n\r\nearly").as_bytes(), false)
    }

    #[test]
    fn only_the_request_line_says_where_to() {
        let target = Asked::Name("api.example.com".parse().unwrap());
        let Wish::Connect { target: found, port, .. } = asked("CONNECT API.example.com:443 HTTP/1.1") else {
            panic!("refused");
        };
        assert_eq!((found, port), (target, 443));
        assert!(matches!(asked("CONNECT 93.184.216.34:5432 HTTP/1.1"), Wish::Connect { port: 5432, .. }));
        assert!(matches!(asked("CONNECT [2606:4700::1]:443 HTTP/1.1"), Wish::Connect { .. }));
        assert_eq!(read(b"CONNECT a.test:443 HTTP/1.1\r\n", false), Wish::Unfinished);
    }

    #[test]
    fn tricks_are_refused() {
        for line in [
            "CONNECT api.github.com@evil.test:443 HTTP/1.1",
            "CONNECT api.github.com%00.evil.test:443 HTTP/1.1",
            "CONNECT 0x7f000001:80 HTTP/1.1",
            "CONNECT 127.1:80 HTTP/1.1",
            "CONNECT [::1%25lo]:80 HTTP/1.1",
            "CONNECT a.test HTTP/1.1",
            "CONNECT a.test:+443 HTTP/1.1",
            "CONNECT a.test:0 HTTP/1.1",
            "CONNECT a.test:443 HTTP/1.1 x",
            "CONNECT  a.test:443 HTTP/1.1",
            "GET http://a.test/ HTTP/1.1",
        ] {
            assert!(matches!(asked(line), Wish::Refused { .. }), "{line}");
        }
    }
}
