//! Answers in which a secret could not be found: those that are compressed or cut to pieces.
//!
//! Trust: the guest chose the request, and through it what the server says. A server is asked for whole and plain answers, and one that
//! gives others all the same is not passed on.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};

/// By which names a part of an answer is asked for. The last two are what Apache's and Azure's servers take as well.
const PARTS: [HeaderName; 4] = [
    header::RANGE,
    header::IF_RANGE,
    HeaderName::from_static("request-range"),
    HeaderName::from_static("x-ms-range"),
];

/// Asks for an answer that can be looked through, frames of a WebSocket among it.
pub(super) fn ask(headers: &mut HeaderMap) {
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    for name in PARTS.iter().chain([&header::SEC_WEBSOCKET_EXTENSIONS]) {
        headers.remove(name);
    }
}

/// Why an answer cannot be looked through although it was asked for so; `None`: it can.
pub(super) fn unlike<B>(response: &Response<B>) -> Option<&'static str> {
    let headers = response.headers();
    if others_than(headers, header::CONTENT_ENCODING, b"identity") {
        return Some(
            "the server sent a compressed answer although it was asked not to; it cannot be scrubbed",
        );
    }
    // Each piece may be shorter than any secret, and the guest would put them together.
    let pieces = headers.get(header::CONTENT_TYPE).is_some_and(|kind| {
        kind.as_bytes().get(..20).is_some_and(|kind| kind.eq_ignore_ascii_case(b"multipart/byteranges"))
    });
    if response.status() == StatusCode::PARTIAL_CONTENT
        || headers.contains_key(header::CONTENT_RANGE)
        || pieces
    {
        return Some(
            "the server sent a part of its answer although it was asked for all; it cannot be scrubbed",
        );
    }
    if headers.contains_key(header::SEC_WEBSOCKET_EXTENSIONS) {
        return Some(
            "the server agreed to an extension of WebSocket that nobody asked for; it cannot be scrubbed",
        );
    }
    None
}

/// Whether the body comes in another form than plain or in chunks. Nobody asks for one (`TE`), and what names it ends at the gateway, so
/// that its bytes would be passed on as what they are not.
pub(super) fn transformed(headers: &HeaderMap) -> bool {
    others_than(headers, header::TRANSFER_ENCODING, b"chunked")
}

fn others_than(headers: &HeaderMap, name: HeaderName, plain: &[u8]) -> bool {
    headers.get_all(name).iter().any(|value| !value.as_bytes().trim_ascii().eq_ignore_ascii_case(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, lines: &[(&'static str, &'static str)]) -> Response<()> {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        for (name, value) in lines {
            response.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        response
    }

    #[test]
    fn whole_and_plain_answers_are_looked_through() {
        for lines in [&[][..], &[("content-encoding", " Identity")], &[("content-type", "multipart/mixed")]] {
            assert_eq!(unlike(&answer(200, lines)), None, "{lines:?}");
        }
    }

    #[test]
    fn what_is_compressed_or_a_part_is_named() {
        for (status, line) in [
            (200, ("content-encoding", "gzip")),
            (206, ("content-type", "text/plain")),
            (200, ("content-range", "bytes 0-3/100")),
            (200, ("content-type", "Multipart/Byteranges; boundary=x")),
            (101, ("sec-websocket-extensions", "permessage-deflate")),
        ] {
            assert!(unlike(&answer(status, &[line])).is_some(), "{status} {line:?}");
        }
    }

    #[test]
    fn only_chunks_are_another_form_that_is_taken() {
        let of = |value| transformed(answer(200, &[("transfer-encoding", value)]).headers());
        assert_eq!(
            [of("chunked"), of(" Chunked"), of("gzip"), of("gzip, chunked")],
            [false, false, true, true]
        );
    }

    #[test]
    fn every_way_to_ask_for_a_part_is_taken_away() {
        let mut headers = HeaderMap::new();
        for name in ["range", "if-range", "request-range", "x-ms-range", "sec-websocket-extensions", "accept"]
        {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("x"));
        }
        ask(&mut headers);
        let left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(left.contains(&"accept") && left.contains(&"accept-encoding"), "{left:?}");
    }
}
