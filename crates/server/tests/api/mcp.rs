//! The Model Context Protocol over HTTP.

use http_body_util::BodyExt as _;
use hyper::body::Bytes;
use serde_json::{Value, json};

use crate::caller::{Caller, PATIENCE};
use crate::rig::Daemon;

struct Client {
    me: Caller,
    session: String,
    next: u64,
}

/// One message to the server: status, session, and the answer with that id.
async fn post(me: &Caller, session: &str, message: &Value) -> (u16, String, Value) {
    let mut headers =
        vec![("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
    if !session.is_empty() {
        headers.push(("mcp-session-id", session));
    }
    let talk = async {
        let response = me.open("POST", "/mcp", &headers, Bytes::from(message.to_string())).await;
        let status = response.status().as_u16();
        let session = response.headers().get("mcp-session-id").map_or("", |value| value.to_str().unwrap());
        let session = session.to_owned();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        let events = text.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::trim);
        let messages = events.filter_map(|data| serde_json::from_str::<Value>(data).ok());
        let answer = messages.into_iter().find(|answer| answer["id"] == message["id"]);
        (status, session, answer.unwrap_or_else(|| serde_json::from_str(&text).unwrap_or(Value::Null)))
    };
    tokio::time::timeout(PATIENCE, talk).await.unwrap()
}

impl Client {
    async fn start(me: Caller) -> Self {
        let hello = json!({
            "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
                "protocolVersion": "2025-06-18", "capabilities": {},
                "clientInfo": { "name": "test", "version": "1" },
            },
        });
        let (status, session, answer) = post(&me, "", &hello).await;
        assert_eq!((status, &answer["result"]["serverInfo"]["name"]), (200, &json!("blastbox")), "{answer}");
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(post(&me, &session, &ready).await.0, 202);
        Self { me, session, next: 1 }
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let id = self.next;
        self.next += 1;
        let params = json!({ "name": tool, "arguments": arguments });
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        let (status, _, answer) = post(&self.me, &self.session, &message).await;
        assert_eq!(status, 200, "{answer}");
        answer["result"].clone()
    }

    async fn end(self) {
        let headers = [("mcp-session-id", self.session.as_str())];
        let response = self.me.open("DELETE", "/mcp", &headers, Bytes::new()).await;
        assert!(response.status().is_success(), "{}", response.status());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_a_box_of_its_own_and_takes_it_along() {
    let Some(daemon) = Daemon::start("a_session_has_a_box_of_its_own_and_takes_it_along").await else {
        return;
    };
    let me = daemon.local();
    let mut client = Client::start(me.clone()).await;
    let ran =
        client.call("run_code", json!({ "language": "python", "code": "x = 6 * 7", "stateful": true })).await;
    assert_eq!(ran["isError"], false, "{ran}");
    let ran = client.call("run_code", json!({ "language": "python", "code": "x", "stateful": true })).await;
    assert_eq!(ran["structuredContent"]["stdout"], "42\n", "{ran}");
    let stays = client.call("start_box", json!({})).await["structuredContent"]["box"].clone();
    let boxes = || async { me.get("/v1/boxes").await.body["boxes"].as_array().unwrap().len() };
    assert_eq!(boxes().await, 2);
    client.end().await;
    let gone = async {
        while boxes().await != 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
    // Other sessions of the same tenant go on with the box that stays, and with the Python in it.
    for code in ["y = 'remembered'", "print(y)"] {
        let mut client = Client::start(me.clone()).await;
        let ran = client
            .call("run_code", json!({ "language": "python", "code": code, "stateful": true, "box": stays }))
            .await;
        assert_eq!(ran["isError"], false, "{ran}");
        client.end().await;
    }
    let mut client = Client::start(me.clone()).await;
    let ran = client.call("run_command", json!({ "command": ["echo", "here"], "box": stays })).await;
    assert_eq!(ran["structuredContent"]["stdout"], "here\n", "{ran}");
    let stopped = client.call("stop_box", json!({ "box": stays })).await;
    assert_eq!(stopped["structuredContent"]["box_id"], stays, "{stopped}");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_has_a_session_without_a_key_nor_anothers() {
    let Some(daemon) = Daemon::start("nobody_has_a_session_without_a_key_nor_anothers").await else { return };
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    assert_eq!(post(&daemon.over_tcp(None), "", &ping).await.0, 401);
    let (one, other) = (daemon.tenant("one"), daemon.tenant("other"));
    let mut client = Client::start(one).await;
    let made = client.call("start_box", json!({})).await["structuredContent"]["box"].clone();
    // Neither the session nor the box is there for another tenant.
    assert_eq!(post(&other, &client.session, &ping).await.0, 404);
    let mut stranger = Client::start(other).await;
    let said = stranger.call("run_command", json!({ "command": ["true"], "box": made })).await;
    assert!(
        said["isError"] == true && said["content"][0]["text"].as_str().unwrap().contains("no box"),
        "{said}"
    );
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn boxes_that_were_not_made_here_are_not_there() {
    let Some(daemon) = Daemon::start("boxes_that_were_not_made_here_are_not_there").await else { return };
    let me = daemon.tenant("one");
    let elsewhere = me.create(json!({})).await.replace("/v1/boxes/", "");
    let (mut one, mut other) = (Client::start(me.clone()).await, Client::start(me.clone()).await);
    let stays = one.call("start_box", json!({})).await["structuredContent"]["box"].clone();
    let own =
        one.call("run_command", json!({ "command": ["true"] })).await["structuredContent"]["box"].clone();
    // A box of the same tenant that came over REST, and one that is another session's own, are nobody's here.
    for foreign in [json!(elsewhere), own.clone()] {
        for (tool, more) in [
            ("run_command", json!({ "command": ["true"] })),
            ("read_file", json!({ "path": "/etc/hostname" })),
            ("stop_box", json!({})),
        ] {
            let mut arguments = more;
            arguments["box"] = foreign.clone();
            let said = other.call(tool, arguments).await;
            let text = said["content"][0]["text"].as_str().unwrap_or_default();
            assert!(said["isError"] == true && text.contains("no box"), "{tool}: {said}");
        }
    }
    let listed = |answer: Value| -> Vec<Value> {
        let boxes = answer["structuredContent"]["boxes"].as_array().unwrap().clone();
        boxes.into_iter().map(|one| one["box"]["box"].clone()).collect()
    };
    assert_eq!(listed(other.call("list_boxes", json!({})).await), std::slice::from_ref(&stays));
    let mut mine = vec![stays, own];
    mine.sort_by_key(Value::to_string);
    let mut seen = listed(one.call("list_boxes", json!({})).await);
    seen.sort_by_key(Value::to_string);
    assert_eq!(seen, mine);
    assert_eq!(me.get(&format!("/v1/boxes/{elsewhere}")).await.status, 200, "it was left alone");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_boxes_are_all_however_many_are_asked_for_at_once() {
    let Some(daemon) = Daemon::start("eight_boxes_are_all_however_many_are_asked_for_at_once").await else {
        return;
    };
    let me = daemon.tenant("one");
    let client = Client::start(me.clone()).await;
    let mut asked = tokio::task::JoinSet::new();
    for id in 1..=11 {
        let (me, session) = (me.clone(), client.session.clone());
        asked.spawn(async move {
            let params = json!({ "name": "start_box", "arguments": {} });
            let message = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
            post(&me, &session, &message).await.2["result"]["isError"].clone()
        });
    }
    let said = asked.join_all().await;
    let boxes = me.get("/v1/boxes").await.body["boxes"].as_array().unwrap().len();
    assert!(boxes <= 8, "{boxes} boxes");
    assert!(said.iter().filter(|error| **error == true).count() >= 3, "{said:?}");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_given_is_not_kept() {
    let Some(daemon) = Daemon::start("an_answer_that_was_given_is_not_kept").await else { return };
    let me = daemon.tenant("one");
    let client = Client::start(me.clone()).await;
    let params = json!({ "name": "run_command", "arguments": { "command": ["echo", "printed-once"] } });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let session = ("mcp-session-id", client.session.as_str());
    let accept = ("accept", "application/json, text/event-stream");
    let headers = [session, accept, ("content-type", "application/json")];
    let told = |response: hyper::Response<hyper::body::Incoming>| async {
        let all = tokio::time::timeout(PATIENCE, response.into_body().collect()).await.unwrap().unwrap();
        String::from_utf8(all.to_bytes().to_vec()).unwrap()
    };
    let said = told(me.open("POST", "/mcp", &headers, Bytes::from(message.to_string())).await).await;
    assert!(said.contains("printed-once"), "{said}");
    // The first event of the same stream: everything behind it would come again.
    let id = said.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    let headers = [session, ("accept", "text/event-stream"), ("last-event-id", id)];
    // Something else is done first, so that the session has gone on.
    let ping = json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" });
    assert_eq!(post(&me, &client.session, &ping).await.0, 200);
    let again = told(me.open("GET", "/mcp", &headers, Bytes::new()).await).await;
    assert!(!again.contains("printed-once"), "{again}");
    daemon.stop().await;
}
