//! The network section: what is too broad, too narrow to mean anything, or dangerous without saying so.
#![allow(clippy::expect_used, reason = "a test that is not refused says which text was taken")]

use blastbox_policy::{Draft, NetworkMode, PolicyError, SealedPolicy, parse, to_toml};

fn seal(network: &str) -> Result<SealedPolicy, PolicyError> {
    parse(&format!("threat = \"medium\"\n[network]\nmode = \"allow\"\n{network}")).and_then(Draft::seal)
}

fn complaint(network: &str) -> String {
    seal(network).expect_err(network).to_string()
}

#[test]
fn rules_open_the_network_and_read_back_the_same() {
    let policy = seal(
        "dangerously_allow_private = [{ cidr = \"10.1.0.0/16\", ports = [5432] }]\n\
         [[network.allow]]\nhost = \"API.example.com.\"\n\
         [[network.allow]]\nhost = \"*.example.org\"\nports = [8443, 443, 443]\n\
         [[network.allow]]\nhost = \"10.1.2.3\"\nports = [5432]\nprotocol = \"tcp\"\n\
         [[network.allow]]\nhost = \"dns.google\"\nresolver = \"dangerously-allowed\"\n\
         [network.limits]\nflows = 8\nbandwidth = \"1MiB\"\n",
    )
    .unwrap();
    let rules = policy.network();
    assert_eq!(rules.mode, NetworkMode::Allow);
    let written: Vec<String> =
        rules.allow.iter().map(|rule| format!("{} {:?}", rule.host(), rule.ports())).collect();
    assert_eq!(
        written,
        ["api.example.com [443]", "*.example.org [443, 8443]", "10.1.2.3 [5432]", "dns.google [443]"]
    );
    assert_eq!(rules.limits.flows, 8);
    let again = parse(&to_toml(&policy)).and_then(Draft::seal).unwrap();
    assert_eq!(again, policy);
    assert_eq!(again.digest(), policy.digest());
}

#[test]
fn every_part_of_a_rule_is_part_of_the_digest() {
    let digest = |text: &str| seal(text).unwrap().digest();
    let first = digest("allow = [{ host = \"a.example.com\" }]");
    for other in [
        "allow = [{ host = \"b.example.com\" }]",
        "allow = [{ host = \"*.a.example.com\" }]",
        "allow = [{ host = \"a.example.com\", ports = [444] }]",
        "allow = [{ host = \"a.example.com\", ports = [443], protocol = \"tcp\" }]",
        "allow = [{ host = \"a.example.com\" }, { host = \"b.example.com\" }]",
        "allow = [{ host = \"a.example.com\", resolver = \"dangerously-allowed\" }]",
        "allow = [{ host = \"a.example.com\" }]\ndangerously_allow_private = [{ cidr = \"10.0.0.0/8\", ports = [443] }]",
        "allow = [{ host = \"a.example.com\" }]\nlimits.bytes = \"1MiB\"",
    ] {
        assert_ne!(digest(other), first, "{other}");
    }
    let (one, two) = ("{ host = \"a.example.com\" }", "{ host = \"b.example.com\" }");
    assert_eq!(digest(&format!("allow = [{one}, {two}]")), digest(&format!("allow = [{two}, {one}]")));
}

#[test]
fn what_is_too_broad_does_not_load_and_says_what_to_write() {
    for (host, needle) in [
        ("*", "a wildcard is one whole label at the front, as in \"*.example.com\""),
        ("*.*.example.com", "a wildcard is one whole label"),
        ("a*.example.com", "a wildcard is one whole label"),
        ("*.com", "\"*.com\" is too broad: anybody can have a name under com"),
        ("*.co.uk", "too broad"),
        ("*.github.io", "anybody can have a name under github.io"),
        ("*.test", "too broad"),
        ("10.0.0.0/8", "private ranges open only under network.dangerously_allow_private"),
        ("127.1", "ends in a number, as an address does"),
        ("0x7f000001", "ends in a number"),
        ("2130706433", "ends in a number"),
        ("api.github.com@evil.test", "not an ASCII letter, digit, hyphen or dot"),
        (
            "https://example.com",
            "is a URL, and a rule names a host: write \"example.com\"; a port goes beside it",
        ),
        ("https://example.com/v1?x", "as in --allow example.com:443 on the command line or ports = [443]"),
        ("http://example.com", "ports = [80]"),
        (
            "https://*.example.com:8443/",
            "write \"*.example.com\"; a port goes beside it, as in --allow *.example.com:8443",
        ),
        ("https://api.github.com@evil.test/", "not an ASCII letter, digit, hyphen or dot"),
        ("https://*", "a wildcard is one whole label"),
        ("https://", "empty label"),
        ("example.com/v1", "has a path behind one: write \"example.com\""),
        ("example.com:443", "is a host with a port: write host = \"example.com\", ports = [443]"),
        ("example.com:x", "not an ASCII letter"),
        ("", "empty label"),
    ] {
        let text = complaint(&format!("allow = [\n  {{ host = \"{host}\" }},\n]"));
        assert!(text.starts_with("line 5, column 12: network.allow.host: "), "{host}: {text}");
        assert!(text.contains(needle), "{host}: {text}");
    }
}

#[test]
fn a_private_address_needs_the_dangerous_word_and_metadata_never_opens() {
    let text = complaint("allow = [{ host = \"10.1.2.3\", ports = [5432], protocol = \"tcp\" }]");
    assert_eq!(
        text,
        "line 4, column 10: network.allow: 10.1.2.3 is a private address; it opens only if network.dangerously_allow_private covers it too, \
         as in { cidr = \"10.1.2.3/32\", ports = [5432] }"
    );
    let text = complaint("allow = [{ host = \"169.254.169.254\", ports = [80], protocol = \"tcp\" }]");
    assert!(text.ends_with("169.254.169.254 can never be opened: it is a metadata address"), "{text}");
    let text = complaint("dangerously_allow_private = [{ cidr = \"169.254.0.0/16\", ports = [80] }]");
    assert!(text.contains("169.254.0.0/16 cannot be opened"), "{text}");
    let text = complaint("dangerously_allow_private = [{ cidr = \"10.0.0.0/8\" }]");
    assert!(text.contains("takes 1 to 64 ports"), "{text}");
}

#[test]
fn a_name_of_the_host_itself_is_refused_as_its_address_is() {
    for host in ["localhost", "LOCALHOST.", "a.localhost", "ip6-localhost"] {
        let text = complaint(&format!("allow = [{{ host = \"{host}\", ports = [80], protocol = \"tcp\" }}]"));
        assert!(text.contains("is a name of the host itself, as 127.0.0.1 is its address"), "{text}");
        assert!(text.ends_with("{ cidr = \"127.0.0.1/32\", ports = [80] }"), "{text}");
    }
    let rule = "allow = [{ host = \"localhost\", ports = [80], protocol = \"tcp\" }]";
    let opened = |ports: &str| {
        seal(&format!(
            "{rule}\ndangerously_allow_private = [{{ cidr = \"127.0.0.1/32\", ports = [{ports}] }}]"
        ))
    };
    assert!(opened("80").is_ok());
    assert!(opened("81").is_err());
    assert!(seal("allow = [{ host = \"localhost.example.com\" }]").is_ok());
}

#[test]
fn what_the_short_form_refuses_says_what_is_allowed_instead() {
    use blastbox_policy::AllowRule;
    for (short, needle) in [
        (
            "https://example.com",
            "write \"example.com\"; a port goes beside it, as in --allow example.com:443",
        ),
        (
            "1.1.1.1:443",
            "name the host instead, as in \"example.com\", or write { host = \"1.1.1.1\", ports = [443], protocol = \"tcp\" }",
        ),
        ("1.1.1.1", "raw TCP, carried unread"),
        ("169.254.169.254", "can never be opened"),
    ] {
        let text = AllowRule::short(short).expect_err(short).to_string();
        assert!(text.contains(needle), "{short}: {text}");
        assert!(!text.contains("dangerously"), "{short}: {text}");
    }
    // What is advised is taken.
    assert!(AllowRule::short("example.com:443").is_ok());
    assert!(seal("allow = [{ host = \"1.1.1.1\", ports = [443], protocol = \"tcp\" }]").is_ok());
}

#[test]
fn rules_that_nobody_could_hold_do_not_load() {
    for (rule, needle) in [
        (
            "host = \"a.example.com\", methods = [\"GET\"]",
            "with tls = \"passthrough\" nobody reads the requests",
        ),
        ("host = \"a.example.com\", paths = [\"/v1/*\"]", "nobody reads the requests"),
        (
            "host = \"a.example.com\", ports = [22], protocol = \"tcp\", methods = [\"GET\"]",
            "protocol = \"tcp\" nobody",
        ),
        ("host = \"a.example.com\", protocol = \"ws\"", "needs tls = \"inspect\""),
        ("host = \"a.example.com\", protocol = \"tcp\"", "needs its ports"),
        (
            "host = \"a.example.com\", ports = [5432], protocol = \"tcp\", tls = \"inspect\"",
            "has no TLS to inspect",
        ),
        ("host = \"a.example.com\", ports = [853]", "port 853 is DNS"),
        ("host = \"dns.google\"", "dns.google is a public resolver (DNS over HTTPS)"),
        ("host = \"dns.google\", tls = \"inspect\"", "resolver = \"dangerously-allowed\""),
        ("host = \"*.cloudflare-dns.com\"", "cloudflare-dns.com is a public resolver"),
        ("host = \"*.example.com\", resolver = \"dangerously-allowed\"", "takes one host by its whole name"),
        ("host = \"dns.google\", resolver = \"allowed\"", "unknown use of a resolver"),
        ("host = \"a.example.com\", ports = [0]", "each from 1 to 65535"),
        ("host = \"1.1.1.1\"", "takes protocol = \"tcp\" only"),
        ("host = \"a.example.com\", tls = \"inspect\", methods = [\"get\"]", "write it in capitals"),
        ("host = \"a.example.com\", tls = \"inspect\", paths = [\"v1\"]", "a path begins with /"),
        (
            "host = \"a.example.com\", tls = \"inspect\", paths = [\"/a/../b\"]",
            "has no empty, . or .. segment",
        ),
        ("host = \"a.example.com\", tls = \"inspect\", paths = [\"/a%2fb\"]", "without %"),
        ("host = \"a.example.com\", tls = \"inspect\", paths = [\"/a*\"]", "* only as its last segment"),
        ("hots = \"a.example.com\"", "did you mean \"host\"?"),
        ("ports = [443]", "expected a rule with a host"),
        ("host = \"a.example.com\", tls = \"inspct\"", "did you mean \"inspect\"?"),
        ("host = \"a.example.com\", ports = [70000]", "network.allow.ports"),
    ] {
        let text = complaint(&format!("allow = [{{ {rule} }}]"));
        assert!(text.starts_with("line 4, column "), "{rule}: {text}");
        assert!(text.contains(needle), "{rule}: {text}");
    }
}

#[test]
fn rules_and_mode_must_fit_together() {
    let text =
        parse("[network]\nallow = [{ host = \"a.example.com\" }]").unwrap().seal().unwrap_err().to_string();
    assert!(text.contains("write mode = \"allow\""), "{text}");
    assert!(complaint("").contains("needs at least one [[network.allow]] rule"));
    let text = complaint(
        "allow = [{ host = \"a.example.com\" }, { host = \"a.example.com\", ports = [443], protocol = \"tcp\" }]",
    );
    assert!(
        text.contains("disagree: one says tls = \"passthrough\", the other protocol = \"tcp\""),
        "{text}"
    );
    let text = complaint("allow = [{ host = \"a.example.com\" }]\nlimits.flows = 0");
    assert!(text.contains("network.limits.flows = 0 is out of range"), "{text}");
}

#[test]
fn rules_that_need_requests_to_be_read_are_taken() {
    for rule in ["tls = \"inspect\"", "protocol = \"http\"", "protocol = \"ws\", tls = \"inspect\""] {
        seal(&format!("allow = [{{ host = \"a.example.com\", {rule} }}]")).unwrap();
    }
}

#[test]
fn having_requests_read_opens_nothing() {
    let read = |rules: &str| {
        let draft = seal(rules).unwrap().draft().read("api.example.com".parse().unwrap()).unwrap();
        let rules = draft.network_rules().allow.iter();
        rules.map(|rule| format!("{} {} {:?}", rule.host(), rule.tls(), rule.methods())).collect::<Vec<_>>()
    };
    for (rules, expected) in [
        // What is not reached stays so.
        ("allow = [{ host = \"other.example.com\" }]", &["other.example.com passthrough []"][..]),
        ("allow = [{ host = \"api.example.com\", ports = [8443] }]", &["api.example.com passthrough []"]),
        // What is reached is read, under whichever name.
        ("allow = [{ host = \"api.example.com\" }]", &["api.example.com inspect []"]),
        (
            "allow = [{ host = \"*.example.com\" }]",
            &["*.example.com passthrough []", "api.example.com inspect []"],
        ),
        // What says which requests pass is not passed by.
        (
            "allow = [{ host = \"api.example.com\", tls = \"inspect\", methods = [\"GET\"] }]",
            &["api.example.com inspect [\"GET\"]"],
        ),
        (
            "allow = [{ host = \"*.example.com\", tls = \"inspect\", methods = [\"GET\"] }]",
            &["*.example.com inspect [\"GET\"]"],
        ),
    ] {
        assert_eq!(read(rules), expected, "{rules}");
    }
}
