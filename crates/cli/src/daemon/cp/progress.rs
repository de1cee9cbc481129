//! How far a copy is, on a terminal and nowhere else.

use std::future::Future;
use std::io::IsTerminal;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::output;

const BEAT: Duration = Duration::from_millis(200);

/// How far a copy is.
#[derive(Debug)]
pub(super) struct Progress {
    counter: Counter,
    shown: bool,
    terminal: bool,
}

/// Counts bytes from any thread.
#[derive(Debug, Clone, Default)]
pub(super) struct Counter(Arc<AtomicU64>);

impl Counter {
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, bytes: usize) {
        self.0.fetch_add(u64::try_from(bytes).unwrap_or(0), Ordering::Relaxed);
    }
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { counter: Counter::default(), shown: false, terminal: std::io::stderr().is_terminal() }
    }

    pub(super) fn counter(&self) -> Counter {
        self.counter.clone()
    }

    /// Waits for some work, and shows how far it is meanwhile.
    pub(super) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let mut beat = interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first beat is at once.
        beat.tick().await;
        loop {
            tokio::select! {
                done = work.as_mut() => return done,
                _ = beat.tick() => self.show(),
            }
        }
    }

    fn show(&mut self) {
        if self.terminal {
            self.shown = true;
            let tenths = self.counter.0.load(Ordering::Relaxed) / (1024 * 1024 / 10);
            output::say(&format!("\r{}.{} MiB copied", tenths / 10, tenths % 10));
        }
    }

    /// Takes the line away again.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            output::say("\r\u{1b}[K");
        }
    }
}
