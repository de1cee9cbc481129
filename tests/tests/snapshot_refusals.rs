//! What cannot be copied, kept or paused to disk, and says why: machines with credentials, for real. They go on.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use blastbox_tests::machines::{ONE_AT_A_TIME, PATIENCE, SMALL, Workshop};
use blastbox_tests::{Caller, Served, text, whoever_asks};
use serde_json::json;

whoever_asks!(machines_with_credentials_are_not_copied_and_say_so);

const POLICY: &str = r#"
threat = "medium"
accept = ["shared-kernel", "emulated-cpu", "shared-uid", "no-memory-limit", "no-cpu-limit", "no-pids-limit", "swap-unlimited"]
[network]
mode = "allow"
allow = [{ host = "api.example.test", tls = "inspect", methods = ["POST"] }]
[credentials]
mode = "brokered"
bind = [{ secret = "token", host = "api.example.test", placeholder = "sk-", env = "API_KEY" }]
"#;

fn private(path: PathBuf) -> PathBuf {
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("keep it to oneself");
    path
}

fn machines_with_credentials_are_not_copied_and_say_so(caller: &Caller) {
    let _turn = ONE_AT_A_TIME.lock();
    let Some(workshop) = Workshop::new(caller) else { return };
    let value = private(caller.file("token", "sk-real-value-that-no-box-ever-sees"));
    let sources = format!("[secrets.token]\nhosts = [\"api.example.test\"]\nfile = {value:?}\n");
    let sources = private(caller.file("secrets.toml", sources));
    let policy = caller.file("credentials.toml", POLICY);
    let words = ["--policy", text(&policy), "--secrets", text(&sources)];
    workshop.template_by(&words, |words| caller.blastbox(words));
    // A box that waits would cost a copy.
    let config = caller.file("daemon.toml", "[pool]\nmax = 0\n");
    let options = ["--store", &workshop.store, "--secrets", text(&sources), "--config", text(&config)];
    let served = Served::start(caller, &options);
    let usual = ["create", "--tier", "microvm", "--image", "tools", "--policy", text(&policy)];
    let made = served.blastbox([&usual[..], &SMALL].concat()).start().end_within(PATIENCE);
    assert_eq!(made.code, 0, "{}", made.err);
    let id = made.text().trim_end().to_owned();
    for verb in [&["snapshot", &id][..], &["fork", &id], &["pause", "--to-disk", &id]] {
        let refused = served.blastbox(verb).end();
        assert!(refused.code == 125 && refused.err.contains("never inherited"), "{verb:?}: {}", refused.err);
    }
    let (status, told) = served.request("POST", &format!("/v1/boxes/{id}/snapshot"), &json!(null));
    let said = told.pointer("/error/code").and_then(|code| code.as_str());
    assert_eq!((status, said), (422, Some("snapshot_credentials")), "{told}");
    assert_eq!(served.sh(&id, "echo here"), "here");
    served.ask(["kill", &id]);
    assert!(served.ask(["snapshot", "ls"]).lines().count() <= 1);
    assert_eq!(served.stop().code, 0);
}
