//! Machines with network, copied while they run: each copy has a gateway, a card and an authority of its own, and reaches what its
//! original may reach at that moment and nothing else. A small internet around them tells who came.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use blastbox_tests::census::{begun_at, end, family};
use blastbox_tests::internet::{Internet, PUBLIC};
use blastbox_tests::machines::{ONE_AT_A_TIME, PATIENCE, SMALL, Workshop};
use blastbox_tests::{Caller, Served, text, whoever_asks};
use serde_json::Value;

whoever_asks!(copies_of_a_machine_with_network_have_a_way_out_of_their_own);

/// Of a daemon without privilege, whose gateways are another kind of thing: once a copy has one, it does not matter what it is a copy of.
#[test]
fn members_of_a_users_pool_with_network_have_a_way_out_of_their_own() {
    if let Some(caller) = Caller::user("members_of_a_users_pool_with_network_have_a_way_out_of_their_own") {
        members_of_a_pool_with_network_have_a_way_out_of_their_own(&caller);
    }
}

const POLICY: &str = r#"
threat = "medium"
accept = ["shared-kernel", "emulated-cpu", "shared-uid", "no-memory-limit", "no-cpu-limit", "no-pids-limit", "swap-unlimited"]
[network]
mode = "allow"
allow = [
  { host = "echo.example.com", ports = [7], protocol = "tcp" },
  { host = "other.example.com", ports = [7], protocol = "tcp" },
  { host = "api.example.test", tls = "inspect", methods = ["POST"] },
]
"#;

/// Says the address of the card, which its kernel makes another of.
const CARD: &str =
    "until grep -q fe80 /proc/self/net/if_inet6; do :; done; grep fe80 /proc/self/net/if_inet6";
const ECHO: &str = "echo hello | nc -w 30 echo.example.com 7 2>/dev/null || echo no";
const OTHER: &str = "echo hello | nc -w 30 other.example.com 7 2>/dev/null || echo no";
/// One request that a rule allows and one that it does not, over TLS that the box believes by its own store.
const ASK: &str = "unset SSL_CERT_FILE CURL_CA_BUNDLE; for how in POST GET; do
    curl -sS -X $how --cacert /etc/ssl/certs/ca-certificates.crt https://api.example.test/of-$(uname -n); done 2>&1";

/// A connection that stays, with a way to say something there; what comes back is kept.
const LINE: &str = "mkfifo /tmp/line; exec 9<>/tmp/line; echo first >&9; nc echo.example.com 7 <&9 >/tmp/said; echo over >>/tmp/said";

/// What a box is by its network.
struct Looks {
    card: String,
    authority: String,
}

/// A verb that must do what it is told, however long a busy host takes.
fn ask(served: &Served<'_>, words: &[&str]) -> String {
    let ended = served.blastbox(words).start().end_within(PATIENCE);
    assert_eq!(ended.code, 0, "{words:?}: {}{}", ended.text(), ended.err);
    ended.text().trim_end().to_owned()
}

fn sh(served: &Served<'_>, id: &str, script: &str) -> String {
    ask(served, &["exec", id, "--", "/bin/sh", "-c", script])
}

/// Tries everything that a box may and may not reach.
fn reaches(served: &Served<'_>, id: &str) -> Looks {
    assert_eq!(sh(served, id, ECHO), "hello", "{id}");
    let answers = sh(served, id, ASK);
    let name = id.replace('_', "-");
    assert!(answers.contains(&format!("POST /of-{name} ")), "{id}: {answers}");
    assert_eq!(answers.matches("\"reason\":\"method-not-allowed\"").count(), 1, "{id}: {answers}");
    let (card, authority) = (sh(served, id, CARD), sh(served, id, "cat /run/authorities.crt"));
    assert_eq!(
        authority.matches("BEGIN CERTIFICATE").count(),
        1,
        "{id} believes somebody else too: {authority}"
    );
    Looks { card, authority }
}

/// The names that the policy allows, and who answers there; a store with a template of such machines, and the policy.
fn around(caller: &Caller) -> Option<(Internet, Workshop<'_>, PathBuf)> {
    let (internet, workshop) = (Internet::build(caller)?, Workshop::with_curl(caller)?);
    for name in ["echo.example.com", "other.example.com", "api.example.test"] {
        internet.name(name, &[&[PUBLIC]]);
    }
    internet.echo(7);
    let policy = caller.file("policy.toml", POLICY);
    workshop.template_by(&["--policy", text(&policy)], |words| internet.blastbox(caller, words));
    internet.secure_echo(caller, "api.example.test").then_some((internet, workshop, policy))
}

/// The machine that is prepared for them has used its way out, which none of them inherits.
fn members_of_a_pool_with_network_have_a_way_out_of_their_own(caller: &Caller) {
    let _turn = ONE_AT_A_TIME.lock();
    let Some((internet, workshop, policy)) = around(caller) else { return };
    let prewarm =
        "cp /run/authorities.crt /tmp/before && echo hello | nc -w 30 echo.example.com 7 > /tmp/said";
    let config = format!(
        "[pool]\nmax = 2\nttl = \"1h\"\n[[pool.warm]]\nmin = 2\ntier = \"microvm\"\nimage = \"tools\"\n\
         limits = {{ memory = \"256MiB\" }}\npolicy = '''{POLICY}'''\nprewarm = [\"sh\", \"-c\", \"{prewarm}\"]\n"
    );
    let config = caller.file("daemon.toml", config);
    let served =
        Served::start_in(&internet, caller, &["--store", &workshop.store, "--config", text(&config)]);
    let begun = Instant::now();
    while !served.ask(["metrics"]).contains("blastbox_pool_boxes 2\n") {
        assert!(begun.elapsed() < PATIENCE, "{}", served.ask(["metrics"]));
        std::thread::sleep(Duration::from_millis(100));
    }
    let usual = ["create", "--tier", "microvm", "--image", "tools", "--policy", text(&policy)];
    let create = [&usual[..], &SMALL].concat();
    let members = [ask(&served, &create), ask(&served, &create)];
    assert!(served.ask(["metrics"]).contains("blastbox_pool_hits_total 2\n"));
    let before = sh(&served, &members[0], "cat /tmp/before");
    let mut all = BTreeSet::from([before.clone()]);
    for id in &members {
        // What the machine did that they are copies of.
        assert_eq!(sh(&served, id, "cat /tmp/said"), "hello");
        assert_eq!(sh(&served, id, "cat /tmp/before"), before);
        let Looks { card, authority } = reaches(&served, id);
        assert!(all.insert(card) && all.insert(authority), "{id} is like another one: {all:?}");
    }
    for id in &members {
        let (status, receipt) = served.request("DELETE", &format!("/v1/boxes/{id}"), &Value::Null);
        let how = receipt.to_string();
        assert!(status == 200 && how.contains("a machine that was prepared once"), "{how}");
    }
    assert_eq!(served.stop().code, 0);
}

fn copies_of_a_machine_with_network_have_a_way_out_of_their_own(caller: &Caller) {
    let _turn = ONE_AT_A_TIME.lock();
    let Some((internet, workshop, policy)) = around(caller) else { return };
    // Boxes that wait would have gateways too.
    let config = caller.file("daemon.toml", "[pool]\nmax = 0\n");
    let served =
        Served::start_in(&internet, caller, &["--store", &workshop.store, "--config", text(&config)]);
    let usual = ["create", "--tier", "microvm", "--image", "tools", "--policy", text(&policy)];
    let create = [&usual[..], &SMALL].concat();
    let made = served.blastbox(&create).start().end_within(PATIENCE);
    assert_eq!(made.code, 0, "{}", made.err);
    let id = made.text().trim_end().to_owned();
    let original = reaches(&served, &id);
    assert_eq!(sh(&served, &id, OTHER), "hello");
    // A connection that is open when the box is copied.
    ask(&served, &["exec", "--detach", &id, "--", "sh", "-c", LINE]);
    sh(&served, &id, "until grep -q first /tmp/said; do sleep 0.3; done");
    // Rules that were changed since are those of the copies.
    ask(&served, &["net", "deny", &id, "other.example.com"]);
    let snapshot = ask(&served, &["snapshot", &id]);
    let forks = ask(&served, &["fork", &id, "--count", "2"]);
    let begun = ask(&served, &["create", "--snapshot", &snapshot]);
    let [one, two] = forks.lines().collect::<Vec<_>>()[..] else { unreachable!("{forks}") };
    let copies = [one, two, begun.as_str()];
    let mut all = vec![original];
    for copy in copies {
        all.push(reaches(&served, copy));
        assert_eq!(sh(&served, copy, OTHER), "no");
        // Nobody at the other end knows the connection of the original.
        sh(&served, copy, "echo second > /tmp/line; until grep -q over /tmp/said; do sleep 0.3; done");
        assert!(!sh(&served, copy, "cat /tmp/said").contains("second"));
    }
    sh(&served, &id, "echo second > /tmp/line; until grep -q second /tmp/said; do sleep 0.3; done");
    // To disk and back: the same box, with another gateway.
    ask(&served, &["pause", "--to-disk", one]);
    ask(&served, &["resume", one]);
    all.push(reaches(&served, one));
    let cards: BTreeSet<&str> = all.iter().map(|looks| looks.card.as_str()).collect();
    let authorities: BTreeSet<&str> = all.iter().map(|looks| looks.authority.as_str()).collect();
    assert_eq!((cards.len(), authorities.len()), (5, 5), "{cards:?}");
    // Each has its own: without it, that one box has no network.
    let gateways: Vec<_> =
        family(served.id()).into_iter().filter(|process| process.name == "blastbox-egress").collect();
    assert_eq!(gateways.len(), 4, "{gateways:?}");
    let last = gateways.iter().max_by_key(|process| begun_at(process.pid)).expect("a gateway");
    end(last);
    // One without a gateway is answered by no resolver, which is asked once, for a second.
    let quickly = format!("export RES_OPTIONS='timeout:1 attempts:1'; {}", ECHO.replace("-w 30", "-w 5"));
    let reached = |id: &str| sh(&served, id, &quickly) == "hello";
    let cut: Vec<&str> = [id.as_str(), one, two, &begun].into_iter().filter(|id| !reached(id)).collect();
    assert_eq!(cut, [one], "it was resumed last");
    // One whose gateway is gone gets no other one, and so does none that is closed by now: its machine has a card that a closed box has not.
    ask(&served, &["net", "deny", two, "echo.example.com"]);
    ask(&served, &["net", "deny", two, "api.example.test"]);
    for id in [one, two] {
        for verb in [&["fork", id][..], &["pause", "--to-disk", id]] {
            let refused = served.blastbox(verb).start().end_within(PATIENCE);
            let told = refused.err.contains("the rules of the box were changed") && refused.code == 125;
            assert!(told, "{verb:?}: {}", refused.err);
        }
    }
    assert_eq!(sh(&served, two, "echo here"), "here");
    for id in [id.as_str(), one, two, &begun] {
        ask(&served, &["kill", id]);
    }
    assert_eq!(served.stop().code, 0);
}
