//! What is said to QEMU while it runs: the few words of its protocol by which a machine is written to a file.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long QEMU may take to answer, and to write a machine.
const PATIENCE: Duration = Duration::from_secs(120);

const PAUSE: Duration = Duration::from_millis(50);

/// What it says of how it is, or how far.
fn word(status: &Value) -> Option<&str> {
    status.get("status")?.as_str()
}

/// A line to a QEMU.
#[derive(Debug)]
pub(super) struct Line {
    to: UnixStream,
    from: BufReader<UnixStream>,
}

impl Line {
    /// `None`: it does not listen there yet, or not any more.
    pub(super) fn open(socket: &Path) -> Option<Self> {
        let to = UnixStream::connect(socket).ok()?;
        to.set_read_timeout(Some(PATIENCE)).ok()?;
        let from = BufReader::new(to.try_clone().ok()?);
        let mut line = Self { to, from };
        line.say("qmp_capabilities", &json!({}))?;
        Some(line)
    }

    /// Has it do something. What it answers; `None`: it has gone.
    pub(super) fn say(&mut self, order: &str, with: &Value) -> Option<Value> {
        writeln!(self.to, "{}", json!({ "execute": order, "arguments": with })).ok()?;
        loop {
            let mut text = String::new();
            self.from.read_line(&mut text).ok().filter(|count| *count > 0)?;
            let answer: Value = serde_json::from_str(&text).expect("JSON");
            assert!(answer.get("error").is_none(), "{order}: {answer}");
            // Its greeting and its events come in between.
            if let Some(answer) = answer.get("return") {
                return Some(answer.clone());
            }
        }
    }

    /// Lets a machine go on that was read from a file, as soon as it is there: it stood still when it was written. `false`: it has gone.
    pub(super) fn go_on(&mut self) -> bool {
        let begun = Instant::now();
        while let Some(status) = self.say("query-status", &json!({})) {
            if word(&status) != Some("inmigrate") {
                return self.say("cont", &json!({})).is_some();
            }
            assert!(begun.elapsed() < PATIENCE, "QEMU reads for ever");
            std::thread::sleep(PAUSE);
        }
        false
    }

    /// Writes the machine to a file, whole, and ends it.
    pub(super) fn write_to(&mut self, file: &Path) {
        let write = format!("exec:cat > '{}'", file.display());
        self.say("stop", &json!({})).expect("QEMU is there");
        self.say("migrate-set-parameters", &json!({ "max-bandwidth": 1_u64 << 34 })).expect("QEMU is there");
        self.say("migrate", &json!({ "uri": write })).expect("QEMU is there");
        let begun = Instant::now();
        loop {
            let status = self.say("query-migrate", &json!({})).expect("QEMU writes");
            match word(&status) {
                Some("completed") => break,
                Some("failed" | "cancelled") => panic!("QEMU could not write the machine: {status}"),
                _ => assert!(begun.elapsed() < PATIENCE, "QEMU writes for ever: {status}"),
            }
            std::thread::sleep(PAUSE);
        }
        self.say("quit", &json!({})).expect("QEMU is there");
    }
}
