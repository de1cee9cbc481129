//! Watchers that are asked now and then instead of listened to: CreateWatcher, GetWatcherEvents, RemoveWatcher.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use super::watch::{Standing, Told, Watch};
use crate::e2b::no::echo;
use crate::e2b::rpc::Context;
use crate::e2b::rpc::error::{Code, RpcError};

/// Watchers of one sandbox: half of the file operations that a box does at once.
const MOST_WATCHERS: usize = 32;
/// Bytes of events that wait for whoever asks. A watcher that met them is over, and says so: what it missed is not made
/// up for by what comes later.
const MOST_WAITING: usize = 1024 * 1024;
/// What an event costs beside its text.
const OF_AN_EVENT: usize = 256;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Which {
    #[serde(alias = "watcher_id")]
    watcher_id: String,
}

/// What waits for whoever asks.
#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<Value>,
    bytes: usize,
    /// More happened than fits.
    overflown: bool,
}

type Queue = Arc<Mutex<Waiting>>;

/// The watchers of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    all: Mutex<HashMap<String, Watcher>>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Watcher {
    queue: Queue,
    work: AbortHandle,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.work.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nobody panics while holding one of these.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn full() -> RpcError {
    RpcError::new(Code::ResourceExhausted, format!("a sandbox has at most {MOST_WATCHERS} watchers"))
}

fn not_found(which: &Which) -> RpcError {
    RpcError::new(Code::NotFound, format!("watcher with id {} not found", echo(&which.watcher_id)))
}

fn overflown(which: &Which) -> RpcError {
    let id = echo(&which.watcher_id);
    let what = format!(
        "watcher {id} missed events: more than {MOST_WAITING} bytes waited to be asked for; remove it and make another"
    );
    RpcError::new(Code::ResourceExhausted, what)
}

/// CreateWatcher.
pub(crate) async fn create(context: &Context, watch: Watch) -> Result<Value, RpcError> {
    let watchers = &context.sandbox.watchers;
    if lock(&watchers.all).len() >= MOST_WATCHERS {
        return Err(full());
    }
    let standing = Standing::begin(context, watch).await?;
    let queue = Queue::default();
    let work = tokio::spawn(collect(standing, Arc::clone(&queue))).abort_handle();
    let watcher = Watcher { queue, work };
    let id = format!("w{}", watchers.next.fetch_add(1, Ordering::Relaxed));
    let mut all = lock(&watchers.all);
    // Others may have come in while the box was asked.
    if all.len() >= MOST_WATCHERS {
        return Err(full());
    }
    all.insert(id.clone(), watcher);
    Ok(json!({ "watcherId": id }))
}

impl Waiting {
    /// Takes an event in. `false`: there is no room, and there will be none.
    fn add(&mut self, event: Value) -> bool {
        let bytes = OF_AN_EVENT + event.to_string().len();
        self.overflown |= self.bytes.saturating_add(bytes) > MOST_WAITING;
        if !self.overflown {
            self.bytes += bytes;
            self.events.push_back(event);
        }
        !self.overflown
    }

    /// Hands out what waits. `None`: nothing does, and events were lost.
    fn take(&mut self) -> Option<Vec<Value>> {
        if self.overflown && self.events.is_empty() {
            return None;
        }
        self.bytes = 0;
        Some(self.events.drain(..).collect())
    }
}

async fn collect(mut standing: Standing, queue: Queue) {
    while let Told::Event(event) = standing.next().await {
        if !lock(&queue).add(event) {
            return;
        }
    }
}

/// GetWatcherEvents: what happened since the last time.
pub(crate) fn events(context: &Context, which: &Which) -> Result<Value, RpcError> {
    let all = lock(&context.sandbox.watchers.all);
    let watcher = all.get(&which.watcher_id).ok_or_else(|| not_found(which))?;
    let events = lock(&watcher.queue).take().ok_or_else(|| overflown(which))?;
    Ok(json!({ "events": events }))
}

/// RemoveWatcher.
pub(crate) fn remove(context: &Context, which: &Which) -> Result<Value, RpcError> {
    let removed = lock(&context.sandbox.watchers.all).remove(&which.watcher_id);
    removed.map(|_| json!({})).ok_or_else(|| not_found(which))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded_and_what_was_lost_is_said() {
        let event = || json!({ "name": "x".repeat(4_000), "type": "EVENT_TYPE_CREATE" });
        let mut waiting = Waiting::default();
        let taken = (0..1_000).take_while(|_| waiting.add(event())).count();
        assert!((200..300).contains(&taken), "{taken}");
        // What came before is handed out, and what comes after is not taken for all there was.
        assert!(!waiting.add(json!({})));
        assert_eq!(waiting.take().unwrap().len(), taken);
        assert!(waiting.take().is_none() && !waiting.add(json!({})) && waiting.take().is_none());
        let mut asked = Waiting::default();
        for _ in 0..10 {
            assert!((0..100).all(|_| asked.add(event())) && asked.take().unwrap().len() == 100);
        }
    }
}
