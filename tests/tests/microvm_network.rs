//! Machines with network: what is true of a box's gateway in the jail is true at the end of a machine's network card. One machine
//! for each caller, with a small internet around it, tries everything; the servers tell who came.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use blastbox_tests::census::{end, family, lives};
use blastbox_tests::internet::{Internet, PUBLIC, RESOLVER};
use blastbox_tests::machines::{ONE_AT_A_TIME, PATIENCE, Workshop};
use blastbox_tests::{Caller, both_ways, text, wait_until};
use blastbox_wire::receipt::Receipt;

both_ways!(a_machine_reaches_what_a_rule_allows_and_nothing_else_and_nothing_without_its_gateway);

const SECRET: &str = "sk-real-value-that-no-box-ever-sees";
const POLICY: &str = r#"
threat = "medium"
accept = ["shared-kernel", "emulated-cpu", "shared-uid", "no-memory-limit", "no-cpu-limit", "no-pids-limit", "swap-unlimited"]
[network]
mode = "allow"
allow = [
  { host = "echo.example.com", ports = [7], protocol = "tcp" },
  { host = "inside.example.com", ports = [7], protocol = "tcp" },
  { host = "cloud.example.com", ports = [7], protocol = "tcp" },
  { host = "api.example.test", tls = "inspect", methods = ["POST"] },
]
[credentials]
mode = "brokered"
bind = [{ secret = "token", host = "api.example.test", placeholder = "sk-", env = "API_KEY" }]
"#;

/// Says what the card is called, and the address that its kernel made of its own.
const CARD: &str = r#"until [ "$card" ]; do
    while read address _ _ _ _ name; do case $address in fe80*) card="$name $address";; esac; done < /proc/self/net/if_inet6
done; echo $card"#;

fn a_machine_reaches_what_a_rule_allows_and_nothing_else_and_nothing_without_its_gateway(caller: &Caller) {
    let _turn = ONE_AT_A_TIME.lock();
    let Some(internet) = Internet::build(caller) else { return };
    let Some(workshop) = Workshop::with_curl(caller) else { return };
    for (name, address) in [
        ("echo.example.com", PUBLIC),
        ("inside.example.com", "10.9.9.9"),
        ("cloud.example.com", "169.254.169.254"),
        ("stranger.test", PUBLIC),
        ("api.example.test", PUBLIC),
    ] {
        internet.name(name, &[&[address]]);
    }
    internet.echo(7);
    internet.echo(80);
    if !internet.secure_echo(caller, "api.example.test") {
        return;
    }
    let private = |path: std::path::PathBuf| {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("keep it to oneself");
        path
    };
    let token = private(caller.file("token", SECRET));
    let sources = format!("[secrets.token]\nhosts = [\"api.example.test\"]\nfile = {token:?}\n");
    let (sources, policy) =
        (private(caller.file("secrets.toml", sources)), caller.file("policy.toml", POLICY));
    // Of the requests to api.example.test the box's own gateway refuses three, over TLS that the box believes; one goes out.
    let script = "
        talk() { echo hello | nc -w 30 $1 $2 2>/dev/null || echo no; }
        cat /etc/resolv.conf; echo key=$API_KEY
        CARD
        talk echo.example.com 7; dd if=/dev/zero bs=1000 count=3000 2>/dev/null | nc -w 60 echo.example.com 7 | wc -c
        talk inside.example.com 7; talk cloud.example.com 7; talk stranger.test 80; talk 93.184.216.34 80; talk 10.9.9.9 80
        curl -sS https://api.example.test/x; echo
        curl -sS -X POST -H \"X-Other: $API_KEY\" https://api.example.test/y; echo
        curl -sS -X POST -H \"Authorization: Bearer $API_KEY\" https://api.example.test/ours; echo
        unset SSL_CERT_FILE CURL_CA_BUNDLE
        curl -sS https://api.example.test/z --cacert /etc/ssl/certs/ca-certificates.crt; echo
        (echo >> /run/authorities.crt) 2>/dev/null && echo writable; ls /run
        read line; export RES_OPTIONS='timeout:1 attempts:1'; talk echo.example.com 7; echo over"
        .replace("CARD", CARD);
    let receipt = caller.place().join("receipt.json");
    let options = ["--policy", text(&policy), "--secrets", text(&sources), "--timeout", "200s"];
    let words = workshop.words(&["run", "-i", "--receipt", text(&receipt)], &options, &["sh", "-c", &script]);
    workshop.template_by(&options[..4], |words| internet.blastbox(caller, words));
    // The line that lets the box go on comes only when its gateway is dead.
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let (out_reader, out) = std::io::pipe().expect("a pipe");
    let errors = caller.place().join("errors");
    let err = fs::File::create(&errors).expect("a file");
    let held = internet.blastbox(caller, &words).start_with([reader.into(), out.into(), err.into()]);
    let (mut lines, mut everybody) = (Vec::<String>::new(), Vec::new());
    for line in std::io::BufRead::lines(std::io::BufReader::new(out_reader)) {
        lines.push(line.expect("a line"));
        if lines.last().is_some_and(|line| line == "authorities.crt") {
            everybody = family(held.id());
            let gateway = everybody.iter().find(|process| process.name == "blastbox-egress");
            let gateway = gateway.expect("a gateway");
            end(gateway);
            std::io::Write::write_all(&mut writer, b"\n").expect("let it go on");
        }
    }
    let ended = held.end_within(PATIENCE);
    let (said, err) = (lines.join("\n"), fs::read_to_string(errors).expect("what it complained about"));
    assert_eq!(ended.code, 0, "{said} {err}");
    let receipt: Receipt = serde_json::from_slice(&fs::read(receipt).expect("a receipt")).expect("a receipt");
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let [_, resolver, key, card, echo, much, refused @ ..] = lines.as_slice() else {
        unreachable!("{said} {err}")
    };
    assert_eq!((*resolver, *echo, *much), ("nameserver 198.18.0.1", "hello", "3000000"), "{said} {err}");
    assert!(key.starts_with("key=sk-bbx"), "{key}");
    // The card's address is the copy's own, and not the one that QEMU gives to all of them.
    assert!(card.starts_with("eth0 fe80") && !card.ends_with("505400fffe123456"), "{card}");
    assert_eq!(refused.get(..5), Some(&["no"; 5][..]), "{said}");
    assert_eq!(said.matches("\"reason\":\"method-not-allowed\"").count(), 2, "{said} {err}");
    assert_eq!(said.matches("\"reason\":\"credential-misplaced\"").count(), 1, "{said}");
    assert!(said.ends_with("authorities.crt\nno\nover") && !said.contains("writable"), "{said}");
    assert!(!said.contains(SECRET) && !err.contains(SECRET));
    // The server has the secret; where it says it back, the box gets stars.
    let requests = internet.requests();
    let [request] = requests.as_slice() else { unreachable!("{requests:?}") };
    assert!(request.starts_with("POST /ours ") && request.contains(&format!("Bearer {SECRET}")), "{request}");
    assert!(said.contains(&format!("authorization: Bearer {}\n", "*".repeat(SECRET.len()))), "{said}");
    // Who came, and what was asked outside: nobody but for what a rule allows.
    assert_eq!(internet.visits(), [format!("{PUBLIC}:7"), format!("{PUBLIC}:7")]);
    assert!(!internet.questions().iter().any(|name| name.contains("stranger")), "{RESOLVER} was asked");
    let network = &receipt.network;
    let denied = |target: &str| {
        network.denied.iter().find(|line| line.target == target).map(|line| line.reason.as_str())
    };
    assert_eq!(denied("inside.example.com"), Some("forbidden-address"), "{:?}", network.denied);
    assert_eq!(denied("cloud.example.com"), Some("metadata-address"));
    assert_eq!(denied("stranger.test"), Some("host-not-allowed"));
    assert_eq!(denied(PUBLIC), Some("address-not-allowed"));
    assert_eq!(denied(""), None, "a machine says nothing by itself: {:?}", network.denied);
    assert_eq!(network.allowed.iter().map(|line| line.connections).sum::<u64>(), 3, "{:?}", network.allowed);
    assert!(network.gateway_lost);
    let how: Vec<&String> = receipt.boundaries.iter().flat_map(|line| &line.how).collect();
    assert!(how.iter().any(|how| how.contains("it began as a copy")), "{how:?}");
    assert!(how.iter().any(|how| how.contains("network card ends in that gateway")), "{how:?}");
    assert!(wait_until(|| !everybody.iter().any(lives)), "{everybody:?}");
    // Another copy of the same machine, to its end in order, with a stand-in of its own for the secret.
    let again = caller.place().join("again.json");
    let script = format!("{CARD}; echo key=$API_KEY");
    let words = workshop.words(&["run", "--receipt", text(&again)], &options, &["sh", "-c", &script]);
    let ended = internet.blastbox(caller, &words).start().end_within(PATIENCE);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let second = ended.text();
    let (other, placeholder) = second.trim_end().split_once('\n').unwrap_or_default();
    assert!(other.starts_with("eth0 fe80") && other != *card, "{other} {card}");
    assert!(placeholder.starts_with("key=sk-bbx") && placeholder != *key, "{placeholder} {key}");
    let receipt: Receipt = serde_json::from_slice(&fs::read(again).expect("a receipt")).expect("a receipt");
    assert!(!receipt.network.gateway_lost && receipt.network.denied.is_empty(), "{:?}", receipt.network);
    let how: Vec<&String> = receipt.boundaries.iter().flat_map(|line| &line.how).collect();
    assert!(how.iter().any(|how| how.contains("it began as a copy")), "{how:?}");
}
