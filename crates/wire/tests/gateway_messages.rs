//! Messages of a gateway, which parses hostile bytes for a living and may have been taken over: read back, or refused, and never
//! worse. The seeds of the fuzz target are replayed here, with every byte of them changed and every end cut off.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail at once")]

mod broken;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use blastbox_wire::CodecError;
use blastbox_wire::egress::{Carried, Door, FromGateway, Reason, Record, Trust};

use self::broken::{changed_and_cut, lying};

fn samples() -> Vec<(&'static str, FromGateway)> {
    let (target, port, flow) = ("api.example.com".to_owned(), 443, 7);
    let reason = Reason::ALL.first().copied().unwrap();
    let carried = Carried { sent: 1, received: u64::MAX, millis: 9 };
    let denied_at = |door, address| Record::Denied {
        flow,
        door,
        target: target.clone(),
        port,
        address,
        reason,
        count: 3,
        carried,
    };
    let denied = |door| denied_at(door, None);
    let opened = |address| Record::Opened {
        flow,
        door: Door::Link,
        target: target.clone(),
        port,
        address,
        rule: "*.example.com".to_owned(),
    };
    let closed = |reason| Record::Closed { flow, target: target.clone(), port, carried, reason };
    let question = |denied| Record::Question { name: target.clone(), kind: 28, denied, count: 1 };
    let lent = Record::Lent {
        flow,
        secret: "token".to_owned(),
        target: target.clone(),
        port,
        request: "GET /v1".to_owned(),
    };
    let variables = vec![("TOKEN".to_owned(), "stand-in".to_owned())];
    let record = FromGateway::Record;
    vec![
        ("ready", FromGateway::Ready { by_packets: false }),
        ("ready-by-packets", FromGateway::Ready { by_packets: true }),
        ("failed", FromGateway::Failed { why: "cannot open the link".to_owned() }),
        ("rules-taken", FromGateway::RulesTaken),
        ("farewell", FromGateway::Farewell),
        ("trust", FromGateway::Trust(Trust { authority: "-----BEGIN".to_owned(), variables })),
        ("question", record(question(None))),
        ("question-denied", record(question(Some(reason)))),
        ("denied-link", record(denied(Door::Link))),
        ("denied-connect", record(denied(Door::Connect))),
        ("denied-socks", record(denied(Door::Socks))),
        ("denied-call", record(denied(Door::Call))),
        ("denied-v4", record(denied_at(Door::Connect, Some(IpAddr::V4(Ipv4Addr::LOCALHOST))))),
        ("denied-v6", record(denied_at(Door::Socks, Some(IpAddr::V6(Ipv6Addr::LOCALHOST))))),
        ("opened-v4", record(opened(IpAddr::V4(Ipv4Addr::LOCALHOST)))),
        ("opened-v6", record(opened(IpAddr::V6(Ipv6Addr::LOCALHOST)))),
        ("closed", record(closed(None))),
        ("closed-by-reason", record(closed(Some(reason)))),
        ("lent", record(lent)),
        ("lost", record(Record::Lost { count: 5 })),
    ]
}

/// What a reader makes of bytes: nothing, or something that it writes and reads as the same.
fn read(bytes: &[u8]) {
    if let Ok(message) = FromGateway::decode(bytes) {
        assert_eq!(FromGateway::decode(&message.encode()), Ok(message));
    }
}

#[test]
fn a_seed_is_what_its_name_says() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/egress");
    for (name, message) in samples() {
        assert_eq!(std::fs::read(corpus.join(name)).unwrap(), message.encode(), "{name}");
        assert_eq!(FromGateway::decode(&message.encode()), Ok(message), "{name}");
    }
}

#[test]
fn changed_and_cut_messages_are_refused_or_read_back() {
    for (_, message) in samples() {
        changed_and_cut(&message.encode(), read);
    }
}

/// By the reader's own bound, and not because the message ends before: nothing is read, or made room for, by such a length.
#[test]
fn a_lying_length_is_refused_by_its_bound() {
    let texts = [
        "api.example.com",
        "*.example.com",
        "GET /v1",
        "token",
        "TOKEN",
        "stand-in",
        "-----BEGIN",
        "cannot open the link",
    ];
    let mut lied = 0;
    for (name, message) in samples() {
        let whole = message.encode();
        for text in texts {
            for changed in lying(&whole, text) {
                let most = usize::try_from(u32::MAX).unwrap();
                assert_eq!(FromGateway::decode(&changed), Err(CodecError::TooLong(most)), "{name} {text}");
                lied += 1;
            }
        }
    }
    assert!(lied >= 16, "only {lied} lengths were found");
}
