//! Nobody sees another tenant's box, and nobody comes in without a key.

use blastbox_engine::keeper::{KeeperConfig, Quota};
use serde_json::{Value, json};

use crate::rig::Daemon;

#[tokio::test(flavor = "multi_thread")]
async fn a_box_of_somebody_else_is_no_box() {
    let Some(daemon) = Daemon::start("a_box_of_somebody_else_is_no_box").await else { return };
    let (mine, theirs, local) = (daemon.tenant("mine"), daemon.tenant("theirs"), daemon.local());
    let made = mine.create(json!({})).await;
    let exec = mine.shell(&made, "sleep 30").await;
    let absent = "/v1/boxes/bx_aaaaaaaaaaaaaaaaaaaa";
    let routes = routes_of_a_box(&mine.get("/openapi.json").await.body);
    assert!(routes.len() > 20, "{routes:?}");
    for stranger in [&theirs, &local] {
        assert_eq!(stranger.get("/v1/boxes").await.body["boxes"], json!([]));
        for (method, path, body) in &routes {
            let answer = stranger.send(method, &format!("{made}{path}"), body.clone()).await;
            let nothing = stranger.send(method, &format!("{absent}{path}"), body.clone()).await;
            let is_line = path.ends_with("/attach");
            // Whoever does not ask for a line where there are only lines is told that, whosever box it is.
            assert_eq!(answer.status, if is_line { 400 } else { 404 }, "{method} {path}: {answer:?}");
            assert_eq!(answer.body, nothing.body, "a box of somebody else looks like none: {method} {path}");
        }
        let line = [
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        for of in [made.as_str(), absent] {
            let path = format!("{of}/execs/1/attach");
            assert_eq!(stranger.open("GET", &path, &line, Vec::new().into()).await.status(), 404, "{path}");
        }
        let name = made.rsplit('/').next().unwrap();
        let traffic = stranger.get(&format!("/v1/network?follow=false&box={name}")).await;
        assert_eq!(traffic.status, 404, "nor is anything told of what it reaches");
    }
    let heard = theirs.events("/v1/events?follow=false", Some(0)).await;
    assert_eq!(heard, [], "events of others are not heard");
    assert_eq!(theirs.get("/v1/events?all=true").await.code(), "local_only");
    assert!(!local.events("/v1/events?follow=false&all=true", Some(0)).await.is_empty());
    assert_eq!(mine.post(&format!("{exec}/signal"), json!({ "signal": 9 })).await.status, 204);
    assert_eq!(mine.delete(&made).await.status, 200);
    daemon.stop().await;
}

/// Every route of one box, as the daemon itself describes them, with what each needs to be understood.
fn routes_of_a_box(document: &Value) -> Vec<(String, String, String)> {
    let mut routes = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let Some(path) = path.strip_prefix("/v1/boxes/{id}") else { continue };
        for (method, operation) in methods.as_object().unwrap() {
            let named = |name: &str| {
                operation["parameters"].as_array().unwrap().iter().any(|known| known["name"] == name)
            };
            let query = match (named("path"), named("to")) {
                (true, true) => "?path=a&to=b",
                (true, false) => "?path=/tmp",
                (false, _) => "",
            };
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"]["$ref"];
            let body = match schema.as_str().map(|name| name.rsplit('/').next().unwrap()) {
                None => String::new(),
                Some("NewExec") => json!({ "command": ["true"] }).to_string(),
                Some("Answered") => json!({ "result": 1 }).to_string(),
                Some("Forks") => json!({ "count": 1 }).to_string(),
                Some("Deadline") => json!({ "life": 60 }).to_string(),
                Some("RuleChanges") => json!({ "allow": ["a.test"] }).to_string(),
                Some("Signal") => json!({ "signal": 9 }).to_string(),
                Some("TerminalSize") => json!({ "rows": 1, "columns": 1 }).to_string(),
                Some(other) => panic!("a route takes {other}: say here what that looks like"),
            };
            routes.push((
                method.to_uppercase(),
                format!("{}{query}", path.replace("{exec}", "1").replace("{call}", "1")),
                body,
            ));
        }
    }
    routes
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_comes_in_over_tcp_without_a_key_that_lives() {
    let Some(daemon) = Daemon::start("nobody_comes_in_over_tcp_without_a_key_that_lives").await else {
        return;
    };
    let stranger = daemon.over_tcp(None);
    for path in ["/v1/boxes", "/v1/events", "/metrics", "/v1/boxes/bx_aaaaaaaaaaaaaaaaaaaa"] {
        let answer = stranger.get(path).await;
        assert_eq!((answer.status, answer.code()), (401, "key_missing"), "{path}");
        assert_eq!(answer.headers["www-authenticate"], "Bearer");
    }
    assert_eq!(stranger.get("/healthz").await.status, 200);
    assert_eq!(daemon.over_tcp(Some("bbx_nonsense")).get("/v1/boxes").await.code(), "key_not_valid");
    let tenant = daemon.tenant("one");
    assert_eq!(tenant.get("/v1/boxes").await.status, 200);
    daemon.keys().remove(&"one".parse().unwrap()).unwrap();
    assert_eq!(tenant.get("/v1/boxes").await.code(), "key_not_valid");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_is_spent_says_when_to_come_back() {
    let mut config = KeeperConfig::default();
    let quota = Quota { boxes: 1, ..config.tenant_default };
    config.quotas.insert("small".parse().unwrap(), quota);
    let Some(daemon) = Daemon::with("a_quota_that_is_spent_says_when_to_come_back", config).await else {
        return;
    };
    let small = daemon.tenant("small");
    let made = small.create(json!({})).await;
    let more = small.post("/v1/boxes", json!({})).await;
    assert_eq!((more.status, more.code()), (429, "quota_spent"), "{more:?}");
    assert!(more.headers.contains_key("retry-after"));
    assert_eq!(small.delete(&made).await.status, 200);
    small.create(json!({})).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_opens_boxes_and_not_the_host() {
    let Some(daemon) = Daemon::start("a_key_opens_boxes_and_not_the_host").await else { return };
    let tenant = daemon.tenant("one");
    let network = |more: &str| json!({ "policy": format!("threat = \"medium\"\n[network]\n{more}") });
    for body in [
        json!({ "image": "/etc" }),
        json!({ "workspace": { "path": "/etc" } }),
        // The gateway dials from the host: its loopback is the operator's, whatever a policy says.
        network(
            "mode = \"allow\"\nallow = [{ host = \"127.0.0.1\", protocol = \"tcp\", ports = [5432] }]\n\
             dangerously_allow_private = [{ cidr = \"127.0.0.0/8\", ports = [5432] }]\n",
        ),
        network("mode = \"dangerously-open\"\n"),
    ] {
        let answer = tenant.post("/v1/boxes", body.clone()).await;
        assert_eq!((answer.status, answer.code()), (403, "local_only"), "{body}");
    }
    let directory = daemon.socket().parent().unwrap().to_owned();
    std::fs::create_dir(directory.join("work")).unwrap();
    std::fs::write(directory.join("work/file"), "content").unwrap();
    let me = daemon.local();
    let made =
        me.create(json!({ "workspace": { "path": directory.join("work"), "access": "read-only" } })).await;
    let exec = me.shell(&made, "cat file; echo x > file").await;
    let (text, ended) = me.ended(&exec).await;
    assert!(text.starts_with("content") && ended["code"] != 0, "{text} {ended}");
    daemon.stop().await;
}
