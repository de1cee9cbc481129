//! What a build says while it goes on. Bounded: what is printed in a box is as long as it likes.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::e2b::moment;

const MOST_LINES: usize = 5_000;
const MOST_BYTES: usize = 1024 * 1024;
const LONGEST: usize = 4_096;

#[derive(Debug, Default)]
pub(super) struct BuildLog(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    all: Vec<Line>,
    bytes: usize,
    full: bool,
}

#[derive(Debug, Clone)]
struct Line {
    at: SystemTime,
    level: &'static str,
    message: String,
    step: String,
}

impl BuildLog {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        // Nobody panics while holding it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn say(&self, level: &'static str, step: &str, message: &str) {
        let mut lines = self.lines();
        if lines.full && level != "error" {
            return;
        }
        let plain = |letter: &char| !letter.is_control() || *letter == '\t';
        let mut message: String = message.chars().filter(plain).take(LONGEST).collect();
        // An error is what a build ends with: there is one, and place for it.
        if (lines.all.len() >= MOST_LINES || lines.bytes >= MOST_BYTES) && level != "error" {
            lines.full = true;
            message = "more was said, and is not kept".to_owned();
        }
        lines.bytes += message.len();
        lines.all.push(Line { at: SystemTime::now(), level, message, step: step.to_owned() });
    }

    /// So many lines from this one on.
    pub(super) fn show(&self, from: usize, most: usize) -> Vec<Value> {
        let lines = self.lines();
        let show = |line: &Line| {
            json!({
                "timestamp": moment::text(line.at), "level": line.level, "message": line.message, "step": line.step,
            })
        };
        lines.all.iter().skip(from).take(most).map(show).collect()
    }
}

/// Cuts what a command prints into lines.
#[derive(Debug, Default)]
pub(super) struct Cutter(Vec<u8>);

impl Cutter {
    pub(super) fn take(&mut self, bytes: &[u8], mut line: impl FnMut(&str)) {
        for byte in bytes {
            match byte {
                b'\n' | b'\r' => self.end(&mut line),
                _ if self.0.len() >= 2 * LONGEST => {}
                other => self.0.push(*other),
            }
        }
    }

    pub(super) fn end(&mut self, mut line: impl FnMut(&str)) {
        if !self.0.is_empty() {
            line(&String::from_utf8_lossy(&self.0));
            self.0.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_that_prints_without_end_fills_no_memory_and_its_error_is_still_told() {
        let log = BuildLog::default();
        let mut cutter = Cutter::default();
        for _ in 0..100 {
            cutter.take(&[b'x'; 4_096], |line| log.say("info", "1", line));
        }
        cutter.end(|line| log.say("info", "1", line));
        (0..2 * MOST_LINES).for_each(|number| log.say("info", "1", &format!("{number}\u{1b}[2J")));
        log.say("error", "1", "it failed");
        let all = log.show(0, usize::MAX);
        assert_eq!(all.len(), MOST_LINES + 2);
        assert_eq!(all[0]["message"].as_str().unwrap().len(), LONGEST);
        assert_eq!(all[1]["message"], "0[2J");
        assert_eq!(all[MOST_LINES + 1]["message"], "it failed");
        assert_eq!(log.show(MOST_LINES + 1, 100).len(), 1);
        assert!(log.show(MOST_LINES + 2, 100).is_empty());
    }
}
