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
/// Events that wait for whoever asks. The oldest goes first.
const MOST_EVENTS: usize = 4_096;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Which {
    #[serde(alias = "watcher_id")]
    watcher_id: String,
}

type Queue = Arc<Mutex<VecDeque<Value>>>;

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

async fn collect(mut standing: Standing, queue: Queue) {
    while let Told::Event(event) = standing.next().await {
        let mut queue = lock(&queue);
        if queue.len() >= MOST_EVENTS {
            queue.pop_front();
        }
        queue.push_back(event);
    }
}

/// GetWatcherEvents: what happened since the last time.
pub(crate) fn events(context: &Context, which: &Which) -> Result<Value, RpcError> {
    let all = lock(&context.sandbox.watchers.all);
    let watcher = all.get(&which.watcher_id).ok_or_else(|| not_found(which))?;
    let events: Vec<Value> = lock(&watcher.queue).drain(..).collect();
    Ok(json!({ "events": events }))
}

/// RemoveWatcher.
pub(crate) fn remove(context: &Context, which: &Which) -> Result<Value, RpcError> {
    let removed = lock(&context.sandbox.watchers.all).remove(&which.watcher_id);
    removed.map(|_| json!({})).ok_or_else(|| not_found(which))
}
