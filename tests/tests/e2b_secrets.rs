//! Secrets that tenants keep, with E2B's published SDKs against a real daemon on a small internet (suites in `tests/e2b`): a host gets the
//! value over TLS; the sandbox, answers, and everything on disk but the tenant's own file never have it.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::path::{Path, PathBuf};

use blastbox_tests::internet::{Internet, PUBLIC};
use blastbox_tests::spoken::with_key;
use blastbox_tests::suites::{CONFIG, Daemon, installed, javascript_with, pytest, suite};
use blastbox_tests::{Caller, both_ways};

both_ways!(
    a_host_gets_what_its_owner_keeps_and_nobody_else_does,
    there_are_no_secrets_where_the_operator_wants_none,
    a_file_that_is_damaged_is_one_tenants
);

const HOST: &str = "api.example.test";

fn a_host_gets_what_its_owner_keeps_and_nobody_else_does(caller: &Caller) {
    let Some(place) = installed(caller, "python") else { return };
    let Some(internet) = Internet::build(caller) else { return };
    internet.name(HOST, &[&[PUBLIC]]);
    if !internet.secure_echo(caller, HOST) {
        return;
    }
    let daemon = Daemon::start_on(&internet, caller, &format!("{CONFIG}[e2b.secrets]\ncount = 4\n"));
    let other = Daemon::key(caller, &["other", "--tenant", "other"], "bbx_");
    let more = [("BLASTBOX_SECRET_HOST", Path::new(HOST)), ("BLASTBOX_OTHER_KEY", Path::new(&other))];
    pytest(caller, &place, &[suite("secrets")], &daemon, &more);
    let requests = internet.requests();
    for (path, header) in [
        ("/first", "authorization: bearer sk-first-value-of-the-owner"),
        ("/first", "x-api-key: sk-first-value-of-the-owner"),
        ("/still-first", "authorization: bearer sk-first-value-of-the-owner"),
        ("/second", "authorization: bearer sk-second-value-of-the-owner"),
        ("/after-all", "authorization: bearer sk-first-value-of-the-owner"),
        ("/async", "x-api-key: sk-second-value-of-the-owner"),
    ] {
        let sent = requests.iter().find(|request| request.contains(&format!(" {path} ")));
        let sent = sent.expect("the host was asked").to_ascii_lowercase();
        assert!(sent.contains(header), "{sent}");
        assert!(!header.starts_with("authorization") || !sent.contains("of-the-box"), "{sent}");
    }
    javascript_with(caller, "secrets.test.mjs", &daemon, &more);
    let sent: Vec<String> = internet.requests().into_iter().skip(requests.len()).collect();
    assert!(sent.iter().all(|request| request.contains("sk-value-of-the-owner-in-js")), "{sent:?}");
    // All were destroyed in the end: nothing of them is on disk, the ledger among it.
    let state = caller.place().join("state");
    let kept: Vec<PathBuf> = files_beneath(&state)
        .into_iter()
        .filter(|path| {
            let bytes = std::fs::read(path).unwrap_or_default();
            bytes.windows(13).any(|window| window == b"-of-the-owner")
        })
        .collect();
    assert!(kept.is_empty(), "{kept:?}");
    assert_eq!(files_beneath(&state.join("e2b/secrets")).len(), 1, "one tenant had some");
}

fn there_are_no_secrets_where_the_operator_wants_none(caller: &Caller) {
    let Some(place) = installed(caller, "python") else { return };
    let daemon = Daemon::start_with(caller, &format!("{CONFIG}[e2b.secrets]\nenabled = false\n"));
    pytest(caller, &place, &[suite("secrets_off")], &daemon, &[]);
}

fn a_file_that_is_damaged_is_one_tenants(caller: &Caller) {
    let config = CONFIG;
    let (ours, other) = (Daemon::key(caller, &["suite"], "bbx_"), Daemon::key(caller, &["other"], "bbx_"));
    let new = r#"{"name":"token","value":"sk-value-of-the-owner"}"#;
    let mut daemon = Daemon::start_again(caller, config, &[], ours.clone());
    assert!(with_key(&daemon, "POST /secrets", new).starts_with("HTTP/1.1 201"));
    daemon.key.clone_from(&other);
    assert!(with_key(&daemon, "POST /secrets", new).starts_with("HTTP/1.1 201"));
    drop(daemon);
    let file = caller.place().join("state/e2b/secrets/suite.json");
    let whole = std::fs::read(&file).expect("the file of one tenant");
    let half = whole.get(..whole.len() / 2).expect("a part of it");
    std::fs::write(&file, half).expect("damage it");
    let mut daemon = Daemon::start_again(caller, config, &[], ours.clone());
    let rules = r#"{"templateID":"base","network":{"allowOut":["a.example.com"],"rules":{"a.example.com":
        [{"transform":{"headers":{"X-Token":"${e2b.secrets.token}"}}}]}}}"#;
    for (what, body) in [("GET /secrets", ""), ("POST /secrets", new), ("POST /v2/sandboxes", rules)] {
        let said = with_key(&daemon, what, body);
        assert!(said.starts_with("HTTP/1.1 500") && said.contains("cannot be read"), "{what}: {said}");
        assert!(!said.contains("sk-value"), "{said}");
    }
    assert_eq!(std::fs::read(&file).expect("it is kept"), half);
    daemon.key = other;
    assert!(with_key(&daemon, "GET /secrets", "").contains("\"token\""));
    drop(daemon);
    std::fs::write(&file, whole).expect("mend it");
    let daemon = Daemon::start_again(caller, config, &[], ours);
    assert!(with_key(&daemon, "GET /secrets", "").contains("\"token\""));
}

fn files_beneath(at: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(at).expect("a directory").filter_map(Result::ok) {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => all.extend(files_beneath(&entry.path())),
            Ok(kind) if kind.is_file() => all.push(entry.path()),
            _ => {}
        }
    }
    all
}
