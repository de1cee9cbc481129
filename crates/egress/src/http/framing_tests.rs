//! Every ambiguous message is refused, its unambiguous neighbour passes, and cutting the bytes changes nothing.

use super::*;

fn read(text: &[u8]) -> Result<bool, Violation> {
    let mut whole = Framing::default();
    let result = whole.feed(text).map(|()| whole.between_requests());
    for size in [1, 2, 3, 7] {
        let mut pieces = Framing::default();
        let cut =
            text.chunks(size).try_for_each(|piece| pieces.feed(piece)).map(|()| pieces.between_requests());
        assert_eq!(cut, result, "in pieces of {size}: {}", String::from_utf8_lossy(text));
    }
    result
}

fn post(headers: &str, body: &str) -> Result<bool, Violation> {
    read(format!("POST /x HTTP/1.1\r\nHost: a.test\r\n{headers}\r\n{body}").as_bytes())
}

#[test]
fn ordinary_messages_pass() {
    for (headers, body) in [
        ("", ""),
        ("Content-Length: 0\r\n", ""),
        ("Content-Length: 5\r\n", "a\nb\rc"),
        ("Transfer-Encoding: chunked\r\n", "5\r\nab\ncd\r\n0\r\n\r\n"),
        ("Transfer-Encoding: Chunked\r\n", "1a;x=y\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nX-Sum: 1\r\n\r\n"),
        ("Accept: */*\r\nX-Empty:\r\nX-Utf8: \u{e9}\r\n", "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"),
        ("Content-Length: 2\r\n", "xx\r\nGET / HTTP/1.0\r\nHost: a.test\r\n\r\n"),
    ] {
        assert_eq!(post(headers, body), Ok(true), "{headers:?} {body:?}");
    }
    assert_eq!(post("Content-Length: 9\r\n", "short"), Ok(false));
}

#[test]
fn smuggling_is_refused() {
    use Violation::*;
    for (headers, body, why) in [
        ("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "", TwoLengths),
        ("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", "", TwoLengths),
        ("Content-Length: 4\r\nContent-Length: 4\r\n", "", Length),
        ("Content-Length: 4\r\nContent-Length: 5\r\n", "", Length),
        ("Content-Length: 4, 4\r\n", "", Length),
        ("Content-Length: +4\r\n", "", Length),
        ("Content-Length: 0x4\r\n", "", Length),
        ("Content-Length:\r\n", "", Length),
        ("Content-Length: 99999999999999999999\r\n", "", Length),
        ("Transfer-Encoding: identity\r\n", "", Encoding),
        ("Transfer-Encoding: gzip, chunked\r\n", "", Encoding),
        ("Transfer-Encoding: chunked, chunked\r\n", "", Encoding),
        ("Transfer-Encoding: xchunked\r\n", "", Encoding),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "", Encoding),
        ("Transfer-Encoding : chunked\r\n", "", HeaderLine),
        ("Transfer-Encoding\t: chunked\r\n", "", HeaderLine),
        ("Transfer-Encoding:\u{b}chunked\r\n", "", HeaderLine),
        (" Transfer-Encoding: chunked\r\n", "", Folded),
        ("X: a\r\n b\r\n", "", Folded),
        ("X: a\r\n\tb\r\n", "", Folded),
        ("X: a\n", "", BareLineEnd),
        ("X: a\rY: b\r\n", "", BareLineEnd),
        ("X: a\r\r\n", "", BareLineEnd),
        ("X: a\0b\r\n", "", HeaderLine),
        ("no colon\r\n", "", HeaderLine),
        (": empty\r\n", "", HeaderLine),
        ("Host: b.test\r\n", "", Host),
        ("host: a.test\r\n", "", Host),
        ("Transfer-Encoding: chunked\r\n", "5\nhello\r\n", BareLineEnd),
        ("Transfer-Encoding: chunked\r\n", "5 \r\nhello\r\n", Chunk),
        ("Transfer-Encoding: chunked\r\n", "-5\r\nhello\r\n", Chunk),
        ("Transfer-Encoding: chunked\r\n", "0x5\r\nhello\r\n", Chunk),
        ("Transfer-Encoding: chunked\r\n", "\r\nhello\r\n", Chunk),
        ("Transfer-Encoding: chunked\r\n", "ffffffffffffffffff\r\n", Chunk),
        ("Transfer-Encoding: chunked\r\n", "5\r\nhelloX\r\n", Chunk),
        ("Transfer-Encoding: chunked\r\n", "0\r\nContent-Length: 5\r\n\r\n", HeaderLine),
        ("Transfer-Encoding: chunked\r\n", "0\r\nHost: b.test\r\n\r\n", HeaderLine),
    ] {
        assert_eq!(post(headers, body), Err(why), "{headers:?} {body:?}");
    }
}

#[test]
fn request_lines_are_exact() {
    use Violation::*;
    for (line, why) in [
        ("GET  / HTTP/1.1", RequestLine),
        ("GET /  HTTP/1.1", RequestLine),
        ("GET / HTTP/1.1 ", RequestLine),
        ("GET /a b HTTP/1.1", RequestLine),
        ("GET\t/ HTTP/1.1", RequestLine),
        ("GET /", RequestLine),
        ("GET / HTTP/2.0", RequestLine),
        ("GET / HTTP/1.2", RequestLine),
        ("GET / http/1.1", RequestLine),
        ("G@T / HTTP/1.1", RequestLine),
        ("GET /\u{e9} HTTP/1.1", RequestLine),
        ("CONNECT evil.test:443 HTTP/1.1", Connect),
        ("PRI * HTTP/2.0", RequestLine),
    ] {
        assert_eq!(read(format!("{line}\r\nHost: a.test\r\n\r\n").as_bytes()), Err(why), "{line:?}");
    }
    assert_eq!(read(b"GET / HTTP/1.1\r\n\r\n"), Err(Host));
    assert_eq!(read(b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), Err(RequestLine));
}

#[test]
fn a_guest_cannot_grow_the_buffer() {
    let mut framing = Framing::default();
    let long = vec![b'a'; LONGEST_HEAD + 1];
    assert_eq!(framing.feed(&long), Err(Violation::TooLarge));
    assert!(framing.line.len() <= LONGEST_HEAD);

    let many = "X: y\r\n".repeat(MOST_HEADERS);
    assert_eq!(post(&many, ""), Err(Violation::TooLarge));
    let wide = format!("X: {}\r\n", "y".repeat(LONGEST_HEAD / 8)).repeat(9);
    assert_eq!(post(&wide, ""), Err(Violation::TooLarge));
    let extension = format!("5;{}\r\n", "e".repeat(LONGEST_CHUNK_LINE));
    assert_eq!(post("Transfer-Encoding: chunked\r\n", &extension), Err(Violation::Chunk));
}
