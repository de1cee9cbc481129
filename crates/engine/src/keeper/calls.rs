//! The call of a command that waits for its owner's answer. A command has one at most.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde_json::Value;
use tokio::sync::Notify;

/// A call that nobody has answered yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallCard {
    /// Its number in the command.
    pub call: u32,
    /// The function.
    pub tool: String,
    /// What it is given.
    pub input: Value,
}

/// The call of one command, and whoever waits for it.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    open: Option<CallCard>,
    over: bool,
}

/// The command is over: it calls nobody any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoMore;

impl Calls {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nobody panics while holding it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, card: CallCard) {
        self.state().open = Some(card);
        self.changed.notify_waiters();
    }

    /// Takes it, for whoever answers it. `false`: it is not there, any more or at all.
    pub(crate) fn take(&self, call: u32) -> bool {
        self.state().open.take_if(|open| open.call == call).is_some()
    }

    /// The command is over.
    pub(crate) fn end(&self) {
        *self.state() = State { open: None, over: true };
        self.changed.notify_waiters();
    }

    /// Waits until there is one. It stays until it is taken. Cancel safe.
    pub(crate) async fn wait(&self) -> Result<CallCard, NoMore> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // In line before the look, so that nothing is slept through.
            changed.as_mut().enable();
            {
                let state = self.state();
                match &state.open {
                    Some(card) => return Ok(card.clone()),
                    None if state.over => return Err(NoMore),
                    None => {}
                }
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_stays_until_one_answers_it_and_none_comes_after_the_end() {
        let calls = Calls::default();
        let card = CallCard { call: 3, tool: "add".to_owned(), input: Value::Null };
        calls.put(card.clone());
        assert_eq!(calls.wait().await, Ok(card.clone()));
        assert_eq!(calls.wait().await, Ok(card));
        assert!(!calls.take(2) && calls.take(3) && !calls.take(3));
        let (waited, ()) = tokio::join!(calls.wait(), async { calls.end() });
        assert_eq!(waited, Err(NoMore));
    }
}
