//! The processes of one sandbox that were started through this face, by number, process id and tag.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use blastbox_engine::keeper::{ExecCard, ExecEnded};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

/// How long one that has ended can still be asked about.
const REMEMBERED: Duration = Duration::from_secs(30);

/// What a process reads from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mouth {
    /// Nothing.
    Nothing,
    /// A pipe.
    Pipe,
    /// A terminal.
    Terminal,
}

/// What is known of a process when it is started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) tag: Option<String>,
    pub(crate) mouth: Mouth,
    /// As it was asked for: cmd, args, envs, cwd.
    pub(crate) config: Value,
}

#[derive(Debug)]
struct Process {
    told: Told,
    ended: Option<Instant>,
}

/// A process that was found.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) exec: u32,
    pub(crate) pid: u32,
    pub(crate) mouth: Mouth,
    pub(crate) ended: Option<ExecEnded>,
}

/// The processes of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Processes(Mutex<BTreeMap<u32, Process>>);

impl Processes {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u32, Process>> {
        // Nobody panics while holding it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One was started. Those that ended long ago are forgotten.
    pub(crate) fn add(&self, exec: u32, told: Told) {
        let mut all = self.all();
        all.retain(|_, process| process.ended.is_none_or(|ended| ended.elapsed() <= REMEMBERED));
        all.insert(exec, Process { told, ended: None });
    }

    /// Those that run, for a copy of the sandbox.
    pub(crate) fn told(&self) -> Vec<(u32, Told)> {
        let all = self.all();
        let running = all.iter().filter(|(_, process)| process.ended.is_none());
        running.map(|(exec, process)| (*exec, process.told.clone())).collect()
    }

    /// One could not be started.
    pub(crate) fn forget(&self, exec: u32) {
        self.all().remove(&exec);
    }

    /// One has ended. How it was asked for is shown of what runs, and goes now.
    pub(crate) fn ended(&self, exec: u32) {
        if let Some(process) = self.all().get_mut(&exec) {
            process.ended.get_or_insert_with(Instant::now);
            process.told.config = Value::Null;
        }
    }

    /// One that runs.
    pub(crate) fn running(&self, pid: Option<u32>, tag: Option<&str>, cards: &[ExecCard]) -> Option<Found> {
        self.find(pid, tag, cards).filter(|found| found.ended.is_none())
    }

    /// One that runs, or has ended a moment ago. A number that the kernel gave twice means the one that runs, or the
    /// last.
    pub(crate) fn find(&self, pid: Option<u32>, tag: Option<&str>, cards: &[ExecCard]) -> Option<Found> {
        let all = self.all();
        let fits = |card: &&ExecCard| {
            let Some(process) = all.get(&card.exec) else { return false };
            match (pid, tag) {
                (Some(pid), _) => card.pid == Some(pid),
                (None, Some(tag)) => process.told.tag.as_deref() == Some(tag) && card.pid.is_some(),
                (None, None) => false,
            }
        };
        let fresh = |card: &&ExecCard| {
            let ended = all.get(&card.exec).and_then(|process| process.ended);
            card.ended.is_none() || ended.is_none_or(|ended| ended.elapsed() <= REMEMBERED)
        };
        let mut found: Vec<&ExecCard> = cards.iter().filter(fits).filter(fresh).collect();
        found.sort_by_key(|card| (card.ended.is_none(), card.exec));
        let card = found.last()?;
        let mouth = all.get(&card.exec)?.told.mouth;
        Some(Found { exec: card.exec, pid: card.pid?, mouth, ended: card.ended.clone() })
    }

    /// Everything that runs, as List shows it.
    pub(crate) fn list(&self, cards: &[ExecCard]) -> Vec<Value> {
        let all = self.all();
        // One whose end is known here first has nothing to show any more.
        let over = |card: &&ExecCard| all.get(&card.exec).is_none_or(|process| process.ended.is_some());
        let running = cards.iter().filter(|card| card.ended.is_none() && !over(card));
        let shown = running.filter_map(|card| {
            let process = all.get(&card.exec)?;
            let mut info = Map::new();
            info.insert("config".to_owned(), process.told.config.clone());
            info.insert("pid".to_owned(), json!(card.pid?));
            info.extend(process.told.tag.as_ref().map(|tag| ("tag".to_owned(), json!(tag))));
            Some(Value::Object(info))
        });
        shown.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(exec: u32, pid: u32, ended: Option<ExecEnded>) -> ExecCard {
        ExecCard {
            exec,
            command: Vec::new(),
            started_at: String::new(),
            pid: Some(pid),
            terminal: false,
            ended,
            timed_out: false,
            fuel: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_that_runs_is_meant_and_one_that_ended_is_remembered_for_a_while() {
        let told = |tag: &str| Told { tag: Some(tag.to_owned()), mouth: Mouth::Pipe, config: json!({}) };
        let over = Some(ExecEnded::Exited { code: 0 });
        let processes = Processes::default();
        processes.add(1, told("a"));
        processes.add(2, told("b"));
        let cards = [card(1, 7, over.clone()), card(2, 7, None), card(3, 9, None)];
        processes.ended(1);
        assert_eq!(processes.find(Some(7), None, &cards).unwrap().exec, 2);
        assert_eq!(processes.find(None, Some("a"), &cards).unwrap().exec, 1);
        assert!(processes.running(None, Some("a"), &cards).is_none());
        // What another face started is not there.
        assert!(processes.find(Some(9), None, &cards).is_none());
        assert!(processes.find(None, None, &cards).is_none());
        assert_eq!(processes.list(&cards).len(), 1);
        tokio::time::advance(REMEMBERED + Duration::from_secs(1)).await;
        assert!(processes.find(None, Some("a"), &cards).is_none());
        assert!(processes.find(None, Some("b"), &cards).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn how_one_was_asked_for_is_forgotten_when_it_ends() {
        let processes = Processes::default();
        let config = json!({ "cmd": "sh", "envs": { "KEY": "secret" } });
        processes.add(1, Told { tag: Some("a".to_owned()), mouth: Mouth::Pipe, config });
        let runs = [card(1, 7, None)];
        assert_eq!(processes.list(&runs).len(), 1);
        processes.ended(1);
        assert_eq!(processes.all()[&1].told.config, Value::Null);
        assert!(processes.list(&runs).is_empty());
        assert!(processes.find(Some(7), None, &runs).is_some(), "it can still be asked about");
    }
}
