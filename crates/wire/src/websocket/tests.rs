//! What is framed is read again however it is cut, and what breaks the rules is refused.

use proptest::prelude::*;

use super::*;

fn all(from: Side, bytes: &[u8], piece: usize) -> Result<Vec<Message>, Broken> {
    let (mut cutter, mut found) = (Cutter::new(from), Vec::new());
    for piece in bytes.chunks(piece) {
        cutter.add(piece);
        while let Some(message) = cutter.take()? {
            found.push(message);
        }
    }
    Ok(found)
}

/// Bytes that belong together, whatever pieces they came in.
fn joined(messages: Vec<Message>) -> Vec<Message> {
    let mut found: Vec<Message> = Vec::new();
    for message in messages {
        match (found.last_mut(), message) {
            (Some(Message::Bytes(before)), Message::Bytes(more)) => before.extend(more),
            (_, message) => found.push(message),
        }
    }
    found
}

#[test]
fn messages_are_found_however_they_are_cut() {
    for (from, mask) in [(Side::Client, Some([1, 2, 3, 200])), (Side::Server, None)] {
        let mut sent = Vec::new();
        encode(Kind::Text, b"{\"a\":1}", mask, &mut sent);
        encode(Kind::Ping, b"there?", mask, &mut sent);
        encode(Kind::Binary, &[7; 70_000], mask, &mut sent);
        encode(Kind::Pong, b"", mask, &mut sent);
        encode(Kind::Binary, &[8; 300], mask, &mut sent);
        encode(Kind::Close, &closing(1000), mask, &mut sent);
        for piece in [1, 2, 3, 7, 126, 1000, sent.len()] {
            let expected = [
                Message::Text("{\"a\":1}".into()),
                Message::Ping(b"there?".to_vec()),
                Message::Bytes(vec![7; 70_000]),
                Message::Pong,
                Message::Bytes(vec![8; 300]),
                Message::Close,
            ];
            assert_eq!(joined(all(from, &sent, piece).unwrap()), expected, "{piece}");
        }
    }
}

#[test]
fn fragments_are_joined_and_control_frames_come_between_them() {
    let frames = [&[0x01, 2, b'a', b'b'][..], &[0x89, 1, b'?'], &[0x00, 1, b'c'], &[0x80, 1, b'd']].concat();
    let found = all(Side::Server, &frames, 1).unwrap();
    assert_eq!(found, [Message::Ping(b"?".to_vec()), Message::Text("abcd".into())]);
}

#[test]
fn what_breaks_the_rules_is_refused() {
    let masked = |first: u8, second: u8| vec![first, second, 0, 0, 0, 0, 1, 2, 3];
    for (from, bytes, broken) in [
        (Side::Client, vec![0x82, 1, 7], Broken::Protocol),
        (Side::Server, masked(0x82, 0x81), Broken::Protocol),
        (Side::Server, vec![0xc2, 1, 7], Broken::Protocol),
        (Side::Server, vec![0x83, 1, 7], Broken::Protocol),
        (Side::Server, vec![0x80, 1, 7], Broken::Protocol),
        (Side::Server, vec![0x09, 1, 7], Broken::Protocol),
        (Side::Server, vec![0x89, 126, 0, 200], Broken::Protocol),
        (Side::Server, vec![0x02, 1, 7, 0x82, 1, 7], Broken::Protocol),
        (Side::Server, vec![0x81, 2, 0xc3, 0x28], Broken::NotText),
    ] {
        assert_eq!(all(from, &bytes, 100), Err(broken), "{bytes:?}");
    }
    let mut long = Vec::new();
    encode(Kind::Text, &vec![b'a'; MAX_TEXT + 1], None, &mut long);
    assert_eq!(all(Side::Server, &long, 1000), Err(Broken::TooLong));
}

#[test]
fn a_length_without_end_is_not_waited_for() {
    // What is there of it is handed on, and nothing is allocated for the rest.
    let mut bytes = vec![0x82, 127];
    bytes.extend_from_slice(&u64::MAX.to_be_bytes());
    bytes.extend_from_slice(b"some");
    assert_eq!(all(Side::Server, &bytes, 100).unwrap(), [Message::Bytes(b"some".to_vec())]);
}

proptest! {
    #[test]
    fn no_bytes_are_too_strange(bytes: Vec<u8>, piece in 1..20_usize) {
        for from in [Side::Client, Side::Server] {
            all(from, &bytes, piece).ok();
        }
    }
}
