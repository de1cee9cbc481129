//! One host in all places, and nothing carried that is not for the server.

use http::Request;

use super::*;

fn to(scheme: &'static str, port: u16) -> Addressed {
    Addressed { host: "api.github.com".parse().unwrap(), port, scheme }
}

fn request(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
    let mut builder = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(()).unwrap().into_parts().0
}

fn host(uri: &str, host: &str) -> Result<Wish, BadHead> {
    read(&request("GET", uri, &[("host", host)]), &to("https", 443))
}

#[test]
fn the_host_of_the_connection_is_taken_in_every_spelling() {
    for name in ["api.github.com", "API.GitHub.com", "api.github.com.", "api.github.com:443"] {
        assert!(host("/x", name).is_ok(), "{name}");
    }
    assert!(host("https://api.github.com/x", "api.github.com").is_ok());
    assert!(read(&request("GET", "https://api.github.com/x", &[]), &to("https", 443)).is_ok());
    assert!(read(&request("GET", "/x", &[("host", "api.github.com:8443")]), &to("https", 8443)).is_ok());
}

#[test]
fn another_host_in_any_place_is_refused() {
    for name in [
        "api.github.com.evil.test",
        "evil.test",
        "api.github.com@evil.test",
        "evil.test@api.github.com",
        "api.github.com:444",
        "api.github.com:",
        "api.github.com:0443000",
        "api.github.com:+443",
        "api.github.com:443:443",
        "api.github.com evil.test",
        "api.github.com, evil.test",
        "api.github.com/",
        "127.0.0.1",
        "",
    ] {
        assert!(matches!(host("/x", name), Err(BadHead::Authority(_))), "{name}");
    }
    for uri in [
        "https://evil.test/x",
        "https://api.github.com.evil.test/",
        "https://api.github.com@evil.test/",
        "https://x@api.github.com/",
        "http://api.github.com/",
        "ftp://api.github.com/",
    ] {
        assert!(matches!(host(uri, "api.github.com"), Err(BadHead::Authority(_))), "{uri}");
    }
    let two = request("GET", "/", &[("host", "api.github.com"), ("host", "api.github.com")]);
    assert!(read(&two, &to("https", 443)).is_err());
    assert!(read(&request("GET", "/", &[]), &to("https", 443)).is_err());
    let no_port = request("GET", "/x", &[("host", "api.github.com")]);
    assert!(read(&no_port, &to("https", 8443)).is_err());
}

#[test]
fn the_form_that_is_judged_is_the_form_that_is_sent() {
    assert_eq!(
        host("/%72epos/a?b=%2F..%2f&c=//", "api.github.com").unwrap().target,
        "/repos/a?b=%2F..%2f&c=//"
    );
    let odd = host("/a/../b?c", "api.github.com").unwrap();
    assert_eq!((odd.path, odd.target.as_str()), (None, "/a/../b?c"));
}

#[test]
fn a_target_that_is_no_path_is_refused_and_never_made_one() {
    for target in ["api.github.com", "api.github.com:443", "*"] {
        assert_eq!(host(target, "api.github.com").unwrap_err(), BadHead::Target, "{target}");
    }
    let options = request("OPTIONS", "*", &[("host", "api.github.com")]);
    assert_eq!(read(&options, &to("https", 443)).unwrap().target, "*");
    assert_eq!(host("https://api.github.com", "api.github.com").unwrap().target, "/");
    let whole = request("OPTIONS", "api.github.com", &[("host", "api.github.com")]);
    assert_eq!(read(&whole, &to("https", 443)).unwrap_err(), BadHead::Target);
}

#[test]
fn methods_that_reflect_or_tunnel_are_refused() {
    for method in ["TRACE", "CONNECT"] {
        let uri = if method == "CONNECT" { "api.github.com:443" } else { "/" };
        let parts = request(method, uri, &[("host", "api.github.com")]);
        assert_eq!(read(&parts, &to("https", 443)).unwrap_err(), BadHead::Method(method));
    }
}

#[test]
fn upgrades_are_told_apart() {
    let wish = |value: &str| {
        let parts = request("GET", "/", &[("host", "api.github.com"), ("upgrade", value)]);
        read(&parts, &to("https", 443)).unwrap().upgrade
    };
    assert_eq!(wish("WebSocket"), Upgrade::WebSocket);
    assert_eq!(wish("h2c"), Upgrade::No);
    for other in ["websocket, h2c", "TLS/1.0", "", "websocket2"] {
        assert_eq!(wish(other), Upgrade::Other, "{other}");
    }
}

#[test]
fn only_what_is_for_the_server_goes_on() {
    let mut headers = request(
        "GET",
        "/",
        &[
            ("host", "a"),
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("x-forwarded-for", "1.2.3.4"),
            ("x-forwarded-anything", "1"),
            ("forwarded", "for=1"),
            ("x-http-method-override", "DELETE"),
            ("x-original-url", "/admin"),
            ("transfer-encoding", "chunked"),
            ("te", "trailers"),
            ("expect", "100-continue"),
            ("proxy-authorization", "Basic x"),
            ("accept", "*/*"),
            ("cookie", "a=b"),
        ],
    )
    .headers;
    strip(&mut headers);
    let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
    left.sort_unstable();
    assert_eq!(left, ["accept", "cookie", "te"]);
}

#[test]
fn a_resolver_is_known_by_headers_that_are_no_text_and_by_paths_that_have_two_meanings() {
    let asks = |kind: &[u8], path: Option<&str>, as_sent: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, http::HeaderValue::from_bytes(kind).unwrap());
        asks_resolver(&headers, path, as_sent)
    };
    assert!(asks(b"application/dns-message;x=\xff", Some("/x"), "/x"));
    assert!(asks(b"\x80, APPLICATION/dns-json", Some("/x"), "/x"));
    for as_sent in ["//dns-query", "/./DNS-query", "/x%2Fdns-query", "/%64ns-query/", "/x\\dns-query"] {
        assert!(asks(b"*/*", None, as_sent), "{as_sent}");
    }
    assert!(!asks(b"*/*", None, "//dns-queries") && !asks(b"*/*", Some("/x"), "/x"));
}
