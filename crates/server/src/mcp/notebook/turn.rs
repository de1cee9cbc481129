//! One piece of code in an interpreter that remembers: what it printed, whether it is over, and the function that it waits for.

use std::time::Duration;

use blastbox_engine::Stream;
use blastbox_engine::keeper::CallCard;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::super::calls;
use super::super::work::{Bounded, Came};

/// A piece of code that is not over.
#[derive(Debug)]
pub(super) struct Turn {
    out: Catch,
    err: Catch,
    pub(super) bytes: usize,
    pub(super) begun: Instant,
    /// When its time is over.
    pub(super) ends: Instant,
    /// The call that it waits for.
    pub(super) call: Option<u32>,
    /// Who ends it at its time while nobody waits for it.
    pub(super) watch: Option<Watch>,
}

/// Goes with the piece of code that it watches.
#[derive(Debug)]
pub(super) struct Watch(pub(super) JoinHandle<()>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Why nobody listens to it any more.
#[derive(Debug)]
pub(super) enum Next {
    /// It is over, and the interpreter is there for the next.
    Over,
    /// The interpreter has ended.
    Lost,
    Calls(CallCard),
}

impl Turn {
    pub(super) fn new(mark: &str, time: Duration) -> Self {
        let begun = Instant::now();
        let (out, err) = (Catch::new(mark), Catch::new(mark));
        Self { out, err, bytes: 0, begun, ends: begun + time, call: None, watch: None }
    }

    pub(super) fn add(&mut self, stream: Stream, piece: &[u8]) {
        self.bytes = self.bytes.saturating_add(piece.len());
        match stream {
            Stream::Stdout => self.out.add(piece),
            Stream::Stderr => self.err.add(piece),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.out.failed().is_some() && self.err.over
    }

    /// What it came to so far.
    pub(super) fn came(&self, next: &Next) -> Came {
        let printed = |caught: &Catch| caught.text.clone().finish();
        let ((stdout, one), (stderr, two)) = (printed(&self.out), printed(&self.err));
        let (how, exit_code, waits) = match (next, self.out.failed()) {
            (Next::Calls(card), _) => (calls::words(card), None, Some(card.clone())),
            (Next::Over, Some(false)) => ("done".to_owned(), Some(0), None),
            (Next::Over, _) => ("it raised an exception".to_owned(), Some(1), None),
            (Next::Lost, _) => {
                ("the interpreter ended; the next stateful call begins anew".to_owned(), None, None)
            }
        };
        Came { how, exit_code, waits, stdout, stderr, left_out: one.saturating_add(two), ..Came::default() }
    }
}

/// One stream up to the mark. What comes behind it belongs to nobody and is dropped.
#[derive(Debug)]
struct Catch {
    text: Bounded,
    /// What might be the beginning of the mark.
    held: Vec<u8>,
    mark: Vec<u8>,
    over: bool,
    verdict: Option<u8>,
}

impl Catch {
    fn new(mark: &str) -> Self {
        let (text, held) = Default::default();
        Self { text, held, mark: mark.as_bytes().to_vec(), over: false, verdict: None }
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.over {
            self.verdict = self.verdict.or(bytes.first().copied());
            return;
        }
        self.held.extend_from_slice(bytes);
        let found = self.held.windows(self.mark.len()).position(|window| window == self.mark);
        if let Some(at) = found {
            self.over = true;
            self.verdict = self.held.get(at + self.mark.len()).copied();
            self.text.add(self.held.get(..at).unwrap_or_default());
            self.held = Vec::new();
            return;
        }
        // All but what could be the beginning of the mark.
        let keep = (1..self.mark.len())
            .rev()
            .find(|length| self.held.ends_with(self.mark.get(..*length).unwrap_or_default()));
        let ready = self.held.len() - keep.unwrap_or(0);
        self.text.add(self.held.get(..ready).unwrap_or_default());
        self.held.drain(..ready);
    }

    /// Once it is known: whether the code failed.
    fn failed(&self) -> Option<bool> {
        self.verdict.map(|digit| digit != b'0')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_found_whatever_pieces_it_comes_in() {
        let text = b"before \0blast and after\0mark\0" as &[u8];
        for cut in 0..=text.len() {
            let mut catch = Catch::new("\0mark\0");
            let (one, two) = text.split_at(cut);
            catch.add(one);
            catch.add(two);
            assert!(catch.over, "{cut}");
            catch.add(b"1");
            assert_eq!(catch.failed(), Some(true));
            assert_eq!(catch.text.finish().0, "before \0blast and after", "{cut}");
        }
        let mut catch = Catch::new("\0mark\0");
        catch.add(b"x\0mark\0");
        assert_eq!(catch.failed(), None);
        catch.add(b"0rest");
        assert_eq!(catch.failed(), Some(false));
    }
}
