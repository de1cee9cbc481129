//! A binding opens nothing, is never ambiguous, and never stands where requests are not read.

use super::*;
use crate::{Draft, PolicyError, RuleParts};

const INSPECT: &str = r#"{ host = "api.example.com", tls = "inspect" }"#;

fn seal(allow: &str, bind: &str) -> Result<crate::SealedPolicy, PolicyError> {
    crate::parse(&format!(
        "[network]\nmode = \"allow\"\nallow = [{allow}]\n[credentials]\nmode = \"brokered\"\nbind = [{bind}]\n"
    ))
    .and_then(Draft::seal)
}

fn problem(allow: &str, bind: &str) -> BadBinding {
    match seal(allow, bind).map_err(|error| error.problem().clone()) {
        Err(PolicyError::BadBinding { problem, .. } | PolicyError::Credentials(problem)) => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_binding_where_requests_are_read_is_taken() {
    for bind in [
        r#"{ secret = "s", host = "api.example.com" }"#,
        r#"{ secret = "s", host = "API.example.com.", as = "basic", user = "x" }"#,
        r#"{ secret = "s", host = "api.example.com", as = "header", header = "X-Api-Key", methods = ["GET"] }"#,
        r#"{ secret = "s", host = "api.example.com", placeholder = "ghp_", env = "GH_TOKEN", paths = ["/a/*"] }"#,
    ] {
        let policy = seal(INSPECT, bind).unwrap();
        let again = crate::parse(&crate::to_toml(&policy)).unwrap().seal().unwrap();
        assert_eq!(again, policy, "{bind}");
        assert_eq!(again.digest(), policy.digest());
    }
}

#[test]
fn a_binding_grants_no_way_out() {
    let bind = r#"{ secret = "s", host = "other.example.com" }"#;
    assert!(matches!(problem(INSPECT, bind), BadBinding::Unreachable { .. }));
    let bind = r#"{ secret = "s", host = "api.example.com", port = 8443 }"#;
    assert!(matches!(problem(INSPECT, bind), BadBinding::Unreachable { port: 8443, .. }));
}

#[test]
fn a_secret_never_stands_where_requests_are_not_read() {
    let bind = r#"{ secret = "s", host = "api.example.com" }"#;
    let passthrough = r#"{ host = "api.example.com" }"#;
    assert!(matches!(problem(passthrough, bind), BadBinding::Passthrough { .. }));
    let wildcard =
        r#"{ host = "*.example.com", tls = "inspect" }, { host = "api.example.com", tls = "passthrough" }"#;
    assert!(matches!(problem(wildcard, bind), BadBinding::Passthrough { .. }), "the closest rule decides");
    let tcp = r#"{ host = "api.example.com", ports = [443], protocol = "tcp" }"#;
    assert!(matches!(problem(tcp, bind), BadBinding::NotTls { .. }));
    let plain = r#"{ host = "api.example.com", protocol = "http" }"#;
    let bind = r#"{ secret = "s", host = "api.example.com", port = 80 }"#;
    assert!(matches!(problem(plain, bind), BadBinding::NotTls { .. }));
}

#[test]
fn two_secrets_for_one_header_of_a_request_are_refused() {
    let two = |one: &str, other: &str| {
        seal(
            INSPECT,
            &format!(
                r#"{{ secret = "one", host = "api.example.com", {one} }}, {{ secret = "two", host = "api.example.com", {other} }}"#
            ),
        )
    };
    for (one, other) in [
        ("port = 443", "port = 443"),
        (r#"paths = ["/a/*"]"#, "port = 443"),
        (r#"paths = ["/a/*"]"#, r#"paths = ["/a/b/*"]"#),
        (r#"paths = ["/a/*"]"#, r#"paths = ["/a/b"]"#),
        (r#"methods = ["GET"]"#, r#"methods = ["POST", "GET"]"#),
        (r#"as = "header", header = "x-a""#, r#"as = "header", header = "X-A""#),
        (r#"as = "header", header = "authorization""#, r#"as = "bearer""#),
        (r#"placeholder = """#, r#"as = "basic", user = "u""#),
    ] {
        let found = two(one, other).map_err(|error| error.problem().clone());
        assert!(
            matches!(found, Err(PolicyError::Credentials(BadBinding::Ambiguous { .. }))),
            "{one} | {other}: {found:?}"
        );
    }
    for (one, other) in [
        (r#"paths = ["/a/*"]"#, r#"paths = ["/ab/*"]"#),
        (r#"methods = ["GET"]"#, r#"methods = ["POST"]"#),
        (r#"placeholder = "a""#, r#"placeholder = "b""#),
        (r#"as = "header", header = "x-a""#, r#"as = "header", header = "x-b""#),
        (r#"placeholder = "a""#, r#"as = "header", header = "x-b""#),
    ] {
        two(one, other).unwrap();
    }
}

#[test]
fn what_means_nothing_is_refused_with_what_to_write() {
    for (bind, word) in [
        (r#"{ secret = "S", host = "api.example.com" }"#, "name of a secret"),
        (r#"{ secret = "s", host = "*.example.com" }"#, "no wildcard"),
        (r#"{ secret = "s", host = "10.0.0.1" }"#, "no address"),
        (r#"{ secret = "s", host = "api.example.com", as = "cookie" }"#, "bearer, basic, header"),
        (r#"{ secret = "s", host = "api.example.com", as = "basic" }"#, "needs user"),
        (r#"{ secret = "s", host = "api.example.com", as = "header" }"#, "needs header"),
        (r#"{ secret = "s", host = "api.example.com", header = "x" }"#, "neither user nor header"),
        (
            r#"{ secret = "s", host = "api.example.com", as = "header", header = "Host" }"#,
            "how a message is carried",
        ),
        (r#"{ secret = "s", host = "api.example.com", as = "header", header = "a b" }"#, "not a header"),
        (r#"{ secret = "s", host = "api.example.com", as = "basic", user = "a:b" }"#, "without a colon"),
        (r#"{ secret = "s", host = "api.example.com", methods = ["get"] }"#, "capitals"),
        (r#"{ secret = "s", host = "api.example.com", placeholder = "a b" }"#, "begin a placeholder"),
        (
            r#"{ secret = "s", host = "api.example.com", placeholder = "", env = "LD_PRELOAD" }"#,
            "not a variable",
        ),
        (r#"{ secret = "s", host = "api.example.com", env = "X" }"#, "without placeholder"),
        (r#"{ secret = "s", host = "api.example.com", port = 0 }"#, "no port"),
        (r#"{ host = "api.example.com" }"#, "name of a secret"),
        (r#"{ secret = "s" }"#, "with a host"),
        (r#"{ secret = "s", host = "api.example.com", value = "x" }"#, "unknown key"),
    ] {
        let text = seal(INSPECT, bind).unwrap_err().to_string();
        assert!(text.contains(word) && text.contains("line 6"), "{bind}: {text}");
    }
}

#[test]
fn mode_and_bindings_belong_together() {
    let none = crate::parse(
        "[credentials]\nmode = \"none\"\nbind = [{ secret = \"s\", host = \"a.example.com\" }]\n",
    );
    assert!(matches!(
        none.and_then(Draft::seal).map_err(|error| error.problem().clone()),
        Err(PolicyError::Credentials(BadBinding::BindingsWhileNone))
    ));
    assert_eq!(problem(INSPECT, ""), BadBinding::NothingBound);
}

#[test]
fn a_binding_covers_its_requests_and_no_neighbour() {
    let rule = AllowRule::new(
        "api.example.com".parse().unwrap(),
        RuleParts { tls: TlsMode::Inspect, ..RuleParts::default() },
    );
    assert!(rule.is_ok());
    let parts = BindingParts {
        methods: vec!["GET".into()],
        paths: vec!["/repos/acme/*".parse().unwrap()],
        ..BindingParts::default()
    };
    let host: crate::Host = "api.example.com".parse().unwrap();
    let binding = Binding::new("s".parse().unwrap(), host.clone(), parts).unwrap();
    assert!(binding.covers(&host, 443, "GET", "/repos/acme/x"));
    assert!(!binding.covers(&host, 443, "POST", "/repos/acme/x"));
    assert!(!binding.covers(&host, 443, "GET", "/repos/acmeevil"));
    assert!(!binding.covers(&host, 8443, "GET", "/repos/acme/x"));
    for other in ["api.example.com.evil.test", "xapi.example.com", "a.api.example.com"] {
        assert!(!binding.covers(&other.parse().unwrap(), 443, "GET", "/repos/acme/x"), "{other}");
    }
}
