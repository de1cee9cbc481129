//! What a build says while it goes on. Bounded: what is printed in a box is as long as it likes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use blastbox_engine::keeper::Tenant;
use serde_json::{Value, json};

use super::record::Status;
use crate::e2b::lines::Choice;
use crate::e2b::moment;
use crate::e2b::no::No;

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

    /// So many of the lines that are asked for, from this one of them on.
    pub(super) fn show(&self, choice: &Choice, from: usize, most: usize) -> Vec<Value> {
        let lines = self.lines();
        let chosen = lines.all.iter().filter(|line| choice.takes(line.at, line.level, &line.message));
        let show = |line: &Line| {
            json!({
                "timestamp": moment::text(line.at), "level": line.level, "message": line.message, "step": line.step,
            })
        };
        match choice.backward {
            true => chosen.rev().skip(from).take(most).map(show).collect(),
            false => chosen.skip(from).take(most).map(show).collect(),
        }
    }
}

/// Builds of one tenant that are at work or wait, and those whose log is still told.
const MOST_AT_ONCE: usize = 4;
const MOST_LOGS: usize = 20;

/// The logs of all builds, oldest first. One that is at work stays; of the others a tenant's oldest make place for its own.
#[derive(Debug, Default)]
pub(super) struct Logs(Mutex<Vec<Told>>);

#[derive(Debug)]
struct Told {
    build: String,
    tenant: Tenant,
    log: Arc<BuildLog>,
    at_work: bool,
}

impl Logs {
    fn all(&self) -> MutexGuard<'_, Vec<Told>> {
        // Nobody panics while holding it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn of(&self, build: &str) -> Option<Arc<BuildLog>> {
        self.all().iter().find(|told| told.build == build).map(|told| Arc::clone(&told.log))
    }

    /// A build begins, once.
    pub(super) fn begin(&self, tenant: &Tenant, build: &str, status: Status) -> Result<Arc<BuildLog>, No> {
        let mut all = self.all();
        if status != Status::Waiting || all.iter().any(|told| told.build == build) {
            return Err(No::new(409, "this build was started already"));
        }
        let theirs = |told: &&Told| told.tenant == *tenant;
        if all.iter().filter(theirs).filter(|told| told.at_work).count() >= MOST_AT_ONCE {
            return Err(No::new(429, format!("a key has at most {MOST_AT_ONCE} builds at once")));
        }
        let mut over = (all.iter().filter(theirs).count() + 1).saturating_sub(MOST_LOGS);
        all.retain(|told| {
            let goes = over > 0 && theirs(&told) && !told.at_work;
            over -= usize::from(goes);
            !goes
        });
        let log = Arc::<BuildLog>::default();
        let (build, tenant) = (build.to_owned(), tenant.clone());
        all.push(Told { build, tenant, log: Arc::clone(&log), at_work: true });
        Ok(log)
    }

    pub(super) fn end(&self, build: &str) {
        if let Some(told) = self.all().iter_mut().find(|told| told.build == build) {
            told.at_work = false;
        }
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
    use crate::e2b::form;

    #[test]
    fn a_tenants_logs_make_place_for_its_own_and_those_of_builds_at_work_stay() {
        let logs = Logs::default();
        let (ann, bob): (Tenant, Tenant) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        let begin = |tenant: &Tenant, build: &str| logs.begin(tenant, build, Status::Waiting);
        begin(&bob, "his").unwrap();
        logs.end("his");
        begin(&ann, "at work").unwrap();
        assert_eq!(begin(&ann, "at work").unwrap_err().status(), 409);
        assert_eq!(logs.begin(&ann, "done", Status::Ready).unwrap_err().status(), 409);
        for number in 0..2 * MOST_LOGS {
            begin(&ann, &number.to_string()).unwrap();
            logs.end(&number.to_string());
        }
        assert!(logs.of("his").is_some() && logs.of("at work").is_some() && logs.of("0").is_none());
        assert_eq!(logs.all().len(), MOST_LOGS + 1);
        (1..MOST_AT_ONCE).for_each(|number| drop(begin(&ann, &format!("more {number}")).unwrap()));
        assert_eq!(begin(&ann, "one more").unwrap_err().status(), 429);
        logs.end("at work");
        begin(&ann, "one more").unwrap();
    }

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
        let every = Choice::default();
        let all = log.show(&every, 0, usize::MAX);
        assert_eq!(all.len(), MOST_LINES + 2);
        assert_eq!(all[0]["message"].as_str().unwrap().len(), LONGEST);
        assert_eq!(all[1]["message"], "0[2J");
        assert_eq!(all[MOST_LINES + 1]["message"], "it failed");
        assert_eq!(log.show(&every, MOST_LINES + 1, 100).len(), 1);
        assert!(log.show(&every, MOST_LINES + 2, 100).is_empty());
    }

    #[test]
    fn lines_are_told_by_level_time_and_direction_and_offsets_count_those() {
        let log = BuildLog::default();
        for (level, message) in [("info", "a"), ("warn", "b"), ("info", "c"), ("error", "d")] {
            log.say(level, "1", message);
        }
        let told = |query: &str, from: usize| {
            let choice = Choice::of(&form::pairs(Some(query)))?;
            let told = log.show(&choice, from, 100);
            Ok::<_, No>(told.iter().filter_map(|line| line["message"].as_str()).collect::<String>())
        };
        assert_eq!(told("", 0).unwrap(), "abcd");
        assert_eq!(told("direction=backward", 0).unwrap(), "dcba");
        assert_eq!(told("level=warn", 0).unwrap(), "bd");
        assert_eq!(told("level=warn", 1).unwrap(), "d");
        assert_eq!(told("cursor=0", 0).unwrap(), "abcd");
        assert_eq!(told("cursor=0&direction=backward", 0).unwrap(), "", "nothing is as old as that");
        for wrong in ["level=loud", "direction=up", "cursor=-1", "cursor=now"] {
            assert_eq!(told(wrong, 0).unwrap_err().status(), 400, "{wrong}");
        }
    }
}
