//! Answers without the secrets that were sent: every form of a value is struck out while the bytes pass.
//!
//! Trust: upstream, and through it the guest, who chooses what a server echoes.
//!
//! What is struck out keeps its length, so `Content-Length` stays true and nothing has to be buffered whole. Only bytes
//! that may be the beginning of a match are held back until more arrives: an event of a stream is not delayed because
//! a long secret exists.

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use zeroize::Zeroizing;

use super::Secret;
use super::forms::forms;

/// What stands where a secret stood.
const STRUCK: u8 = b'*';

/// The patterns of the secrets of one box. Shared by all its answers.
pub struct Patterns {
    automaton: AhoCorasick,
    /// The same, whatever the case: a header's name has none.
    names: AhoCorasick,
    /// In order, so that those that begin in one way lie together.
    forms: Vec<Zeroizing<Vec<u8>>>,
    longest: usize,
}

impl std::fmt::Debug for Patterns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Patterns({})", self.forms.len())
    }
}

/// The secrets cannot be looked for; nothing may be sent then.
#[derive(Debug, thiserror::Error)]
#[error("cannot build the patterns that answers are scrubbed of")]
pub struct BadPatterns(#[source] aho_corasick::BuildError);

impl Patterns {
    /// Patterns for these secrets.
    pub fn of<'s>(secrets: impl IntoIterator<Item = &'s Secret>) -> Result<Self, BadPatterns> {
        let mut all: Vec<_> =
            secrets.into_iter().flat_map(|secret| forms(secret.expose_to_upstream())).collect();
        all.sort_unstable_by(|one, other| one.as_slice().cmp(other.as_slice()));
        all.dedup();
        let build = |ignore_case| {
            AhoCorasick::builder()
                .match_kind(MatchKind::Standard)
                .kind(Some(AhoCorasickKind::ContiguousNFA))
                .ascii_case_insensitive(ignore_case)
                .build(all.iter().map(|form| form.as_slice()))
                .map_err(BadPatterns)
        };
        let (automaton, names) = (build(false)?, build(true)?);
        let longest = all.iter().map(|form| form.len()).max().unwrap_or(0);
        Ok(Self { automaton, names, forms: all, longest })
    }

    /// Whether there is anything to look for.
    pub fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }

    /// Strikes out every form in a text that is there whole, such as a header's value. `None`: it holds none.
    pub fn strike(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut scrubber = Scrubber::default();
        let mut clean = scrubber.feed(self, text);
        clean.extend(scrubber.finish(self));
        (clean != text).then_some(clean)
    }

    /// Whether the name of a header holds a form, in any case.
    pub fn in_name(&self, name: &[u8]) -> bool {
        !self.is_empty() && self.names.is_match(name)
    }

    /// Bytes at the end of `text` that may be the beginning of a form.
    fn unfinished(&self, text: &[u8]) -> usize {
        let last = text.len().min(self.longest.saturating_sub(1));
        let tail = text.get(text.len() - last..).unwrap_or_default();
        (0..tail.len())
            .filter_map(|from| tail.get(from..))
            .find(|end| {
                let first = self.forms.partition_point(|form| form.as_slice() < *end);
                self.forms.get(first).is_some_and(|form| form.starts_with(end))
            })
            .map_or(0, <[u8]>::len)
    }
}

/// One body on its way.
#[derive(Default)]
pub struct Scrubber {
    /// Bytes that may be the beginning of a form.
    held: Zeroizing<Vec<u8>>,
    /// How many of them belong to a form that began before them.
    covered: usize,
    struck: u64,
}

impl std::fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scrubber").field("held", &self.held.len()).field("struck", &self.struck).finish()
    }
}

impl Scrubber {
    /// Takes the next bytes and gives those that can go on.
    pub fn feed(&mut self, patterns: &Patterns, bytes: &[u8]) -> Vec<u8> {
        let mut text = std::mem::take(&mut self.held);
        text.extend_from_slice(bytes);
        let keep = patterns.unfinished(&text);
        let goes = text.len() - keep;

        let mut clean = text.to_vec();
        strike(&mut clean, 0, self.covered);
        let mut covered = self.covered.saturating_sub(goes);
        for found in patterns.automaton.find_overlapping_iter(text.as_slice()) {
            strike(&mut clean, found.start(), found.end());
            // One that begins in what is held back is found again with the next bytes.
            if found.start() < goes {
                self.struck += 1;
                covered = covered.max(found.end().saturating_sub(goes));
            }
        }
        clean.truncate(goes);
        self.held = Zeroizing::new(text.split_off(goes));
        self.covered = covered;
        clean
    }

    /// The end of the body: what was held back did not become the form it began like, but may hold a shorter one.
    pub fn finish(&mut self, patterns: &Patterns) -> Vec<u8> {
        let text = std::mem::take(&mut self.held);
        let mut clean = text.to_vec();
        strike(&mut clean, 0, std::mem::take(&mut self.covered));
        for found in patterns.automaton.find_overlapping_iter(text.as_slice()) {
            strike(&mut clean, found.start(), found.end());
            self.struck += 1;
        }
        clean
    }

    /// Matches so far.
    pub fn struck(&self) -> u64 {
        self.struck
    }
}

fn strike(text: &mut [u8], from: usize, to: usize) {
    let to = to.min(text.len());
    if let Some(part) = text.get_mut(from..to) {
        part.fill(STRUCK);
    }
}

#[cfg(test)]
#[path = "scrub_tests.rs"]
mod tests;
