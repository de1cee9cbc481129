//! WatchDir: what happens beneath a directory, as it happens.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Response;
use blastbox_engine::{LiveBox, Watching};
use blastbox_wire::agent::{Change, ChangeKind, Depth, EntryKind, Links};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use super::trouble;
use crate::e2b::rpc::error::{Code, RpcError};
use crate::e2b::rpc::stream::{Answering, Call};
use crate::e2b::rpc::{Context, Frames, Sent, decoded};

/// WatchDirRequest and CreateWatcherRequest. Nothing of a box lies on a network, so that `allowNetworkMounts` changes
/// nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Watch {
    path: String,
    recursive: bool,
    #[serde(alias = "include_entry")]
    include_entry: bool,
}

/// A watch that stands.
#[derive(Debug)]
pub(super) struct Standing {
    context: Context,
    /// Holding it keeps no box: only the way to ask it.
    live: Arc<LiveBox>,
    watching: Watching,
    /// What happened and was not told yet.
    waiting: VecDeque<Change>,
    root: String,
    entries: Entries,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entries {
    Included,
    LeftOut,
}

/// What a watch has to tell.
#[derive(Debug)]
pub(super) enum Told {
    Event(Value),
    /// The directory is gone; nothing more will come.
    Nothing,
    /// The box is.
    Gone,
}

impl Standing {
    /// Begins a watch. What happens from then on is told.
    pub(super) async fn begin(context: &Context, watch: Watch) -> Result<Self, RpcError> {
        let root = super::resolve(context, &watch.path)?;
        let live = context.live()?;
        let failed = |error| trouble(&error, &root);
        let there = live.files_as(context.user).stat(root.as_bytes(), Links::Follow).await.map_err(failed)?;
        if there.kind != EntryKind::Directory {
            let what = format!("path '{root}' is not a directory");
            return Err(RpcError::new(Code::InvalidArgument, what));
        }
        let depth = if watch.recursive { Depth::All } else { Depth::One };
        let watching = live.files_as(context.user).watch(root.as_bytes(), depth).await.map_err(failed)?;
        let entries = if watch.include_entry { Entries::Included } else { Entries::LeftOut };
        Ok(Self { context: context.clone(), live, watching, waiting: VecDeque::new(), root, entries })
    }

    /// What happened next. Cancel safe: a change waits until its event was handed out.
    pub(super) async fn next(&mut self) -> Told {
        loop {
            if let Some(change) = self.waiting.front() {
                let event = self.event(change).await;
                self.waiting.pop_front();
                if let Some(event) = event {
                    return Told::Event(event);
                }
                continue;
            }
            match self.watching.next().await {
                Ok(Some(changes)) => self.waiting.extend(changes),
                Err(error) if error.fault().is_none() => return Told::Gone,
                Ok(None) | Err(_) => return Told::Nothing,
            }
        }
    }

    async fn event(&self, change: &Change) -> Option<Value> {
        let kind = event_type(change.kind)?;
        let name = String::from_utf8_lossy(&change.path).into_owned();
        let mut event = Map::new();
        event.insert("name".to_owned(), json!(name));
        event.insert("type".to_owned(), json!(kind));
        let shown = matches!(kind, "EVENT_TYPE_CREATE" | "EVENT_TYPE_WRITE" | "EVENT_TYPE_CHMOD");
        if self.entries == Entries::Included && shown {
            let path = format!("{}/{name}", self.root.trim_end_matches('/'));
            // One that is gone already is told without.
            if let Ok(entry) = self.live.files_as(self.context.user).stat(path.as_bytes(), Links::Keep).await
            {
                event.insert("entry".to_owned(), self.context.show(&path, &entry));
            }
        }
        Some(Value::Object(event))
    }
}

/// `None`: about the watch itself, which E2B has no word for.
const fn event_type(kind: ChangeKind) -> Option<&'static str> {
    match kind {
        ChangeKind::Created | ChangeKind::MovedTo => Some("EVENT_TYPE_CREATE"),
        ChangeKind::Written => Some("EVENT_TYPE_WRITE"),
        ChangeKind::Removed => Some("EVENT_TYPE_REMOVE"),
        ChangeKind::MovedFrom => Some("EVENT_TYPE_RENAME"),
        ChangeKind::Attributes => Some("EVENT_TYPE_CHMOD"),
        ChangeKind::Lost | ChangeKind::Unwatched | ChangeKind::Ended => None,
    }
}

pub(crate) async fn answer(context: Context, call: Call, body: Sent) -> Response<Body> {
    let begun = async {
        let message = Frames::of(body).first().await?;
        let missing = || RpcError::new(Code::InvalidArgument, "protocol error: the stream has no message");
        let watch: Watch = decoded(&call, &message.ok_or_else(missing)?)?;
        Standing::begin(&context, watch).await
    };
    match begun.await {
        Ok(standing) => {
            let (answering, response) = call.begin();
            tokio::spawn(follow(standing, answering));
            response
        }
        Err(error) => call.refuse(&error),
    }
}

async fn follow(mut standing: Standing, answering: Answering) {
    let deadline = standing.context.timeout.map(|timeout| Instant::now() + timeout);
    let keepalive = standing.context.keepalive;
    if !answering.send(&json!({ "start": {} })).await {
        return;
    }
    let (live, mut over) = (Arc::clone(&standing.live), false);
    loop {
        let end = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let told = tokio::select! {
            biased;
            () = answering.left_alone() => return,
            told = standing.next(), if !over => told,
            // A directory that is gone is silent; the box under it may still end.
            () = live.stopped(), if over => Told::Gone,
            () = end => {
                let error = RpcError::new(Code::DeadlineExceeded, "context deadline exceeded");
                return answering.fail(&error).await;
            }
            () = sleep(keepalive) => {
                if answering.send(&json!({ "keepalive": {} })).await { continue } else { return }
            }
        };
        match told {
            Told::Event(event) => {
                if !answering.send(&json!({ "filesystem": event })).await {
                    return;
                }
            }
            Told::Nothing => over = true,
            Told::Gone => return answering.cut().await,
        }
    }
}
