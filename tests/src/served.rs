//! A daemon of one test, and the verbs that speak with it.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;

use crate::held::PATIENCE;
use crate::internet::Internet;
use crate::{Caller, Ended, Held, Start, wait_until};

/// A daemon that listens. It is told to end when its test is over.
#[derive(Debug)]
pub struct Served<'a> {
    caller: &'a Caller,
    socket: PathBuf,
    held: Option<Held>,
}

impl<'a> Served<'a> {
    /// Starts one, with these options, and waits until it answers.
    pub fn start(caller: &'a Caller, options: &[&str]) -> Self {
        Self::start_program(caller, &caller.blastbox_path(), options)
    }

    /// The same with another build of `blastbox`.
    pub fn start_program(caller: &'a Caller, program: &Path, options: &[&str]) -> Self {
        Self::start_with(caller, options, |words| caller.program(program, words))
    }

    /// The same on the host of a small internet.
    pub fn start_in(internet: &Internet, caller: &'a Caller, options: &[&str]) -> Self {
        Self::start_with(caller, options, |words| internet.blastbox(caller, words))
    }

    fn start_with(caller: &'a Caller, options: &[&str], start: impl FnOnce(&[&str]) -> Start<'a>) -> Self {
        let (socket, state) = (caller.place().join("api.sock"), caller.place().join("state"));
        let (at, kept) = (socket.display().to_string(), state.display().to_string());
        let words = ["serve", "--quiet", "--socket", at.as_str(), "--state-dir", kept.as_str()];
        let words: Vec<&str> = words.iter().chain(options).copied().collect();
        let mut held = start(&words).start();
        assert!(wait_until(|| held.is_over() || UnixStream::connect(&socket).is_ok()));
        if held.is_over() {
            let ended = held.end();
            panic!("the daemon ended: {}", ended.err);
        }
        Self { caller, socket, held: Some(held) }
    }

    /// The program `blastbox` with these arguments, as the daemon's own user, not yet started.
    pub fn blastbox<I: IntoIterator<Item: AsRef<OsStr>>>(&self, words: I) -> Start<'a> {
        self.caller.blastbox(words).env("BLASTBOX_SOCKET", &self.socket.display().to_string())
    }

    /// A verb that must do what it is told: what it printed, without the last line break.
    pub fn ask<I: IntoIterator<Item: AsRef<OsStr>>>(&self, words: I) -> String {
        let ended = self.blastbox(words).end();
        assert_eq!(ended.code, 0, "{}{}", ended.text(), ended.err);
        ended.text().trim_end().to_owned()
    }

    /// A shell script in a box that stays, to its good end.
    pub fn sh(&self, id: &str, script: &str) -> String {
        self.ask(["exec", id, "--", "/bin/sh", "-c", script])
    }

    /// One request at its socket: the status of the answer, and its JSON.
    pub fn request(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut line = UnixStream::connect(&self.socket).expect("the daemon listens");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: blastbox\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        line.write_all(&[head.as_bytes(), body.as_bytes()].concat()).expect("it reads");
        let mut answer = String::new();
        line.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    /// Asks for something that is told as it happens: the rest of the answer comes when it comes.
    pub fn open(&self, path: &str) -> impl Read + use<> {
        let mut line = UnixStream::connect(&self.socket).expect("the daemon listens");
        line.set_read_timeout(Some(PATIENCE)).expect("bound the test");
        let head = format!("GET {path} HTTP/1.1\r\nhost: blastbox\r\nconnection: close\r\n\r\n");
        line.write_all(head.as_bytes()).expect("it reads");
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            line.read_exact(&mut byte).expect("it answers");
            head.extend(byte);
        }
        assert!(head.starts_with(b"HTTP/1.1 200"), "{path}: {}", String::from_utf8_lossy(&head));
        line
    }

    /// Where its socket is.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.held.as_ref().map_or(0, Held::id)
    }

    /// Tells it to end, and waits until it has.
    pub fn stop(mut self) -> Ended {
        let held = self.held.take().expect("a daemon is stopped once");
        held.signal(Signal::TERM);
        held.end()
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        if let Some(mut held) = self.held.take()
            && !held.is_over()
        {
            held.signal(Signal::TERM);
            // What does not end in time is killed with `held`.
            wait_until(|| held.is_over());
        }
    }
}
