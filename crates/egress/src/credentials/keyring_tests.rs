//! A secret goes to exactly its requests, once, and a stand-in nowhere else.

use blastbox_policy::BindingParts;

use super::*;

const REAL: &str = "real-secret-value-123";

fn keyring(host: &str, parts: BindingParts) -> Keyring {
    let binding = Binding::new("token".parse().unwrap(), host.parse().unwrap(), parts).unwrap();
    Keyring::new(vec![(binding, Secret::new(REAL.into()).ok().unwrap(), None)]).unwrap()
}

fn on(host: &str, port: u16) -> Inspected {
    Inspected::new(host.parse().unwrap(), port)
}

fn get(path: &str) -> Wanted<'_> {
    Wanted { method: "GET", path: Some(path), target: path }
}

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    }
    headers
}

fn scoped() -> BindingParts {
    BindingParts {
        methods: vec!["GET".into()],
        paths: vec!["/repos/acme/*".parse().unwrap()],
        ..BindingParts::default()
    }
}

#[test]
fn what_the_guest_wrote_is_replaced_and_one_header_goes_out() {
    let keys = keyring("api.github.com", scoped());
    let mut sent = headers(&[("authorization", "Bearer mine"), ("authorization", "Basic bWluZQ==")]);
    let lent = keys.lend(&on("api.github.com", 443), get("/repos/acme/x"), &mut sent).unwrap();
    assert_eq!(lent.len(), 1);
    let values: Vec<_> = sent.get_all("authorization").iter().collect();
    assert_eq!(values, [&format!("Bearer {REAL}")]);
    assert!(values[0].is_sensitive());
}

#[test]
fn no_other_host_port_method_or_path_gets_it() {
    let keys = keyring("api.github.com", scoped());
    let post = Wanted { method: "POST", ..get("/repos/acme/x") };
    let pathless = Wanted { path: None, ..get("/repos/acme/../x") };
    for (host, port, wanted) in [
        ("api.github.com.evil.test", 443, get("/repos/acme/x")),
        ("github.com", 443, get("/repos/acme/x")),
        ("api.github.com", 8443, get("/repos/acme/x")),
        ("api.github.com", 443, get("/repos/acmeevil/x")),
        ("api.github.com", 443, get("/user")),
        ("api.github.com", 443, post),
        ("api.github.com", 443, pathless),
    ] {
        let mut sent = headers(&[("authorization", "Bearer mine")]);
        let lent = keys.lend(&on(host, port), wanted, &mut sent).unwrap();
        assert_eq!(lent, [], "{host}:{port} {wanted:?}");
        assert_eq!(sent["authorization"], "Bearer mine");
    }
}

#[test]
fn each_slot_has_its_form() {
    let basic =
        BindingParts { slot: Some("basic".into()), user: Some("bot".into()), ..BindingParts::default() };
    let named = BindingParts {
        slot: Some("header".into()),
        header: Some("X-Api-Key".into()),
        ..BindingParts::default()
    };
    let mut sent = HeaderMap::new();
    keyring("a.test", basic).lend(&on("a.test", 443), get("/"), &mut sent).unwrap();
    assert_eq!(sent["authorization"], format!("Basic {}", STANDARD.encode(format!("bot:{REAL}"))));
    let mut sent = headers(&[("x-api-key", "guess")]);
    keyring("a.test", named).lend(&on("a.test", 443), get("/"), &mut sent).unwrap();
    assert_eq!(sent["x-api-key"], REAL);
}

fn with_placeholder() -> (Keyring, String) {
    let parts = BindingParts {
        placeholder: Some("sk-".into()),
        env: Some("KEY".into()),
        paths: vec!["/v1/*".parse().unwrap()],
        ..BindingParts::default()
    };
    let keys = keyring("a.test", parts);
    let (name, stand_in) = keys.variables().remove(0);
    assert_eq!(name, "KEY");
    (keys, stand_in)
}

#[test]
fn a_stand_in_is_replaced_in_its_header_only_when_it_is_there() {
    let (keys, stand_in) = with_placeholder();
    let mut sent = headers(&[("authorization", &format!("Bearer {stand_in}"))]);
    assert_eq!(keys.stray(&"a.test".parse().unwrap(), 443, get("/v1/x"), &sent), None);
    assert_eq!(keys.lend(&on("a.test", 443), get("/v1/x"), &mut sent).unwrap().len(), 1);
    assert_eq!(sent["authorization"], format!("Bearer {REAL}"));

    let mut sent = headers(&[("authorization", "Bearer mine")]);
    assert_eq!(keys.lend(&on("a.test", 443), get("/v1/x"), &mut sent).unwrap(), []);
    assert_eq!(sent["authorization"], "Bearer mine");
}

#[test]
fn a_stand_in_anywhere_else_is_found() {
    let (keys, stand_in) = with_placeholder();
    let bearer = format!("Bearer {stand_in}");
    let login = format!("Basic {}", STANDARD.encode(format!("u:{stand_in}")));
    let (at_home, evil) = ("a.test".parse().unwrap(), "a.test.evil.test".parse().unwrap());
    for value in [&bearer, &login] {
        let sent = headers(&[("authorization", value)]);
        assert_eq!(keys.stray(&evil, 443, get("/v1/x"), &sent).unwrap().found_in, "header");
        assert_eq!(keys.stray(&at_home, 8443, get("/v1/x"), &sent).unwrap().found_in, "header");
        assert_eq!(keys.stray(&at_home, 443, get("/v2/x"), &sent).unwrap().found_in, "header");
        let sent = headers(&[("x-other", value)]);
        assert_eq!(keys.stray(&at_home, 443, get("/v1/x"), &sent).unwrap().found_in, "header");
    }
    let half = format!("/v1/x?key=%73{}", &stand_in[1..]);
    for target in [format!("/v1/x?key={stand_in}"), half] {
        let wanted = Wanted { target: &target, ..get("/v1/x") };
        for host in [&at_home, &evil] {
            assert_eq!(keys.stray(host, 443, wanted, &HeaderMap::new()).unwrap().found_in, "query");
        }
    }
}

#[test]
fn only_hosts_with_a_secret_are_scrubbed() {
    let keys = keyring("a.test", BindingParts::default());
    assert!(keys.scrub(&"a.test".parse().unwrap()).is_some());
    assert!(keys.scrub(&"b.test".parse().unwrap()).is_none());
    assert!(Keyring::default().scrub(&"a.test".parse().unwrap()).is_none());
    assert_eq!(format!("{keys:?}"), "[\"token\"]");
}

#[tokio::test(start_paused = true)]
async fn a_secret_whose_lease_is_over_is_not_lent_until_it_is_renewed() {
    let binding =
        Binding::new("token".parse().unwrap(), "a.test".parse().unwrap(), BindingParts::default()).unwrap();
    let secret = Secret::new(REAL.into()).ok().unwrap();
    let keys = Keyring::new(vec![(binding, secret, Some(Duration::from_secs(60)))]).unwrap();
    let lend = || keys.lend(&on("a.test", 443), get("/"), &mut HeaderMap::new());
    let expired = || Err(NotLent::Expired("token".parse().unwrap()));
    assert!(lend().is_ok());
    tokio::time::advance(Duration::from_secs(61)).await;
    assert_eq!(lend(), expired());
    keys.renewed(0, Duration::from_secs(60));
    assert!(lend().is_ok());
    keys.renewed(0, Duration::ZERO);
    assert_eq!(lend(), expired());
    let said = lend().unwrap_err().to_string();
    assert!(said.contains("secret token") && said.contains("new box"), "{said}");
}

/// What this process has at an address, whether anything lives there or not, read into memory that was there before.
fn look(at: usize, bytes: &mut [u8]) -> &[u8] {
    use std::os::unix::fs::FileExt;
    // Memory that was given back to the kernel cannot be read, and holds nothing.
    let read = std::fs::File::open("/proc/self/mem").unwrap().read_at(bytes, at.try_into().unwrap());
    &bytes[..read.unwrap_or(0)]
}

#[test]
fn a_header_with_a_secret_is_wiped_with_the_last_request_that_has_it() {
    // No other test has it: whoever takes the memory next writes something else there.
    let secret = "of-this-test-alone-".repeat(20);
    let basic =
        BindingParts { slot: Some("basic".into()), user: Some("me".into()), ..BindingParts::default() };
    for parts in [BindingParts::default(), basic] {
        let binding =
            Binding::new("token".parse().unwrap(), "api.github.com".parse().unwrap(), parts).unwrap();
        let keys =
            Keyring::new(vec![(binding, Secret::new(secret.clone().into()).ok().unwrap(), None)]).unwrap();
        let mut sent = HeaderMap::new();
        keys.lend(&on("api.github.com", 443), get("/"), &mut sent).unwrap();
        // As for a request that may have to be sent again.
        let again = sent.clone();
        let value = again["authorization"].as_bytes();
        let at = value.as_ptr().addr();
        // The first words of a block that was freed are the allocator's own.
        let (mut seen, tail) = (vec![0; value.len()], value[64..].to_vec());
        drop(sent);
        assert!(look(at, &mut seen).ends_with(&tail), "it is one memory, which can be seen");
        drop(again);
        assert!(!look(at, &mut seen).ends_with(&tail));
    }
}
