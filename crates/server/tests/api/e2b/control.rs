//! The control plane: both generations, exact statuses, nobody else's sandboxes.

use serde_json::{Value, json};

use super::wire::Client;
use crate::rig::{Daemon, skip};

fn seconds(body: &Value) -> i64 {
    // Both are RFC 3339 of the same form; minutes and seconds tell spans of less than an hour apart.
    let of = |name: &str| {
        let text = body[name].as_str().unwrap();
        let number = |range: std::ops::Range<usize>| text[range].parse::<i64>().unwrap();
        number(14..16) * 60 + number(17..19)
    };
    (of("endAt") - of("startedAt")).rem_euclid(3_600)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_needed_and_both_generations_are_served() {
    let Some(daemon) = Daemon::start("e2b::a_key_is_needed").await else { return };
    let client = Client::of(&daemon, "ann");
    let base = json!({ "templateID": "base" }).to_string();
    for headers in [&[][..], &[("x-api-key", "bbx_wrong")], &[("authorization", "Basic dXNlcjo=")]] {
        let heard = client.raw("POST", "/v2/sandboxes", headers, base.as_bytes()).await;
        assert_eq!((heard.status, &heard.body["code"]), (401, &json!(401)), "{heard:?}");
        assert_eq!(heard.header("should-retry"), "false");
    }
    assert_eq!(client.raw("GET", "/health", &[], b"").await.status, 204);
    for (path, life) in [("/sandboxes", 15), ("/v2/sandboxes", 300)] {
        let made = client.ask("POST", path, json!({ "templateID": "base", "secure": true })).await;
        assert_eq!(made.status, 201, "{made:?}");
        for field in ["templateID", "sandboxID", "clientID", "envdVersion", "envdAccessToken"] {
            assert!(made.body[field].is_string(), "{field} of {made:?}");
        }
        let id = made.body["sandboxID"].as_str().unwrap();
        assert!(id.len() == 20 && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()), "{id}");
        let shown = client.ask("GET", &format!("/sandboxes/{id}"), Value::Null).await;
        assert_eq!((shown.status, seconds(&shown.body)), (200, life), "{shown:?}");
        assert_eq!(shown.body["allowInternetAccess"], Value::Null);
        assert_eq!(client.ask("DELETE", &format!("/sandboxes/{id}"), Value::Null).await.status, 204);
        let again = client.ask("DELETE", &format!("/sandboxes/{id}"), Value::Null).await;
        assert_eq!((again.status, &again.body["code"]), (404, &json!(404)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_sees_or_touches_another_tenants_sandbox() {
    let Some(daemon) = Daemon::start("e2b::nobody_sees").await else { return };
    let (ann, bob) = (Client::of(&daemon, "ann"), Client::of(&daemon, "bob"));
    let hers = ann.make(json!({})).await;
    assert_eq!(bob.ask("GET", "/v2/sandboxes", Value::Null).await.body, json!([]));
    for (method, path, body) in [
        ("GET", "", Value::Null),
        ("DELETE", "", Value::Null),
        ("POST", "/timeout", json!({ "timeout": 0 })),
        ("POST", "/refreshes", json!({})),
        ("POST", "/pause", json!({})),
        ("POST", "/resume", json!({})),
        ("POST", "/connect", json!({ "timeout": 1 })),
        ("GET", "/metrics", Value::Null),
        ("GET", "/logs", Value::Null),
        ("PUT", "/network", json!({})),
    ] {
        let heard = bob.ask(method, &format!("/sandboxes/{}{path}", hers.id), body).await;
        assert_eq!(heard.status, 404, "{method} {path}: {heard:?}");
    }
    let his = bob.make(json!({})).await;
    let mixed =
        [("e2b-sandbox-id", hers.id.as_str()), ("e2b-sandbox-port", "49983"), ("x-access-token", &his.token)];
    let heard = bob.raw("GET", "/envs", &mixed, b"").await;
    assert_eq!(heard.status, 401, "{heard:?}");
    assert_eq!(ann.ask("GET", &format!("/sandboxes/{}", hers.id), Value::Null).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_had_is_refused_by_name() {
    let off = "[e2b.secrets]\nenabled = false\n";
    let Some(daemon) = Daemon::written("e2b::what_cannot_be_had", off).await else { return };
    let client = Client::of(&daemon, "ann");
    for (more, status, words) in [
        (json!({ "templateID": "nope" }), 404, "template 'nope' not found; known templates: base"),
        (json!({ "timeout": -1 }), 400, "timeout"),
        (json!({ "timeout": 99_999_999 }), 400, "timeout"),
        (json!({ "allow_internet_access": true }), 400, "allow_internet_access: true is refused"),
        (json!({ "network": { "allowOut": ["8.8.8.0/24"] } }), 400, "network.allowOut: "),
        (
            json!({ "network": { "rules": { "a.test": [{ "transform": { "headers": { "x": "y" } } }] } } }),
            400,
            "network.rules: ",
        ),
        (
            json!({ "network": { "rules": { "a.test": [{ "transform": { "headers": { "x": "${e2b.secrets.y}" } } }] } } }),
            403,
            "[e2b.secrets]",
        ),
        (json!({ "mcp": { "x": {} } }), 400, "`mcp`"),
        (json!({ "volumeMounts": [{ "name": "v", "path": "/v" }] }), 403, "[e2b.volumes]"),
        (json!({ "iam": { "tokens": { "t": { "audience": "a" } } } }), 400, "`iam`"),
        (json!({ "autoPauseMemory": false }), 400, "autoPauseMemory"),
        (json!({ "envVars": { "A=B": "x" } }), 400, "envVars"),
        (json!({ "metadata": { "k": "x".repeat(20_000) } }), 400, "metadata"),
        (json!({ "metadata": 5 }), 400, "the body is not what this call takes"),
    ] {
        let mut asked = json!({ "templateID": "base" });
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let heard = client.ask("POST", "/v2/sandboxes", asked).await;
        assert_eq!(heard.status, status, "{more}: {heard:?}");
        assert!(heard.message().contains(words), "{more}: {heard:?}");
        assert_eq!((heard.header("should-retry"), &heard.body["code"]), ("false", &json!(status)));
    }
    let heard = client.ask("POST", "/v2/sandboxes", json!({})).await;
    assert_eq!((heard.status, heard.message()), (400, "templateID is missing"));
    for (method, path, status) in [
        ("PUT", "/snapshots", 405),
        ("GET", "/sandboxes/abc/fork", 405),
        ("POST", "/sandboxes/abc/fork", 404),
        ("POST", "/sandboxes/abc/snapshots", 404),
        ("GET", "/volumes", 403),
        ("GET", "/volumecontent/x/dir", 403),
        ("GET", "/secrets", 403),
        ("GET", "/sandboxes/abc/nothing", 404),
        ("PATCH", "/sandboxes/abc", 405),
    ] {
        assert_eq!(client.ask(method, path, Value::Null).await.status, status, "{method} {path}");
    }
    assert_eq!(client.ask("GET", "/v2/sandboxes", Value::Null).await.body, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_under_a_key_happens_once() {
    let Some(daemon) = Daemon::start("e2b::a_create_under_a_key").await else { return };
    let client = Client::of(&daemon, "ann");
    let key = daemon.keys().create("other".parse().unwrap(), Some("ann".parse().unwrap())).unwrap();
    let ask = async |body: Value, name: &str| {
        let headers = [("x-api-key", key.show_once()), ("idempotency-key", name)];
        client.raw("POST", "/v2/sandboxes", &headers, body.to_string().as_bytes()).await
    };
    let body = json!({ "templateID": "base", "timeout": 600 });
    let first = ask(body.clone(), "k-1").await;
    let second = ask(body, "k-1").await;
    assert_eq!((first.status, second.status), (201, 201));
    assert_eq!(first.body["sandboxID"], second.body["sandboxID"]);
    let other = ask(json!({ "templateID": "base" }), "k-1").await;
    assert_eq!((other.status, &other.body["error_code"]), (422, &json!("idempotency_request_mismatch")));
    assert_eq!(ask(json!({ "templateID": "base" }), "Not A Key").await.status, 400);
    assert_eq!(client.ask("GET", "/v2/sandboxes", Value::Null).await.body.as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_ordered_cut_and_filtered() {
    let Some(daemon) = Daemon::start("e2b::lists").await else { return };
    let client = Client::of(&daemon, "ann");
    let one = client.make(json!({ "metadata": { "k": "1" } })).await;
    let two = client.make(json!({ "metadata": { "k": "2" } })).await;
    let ids = async |query: &str| {
        let heard = client.ask("GET", &format!("/v2/sandboxes{query}"), Value::Null).await;
        assert_eq!(heard.status, 200, "{heard:?}");
        let ids =
            heard.body.as_array().unwrap().iter().map(|one| one["sandboxID"].as_str().unwrap().to_owned());
        (ids.collect::<Vec<_>>(), heard.header("x-next-token").to_owned())
    };
    let ordered = ids("?order=asc").await.0;
    let mut newest_first = ordered.clone();
    newest_first.reverse();
    assert_eq!(ids("").await, (newest_first.clone(), String::new()));
    let (page, next) = ids("?limit=1").await;
    assert_eq!(page, newest_first[..1]);
    assert_eq!(ids(&format!("?limit=1&nextToken={next}")).await, (newest_first[1..].to_vec(), String::new()));
    assert_eq!(ids("?metadata=k%3D2").await.0, [two.id.as_str()]);
    assert_eq!(ids("?state=paused").await.0, [""; 0]);
    assert_eq!(ids("?template=other").await.0, [""; 0]);
    assert_eq!(ids("?startedAfter=2999-01-01T00:00:00%2B02:00").await.0, [""; 0]);
    let shown = client.ask("GET", &format!("/sandboxes/{}", one.id), Value::Null).await;
    let since = shown.body["startedAt"].as_str().unwrap();
    assert!(ids(&format!("?startedAfter={since}")).await.0.contains(&one.id), "it is inclusive");
    let old = client.ask("GET", "/sandboxes", Value::Null).await;
    assert_eq!(old.body.as_array().unwrap().len(), 2);
    for field in ["templateID", "sandboxID", "clientID", "startedAt", "endAt", "state", "envdVersion"] {
        assert!(old.body[0][field].is_string(), "{field}");
    }
    for field in ["cpuCount", "memoryMB", "diskSizeMB"] {
        assert!(old.body[0][field].as_u64().unwrap() > 0, "{field}");
    }
    for bad in ["?limit=0", "?order=x", "?state=x", "?startedAfter=x", "?nextToken=%25"] {
        assert_eq!(client.ask("GET", &format!("/v2/sandboxes{bad}"), Value::Null).await.status, 400, "{bad}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_life_is_extended_paused_and_resumed_with_the_right_statuses() {
    const NAME: &str = "e2b::a_life_is_extended";
    let Some(daemon) = Daemon::start(NAME).await else { return };
    let client = Client::of(&daemon, "ann");
    let sandbox = client.make(json!({})).await;
    let to = async |act: &str, body: Value| {
        client.ask("POST", &format!("/sandboxes/{}/{act}", sandbox.id), body).await
    };
    let life =
        async || seconds(&client.ask("GET", &format!("/sandboxes/{}", sandbox.id), Value::Null).await.body);
    assert_eq!(to("connect", json!({ "timeout": 1 })).await.status, 200);
    assert_eq!(life().await, 600, "connect never shortens");
    assert_eq!(to("refreshes", json!({ "duration": 1 })).await.status, 204);
    assert_eq!(life().await, 600, "a refresh never shortens");
    assert_eq!(to("refreshes", json!({ "duration": 3601 })).await.status, 400);
    assert_eq!(to("connect", json!({})).await.status, 400);
    let second = client.ask("POST", &format!("/v2/sandboxes/{}/connect", sandbox.id), Value::Null).await;
    assert_eq!((second.status, &second.body["sandboxID"]), (200, &json!(sandbox.id)));
    assert_eq!(to("timeout", json!({})).await.status, 400);
    assert_eq!(to("resume", json!({})).await.status, 409);
    assert_eq!(to("pause", json!({ "memory": false })).await.status, 400);
    let paused = to("pause", json!({})).await;
    if paused.status == 500 {
        skip::<()>(NAME, "this host freezes no box");
        return;
    }
    assert_eq!(paused.status, 204, "{paused:?}");
    assert_eq!(to("pause", json!({})).await.status, 409);
    assert_eq!(to("timeout", json!({ "timeout": 60 })).await.status, 404);
    let gone = sandbox.inside("GET", "/health", &[], b"").await;
    assert_eq!((gone.status, gone.message()), (502, "The sandbox was not found"));
    assert_eq!(to("connect", json!({ "timeout": 60, "memory": false })).await.status, 400);
    assert_eq!(to("connect", json!({ "timeout": 600 })).await.status, 201);
    assert_eq!(to("connect", json!({ "timeout": 600 })).await.status, 200);
    assert_eq!(to("pause", Value::Null).await.status, 204);
    assert_eq!(to("resume", json!({ "timeout": 600 })).await.status, 201);
    assert_eq!(sandbox.inside("GET", "/health", &[], b"").await.status, 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn network_logs_and_numbers() {
    let Some(daemon) = Daemon::start("e2b::network_logs_and_numbers").await else { return };
    let client = Client::of(&daemon, "ann");
    let sandbox =
        client.make(json!({ "envVars": { "A": "b" }, "network": { "allowPublicTraffic": false } })).await;
    let at = format!("/sandboxes/{}", sandbox.id);
    let put = async |body: Value| client.ask("PUT", &format!("{at}/network"), body).await.status;
    assert_eq!(put(json!({})).await, 204);
    assert_eq!(put(json!({ "denyOut": ["0.0.0.0/0"], "allow_internet_access": false })).await, 204);
    // Its policy is sealed: whatever would change it is told so, and what no policy holds is refused by name.
    assert_eq!(put(json!({ "allowOut": ["a.test"] })).await, 409);
    assert_eq!(put(json!({ "allowOut": ["8.8.8.0/24"] })).await, 400);
    assert_eq!(put(json!({ "allow_internet_access": true })).await, 400);
    let logs = client.ask("GET", &format!("{at}/logs"), Value::Null).await;
    assert_eq!(logs.body["logs"][0]["line"], "sandbox created", "{logs:?}");
    let logs = client.ask("GET", &format!("/v2{at}/logs?search=created&level=info"), Value::Null).await;
    assert_eq!(
        (&logs.body["logs"][0]["level"], &logs.body["logs"][0]["message"]),
        (&json!("info"), &json!("sandbox created"))
    );
    assert_eq!(client.ask("GET", &format!("/v2{at}/logs?level=x"), Value::Null).await.status, 400);
    let numbers = client.ask("GET", &format!("{at}/metrics"), Value::Null).await;
    for field in [
        "timestampUnix",
        "cpuCount",
        "cpuUsedPct",
        "memUsed",
        "memTotal",
        "memCache",
        "diskUsed",
        "diskTotal",
    ] {
        assert!(numbers.body[0][field].is_number(), "{field} of {numbers:?}");
    }
    assert_eq!(client.ask("GET", &format!("{at}/metrics?start=1&end=2"), Value::Null).await.body, json!([]));
    assert_eq!(client.ask("GET", &format!("{at}/metrics?start=x"), Value::Null).await.status, 400);
    let many =
        client.ask("GET", &format!("/sandboxes/metrics?sandbox_ids={},abc", sandbox.id), Value::Null).await;
    assert_eq!(many.body["sandboxes"].as_object().unwrap().len(), 1);
    let inside = sandbox.inside("GET", "/metrics", &[], b"").await;
    assert!(inside.body["mem_total_mib"].is_number() && inside.body["ts"].is_number(), "{inside:?}");
    let envs = sandbox.inside("GET", "/envs", &[], b"").await;
    assert_eq!((&envs.body["A"], &envs.body["E2B_SANDBOX_ID"]), (&json!("b"), &json!(sandbox.id)));
    // Its owner closed its ports: without the traffic token nobody hears even that nothing listens.
    let closed = [("e2b-sandbox-id", sandbox.id.as_str()), ("e2b-sandbox-port", "8080")];
    assert_eq!(client.raw("GET", "/", &closed, b"").await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_wakes_a_sandbox_without_its_token() {
    const NAME: &str = "e2b::nobody_wakes";
    let Some(daemon) = Daemon::start(NAME).await else { return };
    let client = Client::of(&daemon, "ann");
    let sandbox = client.make(json!({ "autoResume": { "enabled": true } })).await;
    let at = format!("/sandboxes/{}", sandbox.id);
    if client.ask("POST", &format!("{at}/pause"), Value::Null).await.status == 500 {
        skip::<()>(NAME, "this host freezes no box");
        return;
    }
    let state = async || client.ask("GET", &at, Value::Null).await.body["state"].clone();
    assert_eq!(state().await, "paused");
    let named = [("e2b-sandbox-id", sandbox.id.as_str()), ("e2b-sandbox-port", "49983")];
    let wrong = [named[0], named[1], ("x-access-token", "wrong")];
    for (method, path, headers, status) in [
        ("GET", "/health", &named[..], 502),
        ("GET", "/health", &wrong[..], 502),
        ("GET", "/files?path=a", &named[..], 401),
        ("GET", "/files?path=a", &wrong[..], 401),
        ("GET", "/envs", &wrong[..], 401),
        ("POST", "/process.Process/List", &wrong[..], 401),
    ] {
        assert_eq!(client.raw(method, path, headers, b"").await.status, status, "{method} {path}");
    }
    assert_eq!(state().await, "paused");
    assert_eq!(sandbox.inside("GET", "/envs", &[], b"").await.status, 200);
    assert_eq!(state().await, "running");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_copied_is_refused_by_name() {
    let Some(daemon) = Daemon::start("e2b::what_cannot_be_copied").await else { return };
    let (ann, bob) = (Client::of(&daemon, "ann"), Client::of(&daemon, "bob"));
    let made = ann.make(json!({})).await;
    let at = |what: &str| format!("/sandboxes/{}/{what}", made.id);
    for what in ["snapshots", "fork"] {
        let heard = ann.ask("POST", &at(what), json!({})).await;
        assert_eq!((heard.status, &heard.body["error_code"]), (400, &json!("snapshot_tier")), "{heard:?}");
        let said = heard.body["message"].as_str().unwrap();
        assert!(said.contains("[e2b.templates.NAME]") && said.contains("microvm"), "{said}");
        assert_eq!(bob.ask("POST", &at(what), json!({})).await.status, 404);
    }
    for (what, body, words) in [
        ("snapshots", json!({ "memory": false }), "with its memory"),
        ("snapshots", json!({ "name": "a b" }), "no name of a template"),
        ("fork", json!({ "count": 0 }), "1 to 100"),
        ("fork", json!({ "count": 101 }), "1 to 100"),
        ("fork", json!({ "timeout": -1 }), "out of range"),
    ] {
        let heard = ann.ask("POST", &at(what), body).await;
        assert_eq!(heard.status, 400, "{heard:?}");
        assert!(heard.body["message"].as_str().unwrap().contains(words), "{heard:?}");
    }
    let taken = ann.ask("POST", &at("snapshots"), json!({ "name": "base" })).await;
    assert_eq!(taken.status, 403, "{taken:?}");
    let listed = ann.ask("GET", "/snapshots?limit=1&name=mine", Value::Null).await;
    assert_eq!((listed.status, listed.body), (200, json!([])));
    assert_eq!(ann.ask("GET", "/snapshots?limit=0", Value::Null).await.status, 400);
    for name in ["sn_aaaaaaaaaaaaaaaaaaaa:default", "ann/mine:default", "other/mine"] {
        let heard = ann.ask("POST", "/v2/sandboxes", json!({ "templateID": name })).await;
        assert_eq!(heard.status, 404, "{name}: {heard:?}");
    }
}
