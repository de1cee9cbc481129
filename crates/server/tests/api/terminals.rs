//! A command and its terminal over one WebSocket.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blastbox_server::websocket_accept;
use blastbox_wire::websocket::{Cutter, Kind, Message, Side, encode};
use hyper::body::Bytes;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::caller::{Caller, PATIENCE};
use crate::rig::Daemon;

struct Line {
    line: TokioIo<Upgraded>,
    cutter: Cutter,
    seen: Vec<u8>,
    told: Vec<Value>,
    closed: bool,
}

impl Caller {
    async fn attach(&self, path: &str) -> Result<Line, u16> {
        self.attach_from(path, &[]).await
    }

    async fn attach_from(&self, path: &str, more: &[(&str, &str)]) -> Result<Line, u16> {
        let key = STANDARD.encode([7; 16]);
        let headers = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", key.as_str()),
        ];
        let response = self.open("GET", path, &[&headers, more].concat(), Bytes::new()).await;
        if response.status() != 101 {
            return Err(response.status().as_u16());
        }
        assert_eq!(response.headers()["sec-websocket-accept"], websocket_accept(&key).as_str());
        let line = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
        Ok(Line {
            line,
            cutter: Cutter::new(Side::Server),
            seen: Vec::new(),
            told: Vec::new(),
            closed: false,
        })
    }
}

impl Line {
    async fn say(&mut self, kind: Kind, payload: &[u8]) {
        let mut frame = Vec::new();
        encode(kind, payload, Some([1, 2, 3, 4]), &mut frame);
        self.line.write_all(&frame).await.unwrap();
    }

    /// Reads until something holds, or the line is closed.
    async fn until(&mut self, mut holds: impl FnMut(&Self) -> bool) {
        let mut room = vec![0; 64 * 1024];
        let read = async {
            while !self.closed && !holds(self) {
                let count = self.line.read(&mut room).await.unwrap_or(0);
                self.closed = count == 0;
                self.cutter.add(&room[..count]);
                while let Some(message) = self.cutter.take().unwrap() {
                    match message {
                        Message::Bytes(bytes) => self.seen.extend(bytes),
                        Message::Text(text) => self.told.push(serde_json::from_str(&text).unwrap()),
                        Message::Close => self.closed = true,
                        Message::Ping(_) | Message::Pong => {}
                    }
                }
            }
        };
        tokio::time::timeout(PATIENCE, read).await.unwrap();
    }

    async fn shows(&mut self, text: &str) {
        self.until(|line| line.text().contains(text)).await;
        assert!(self.text().contains(text), "{:?}", self.text());
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_typed_into_resized_left_and_found_again() {
    let name = "a_terminal_is_typed_into_resized_left_and_found_again";
    let Some(daemon) = Daemon::start(name).await else { return };
    let me = daemon.local();
    let made = me.create(json!({})).await;
    let command = json!({
        "command": ["/bin/sh", "-c", "echo up; while read line; do echo \"got $line\"; stty size; done"],
        "terminal": { "rows": 11, "columns": 22 },
    });
    let exec = me.exec(&made, command).await;
    let mut first = me.attach(&format!("{exec}/attach")).await.unwrap();
    first.shows("up").await;
    first.say(Kind::Binary, b"one\n").await;
    first.shows("got one").await;
    first.shows("11 22").await;
    first.say(Kind::Text, br#"{"resize":{"rows":33,"columns":44}}"#).await;
    first.say(Kind::Binary, b"two\n").await;
    first.shows("33 44").await;
    assert_eq!(first.told[0]["event"], "started");
    let (seen, place) = (first.text(), 1 + first.seen.len());
    drop(first);
    // The command goes on, and whoever comes back goes on where it was.
    let mut second = me.attach(&format!("{exec}/attach?after={place}")).await.unwrap();
    second.say(Kind::Ping, b"there?").await;
    second.say(Kind::Binary, b"three\n").await;
    second.shows("got three").await;
    assert!(!second.text().contains("got two"), "{:?}", second.text());
    let mut whole = me.attach(&format!("{exec}/attach")).await.unwrap();
    whole.shows("got three").await;
    assert!(whole.text().starts_with(&seen));
    second.say(Kind::Text, br#"{"signal":9}"#).await;
    second.until(|_| false).await;
    let last = second.told.last().unwrap();
    assert_eq!(
        (&last["event"], &last["how"], &last["signal"]),
        (&json!("ended"), &json!("signalled"), &json!(9))
    );
    assert!(second.closed);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_told_apart_and_input_has_an_end() {
    let Some(daemon) = Daemon::start("streams_are_told_apart_and_input_has_an_end").await else { return };
    let me = daemon.local();
    let made = me.create(json!({})).await;
    let script = "cat; echo bad >&2; exit 3";
    let command = json!({ "command": ["/bin/sh", "-c", script], "stdin": "stream" });
    let exec = me.exec(&made, command).await;
    let mut line = me.attach(&format!("{exec}/attach")).await.unwrap();
    line.say(Kind::Binary, &[b'x'; 100_000]).await;
    line.say(Kind::Text, br#"{"stdin_end":true}"#).await;
    line.until(|_| false).await;
    assert_eq!(line.text(), format!("{}bad\n", "x".repeat(100_000)));
    assert!(line.told.contains(&json!({ "event": "stream", "stream": "stderr" })), "{:?}", line.told);
    let ended =
        json!({ "event": "ended", "id": 1 + 100_004 + 1, "how": "exited", "code": 3, "timed_out": false });
    assert_eq!(line.told.last(), Some(&ended));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_looks_slowly_holds_the_command_back_and_loses_nothing() {
    let name = "whoever_looks_slowly_holds_the_command_back_and_loses_nothing";
    let Some(daemon) = Daemon::start(name).await else { return };
    let me = daemon.local();
    let made = me.create(json!({})).await;
    let script = "read go; head -c 8000000 /dev/zero; echo end";
    let exec = me.exec(&made, json!({ "command": ["/bin/sh", "-c", script], "stdin": "stream" })).await;
    let mut line = me.attach(&format!("{exec}/attach")).await.unwrap();
    line.say(Kind::Binary, b"go\n").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    // However long it is given, it does not end: 8 MB are more than the tape and the sockets hold.
    assert!(me.get(&made).await.body["execs"][0]["ended"].is_null());
    line.until(|_| false).await;
    assert_eq!(line.seen.len(), 8_000_004);
    assert!(line.told.iter().all(|told| told["event"] != "dropped"), "{:?}", line.told);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_line_or_breaks_its_rules_is_closed_and_the_command_goes_on() {
    let name = "what_is_no_line_or_breaks_its_rules_is_closed_and_the_command_goes_on";
    let Some(daemon) = Daemon::start(name).await else { return };
    let (me, theirs) = (daemon.local(), daemon.tenant("theirs"));
    let made = me.create(json!({})).await;
    let exec = me.exec(&made, json!({ "command": ["cat"], "stdin": "stream" })).await;
    let path = format!("{exec}/attach");
    assert_eq!(me.get(&path).await.status, 400, "no handshake");
    assert_eq!(me.attach(&format!("{path}?after=x")).await.err(), Some(400));
    assert_eq!(me.attach(&format!("{made}/execs/99/attach")).await.err(), Some(404));
    assert_eq!(theirs.attach(&path).await.err(), Some(404));
    assert_eq!(daemon.over_tcp(None).attach(&path).await.err(), Some(401));
    assert_eq!(me.attach_from(&path, &[("origin", "https://evil.example")]).await.err(), Some(403));
    for (kind, payload) in [
        (Kind::Text, &b"{\"resize\":5}"[..]),
        (Kind::Text, b"{\"unknown\":true}"),
        (Kind::Text, b"\xff"),
        (Kind::Text, &[b'a'; 5000]),
    ] {
        let mut line = me.attach(&path).await.unwrap();
        line.say(kind, payload).await;
        line.until(|_| false).await;
        assert!(line.closed && line.told.iter().all(|told| told["event"] != "ended"), "{payload:?}");
    }
    let mut unmasked = me.attach(&path).await.unwrap();
    unmasked.line.write_all(&[0x82, 1, b'x']).await.unwrap();
    unmasked.until(|_| false).await;
    let mut line = me.attach(&path).await.unwrap();
    line.say(Kind::Binary, b"still here\n").await;
    line.shows("still here").await;
    line.say(Kind::Close, &[]).await;
    line.until(|_| false).await;
    assert!(me.get(&made).await.body["execs"][0]["ended"].is_null());
    daemon.stop().await;
}
