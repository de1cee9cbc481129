//! Where the keys of a draft stand in the text that it was read from, so that what is found wrong only when all of it is looked at
//! together is told with its line, too.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Place;
use crate::{Draft, PolicyError};

/// The text of a draft, and where its keys stand in it. It is no part of what the draft says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origin(Option<Arc<Written>>);

impl PartialEq for Origin {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Origin {}

#[derive(Debug)]
#[cfg_attr(not(feature = "text"), expect(dead_code, reason = "nothing is read from a text"))]
struct Written {
    text: String,
    /// Keys such as `network.mode`, items such as `network.allow[2]`, by the byte at which their value begins.
    keys: BTreeMap<String, usize>,
    /// What was read: a key that was changed since is not the text's.
    read: Draft,
}

impl Origin {
    pub(crate) const NONE: Self = Self(None);

    #[cfg(feature = "text")]
    pub(crate) fn of(text: &str, keys: BTreeMap<String, usize>, read: &Draft) -> Self {
        Self(Some(Arc::new(Written { text: text.to_owned(), keys, read: read.clone() })))
    }

    /// The complaint with the place of what it is about, where that still is as it was written.
    pub(crate) fn place(&self, draft: &Draft, about: &str, problem: PolicyError) -> PolicyError {
        let Some(written) = &self.0 else { return problem };
        if !is_as_read(about, draft, &written.read) {
            return problem;
        }
        match written.offset(about) {
            Some(offset) => {
                PolicyError::At { at: Place::in_text(&written.text, offset), problem: Box::new(problem) }
            }
            None => problem,
        }
    }
}

impl Written {
    /// Of the item, else of its list, else of its section.
    fn offset(&self, about: &str) -> Option<usize> {
        let list = about.split('[').next().unwrap_or(about);
        let section = list.split('.').next().unwrap_or(list);
        [about, list, section].into_iter().find_map(|key| self.keys.get(key)).copied()
    }
}

/// Whether a key says in both what it says in the other.
fn is_as_read(about: &str, draft: &Draft, read: &Draft) -> bool {
    let index = || about.split(['[', ']']).nth(1).and_then(|number| number.parse::<usize>().ok());
    let (list, section) = (about.split('[').next(), about.split('.').next());
    match (list, section) {
        (Some("network.allow"), _) if let Some(index) = index() => {
            draft.network.allow.get(index) == read.network.allow.get(index)
        }
        (Some("credentials.bind"), _) if let Some(index) = index() => {
            draft.credentials.bind.get(index) == read.credentials.bind.get(index)
        }
        (Some("network.mode"), _) => draft.network.mode == read.network.mode,
        (_, Some("kernel")) => draft.kernel == read.kernel,
        (_, Some("files")) => draft.files == read.files,
        (_, Some("network")) => draft.network == read.network,
        (_, Some("credentials")) => draft.credentials == read.credentials,
        (_, Some("lifetime")) => draft.lifetime == read.lifetime,
        _ => draft.accepted == read.accepted,
    }
}
