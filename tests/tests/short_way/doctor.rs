//! Whether a host's kernel carries connections of boxes, as `doctor` says it, held against what a box then has.

use blastbox_tests::{Caller, Who, both_ways};
use serde_json::Value;

use super::{COMMON, WITHOUT_RULES, with_echo};

both_ways!(the_doctor_says_who_carries_a_network);

/// How the network stands, and what would help.
fn finding(said: &str) -> (String, String) {
    let findings: Vec<Value> = serde_json::from_str(said).unwrap();
    let text = |finding: &Value, key| finding.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let found = findings.iter().find(|finding| text(finding, "code") == "network_by_kernel").unwrap();
    (text(found, "state"), text(found, "fix"))
}

fn the_doctor_says_who_carries_a_network(caller: &Caller) {
    let Some(internet) = with_echo(caller) else { return };
    let boxed = internet.python(
        caller,
        &["--allow", "echo.example.com:7"],
        &format!("{COMMON}\nprint(json.dumps(carried(reach(7))))"),
    );
    let carried: bool = serde_json::from_str(&boxed.stdout).unwrap();
    let found = finding(&internet.blastbox(caller, &["doctor", "--json"]).end().text());
    assert_eq!(found.0, if carried { "good" } else { "weaker" }, "{found:?}");
    if !matches!(caller.who(), Who::Root) {
        return;
    }
    // The same host, had it no packet rules: still a network, and no box is refused for it.
    let script = caller.file("without_rules.py", WITHOUT_RULES);
    let under = ["/usr/bin/python3", script.to_str().unwrap()];
    let ended = internet.blastbox_under(caller, &under, &["doctor", "--json"]).end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    let found = finding(&ended.text());
    assert!(found.0 == "weaker" && found.1.contains("nft_tproxy"), "{found:?}");
}
