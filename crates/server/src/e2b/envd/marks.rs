//! What an owner wrote on files when uploading them ("metadata"). Kept beside the box, and gone with it.
//!
//! E2B keeps it in extended attributes of the file; here it follows uploads, moves and removals that are asked for
//! through this face, and programs in the box do not see it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::http::HeaderMap;

use super::paths;
use crate::e2b::no::No;

const PREFIX: &str = "x-metadata-";
/// The prefix that each key has in an extended attribute, which counts.
const ATTRIBUTE: &str = "user.e2b.";
const LONGEST_KEY: usize = 246;
const MOST_BYTES: usize = 4_096;
/// Files of one sandbox that something is written on, and bytes of all of it with their names.
const MOST_FILES: usize = 10_000;
const MOST_KEPT: usize = 1024 * 1024;

pub(crate) type Mark = BTreeMap<String, String>;

/// What is written on the files of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Marks(Mutex<BTreeMap<String, Mark>>);

/// What the headers of an upload say. Of a header that repeats, the first counts.
pub(super) fn from_headers(headers: &HeaderMap) -> Result<Mark, No> {
    let mut mark = Mark::new();
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix(PREFIX) else { continue };
        let printable = |byte: &u8| (0x20..=0x7e).contains(byte);
        if key.is_empty() || key.len() > LONGEST_KEY {
            return Err(No::bad(format!("a metadata key has 1 to {LONGEST_KEY} bytes")));
        }
        if !value.as_bytes().iter().all(printable) {
            return Err(No::bad(format!("metadata '{key}' has a character that is not printable ASCII")));
        }
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        mark.entry(key.to_owned()).or_insert(value);
    }
    let size: usize = mark.iter().map(|(key, value)| key.len() + value.len() + ATTRIBUTE.len()).sum();
    if size > MOST_BYTES {
        return Err(No::bad(format!("metadata has {size} bytes; at most {MOST_BYTES} are kept")));
    }
    Ok(mark)
}

impl Marks {
    /// All of them, for a copy of the sandbox.
    pub(crate) fn copied(&self) -> BTreeMap<String, Mark> {
        self.all().clone()
    }

    pub(crate) fn set(&self, marks: BTreeMap<String, Mark>) {
        *self.all() = marks;
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Mark>> {
        // Nobody panics while holding it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is written on a file.
    pub(crate) fn on(&self, path: &str) -> Option<Mark> {
        self.all().get(&paths::plain(path)).cloned()
    }

    /// Replaces what was written on it. `false`: there is no room for more.
    pub(super) fn put(&self, path: &str, mark: Mark) -> bool {
        let (path, mut all) = (paths::plain(path), self.all());
        if mark.is_empty() {
            all.remove(&path);
            return true;
        }
        let others = all.iter().filter(|(file, _)| **file != path);
        let (files, bytes) =
            others.fold((0, 0), |(files, bytes), (file, mark)| (files + 1, bytes + cost(file, mark)));
        let room = files < MOST_FILES && bytes + cost(&path, &mark) <= MOST_KEPT;
        if room {
            all.insert(path, mark);
        }
        room
    }

    /// A file, or everything beneath a directory, is gone.
    pub(crate) fn removed(&self, path: &str) {
        let path = paths::plain(path);
        self.all().retain(|file, _| !is_at_or_beneath(file, &path));
    }

    /// It has another name now, and what was there is gone.
    pub(crate) fn moved(&self, from: &str, to: &str) {
        let (from, to) = (paths::plain(from), paths::plain(to));
        if from == to {
            return;
        }
        self.removed(&to);
        let mut all = self.all();
        let old: Vec<String> = all.keys().filter(|file| is_at_or_beneath(file, &from)).cloned().collect();
        for file in old {
            let rest = file.strip_prefix(&from).unwrap_or_default().to_owned();
            if let Some(mark) = all.remove(&file) {
                all.insert(format!("{to}{rest}"), mark);
            }
        }
        // A longer name may be more than there is room for. The move is done; what does not fit is not kept.
        let mut bytes = 0;
        all.retain(|file, mark| {
            bytes += cost(file, mark);
            bytes <= MOST_KEPT
        });
    }
}

fn cost(path: &str, mark: &Mark) -> usize {
    path.len() + mark.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>()
}

fn is_at_or_beneath(file: &str, directory: &str) -> bool {
    match file.strip_prefix(directory) {
        Some(rest) => rest.is_empty() || rest.starts_with('/') || directory == "/",
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&str, &[u8])]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_bytes(value).unwrap());
        }
        map
    }

    #[test]
    fn headers_become_marks_and_the_first_of_two_counts() {
        let mark = from_headers(&headers(&[
            ("X-Metadata-Author", b"a"),
            ("x-metadata-author", b"b"),
            ("other", b"c"),
        ]));
        assert_eq!(mark.unwrap(), Mark::from([("author".to_owned(), "a".to_owned())]));
        for bad in [
            vec![("x-metadata-a", "é".as_bytes())],
            vec![("x-metadata-", b"a".as_slice())],
            vec![("x-metadata-a", [b'x'; 4090].as_slice())],
        ] {
            assert_eq!(from_headers(&headers(&bad)).unwrap_err().status(), 400, "{bad:?}");
        }
        assert!(from_headers(&headers(&[("x-metadata-a", &[b'x'; 4086])])).is_ok());
        let long = format!("x-metadata-{}", "k".repeat(247));
        assert!(from_headers(&headers(&[(&long, b"")])).is_err());
    }

    #[test]
    fn marks_follow_their_files() {
        let (marks, mark) = (Marks::default(), Mark::from([("k".to_owned(), "v".to_owned())]));
        assert!(
            marks.put("/d/a", mark.clone())
                && marks.put("/d/e/b", mark.clone())
                && marks.put("/da", mark.clone())
        );
        marks.moved("/d", "/x/../y");
        assert_eq!(
            (marks.on("/y/a"), marks.on("/y/e/./b"), marks.on("/d/a")),
            (Some(mark.clone()), Some(mark.clone()), None)
        );
        marks.removed("/y/e");
        assert_eq!(
            (marks.on("/y/e/b"), marks.on("/y/a"), marks.on("/da")),
            (None, Some(mark.clone()), Some(mark))
        );
        assert!(marks.put("/da", Mark::new()));
        assert_eq!(marks.on("/da"), None);
    }

    #[test]
    fn marks_and_names_together_have_only_so_many_bytes() {
        let (marks, mark) = (Marks::default(), Mark::from([("k".to_owned(), "v".repeat(4_000))]));
        let kept = (0..MOST_FILES).take_while(|n| marks.put(&format!("/d/{n}"), mark.clone())).count();
        assert!((200..300).contains(&kept), "{kept}");
        assert!(marks.put("/d/0", mark.clone()), "one that is there is replaced");
        assert!(!marks.put("/e", mark.clone()) && marks.put("/e", Mark::new()));
        marks.moved("/d", &format!("/{}", "n".repeat(4_000)));
        let bytes: usize = marks.all().iter().map(|(file, mark)| cost(file, mark)).sum();
        assert!(bytes <= MOST_KEPT, "{bytes}");
    }
}
