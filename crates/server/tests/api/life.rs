//! A box from its beginning to its end, and the daemon's.

use std::time::Duration;

use serde_json::{Value, json};

use crate::caller::{PATIENCE, heard, output};
use crate::rig::{Daemon, skip};

#[tokio::test(flavor = "multi_thread")]
async fn a_box_is_made_shown_listed_and_ended_once() {
    let Some(daemon) = Daemon::start("a_box_is_made_shown_listed_and_ended_once").await else { return };
    let me = daemon.local();
    let new = json!({ "limits": { "memory": "64MiB" }, "metadata": { "job": "7" }, "life": "10m", "on_timeout": "pause" });
    let made = me.create(new).await;
    let shown = me.get(&made).await;
    assert_eq!((shown.status, shown.body["phase"].as_str()), (200, Some("ready")), "{shown:?}");
    assert_eq!(shown.body["metadata"], json!({ "job": "7" }));
    assert_eq!(shown.body["on_timeout"], "pause");
    assert_eq!(shown.body["execs"], json!([]));
    let exec = me.shell(&made, "echo out; echo err >&2; exit 3").await;
    let (text, ended) = me.ended(&exec).await;
    assert!(text.contains("out\n") && text.contains("err\n"));
    assert_eq!(ended, json!({ "how": "exited", "code": 3, "timed_out": false }));
    assert_eq!(me.get(&made).await.body["execs"][0]["ended"]["code"], 3);
    assert_eq!(me.get("/v1/boxes").await.body["boxes"].as_array().unwrap().len(), 1);

    let (one, two) = tokio::join!(me.delete(&made), me.delete(&made));
    // Whoever asks before its end is told hears the same; who comes later hears that it is gone.
    let (first, other) = if one.status == 200 { (one, two) } else { (two, one) };
    assert_eq!(first.status, 200, "{first:?}");
    assert!((other.status == 200 && other.body == first.body) || other.code() == "gone", "{other:?}");
    assert_eq!(me.delete(&made).await.code(), "gone");
    assert_eq!(me.get(&format!("{made}/receipt")).await.body["image"], "host");
    assert_eq!(me.post(&format!("{made}/execs"), json!({ "command": ["true"] })).await.code(), "gone");
    assert_eq!(me.get("/v1/boxes").await.body, json!({ "boxes": [] }));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_box_takes_no_command_until_it_goes_on() {
    let Some(daemon) = Daemon::start("a_paused_box_takes_no_command_until_it_goes_on").await else { return };
    let me = daemon.local();
    let made = me.create(json!({})).await;
    let paused = me.send("POST", &format!("{made}/pause"), "").await;
    if paused.code() == "pause_failed" {
        daemon.stop().await;
        let reason = format!("this host freezes no box for this user: {}", paused.body);
        return skip("a_paused_box_takes_no_command_until_it_goes_on", &reason).unwrap_or(());
    }
    assert_eq!(paused.body["phase"], "paused", "{paused:?}");
    assert_eq!(me.post(&format!("{made}/execs"), json!({ "command": ["true"] })).await.status, 409);
    assert_eq!(me.send("POST", &format!("{made}/pause"), "").await.status, 409);
    assert_eq!(me.send("POST", &format!("{made}/resume"), "").await.body["phase"], "ready");
    let before = me.get(&made).await.body["ends_at"].clone();
    let moved = me.post(&format!("{made}/deadline"), json!({ "life": "2h" })).await;
    assert_eq!(moved.status, 200);
    assert!(moved.body["ends_at"].as_str() > before.as_str(), "{before} {moved:?}");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_question_runs_one_command() {
    let Some(daemon) = Daemon::start("one_question_runs_one_command").await else { return };
    let me = daemon.local();
    let ran = me
        .post("/v1/run", json!({ "command": ["/bin/sh", "-c", "cat; exit 4"], "stdin_base64": "aGk=" }))
        .await;
    assert_eq!(ran.status, 200, "{ran:?}");
    assert_eq!(ran.body["stdout"], json!({ "base64": "aGk=", "text": "hi", "truncated": false }));
    assert_eq!(ran.body["ended"], json!({ "how": "exited", "code": 4 }));
    assert_eq!(
        (&ran.body["receipt"]["outcome"], &ran.body["receipt"]["exit_code"]),
        (&json!("exited"), &json!(4))
    );
    let late = me
        .post("/v1/run", json!({ "command": ["sleep", "60"], "box": { "limits": { "timeout": 1 } } }))
        .await;
    assert_eq!(late.body["receipt"]["outcome"], "timed_out", "{late:?}");
    let missing = me.post("/v1/run", json!({ "command": ["/no/such/program"] })).await;
    assert_eq!(missing.body["receipt"]["exit_code"], 127, "{missing:?}");
    assert_eq!(me.get("/v1/boxes").await.body["boxes"], json!([]));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_away_leaves_no_box() {
    let Some(daemon) = Daemon::start("a_caller_that_goes_away_leaves_no_box").await else { return };
    let me = daemon.local();
    let gone = me.clone();
    let asked =
        tokio::spawn(async move { gone.post("/v1/run", json!({ "command": ["sleep", "60"] })).await });
    let boxes = async || me.get("/v1/boxes").await.body["boxes"].as_array().unwrap().len();
    // Until the command runs, so that it is a running one that is left.
    let running = async {
        loop {
            let listed = me.get("/v1/boxes").await.body;
            if let Some(id) = listed["boxes"][0]["id"].as_str() {
                let shown = me.get(&format!("/v1/boxes/{id}")).await.body;
                if shown["execs"][0]["pid"].is_number() {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, running).await.unwrap();
    asked.abort();
    let waiting = async {
        while boxes().await > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_daemon_is_the_end_of_its_boxes_and_whoever_listens_hears_it() {
    let name = "the_end_of_the_daemon_is_the_end_of_its_boxes_and_whoever_listens_hears_it";
    let Some(daemon) = Daemon::start(name).await else { return };
    let me = daemon.local();
    let made = me.create(json!({})).await;
    let exec = me.shell(&made, "echo here; sleep 60").await;
    // Both listen before the daemon is told to end.
    let listening = me.listen(&format!("{exec}/events"), None).await;
    let following = me.listen("/v1/events", Some(0)).await;
    let printed = async {
        while output(&me.events(&format!("{exec}/events?follow=false"), None).await).is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, printed).await.unwrap();
    let socket = daemon.socket();
    let (listening, following) = (tokio::spawn(heard(listening)), tokio::spawn(heard(following)));
    tokio::time::timeout(PATIENCE, daemon.stop()).await.unwrap();
    let events = listening.await.unwrap();
    assert_eq!(output(&events), b"here\n");
    assert_eq!(events.last().unwrap().data["how"], "box-ended", "{events:?}");
    let told = following.await.unwrap();
    assert!(told.iter().any(|event| event.data["event"] == "box_ended"), "{told:?}");
    assert!(!socket.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_daemon_tells_about_itself() {
    let Some(daemon) = Daemon::start("the_daemon_tells_about_itself").await else { return };
    let me = daemon.local();
    let made = me.create(json!({})).await;
    me.delete(&made).await;
    assert_eq!(me.get("/healthz").await.body["status"], "ok");
    assert_eq!(me.get("/openapi.json").await.body["openapi"], "3.1.0");
    let Value::String(metrics) = me.get("/metrics").await.body else { panic!("not text") };
    assert!(metrics.contains("blastbox_creates_total 1\n"), "{metrics}");
    let events = me.events("/v1/events?follow=false", Some(0)).await;
    let named: Vec<&str> = events.iter().map(|event| event.data["event"].as_str().unwrap()).collect();
    assert!(named.starts_with(&["box_created"]) && named.ends_with(&["box_ended"]), "{named:?}");
    let rest = me.events("/v1/events?follow=false", Some(events[0].id)).await;
    assert_eq!(rest, events[1..]);
    daemon.stop().await;
}
