//! Creates that are asked for twice under one key: the second gets what the first got.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blastbox_engine::keeper::Tenant;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::e2b::no::No;

/// Answers that are remembered for one tenant. Its oldest goes first; nobody's goes because of somebody else's.
const MOST: usize = 256;

type Name = (Tenant, String);

/// The answers that were given.
#[derive(Debug, Default)]
pub(crate) struct Promises(Arc<Mutex<Shelf>>);

#[derive(Debug, Default)]
struct Shelf {
    all: HashMap<Name, Entry>,
    kept: HashMap<Tenant, VecDeque<Name>>,
}

#[derive(Debug)]
struct Entry {
    body: [u8; 32],
    answer: Option<Value>,
}

/// What to do about a create.
#[derive(Debug)]
pub(super) enum Promise {
    /// It was done: this was the answer.
    Kept(Value),
    /// Do it.
    Ours(Pending),
}

/// A create that is being done. Dropped before it is kept, it never was.
#[derive(Debug)]
pub(super) struct Pending {
    shelf: Arc<Mutex<Shelf>>,
    name: Option<Name>,
}

fn lock(shelf: &Mutex<Shelf>) -> MutexGuard<'_, Shelf> {
    // Nobody panics while holding it.
    shelf.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Promises {
    pub(super) fn begin(&self, tenant: &Tenant, key: &str, body: &[u8]) -> Result<Promise, No> {
        let name = (tenant.clone(), key.to_owned());
        let body: [u8; 32] = Sha256::digest(body).into();
        let mut shelf = lock(&self.0);
        match shelf.all.get(&name) {
            Some(entry) if entry.body != body => {
                Err(No::new(422, "this Idempotency-Key was used with another body")
                    .coded("idempotency_request_mismatch"))
            }
            Some(Entry { answer: Some(answer), .. }) => Ok(Promise::Kept(answer.clone())),
            Some(Entry { answer: None, .. }) => {
                Err(No::new(409, "a request with this Idempotency-Key is being carried out")
                    .coded("idempotency_in_progress"))
            }
            None => {
                shelf.all.insert(name.clone(), Entry { body, answer: None });
                Ok(Promise::Ours(Pending { shelf: Arc::clone(&self.0), name: Some(name) }))
            }
        }
    }
}

impl Pending {
    pub(super) fn keep(mut self, answer: Value) {
        let Some(name) = self.name.take() else { return };
        let mut shelf = lock(&self.shelf);
        if let Some(entry) = shelf.all.get_mut(&name) {
            entry.answer = Some(answer);
        }
        let kept = shelf.kept.entry(name.0.clone()).or_default();
        kept.push_back(name);
        let oldest = if kept.len() > MOST { kept.pop_front() } else { None };
        if let Some(oldest) = oldest {
            shelf.all.remove(&oldest);
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            lock(&self.shelf).all.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_second_gets_what_the_first_got_and_a_failed_one_may_be_tried_again() {
        let (promises, ann, bob) = (Promises::default(), Tenant::local(), "bob".parse().unwrap());
        let Promise::Ours(first) = promises.begin(&ann, "k", b"{}").unwrap() else { panic!() };
        assert_eq!(promises.begin(&ann, "k", b"{}").unwrap_err().status(), 409);
        assert!(matches!(promises.begin(&bob, "k", b"{}").unwrap(), Promise::Ours(_)));
        drop(first);
        let Promise::Ours(first) = promises.begin(&ann, "k", b"{}").unwrap() else { panic!() };
        first.keep(json!("made"));
        assert!(
            matches!(promises.begin(&ann, "k", b"{}").unwrap(), Promise::Kept(answer) if answer == "made")
        );
        assert_eq!(promises.begin(&ann, "k", b"[]").unwrap_err().status(), 422);
    }

    #[test]
    fn only_so_many_are_remembered() {
        let (promises, tenant) = (Promises::default(), Tenant::local());
        let bob: Tenant = "bob".parse().unwrap();
        let Promise::Ours(one) = promises.begin(&bob, "his", b"").unwrap() else { panic!() };
        one.keep(json!("his"));
        for number in 0..=MOST {
            let Promise::Ours(one) = promises.begin(&tenant, &number.to_string(), b"").unwrap() else {
                panic!()
            };
            one.keep(json!(number));
        }
        assert!(matches!(promises.begin(&tenant, "0", b"").unwrap(), Promise::Ours(_)));
        assert!(matches!(promises.begin(&tenant, "1", b"").unwrap(), Promise::Kept(_)));
        assert!(matches!(promises.begin(&bob, "his", b"").unwrap(), Promise::Kept(_)));
    }
}
