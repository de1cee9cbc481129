//! What `would-allow` says of rules, and that what it suggests does what it says.

use super::*;
use blastbox_policy::parse;

fn ask(network: &str, url: &str) -> Answer {
    let rules = parse(&format!("[network]\n{network}")).unwrap().network_rules().clone();
    would_allow(&rules, &get(url))
}

fn get(url: &str) -> Wanted {
    Wanted::new(url.parse().unwrap(), None)
}

fn by(method: &str, url: &str) -> Wanted {
    Wanted::new(url.parse().unwrap(), Some(method.parse().unwrap()))
}

const RULES: &str = "mode = \"allow\"\nallow = [{ host = \"api.github.com\" }, { host = \"*.example.com\", ports = [443, 8443] }]";

#[test]
fn a_url_is_answered_with_its_rule_or_the_smallest_that_is_missing() {
    assert!(
        matches!(ask(RULES, "https://api.github.com/user?x=1"), Answer::Allowed(text) if text.starts_with("rule 1 "))
    );
    assert!(
        matches!(ask(RULES, "https://a.b.example.com:8443/"), Answer::Allowed(text) if text.contains("*.example.com"))
    );
    for (url, needle) in [
        ("https://example.com/", "{ host = \"example.com\", ports = [443], protocol = \"https\" }"),
        ("https://api.github.com.evil.test/", "no rule names api.github.com.evil.test"),
        ("https://api.github.com:8443/", "not port 8443"),
        ("http://a.example.com:443/", "does not allow this protocol"),
        ("tcp://93.184.216.34:5432", "{ host = \"93.184.216.34\", ports = [5432], protocol = \"tcp\" }"),
        ("tcp://10.0.0.1:5432", "dangerously_allow_private = [{ cidr = \"10.0.0.1/32\", ports = [5432] }]"),
        ("http://169.254.169.254/", "which no rule opens"),
    ] {
        let Answer::Denied(text) = ask(RULES, url) else { panic!("{url} was allowed") };
        assert!(text.contains(needle), "{url}: {text}");
    }
    assert!(
        matches!(ask("", "https://a.test/"), Answer::Denied(text) if text.contains("network.mode is \"off\""))
    );
}

#[test]
fn a_resolver_over_https_is_denied_where_the_gateway_sees_it() {
    let rules = "mode = \"allow\"\nallow = [{ host = \"a.test\", tls = \"inspect\" }, { host = \"b.test\" }]";
    let says = |url: &str| matches!(ask(rules, url), Answer::Denied(text) if text.contains("DNS over HTTPS"));
    assert!(says("https://a.test/dns-query?dns=AAAB"));
    assert!(matches!(ask(rules, "https://a.test/dns"), Answer::Allowed(_)));
    assert!(matches!(ask(rules, "https://b.test/dns-query"), Answer::Allowed(_)), "nobody reads it");
}

#[test]
fn a_public_resolver_is_explained_and_its_smallest_rule_has_the_word() {
    let wild = "mode = \"allow\"\nallow = [{ host = \"*.quad9.net\" }]";
    let word = "{ host = \"dns.quad9.net\", ports = [443], protocol = \"https\", resolver = \"dangerously-allowed\" }";
    let Answer::Denied(text) = ask(wild, "https://dns.quad9.net/dns-query") else { panic!("allowed") };
    assert!(text.contains("which no wildcard opens") && text.ends_with(word), "{text}");
    assert!(matches!(ask(wild, "https://www.quad9.net/"), Answer::Allowed(_)));
    let Answer::Denied(text) = ask(RULES, "https://dns.quad9.net/") else { panic!("allowed") };
    assert!(text.contains("no rule names dns.quad9.net") && text.ends_with(word), "{text}");
    for rule in [word, "{ host = \"dns.quad9.net\", tls = \"inspect\", resolver = \"dangerously-allowed\" }"]
    {
        let rules = format!("mode = \"allow\"\nallow = [{rule}]");
        assert!(matches!(ask(&rules, "https://dns.quad9.net/dns-query"), Answer::Allowed(_)), "{rule}");
    }
}

/// The rule that a refusal ends with, written beside those that there were, seals; with it the same is asked again.
fn with_what_is_said(rules: &str, wanted: &Wanted) -> (String, NetworkRules) {
    let url = &wanted.url;
    let seal = |rules: &str| {
        let text = format!("threat = \"medium\"\n[network]\nmode = \"allow\"\nallow = [{rules}]");
        parse(&text).unwrap().seal().unwrap().network().clone()
    };
    let Answer::Denied(text) = would_allow(&seal(rules), wanted) else {
        panic!("{url:?} was allowed by {rules}")
    };
    let said = text.lines().last().unwrap().trim().to_owned();
    let both = seal(&format!("{rules}, {said}"));
    let again = would_allow(&both, wanted);
    assert!(matches!(again, Answer::Allowed(_)), "{url:?} with {said}: {again:?}");
    (said, both)
}

#[test]
fn what_is_missing_can_be_written_beside_what_is_there() {
    const READ: &str =
        "{ host = \"*.example.com\", tls = \"inspect\", methods = [\"GET\"], paths = [\"/v1/*\"] }";
    for (rules, url, rule) in [
        (
            READ,
            "https://a.example.com/v2/%78?y=1",
            "{ host = \"*.example.com\", ports = [443], protocol = \"https\", tls = \"inspect\", methods = [\"GET\"], paths = [\"/v2/x\"] }",
        ),
        (
            READ,
            "wss://a.example.com/v1/live",
            "{ host = \"*.example.com\", ports = [443], protocol = \"ws\", tls = \"inspect\", paths = [\"/v1/live\"] }",
        ),
        (
            READ,
            "https://a.example.com:8443/v2/x",
            "{ host = \"a.example.com\", ports = [8443], protocol = \"https\", tls = \"inspect\", methods = [\"GET\"], paths = [\"/v2/x\"] }",
        ),
        (
            "{ host = \"a.test\", protocol = \"http\", paths = [\"/\"] }",
            "http://a.test/docs/a%20b/",
            "{ host = \"a.test\", ports = [80], protocol = \"http\", paths = [\"/docs/*\"] }",
        ),
        (
            "{ host = \"a.test\", tls = \"inspect\", paths = [\"/v1\"] }",
            "https://a.test/v1/",
            "{ host = \"a.test\", ports = [443], protocol = \"https\", tls = \"inspect\", paths = [\"/v1/*\"] }",
        ),
        (
            "{ host = \"*.quad9.net\", tls = \"inspect\" }",
            "https://dns.quad9.net/x",
            "{ host = \"dns.quad9.net\", ports = [443], protocol = \"https\", tls = \"inspect\", resolver = \"dangerously-allowed\" }",
        ),
        (
            "{ host = \"b.test\" }",
            "wss://a.test/live",
            "{ host = \"a.test\", ports = [443], protocol = \"ws\", tls = \"inspect\" }",
        ),
    ] {
        assert_eq!(with_what_is_said(rules, &get(url)).0, rule, "{url}");
    }
    // What was read before is read still, of other names and of this one.
    let (_, both) = with_what_is_said(READ, &get("https://a.example.com/v2/x"));
    for url in ["https://a.example.com/v1/x", "https://b.example.com/v1/x"] {
        let answer = would_allow(&both, &get(url));
        assert!(matches!(&answer, Answer::Allowed(how) if how.contains("is read")), "{url}: {answer:?}");
    }
    let other = would_allow(&both, &get("https://a.example.com/v3"));
    assert!(matches!(other, Answer::Denied(_)), "{other:?}");
}

#[test]
fn the_method_is_judged_too_and_stands_in_the_rule_that_is_missing() {
    const READ: &str =
        "{ host = \"a.test\", tls = \"inspect\", methods = [\"GET\", \"HEAD\"], paths = [\"/v1/*\"] }";
    let rule = |rest: &str| {
        format!("{{ host = \"a.test\", ports = [443], protocol = \"https\", tls = \"inspect\", {rest} }}")
    };
    for (rules, wanted, missing) in [
        (READ, by("POST", "https://a.test/v1/x"), "methods = [\"POST\"], paths = [\"/v1/x\"]"),
        (READ, by("POST", "https://a.test/v2/x"), "methods = [\"POST\"], paths = [\"/v2/x\"]"),
        (READ, by("HEAD", "https://a.test/v2/x"), "methods = [\"HEAD\"], paths = [\"/v2/x\"]"),
        (
            "{ host = \"a.test\", tls = \"inspect\", methods = [\"POST\"] }",
            get("https://a.test/v1//x"),
            "methods = [\"GET\"]",
        ),
    ] {
        assert_eq!(with_what_is_said(rules, &wanted).0, rule(missing), "{wanted:?}");
    }
    let rules = parse(&format!("[network]\nmode = \"allow\"\nallow = [{READ}]")).unwrap();
    let says = |wanted: &Wanted| would_allow(rules.network_rules(), wanted);
    assert!(matches!(says(&get("https://a.test/v1/x")), Answer::Allowed(_)));
    let denied = says(&by("POST", "https://a.test/v1/x"));
    assert!(matches!(&denied, Answer::Denied(text) if text.contains("the method POST")), "{denied:?}");
    // Nobody sees it, so that nothing depends on it; and no rule for it can name it.
    let rules = "mode = \"allow\"\nallow = [{ host = \"b.test\" }]";
    let rules = parse(&format!("[network]\n{rules}")).unwrap().network_rules().clone();
    assert!(matches!(would_allow(&rules, &by("POST", "https://b.test/")), Answer::Allowed(_)));
    let Answer::Denied(text) = would_allow(&rules, &by("POST", "https://c.test/")) else { panic!() };
    assert!(text.ends_with("{ host = \"c.test\", ports = [443], protocol = \"https\" }"), "{text}");
    let Answer::Denied(text) = would_allow(&rules, &by("POST", "http://c.test/")) else { panic!() };
    assert!(text.ends_with("protocol = \"http\", methods = [\"POST\"] }"), "{text}");
    for odd in ["post", "", "GET ", "P\u{d6}ST"] {
        assert!(odd.parse::<Method>().is_err(), "{odd}");
    }
}

#[test]
fn what_no_rule_beside_another_can_say_names_the_one_to_change() {
    let rules = "mode = \"allow\"\nallow = [{ host = \"b.test\" }, { host = \"a.test\", tls = \"inspect\" }]";
    for url in ["http://a.test:443/", "tcp://a.test:443"] {
        let Answer::Denied(text) = ask(rules, url) else { panic!("{url} was allowed") };
        assert!(text.contains("rule 2 of network.allow has protocol = \"https\""), "{url}: {text}");
        assert!(!text.contains("host = "), "{url}: {text}");
    }
}

#[test]
fn the_form_of_a_path_is_judged_as_the_gateway_does() {
    let rules = "mode = \"allow\"\nallow = [{ host = \"a.test\", tls = \"inspect\", paths = [\"/v1/*\"] }, \
                 { host = \"b.test\", tls = \"inspect\" }]";
    assert!(matches!(ask(rules, "https://a.test/%76%31/x"), Answer::Allowed(_)));
    for path in ["/v1/../admin", "/v1/%2e%2e/admin", "/v1//x", "/v1/a%2Fb", "/v1/%252e"] {
        let answer = ask(rules, &format!("https://a.test{path}"));
        assert!(
            matches!(&answer, Answer::Denied(text) if text.contains("in two ways")),
            "{path}: {answer:?}"
        );
        let answer = ask(rules, &format!("https://b.test{path}"));
        assert!(matches!(answer, Answer::Allowed(_)), "{path} where all paths are: {answer:?}");
    }
    for path in ["/%64ns-query", "/x/../DNS-query"] {
        let answer = ask(rules, &format!("https://b.test{path}"));
        assert!(
            matches!(&answer, Answer::Denied(text) if text.contains("DNS over HTTPS")),
            "{path}: {answer:?}"
        );
    }
}

#[test]
fn a_websocket_in_the_clear_is_carried_by_raw_tcp_alone() {
    let rules = "mode = \"allow\"\nallow = [{ host = \"a.test\", protocol = \"ws\", tls = \"inspect\", ports = [80, 443] }, \
                 { host = \"b.test\", protocol = \"http\" }, { host = \"c.test\", protocol = \"tcp\", ports = [80] }]";
    for url in ["ws://a.test/", "ws://a.test:443/", "ws://b.test/", "ws://d.test/"] {
        let answer = ask(rules, url);
        assert!(matches!(&answer, Answer::Denied(text) if text.contains("wss://")), "{url}: {answer:?}");
    }
    assert!(matches!(ask(rules, "wss://a.test/"), Answer::Allowed(_)));
    assert!(matches!(ask(rules, "ws://c.test/"), Answer::Allowed(_)));
}

#[test]
fn tricks_are_no_urls() {
    for url in [
        "api.github.com",
        "https://api.github.com@evil.test/",
        "https://0x7f.1/",
        "https://2130706433/",
        "https://a%00b.test/",
        "ftp://a.test/",
        "tcp://a.test",
        "https://a.test:0/",
    ] {
        assert!(url.parse::<Url>().is_err(), "{url}");
    }
}

#[test]
fn the_flag_is_https_or_raw_tcp() {
    let rule = |text: &str| {
        text.parse::<AllowFlag>()
            .map(|flag| format!("{} {:?} {}", flag.0.host(), flag.0.ports(), flag.0.protocol()))
    };
    assert_eq!(rule("api.github.com").unwrap(), "api.github.com [443] https");
    assert_eq!(rule("*.example.com:443").unwrap(), "*.example.com [443] https");
    assert_eq!(rule("db.example.com:5432").unwrap(), "db.example.com [5432] tcp");
    assert_eq!(rule("[2606:4700::1]:5432").unwrap(), "2606:4700::1 [5432] tcp");
    for bad in ["*", "*.com", "a.test:0", "a.test:53", "10.0.0.0/8", "a.test:99999"] {
        assert!(rule(bad).is_err(), "{bad}");
    }
}
