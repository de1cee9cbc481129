//! Connect-RPC: frames, codes, both codecs, and a stream that breaks off with its sandbox.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt;
use hyper::body::Bytes;
use serde_json::{Value, json};

use super::wire::{Client, frame, frames};
use crate::caller::PATIENCE;
use crate::rig::{Daemon, PER_TENANT};

fn shell(script: &str) -> Value {
    json!({ "process": { "cmd": "/bin/sh", "args": ["-c", script] }, "stdin": false })
}

fn printed(events: &[Value], stream: &str) -> String {
    let pieces = events.iter().filter_map(|event| event["event"]["data"][stream].as_str());
    String::from_utf8(pieces.flat_map(|piece| STANDARD.decode(piece).unwrap()).collect()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_begins_with_a_start_and_ends_with_an_end() {
    let Some(daemon) = Daemon::start("e2b::a_stream_begins").await else { return };
    let client = Client::of(&daemon, "ann");
    let sandbox = client.make(json!({})).await;
    let (events, last) =
        sandbox.stream("process.Process/Start", shell("echo out; echo err >&2; exit 3")).await;
    assert!(events[0]["event"]["start"]["pid"].as_u64().unwrap() > 0, "{events:?}");
    assert_eq!((printed(&events, "stdout"), printed(&events, "stderr")), ("out\n".into(), "err\n".into()));
    let end = json!({ "exitCode": 3, "exited": true, "status": "exit status 3", "error": "exit status 3" });
    assert_eq!((&events.last().unwrap()["event"]["end"], last), (&end, json!({})));
    let (events, _) = sandbox.stream("process.Process/Start", shell("kill -9 $$")).await;
    assert_eq!(events.last().unwrap()["event"]["end"]["status"], "signal: killed");
    for (asked, code, words) in [
        (json!({ "process": { "cmd": "/no/such" } }), "invalid_argument", "/no/such"),
        (
            json!({ "process": { "cmd": "/bin/sh", "cwd": "/no" } }),
            "invalid_argument",
            "cwd '/no' does not exist",
        ),
        (json!({ "process": {} }), "invalid_argument", "empty"),
        (json!({ "process": { "cmd": "/bin/sh", "envs": { "": "x" } } }), "invalid_argument", "variable"),
        (json!({ "process": { "cmd": 5 } }), "invalid_argument", "unmarshal"),
    ] {
        let (events, last) = sandbox.stream("process.Process/Start", asked).await;
        assert!(events.is_empty(), "{events:?}");
        assert_eq!(last["error"]["code"], code, "{last}");
        assert!(last["error"]["message"].as_str().unwrap().contains(words), "{last}");
    }
    let (_, last) = sandbox.stream("process.Process/Connect", json!({ "process": { "tag": "none" } })).await;
    assert_eq!(last["error"], json!({ "code": "not_found", "message": "process with tag none not found" }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_kills_the_process_and_is_said() {
    let Some(daemon) = Daemon::start("e2b::a_deadline_kills").await else { return };
    let client = Client::of(&daemon, "ann");
    let sandbox = client.make(json!({})).await;
    let headers = [("content-type", "application/connect+json"), ("connect-timeout-ms", "300")];
    let begun = std::time::Instant::now();
    let message = frame(0, shell("sleep 1000").to_string().as_bytes());
    let heard = sandbox.inside("POST", "/process.Process/Start", &headers, &message).await;
    let (flags, last) = frames(&heard.bytes).pop().unwrap();
    let last: Value = serde_json::from_slice(&last).unwrap();
    assert_eq!((flags, &last["error"]["code"]), (2, &json!("deadline_exceeded")));
    while sandbox.call("process.Process/List", json!({})).await.body != json!({ "processes": [] }) {
        assert!(begun.elapsed() < PATIENCE, "it still runs");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn protobuf_is_spoken_too() {
    let Some(daemon) = Daemon::start("e2b::protobuf").await else { return };
    let client = Client::of(&daemon, "ann");
    let sandbox = client.make(json!({})).await;
    let text =
        |field: u8, bytes: &[u8]| [&[field << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat();
    let config = [text(1, b"/bin/echo"), text(2, b"hi")].concat();
    let headers = [("content-type", "application/connect+proto")];
    let heard =
        sandbox.inside("POST", "/process.Process/Start", &headers, &frame(0, &text(1, &config))).await;
    assert_eq!(heard.header("content-type"), "application/connect+proto");
    let all = frames(&heard.bytes);
    let messages: Vec<&[u8]> = all.iter().map(|(_, message)| message.as_slice()).collect();
    // event { data { stdout: "hi\n" } }
    assert!(messages.contains(&&[0x0a, 7, 0x12, 5, 0x0a, 3, b'h', b'i', b'\n'][..]), "{messages:?}");
    assert_eq!(all.last().unwrap(), &(2, b"{}".to_vec()));
    let unary = [("content-type", "application/proto")];
    let made = sandbox.inside("POST", "/filesystem.Filesystem/MakeDir", &unary, &text(1, b"/tmp/d")).await;
    assert_eq!((made.status, made.header("content-type")), (200, "application/proto"));
    assert!(made.bytes.windows(6).any(|window| window == b"/tmp/d"), "{made:?}");
    let again = sandbox.inside("POST", "/filesystem.Filesystem/MakeDir", &unary, &text(1, b"/tmp/d")).await;
    assert_eq!((again.status, &again.body["code"]), (409, &json!("already_exists")));
    let bad = sandbox.inside("POST", "/filesystem.Filesystem/Stat", &unary, &[0x0a, 9, b'x']).await;
    assert_eq!((bad.status, &bad.body["code"]), (400, &json!("invalid_argument")));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_are_wrong_get_the_code_that_says_so() {
    let Some(daemon) = Daemon::start("e2b::calls_that_are_wrong").await else { return };
    let client = Client::of(&daemon, "ann");
    let sandbox = client.make(json!({})).await;
    for (procedure, body, status, code, words) in [
        ("process.Process/Nothing", json!({}), 501, "unimplemented", "procedure"),
        (
            "process.Process/SendSignal",
            json!({ "process": { "pid": 99_999 }, "signal": "SIGNAL_SIGKILL" }),
            404,
            "not_found",
            "process with pid 99999 not found",
        ),
        (
            "process.Process/SendSignal",
            json!({ "process": { "pid": 1 }, "signal": "SIGNAL_SIGHUP" }),
            501,
            "unimplemented",
            "signal",
        ),
        ("process.Process/SendInput", json!({}), 400, "invalid_argument", "no process is selected"),
        ("filesystem.Filesystem/Stat", json!({ "path": "/none" }), 404, "not_found", "/none"),
        ("filesystem.Filesystem/Stat", json!({ "path": "~root/x" }), 400, "invalid_argument", "home"),
        (
            "filesystem.Filesystem/ListDir",
            json!({ "path": "/etc/passwd" }),
            400,
            "invalid_argument",
            "not a directory",
        ),
        (
            "filesystem.Filesystem/Move",
            json!({ "source": "none", "destination": "x" }),
            404,
            "not_found",
            "none",
        ),
        ("filesystem.Filesystem/MakeDir", json!({ "path": "/usr/x" }), 403, "permission_denied", "/usr/x"),
        ("filesystem.Filesystem/CreateWatcher", json!({ "path": "/none" }), 404, "not_found", "/none"),
        ("filesystem.Filesystem/GetWatcherEvents", json!({ "watcherId": "w9" }), 404, "not_found", "w9"),
        ("filesystem.Filesystem/RemoveWatcher", json!({ "watcher_id": "w9" }), 404, "not_found", "w9"),
    ] {
        let heard = sandbox.call(procedure, body).await;
        assert_eq!((heard.status, &heard.body["code"]), (status, &json!(code)), "{procedure}: {heard:?}");
        assert!(heard.message().contains(words), "{procedure}: {heard:?}");
    }
    assert_eq!(sandbox.call("filesystem.Filesystem/Remove", json!({ "path": "none" })).await.body, json!({}));
    let json = ("content-type", "application/json");
    let user = ("authorization", "Basic d2hvOg==");
    let heard =
        sandbox.inside("POST", "/filesystem.Filesystem/Stat", &[json, user], br#"{"path":"/"}"#).await;
    assert_eq!((heard.status, heard.message()), (401, "invalid username: 'who'"));
    let user = ("authorization", "Basic dXNlcjo=");
    let heard =
        sandbox.inside("POST", "/filesystem.Filesystem/Stat", &[json, user], br#"{"path":"/tmp"}"#).await;
    assert_eq!((heard.status, &heard.body["entry"]["type"]), (200, &json!("FILE_TYPE_DIRECTORY")));
    for (body, kind, status) in
        [("[]", json, 400), ("{", json, 400), ("{}", ("content-type", "text/plain"), 415)]
    {
        assert_eq!(
            sandbox.inside("POST", "/process.Process/List", &[kind], body.as_bytes()).await.status,
            status
        );
    }
    assert_eq!(sandbox.inside("GET", "/process.Process/List", &[json], b"").await.status, 405);
    for (bytes, code) in [
        (vec![], "invalid_argument"),
        (vec![0, 0, 0, 0, 9, b'{'], "invalid_argument"),
        (frame(1, b"{}"), "internal"),
        (frame(7, b"{}"), "invalid_argument"),
        (vec![0, 0xff, 0xff, 0xff, 0xff], "resource_exhausted"),
        (frame(0, b"nonsense"), "invalid_argument"),
    ] {
        let kind = [("content-type", "application/connect+json")];
        let heard = sandbox.inside("POST", "/process.Process/Start", &kind, &bytes).await;
        let (flags, last) = frames(&heard.bytes).pop().unwrap();
        let last: Value = serde_json::from_slice(&last).unwrap();
        assert_eq!((heard.status, flags, &last["error"]["code"]), (200, 2, &json!(code)), "{bytes:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_breaks_off_with_its_sandbox() {
    let Some(daemon) = Daemon::start("e2b::a_stream_breaks_off").await else { return };
    let client = Client::of(&daemon, "ann");
    let sandbox = client.make(json!({})).await;
    let kind = ("content-type", "application/connect+json");
    let headers: Vec<(&str, &str)> = sandbox.headers().into_iter().chain([kind]).collect();
    let mut open = Vec::new();
    for (procedure, body) in [
        ("/process.Process/Start", shell("sleep 1000")),
        ("/filesystem.Filesystem/WatchDir", json!({ "path": "/tmp" })),
    ] {
        let message = Bytes::from(frame(0, body.to_string().as_bytes()));
        let mut response = client.door.open("POST", procedure, &headers, message).await;
        let first = tokio::time::timeout(PATIENCE, response.body_mut().frame()).await.unwrap();
        assert!(first.unwrap().unwrap().into_data().unwrap().windows(5).any(|window| window == b"start"));
        open.push(response);
    }
    assert_eq!(client.ask("DELETE", &format!("/sandboxes/{}", sandbox.id), Value::Null).await.status, 204);
    for response in open {
        let rest = tokio::time::timeout(PATIENCE, response.into_body().collect()).await.unwrap();
        assert!(rest.is_err(), "it ended as if nothing had happened: {rest:?}");
    }
    assert_eq!(sandbox.inside("GET", "/health", &[], b"").await.status, 502);
}

/// A stream that has begun: its first frame is there.
async fn begun(
    sandbox: &super::wire::Sandbox<'_>,
    procedure: &str,
    body: &Value,
) -> hyper::Response<hyper::body::Incoming> {
    let kind = ("content-type", "application/connect+json");
    let headers: Vec<(&str, &str)> = sandbox.headers().into_iter().chain([kind]).collect();
    let message = Bytes::from(frame(0, body.to_string().as_bytes()));
    sandbox.client.door.open("POST", procedure, &headers, message).await
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_inside_a_sandbox_count_among_the_connections_of_its_tenant() {
    let Some(daemon) = Daemon::start("e2b::streams_count").await else { return };
    let (client, neighbour) = (Client::of(&daemon, "ann"), Client::of(&daemon, "bob"));
    let (sandbox, other) = (client.make(json!({})).await, neighbour.make(json!({})).await);
    let watch = json!({ "path": "/tmp" });
    let mut open = Vec::new();
    // A seat of an earlier question may be given back only now, so that a few less may be enough.
    let crowded = loop {
        let response = begun(&sandbox, "/filesystem.Filesystem/WatchDir", &watch).await;
        if response.status() != 200 {
            break response.status();
        }
        open.push(response);
        assert!(open.len() <= PER_TENANT, "they do not count");
    };
    assert_eq!(crowded, 429);
    // Whoever has another key still comes in.
    assert_eq!(other.call("process.Process/List", json!({})).await.status, 200);
    drop(open);
    let again = async {
        while sandbox.call("process.Process/List", json!({})).await.status != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_has_only_so_many_bytes() {
    let Some(daemon) = Daemon::start("e2b::a_list_has_only_so_many_bytes").await else { return };
    let client = Client::of(&daemon, "ann");
    let sandbox = client.make(json!({})).await;
    // Links may say anything, four thousand bytes of it, and lead nowhere.
    let script = r#"mkdir /tmp/few /tmp/many; t=$(printf %04000d 0); i=0
        while [ $i -lt 2100 ]; do ln -s $t /tmp/many/$i || exit 1; i=$((i+1)); done; ln -s $t /tmp/few/0"#;
    let (events, _) = sandbox.stream("process.Process/Start", shell(script)).await;
    assert_eq!(events.last().unwrap()["event"]["end"]["exitCode"], 0, "{events:?}");
    let many = sandbox.call("filesystem.Filesystem/ListDir", json!({ "path": "/tmp/many" })).await;
    assert_eq!((many.status, &many.body["code"]), (400, &json!("out_of_range")));
    assert!(many.message().contains("bytes of entries"), "{}", many.message());
    let few = sandbox.call("filesystem.Filesystem/ListDir", json!({ "path": "/tmp/few" })).await;
    assert_eq!(few.body["entries"].as_array().unwrap().len(), 1);
}
