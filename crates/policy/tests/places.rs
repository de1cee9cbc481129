//! Whatever is wrong with the network or the credentials of a policy is told with its line, its column and its key.

use blastbox_policy::{Draft, Gap, ThreatLevel, parse};

/// A mistake on the third line of a policy, and the words that its refusal must hold.
const MISTAKES: &[(&str, &[&str])] = &[
    // Hosts that mean too much, or nothing.
    ("[network]|mode = 'allow'|allow = [{ host = '*' }]", &["column 19", "network.allow.host", "too broad"]),
    ("[network]|mode = 'allow'|allow = [{ host = '*.com' }]", &["column 19", "network.allow.host", "*.com"]),
    ("[network]|mode = 'allow'|allow = [{ host = 'a.*.example.com' }]", &["column 19", "network.allow.host"]),
    (
        "[network]|mode = 'allow'|allow = [{ host = 'https://a.example.com/' }]",
        &["network.allow.host", "URL"],
    ),
    ("[network]|mode = 'allow'|allow = [{ host = 'a.example.com:443' }]", &["network.allow.host", "port"]),
    ("[network]|mode = 'allow'|allow = [{ host = '10.0.0.0/8' }]", &["network.allow.host", "range"]),
    ("[network]|mode = 'allow'|allow = [{ host = 'a b' }]", &["network.allow.host", "not a host name"]),
    ("[network]|mode = 'allow'|allow = [{ ports = [443] }]", &["network.allow", "host"]),
    ("[network]|mode = 'allow'|allow = ['a.example.com']", &["network.allow", "section"]),
    // Rules that cannot be as they are.
    ("[network]|mode = 'allow'|allow = [{ host = '93.184.216.34' }]", &["column 10", "network.allow", "tcp"]),
    (
        "[network]|mode = 'allow'|allow = [{ host = 'a.example.com', protocol = 'tcp' }]",
        &["network.allow", "ports"],
    ),
    (
        "[network]|mode = 'allow'|allow = [{ host = 'a.example.com', ports = [0] }]",
        &["network.allow", "ports"],
    ),
    (
        "[network]|mode = 'allow'|allow = [{ host = 'a.example.com', ports = [70000] }]",
        &["network.allow.ports"],
    ),
    (
        "[network]|mode = 'allow'|allow = [{ host = 'a.example.com', ports = [853] }]",
        &["network.allow", "DNS"],
    ),
    ("[network]|mode = 'allow'|allow = [{ host = 'dns.google' }]", &["network.allow", "resolver"]),
    (
        "[network]|mode = 'allow'|allow = [{ host = '*.example.com', resolver = 'dangerously-allowed' }]",
        &["network.allow"],
    ),
    (
        "[network]|mode = 'allow'|allow = [{ host = 'a.example.com', methods = ['GET'] }]",
        &["network.allow", "inspect"],
    ),
    (
        "[network]|mode = 'allow'|allow = [{ host = 'a.example.com', tls = 'inspect', methods = ['get'] }]",
        &["network.allow", "capitals"],
    ),
    (
        "[network]|mode = 'allow'|allow = [{ host = 'a.example.com', tls = 'inspect', paths = ['a'] }]",
        &["network.allow.paths"],
    ),
    (
        "[network]|mode = 'allow'|allow = [{ host = 'a.example.com', protocol = 'ws' }]",
        &["network.allow", "inspect"],
    ),
    (
        "[network]|mode = 'allow'|allow = [{ host = 'a.example.com', protocol = 'http', tls = 'inspect' }]",
        &["network.allow"],
    ),
    (
        "[network]|mode = 'allow'|allow = [{ host = 'a.example.com', tls = 'mitm' }]",
        &["network.allow.tls", "inspect"],
    ),
    ("[network]|mode = 'allow'|allow = [{ host = 'a.example.com', port = 443 }]", &["unknown key", "ports"]),
    // Private addresses, and the dangerous word.
    (
        "[network]|mode = 'allow'|allow = [{ host = '10.1.2.3', ports = [80], protocol = 'tcp' }]",
        &["column 10", "network.allow", "dangerously_allow_private"],
    ),
    (
        "[network]|mode = 'allow'|allow = [{ host = 'localhost' }]",
        &["column 10", "network.allow", "dangerously_allow_private"],
    ),
    (
        "[network]|mode = 'allow'|allow = [{ host = '169.254.169.254', ports = [80], protocol = 'tcp' }]",
        &["network.allow", "metadata"],
    ),
    (
        "[network]|mode = 'allow'|dangerously_allow_private = [{ cidr = '169.254.0.0/16', ports = [80] }]",
        &["network.dangerously_allow_private", "cannot be opened"],
    ),
    (
        "[network]|mode = 'allow'|dangerously_allow_private = [{ cidr = '10.0.0.0/8' }]",
        &["network.dangerously_allow_private"],
    ),
    (
        "[network]|mode = 'allow'|dangerously_allow_private = [{ cidr = '10.0.0.1/8', ports = [80] }]",
        &["network.dangerously_allow_private"],
    ),
    // What fits only beside the rest, or does not.
    ("[network]|allow = [{ host = 'a.example.com' }]|mode = 'off'", &["column 8", "network.mode"]),
    ("[network]|loopback = 'own'|mode = 'allow'", &["column 8", "network.mode", "needs at least one"]),
    (
        "[network]|mode = 'allow'\nallow = [{ host = 'a.example.com' },|  { host = 'a.example.com', tls = 'inspect' }]",
        &["column 3", "network.allow", "disagree"],
    ),
    ("threat = 'critical'|[network]|mode = 'dangerously-open'", &["column 8", "network.mode", "critical"]),
    ("[network]|mode = 'off'|limits = { flows = 0 }", &["column 20", "network.limits.flows", "out of range"]),
    ("[network]|mode = 'off'|limits = { flow = 1 }", &["unknown key", "flows"]),
    // Credentials by themselves.
    ("[credentials]|mode = 'brokered'|bind = [{ host = 'a.example.com' }]", &["credentials.bind", "secret"]),
    ("[credentials]|mode = 'brokered'|bind = [{ secret = 'a' }]", &["credentials.bind", "host"]),
    (
        "[credentials]|mode = 'brokered'|bind = [{ secret = '../a', host = 'a.example.com' }]",
        &["credentials.bind.secret"],
    ),
    (
        "[credentials]|mode = 'brokered'|bind = [{ secret = 'a', host = '*.example.com' }]",
        &["credentials.bind.host"],
    ),
    (
        "[credentials]|mode = 'brokered'|bind = [{ secret = 'a', host = 'a.example.com', as = 'basic' }]",
        &["credentials.bind", "user"],
    ),
    (
        "[credentials]|mode = 'brokered'|bind = [{ secret = 'a', host = 'a.example.com', as = 'cookie' }]",
        &["credentials.bind"],
    ),
    (
        "[credentials]|mode = 'brokered'|bind = [{ secret = 'a', host = 'a.example.com', env = 'TOKEN' }]",
        &["credentials.bind", "placeholder"],
    ),
    (
        "[credentials]|mode = 'brokered'|bind = [{ secret = 'a', host = 'a.example.com', paths = ['a'] }]",
        &["credentials.bind.paths"],
    ),
    (
        "[credentials]|mode = 'brokered'|bind = [{ secret = 'a', host = 'a.example.com', value = 'x' }]",
        &["unknown key"],
    ),
    ("[credentials]|bind = []|mode = 'lent'", &["credentials.mode", "brokered"]),
    (
        "[credentials]|bind = [{ secret = 'a', host = 'a.example.com' }]|mode = 'none'",
        &["column 8", "credentials.mode"],
    ),
    ("[credentials]|bind = []|mode = 'brokered'", &["column 8", "without a binding"]),
    // And beside the rules of the network.
    (
        "[credentials]|mode = 'brokered'|bind = [{ secret = 'a', host = 'a.example.com' }]",
        &["column 9", "credentials.bind", "network.allow"],
    ),
    (
        "network = { mode = 'allow', allow = [{ host = 'a.example.com' }] }\n[credentials]|mode = 'brokered'|bind = [{ secret = 'a', host = 'a.example.com' }]",
        &["column 9", "credentials.bind", "passthrough"],
    ),
    (
        "network = { mode = 'allow', allow = [{ host = 'a.example.com', protocol = 'http' }] }\n[credentials]|mode = 'brokered'|bind = [{ secret = 'a', host = 'a.example.com', port = 80 }]",
        &["column 9", "credentials.bind", "http"],
    ),
    (
        "network = { mode = 'allow', allow = [{ host = 'a.example.com', tls = 'inspect' }] }\n[credentials]|mode = 'brokered'\nbind = [{ secret = 'a', host = 'a.example.com' },|  { secret = 'b', host = 'a.example.com' }]",
        &["column 3", "credentials.bind"],
    ),
];

/// The last `|` stands before the line with the mistake.
#[test]
fn every_refusal_of_network_and_credentials_says_line_and_key() {
    let mut wrong = Vec::new();
    for (text, words) in MISTAKES {
        let text = text.replace('|', "\n");
        let at = format!("line {}, column ", text.lines().count());
        let said = match parse(&text).and_then(Draft::seal) {
            Err(error) => error.to_string(),
            Ok(_) => "it is taken".to_owned(),
        };
        if !said.starts_with(&at) || !words.iter().all(|word| said.contains(word)) {
            wrong.push(format!("{words:?} in: {said}\n{text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn what_only_the_level_forbids_is_told_with_its_line_too() {
    for (text, says) in [
        ("threat = 'critical'\n[kernel]\ntier = 'jail'", "line 3, column 8: kernel.tier = jail"),
        ("threat = 'critical'\n[kernel]\nroot = 'allowed'", "line 3, column 8: kernel.root"),
        ("threat = 'critical'\n[files]\nworkspace = 'direct'", "line 3, column 13: files.workspace"),
        ("threat = 'critical'\naccept = ['shared-kernel']", "line 2, column 11: accept: gap shared-kernel"),
        ("[kernel]\npids = 1", "line 2, column 8: kernel.pids = 1"),
    ] {
        let said = parse(text).and_then(Draft::seal).unwrap_err().to_string();
        assert!(said.starts_with(says), "{said}");
    }
}

/// A flag of the command line has no line, and is not told as if it stood in the file.
#[test]
fn what_was_changed_since_is_not_blamed_on_the_text() {
    let read = || {
        parse("[kernel]\npids = 50\n[network]\nmode = 'allow'\nallow = [{ host = 'a.example.com' }]").unwrap()
    };
    let said = read().pids(1).seal().unwrap_err().to_string();
    assert!(said.starts_with("kernel.pids = 1"), "{said}");
    let rule = blastbox_policy::AllowRule::short("10.0.0.1:80").unwrap();
    let said = read().allow(rule).seal().unwrap_err().to_string();
    assert!(said.starts_with("network.allow: 10.0.0.1"), "{said}");
    assert_eq!(read(), read().accept(Gap::SharedKernel).seal().map(|_| read()).unwrap());
    assert_ne!(read(), Draft::at(ThreatLevel::High));
}
