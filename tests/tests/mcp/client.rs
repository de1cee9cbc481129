//! A client of `blastbox mcp`: one JSON document a line.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use blastbox_tests::{Caller, Held};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    pub(crate) to: Option<File>,
    pub(crate) from: BufReader<File>,
    pub(crate) held: Option<Held>,
    pub(crate) next: u64,
    pub(crate) notes: Vec<Value>,
}

impl Client {
    pub(crate) fn start(caller: &Caller, options: &[&str]) -> Self {
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let ((stdin, to), (from, stdout)) = (pipe(), pipe());
        let stderr: OwnedFd = File::create(caller.file("stderr", "")).unwrap().into();
        let words: Vec<&str> = ["mcp"].iter().chain(options).copied().collect();
        let state = caller.place().join("state").display().to_string();
        let start = caller.blastbox(words).env("XDG_STATE_HOME", &state);
        let held = start.start_with([stdin, stdout, stderr]);
        let from = BufReader::new(File::from(from));
        let mut client = Self { to: Some(to.into()), from, held: Some(held), next: 1, notes: Vec::new() };
        let hello = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" },
        });
        let welcome = client.ask("initialize", hello);
        assert_eq!(welcome["result"]["serverInfo"]["name"], "blastbox", "{welcome}");
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client
    }

    pub(crate) fn send(&mut self, message: &Value) {
        let line = format!("{message}\n");
        self.to.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    pub(crate) fn begin(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// The next message that has come, within a bound that only a hang meets.
    pub(crate) fn hear(&mut self) -> Value {
        if self.from.buffer().is_empty() {
            let bound = Timespec { tv_sec: i64::try_from(PATIENCE.as_secs()).unwrap(), tv_nsec: 0 };
            let came = poll(&mut [PollFd::new(self.from.get_ref(), PollFlags::IN)], Some(&bound));
            assert!(came.is_ok_and(|count| count > 0), "the server says nothing");
        }
        let mut line = String::new();
        assert!(self.from.read_line(&mut line).unwrap() > 0, "the server is gone");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    pub(crate) fn answer(&mut self, id: u64) -> Value {
        let begun = Instant::now();
        loop {
            let message = self.hear();
            if message["id"] == id {
                return message;
            }
            self.notes.push(message);
            assert!(begun.elapsed() < PATIENCE, "no answer to {id}");
        }
    }

    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.answer(id)
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].clone()
    }

    /// What a call that works comes to, as JSON.
    pub(crate) fn done(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], false, "{result}");
        result["structuredContent"].clone()
    }

    /// What a call that does not work says.
    pub(crate) fn refused(&mut self, tool: &str, arguments: Value) -> String {
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
        let said = &answer["result"]["content"][0]["text"];
        let text = said.as_str().or_else(|| answer["error"]["message"].as_str());
        assert_ne!(answer["result"]["isError"], false, "{answer}");
        text.unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    pub(crate) fn end(mut self) -> i32 {
        drop(self.to.take());
        self.held.take().unwrap().end().code
    }
}
