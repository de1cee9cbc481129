//! Where the driver puts what the agent says of one operation, and its owner takes it.
//!
//! An owner that stalls costs the window that the agent was granted, and little more: pieces are merged, and what is
//! empty never gets here.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use blastbox_wire::agent::{Change, Entry, FileSay};
use blastbox_wire::limits::{FILE_WINDOW, MAX_FILE_CHUNK};
use tokio::sync::{Notify, Semaphore};

use super::Summary;
use super::error::FileError;

/// Consumed bytes are acknowledged in steps of this size.
const CREDIT_STEP: u32 = FILE_WINDOW / 8;

/// Something that came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item {
    Bytes(Vec<u8>),
    Entries(Vec<Entry>),
    Changes(Vec<Change>),
}

impl Item {
    fn cost(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Entries(entries) => entries.iter().map(Entry::cost).sum(),
            Self::Changes(changes) => changes.iter().map(Change::cost).sum(),
        }
    }
}

/// One operation's place.
#[derive(Debug)]
pub(crate) struct Port {
    queue: Mutex<Queue>,
    filled: Notify,
    /// Bytes that were taken here and the agent was not told of yet.
    uncredited: AtomicU32,
    abandoned: AtomicBool,
    /// Bytes that may be sent.
    pub(super) room: Semaphore,
}

#[derive(Debug, Default)]
struct Queue {
    begun: Option<Entry>,
    items: VecDeque<Item>,
    end: Option<Result<Summary, FileError>>,
}

impl Default for Port {
    fn default() -> Self {
        Self {
            queue: Mutex::default(),
            filled: Notify::new(),
            uncredited: AtomicU32::new(0),
            abandoned: AtomicBool::new(false),
            room: Semaphore::new(usize::try_from(FILE_WINDOW).unwrap_or(0)),
        }
    }
}

impl Port {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nobody panics while holding it; if somebody did, the queue would still be a queue.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts in what the agent said, checked already.
    pub(super) fn put(&self, say: FileSay<'_>) {
        if self.is_abandoned() {
            return;
        }
        let mut queue = self.queue();
        match say {
            FileSay::Begun { entry } => queue.begun = Some(entry),
            FileSay::Chunk { bytes } => match queue.items.back_mut() {
                Some(Item::Bytes(last)) if last.len() + bytes.len() <= MAX_FILE_CHUNK => {
                    last.extend_from_slice(bytes);
                }
                _ => queue.items.push_back(Item::Bytes(bytes.to_vec())),
            },
            FileSay::Entries { entries } => queue.items.push_back(Item::Entries(entries)),
            FileSay::Changes { changes } => queue.items.push_back(Item::Changes(changes)),
            FileSay::Taken { .. } | FileSay::Done { .. } => {}
        }
        drop(queue);
        self.filled.notify_one();
    }

    /// Says that it is over. The first reason stays.
    pub(super) fn end(&self, end: Result<Summary, FileError>) {
        self.queue().end.get_or_insert(end);
        self.room.close();
        self.filled.notify_one();
    }

    /// What was opened; an error where nothing was. Cancel safe.
    pub(super) async fn begun(&self) -> Result<Option<Entry>, FileError> {
        loop {
            {
                let mut queue = self.queue();
                if let Some(entry) = queue.begun.take() {
                    return Ok(Some(entry));
                }
                if let Some(end) = &queue.end {
                    return end.clone().map(|_| None);
                }
            }
            self.filled.notified().await;
        }
    }

    /// The next piece; `None` when all has come. Cancel safe: what is not returned stays.
    pub(super) async fn next(&self) -> Result<Option<Item>, FileError> {
        loop {
            {
                let mut queue = self.queue();
                if let Some(item) = queue.items.pop_front() {
                    let cost = u32::try_from(item.cost()).unwrap_or(u32::MAX);
                    self.uncredited.fetch_add(cost, Ordering::Relaxed);
                    return Ok(Some(item));
                }
                if let Some(end) = &queue.end {
                    return end.clone().map(|_| None);
                }
            }
            self.filled.notified().await;
        }
    }

    /// How it ended, once it has. Cancel safe.
    pub(super) async fn ended(&self) -> Result<Summary, FileError> {
        loop {
            if let Some(end) = &self.queue().end {
                return end.clone();
            }
            self.filled.notified().await;
        }
    }

    /// Whether enough was taken that the agent should hear of it.
    pub(super) fn owes_credit(&self) -> bool {
        self.uncredited.load(Ordering::Relaxed) >= CREDIT_STEP
    }

    /// The credit that is due, if it is worth a frame. It is not due again.
    pub(super) fn take_credit(&self) -> Option<u32> {
        self.owes_credit().then(|| self.uncredited.swap(0, Ordering::Relaxed))
    }

    /// Nobody takes anything here any more. Whether that is news.
    pub(super) fn abandon(&self) -> bool {
        let news = !self.abandoned.swap(true, Ordering::Relaxed);
        let mut queue = self.queue();
        queue.items.clear();
        news && queue.end.is_none()
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }
}
