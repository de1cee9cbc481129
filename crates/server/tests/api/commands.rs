//! Commands: what they print, what they read, how they are told.

use std::time::Duration;

use hyper::body::Bytes;
use serde_json::json;

use crate::caller::output;
use crate::rig::Daemon;

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_was_cut_off_goes_on_where_it_was() {
    let Some(daemon) = Daemon::start("a_reader_that_was_cut_off_goes_on_where_it_was").await else { return };
    let me = daemon.local();
    let made = me.create(json!({})).await;
    let exec = me.shell(&made, "for i in $(seq 500); do echo line $i; echo other $i >&2; done").await;
    let path = format!("{exec}/events");
    let whole = me.events(&path, None).await;
    assert_eq!(whole[0].name, "started");
    assert_eq!(whole.last().unwrap().name, "ended");
    let ids: Vec<u64> = whole.iter().map(|event| event.id).collect();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
    let printed = output(&whole);
    for (seen, event) in whole.iter().enumerate() {
        let rest = me.events(&path, Some(event.id)).await;
        let before = output(&whole[..=seen]).len();
        assert_eq!(output(&rest), printed[before..], "after {}", event.id);
    }
    // In the middle of a piece, too: an id counts bytes.
    let rest = me.events(&format!("{path}?after=8"), None).await;
    assert_eq!(output(&rest), printed[7..]);
    assert_eq!(me.get(&format!("{path}?after=x")).await.status, 400);
    assert_eq!(me.get(&format!("{path}?slow=maybe")).await.status, 400);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn output_comes_as_bytes_whole_from_any_place_or_not_at_all() {
    let Some(daemon) = Daemon::start("output_comes_as_bytes_whole_from_any_place_or_not_at_all").await else {
        return;
    };
    let me = daemon.local();
    let made = me.create(json!({})).await;
    let script = "printf 'a\\000b'; printf err >&2; read go; head -c 3000000 /dev/zero; printf end";
    let exec = me.exec(&made, json!({ "command": ["/bin/sh", "-c", script], "stdin": "stream" })).await;
    let mut whole = me.open("GET", &format!("{exec}/output?stream=stdout"), &[], Bytes::new()).await;
    assert_eq!(
        (whole.status().as_u16(), &whole.headers()["content-type"]),
        (200, &"application/octet-stream".parse().unwrap())
    );
    assert_eq!(me.send("POST", &format!("{exec}/stdin"), "go\n").await.status, 204);
    use http_body_util::BodyExt;
    let mut bytes = Vec::new();
    while let Some(frame) = whole.body_mut().frame().await {
        bytes.extend_from_slice(frame.unwrap().data_ref().unwrap());
    }
    assert_eq!((bytes.len(), &bytes[..3], &bytes[bytes.len() - 3..]), (3_000_006, &b"a\0b"[..], &b"end"[..]));
    // The tape keeps a MiB: the beginning is gone, and nobody is given the rest for the whole.
    let late = me.get(&format!("{exec}/output")).await;
    assert_eq!((late.status, late.code()), (409, "output_overwritten"));
    let fix = late.body["error"]["fix"].as_str().unwrap();
    let oldest: u64 = fix.split("after=").nth(1).unwrap().split('`').next().unwrap().parse().unwrap();
    let (status, rest) = me.bytes(&format!("{exec}/output?after={oldest}")).await;
    assert_eq!((status, u64::try_from(rest.len()).unwrap()), (200, 3_000_010 - oldest));
    assert!(rest.ends_with(b"end"));
    assert_eq!(me.get(&format!("{exec}/output?after={}", oldest - 1)).await.status, 409);
    assert_eq!(me.get(&format!("{exec}/output?stream=both")).await.status, 400);
    let exec = me.shell(&made, "printf out; printf err >&2").await;
    me.events(&format!("{exec}/events"), None).await;
    assert_eq!(me.bytes(&format!("{exec}/output?stream=stderr&follow=false")).await.1, b"err"[..]);
    assert_eq!(me.bytes(&format!("{exec}/output")).await.1.len(), 6);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn output_of_a_command_that_ended_with_its_box_breaks_off() {
    let Some(daemon) = Daemon::start("output_of_a_command_that_ended_with_its_box_breaks_off").await else {
        return;
    };
    let me = daemon.local();
    let made = me.create(json!({})).await;
    let exec = me.shell(&made, "echo begun; sleep 600").await;
    let mut open = me.open("GET", &format!("{exec}/output"), &[], Bytes::new()).await;
    use http_body_util::BodyExt;
    assert_eq!(open.body_mut().frame().await.unwrap().unwrap().data_ref().unwrap(), &b"begun\n"[..]);
    assert_eq!(me.send("DELETE", &made, "").await.status, 200);
    assert!(open.body_mut().frame().await.unwrap().is_err());
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_loses_nothing_and_costs_a_bounded_amount() {
    let Some(daemon) = Daemon::start("a_slow_reader_loses_nothing_and_costs_a_bounded_amount").await else {
        return;
    };
    let me = daemon.local();
    let made = me.create(json!({})).await;
    // Begins when there is a reader: before, the tape would not have waited for anybody.
    let script = "read go; head -c 8000000 /dev/zero; echo end";
    let exec = me.exec(&made, json!({ "command": ["/bin/sh", "-c", script], "stdin": "stream" })).await;
    let mut response = me.open("GET", &format!("{exec}/events"), &[], Bytes::new()).await;
    assert_eq!(me.send("POST", &format!("{exec}/stdin"), "go\n").await.status, 204);
    // The command waits for us meanwhile: 8 MB are more than the tape, the socket and the body hold.
    tokio::time::sleep(Duration::from_millis(700)).await;
    let state = me.get(&made).await.body["execs"][0]["ended"].clone();
    assert!(state.is_null(), "{state}");
    let mut text = Vec::new();
    use http_body_util::BodyExt;
    while let Some(frame) = response.body_mut().frame().await {
        text.extend_from_slice(frame.unwrap().data_ref().unwrap());
    }
    let text = String::from_utf8(text).unwrap();
    assert!(!text.contains("event: dropped") && text.contains("event: ended"));
    let letters: usize = text
        .lines()
        .filter_map(|line| line.split_once("\"base64\":\"")?.1.strip_suffix("\"}"))
        .map(|part| part.len() / 4 * 3 - part.bytes().filter(|byte| *byte == b'=').count())
        .sum();
    assert_eq!(letters, 8_000_004);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn input_arrives_in_order_and_ends() {
    let Some(daemon) = Daemon::start("input_arrives_in_order_and_ends").await else { return };
    let me = daemon.local();
    let made = me.create(json!({})).await;
    let exec = me.exec(&made, json!({ "command": ["wc", "-c"], "stdin": "stream" })).await;
    for _ in 0..3 {
        assert_eq!(me.send("POST", &format!("{exec}/stdin"), vec![b'x'; 400_000]).await.status, 204);
    }
    assert_eq!(me.send("POST", &format!("{exec}/stdin/end"), "").await.status, 204);
    let (text, _) = me.ended(&exec).await;
    assert_eq!(text.trim(), "1200000");
    assert_eq!(me.send("POST", &format!("{exec}/stdin"), "late").await.code(), "command_over");
    let deaf = me.exec(&made, json!({ "command": ["sleep", "30"] })).await;
    assert_eq!(me.send("POST", &format!("{deaf}/stdin"), "x").await.status, 409);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_are_signalled_resized_and_ended_in_time() {
    let Some(daemon) = Daemon::start("commands_are_signalled_resized_and_ended_in_time").await else {
        return;
    };
    let me = daemon.local();
    let made = me.create(json!({})).await;
    let exec =
        me.shell(&made, "trap 'echo got it; exit 9' TERM; echo ready; while :; do sleep 0.05; done").await;
    while me.events(&format!("{exec}/events?follow=false"), None).await.len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(me.post(&format!("{exec}/signal"), json!({ "signal": 15 })).await.status, 204);
    let (text, ended) = me.ended(&exec).await;
    assert!(text.contains("got it\n") && ended["code"] == 9, "{text} {ended}");
    assert_eq!(me.post(&format!("{exec}/signal"), json!({ "signal": 0 })).await.status, 422);
    assert_eq!(me.post(&format!("{exec}/signal"), json!({ "signal": 9 })).await.status, 409);

    let command = json!({
        "command": ["/bin/sh", "-c", "stty size; read x; stty size"],
        "terminal": { "rows": 11, "columns": 22 },
    });
    let tty = me.exec(&made, command).await;
    while me.events(&format!("{tty}/events?follow=false"), None).await.len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let size = json!({ "rows": 33, "columns": 44 });
    assert_eq!(me.post(&format!("{tty}/resize"), size).await.status, 204);
    assert_eq!(me.send("POST", &format!("{tty}/stdin"), "\n").await.status, 204);
    let (text, _) = me.ended(&tty).await;
    assert!(text.contains("11 22") && text.contains("33 44"), "{text:?}");

    let late = me.exec(&made, json!({ "command": ["sleep", "60"], "timeout": "1s" })).await;
    let (_, ended) = me.ended(&late).await;
    assert_eq!(ended, json!({ "how": "signalled", "signal": 9, "timed_out": true }));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_started_says_why() {
    let Some(daemon) = Daemon::start("what_cannot_be_started_says_why").await else { return };
    let me = daemon.local();
    let made = me.create(json!({})).await;
    let missing = me.exec(&made, json!({ "command": ["no-such-program"] })).await;
    assert_eq!(me.ended(&missing).await.1["code"], "not_found");
    let nowhere = me.exec(&made, json!({ "command": ["true"], "cwd": "/no/where" })).await;
    assert_eq!(me.ended(&nowhere).await.1["code"], "bad_directory");
    let named = me
        .exec(
            &made,
            json!({ "command": ["/bin/sh", "-c", "echo $A; pwd"], "env": { "A": "x\ny" }, "cwd": "/tmp" }),
        )
        .await;
    assert_eq!(me.ended(&named).await.0, "x y\n/tmp\n");
    daemon.stop().await;
}
