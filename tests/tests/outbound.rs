//! What the daemon sends by itself, as those hear it who get it: a listener of the test's own, on loopback.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "only tests; one that cannot work must fail at once"
)]

use std::sync::atomic::Ordering;

use blastbox_tests::ear::Ear;
use blastbox_tests::{Caller, Served, both_ways, wait_until};
use serde_json::Value;

both_ways!(
    the_end_of_a_box_is_told_when_the_sink_has_it,
    an_end_that_no_sink_acknowledged_is_told_by_the_next_daemon,
    an_alert_reaches_the_webhook_signed_and_after_a_failure,
    numbers_reach_the_collector,
    an_order_that_cannot_be_carried_out_is_refused_at_the_start,
);

fn serve<'a>(caller: &'a Caller, config: &str) -> Served<'a> {
    let path = caller.file("daemon.toml", config);
    Served::start(caller, &["--config", &path.display().to_string()])
}

fn the_end_of_a_box_is_told_when_the_sink_has_it(caller: &Caller) {
    let ear = Ear::new(true);
    let config = format!(
        "[[sinks]]\nname = \"siem\"\nkind = \"http\"\nurl = \"http://{}/in\"\nrequire_ack = true\n",
        ear.address
    );
    let daemon = serve(caller, &config);
    let (one, two) = (daemon.ask(["create"]), daemon.ask(["create"]));
    daemon.ask(["kill", &one]);
    assert!(ear.has("box_ended"), "the sink has it before the caller hears of it");
    ear.open.store(false, Ordering::SeqCst);
    let mut killing = daemon.blastbox(["kill", &two]).start();
    // The daemon notices that the sink is gone, and says so; whoever kills the box is not answered meanwhile.
    assert!(wait_until(|| daemon.ask(["events", "--all", "--json"]).contains("\"sink_unreachable\"")));
    assert!(!killing.is_over());
    let alerts = daemon.ask(["events", "--all", "--alerts", "--json"]);
    assert!(alerts.contains("\"severity\":\"critical\"") && !alerts.contains("box_created"), "{alerts}");
    ear.open.store(true, Ordering::SeqCst);
    assert_eq!(killing.end().code, 0);
    let ended = |record: &&Value| record["event"]["kind"] == "box_ended";
    assert_eq!(ear.records().iter().filter(ended).count(), 2);
    assert!(wait_until(|| ear.has("sink_reached")));
    assert_eq!(daemon.stop().code, 0);
    // The whole ledger, in order and without a hole: the last records too.
    let numbers: Vec<u64> = ear.records().iter().filter_map(|record| record["seq"].as_u64()).collect();
    assert!(numbers.iter().zip(0..).all(|(seq, expected)| *seq == expected), "{numbers:?}");
    assert!(ear.has("closed"), "the last word of a daemon that ends in order");
}

fn an_end_that_no_sink_acknowledged_is_told_by_the_next_daemon(caller: &Caller) {
    let ear = Ear::new(true);
    let config = format!(
        "[[sinks]]\nname = \"siem\"\nkind = \"http\"\nurl = \"http://{}/in\"\nrequire_ack = true\n",
        ear.address
    );
    let daemon = serve(caller, &config);
    let id = daemon.ask(["create"]);
    ear.open.store(false, Ordering::SeqCst);
    let killing = daemon.blastbox(["kill", &id]).start();
    assert!(wait_until(|| daemon.ask(["events", "--all", "--json"]).contains("\"sink_unreachable\"")));
    // On a busy host the sink is missed before the kill has come.
    assert!(wait_until(|| !daemon.ask(["inspect", &id, "--json"]).contains("\"ready\"")));
    let stopped = daemon.stop();
    assert_eq!(stopped.code, 0);
    assert!(stopped.err.contains("1 box(es) are gone, and this is not acknowledged"), "{}", stopped.err);
    let killed = killing.end();
    assert!(killed.code != 0 && killed.err.contains("not acknowledged"), "{}", killed.err);
    let own =
        |record: &&Value| record["event"]["kind"] == "box_ended" && record["about"]["box"] == id.as_str();
    assert_eq!(ear.records().iter().filter(own).count(), 0);
    let daemon = serve(caller, &config);
    let asked = || daemon.blastbox(["kill", &id]).end();
    let refused = asked();
    assert!(refused.code != 0 && refused.err.contains("not acknowledged"), "{}", refused.err);
    ear.open.store(true, Ordering::SeqCst);
    assert!(wait_until(|| asked().err.contains("the box is gone")));
    assert_eq!(ear.records().iter().filter(own).count(), 1, "recorded once, and the sink has it");
    assert!(daemon.ask(["events", "--all", "--json"]).contains("\"box_ended\""));
    assert_eq!(daemon.stop().code, 0);
}

fn an_alert_reaches_the_webhook_signed_and_after_a_failure(caller: &Caller) {
    let ear = Ear::new(false);
    let secret = caller.file("secret", "s3cret\n");
    let config = format!(
        "[webhook]\nurl = \"http://{}/alerts\"\nsecret_file = {:?}\nleast = \"high\"\n",
        ear.address, secret
    );
    let daemon = serve(caller, &config);
    let id = daemon.ask(["create"]);
    daemon.blastbox(["exec", &id, "--", "unshare", "-U", "true"]).end();
    assert!(wait_until(|| daemon.ask(["events", "--json"]).contains("escape_attempt")));
    // It is tried again while it is down.
    ear.open.store(true, Ordering::SeqCst);
    assert!(wait_until(|| !ear.heard().is_empty()));
    let (head, body) = ear.heard().swap_remove(0);
    let paper: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(
        (&paper["alert"]["code"], &paper["alert"]["severity"]),
        (&"escape_attempt".into(), &"high".into())
    );
    assert_eq!(paper["event"]["box_id"], id.as_str());
    let field = |name: &str| {
        head.lines().find_map(|line| line.strip_prefix(&format!("{name}: "))).unwrap_or_default().to_owned()
    };
    assert!(head.starts_with("POST /alerts HTTP/1.1"), "{head}");
    assert_eq!(field("x-blastbox-signature").len(), "sha256=".len() + 64);
    let signed = caller.place().join("signed");
    std::fs::write(&signed, [field("x-blastbox-timestamp").as_bytes(), b".", body.as_slice()].concat())
        .expect("write what was signed");
    let python = std::path::Path::new("/usr/bin/python3");
    if python.exists() {
        // By somebody else's code.
        let script =
            "import hmac,sys;print(hmac.new(b's3cret',open(sys.argv[1],'rb').read(),'sha256').hexdigest())";
        let code = caller.program(python, ["-c", script, &signed.display().to_string()]).end().text();
        assert_eq!(field("x-blastbox-signature"), format!("sha256={}", code.trim()));
    }
    assert_eq!(daemon.stop().code, 0);
}

fn numbers_reach_the_collector(caller: &Caller) {
    let ear = Ear::new(true);
    let daemon = serve(caller, &format!("[otlp]\nurl = \"http://{}\"\nevery = \"1s\"\n", ear.address));
    daemon.ask(["create"]);
    let told = || {
        ear.heard().iter().any(|(head, body)| {
            let text = String::from_utf8_lossy(body).into_owned();
            head.starts_with("POST /v1/metrics ")
                && text.contains("blastbox_creates_total")
                && text.contains("\"asInt\":\"1\"")
        })
    };
    assert!(wait_until(told));
    assert_eq!(daemon.stop().code, 0);
}

fn an_order_that_cannot_be_carried_out_is_refused_at_the_start(caller: &Caller) {
    for (config, said) in [
        (
            "[[sinks]]\nname = \"a b\"\nkind = \"http\"\nurl = \"http://127.0.0.1:9/\"\n",
            "letters, digits and dashes",
        ),
        ("[[sinks]]\nname = \"a\"\nkind = \"http\"\nurl = \"siem\"\n", "no address"),
        ("[[sinks]]\nname = \"a\"\nkind = \"file\"\npath = \"/no/such/place\"\n", "cannot open"),
        ("[webhook]\nurl = \"http://127.0.0.1:9/\"\nsecret_file = \"/no/such/file\"\n", "cannot read"),
        ("[webhook]\nurl = \"http://127.0.0.1:9/\"\nsecret = \"x\"\n", "secret"),
    ] {
        let path = caller.file("bad.toml", config);
        let (socket, state) = (caller.place().join("s"), caller.place().join("state"));
        let words = ["serve", "--config"].map(str::to_owned).into_iter();
        let more = [path, "--socket".into(), socket, "--state-dir".into(), state]
            .map(|word| word.display().to_string());
        let ended = caller.blastbox(words.chain(more)).end();
        assert!(ended.code == 125 && ended.err.contains(said), "{config}: {}", ended.err);
    }
}
