//! An entry of a directory, as E2B shows it. Pure.

use std::cmp::Ordering;

use blastbox_wire::agent::{Beyond, Entry, EntryKind, Link};
use serde_json::{Map, Value, json};

use crate::e2b::envd::marks::Mark;
use crate::e2b::envd::paths;
use crate::e2b::moment;

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
const STICKY: u32 = 0o1000;

/// Everything about an entry. Of a link, size, permissions and times are its own; kind and mode are those of what it
/// leads to.
pub(super) fn show(path: &str, entry: &Entry, mark: Option<Mark>) -> Value {
    let mut shown = Map::new();
    let mut put = |name: &str, value: Value| {
        shown.insert(name.to_owned(), value);
    };
    let beyond = entry.link.as_ref().map(|Link { beyond, .. }| beyond.as_ref());
    let (kind, mode) = match beyond {
        None => (file_type(entry.kind), entry.mode),
        Some(Some(Beyond { kind, mode, .. })) => (file_type(*kind), *mode),
        // It leads nowhere.
        Some(None) => ("FILE_TYPE_UNSPECIFIED", entry.mode),
    };
    put("name", json!(paths::name(path)));
    put("type", json!(kind));
    put("path", json!(path));
    put("size", json!(entry.size.to_string()));
    put("mode", json!(mode & 0o777));
    put("permissions", json!(permissions(entry.kind, entry.mode)));
    put("owner", json!(name_of(entry.uid, "nobody")));
    put("group", json!(name_of(entry.gid, "nogroup")));
    put("modifiedTime", json!(moment::text_of_nanos(entry.modified_nanos)));
    if let Some(beyond) = beyond {
        let target = beyond.map(|beyond| beyond.path.as_slice()).filter(|path| !path.is_empty());
        let target =
            target.map_or_else(|| path.to_owned(), |target| String::from_utf8_lossy(target).into_owned());
        put("symlinkTarget", json!(target));
    }
    if let Some(mark) = mark.filter(|mark| !mark.is_empty()) {
        put("metadata", json!(mark));
    }
    Value::Object(shown)
}

const fn file_type(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "FILE_TYPE_FILE",
        EntryKind::Directory => "FILE_TYPE_DIRECTORY",
        EntryKind::Link => "FILE_TYPE_SYMLINK",
        EntryKind::Other => "FILE_TYPE_UNSPECIFIED",
    }
}

/// The names that every box has.
fn name_of(id: u32, nobody: &str) -> String {
    match id {
        0 => "root".to_owned(),
        1000 => "user".to_owned(),
        65_534 => nobody.to_owned(),
        other => other.to_string(),
    }
}

/// As Go writes them: letters for what it is, then nine for who may.
fn permissions(kind: EntryKind, mode: u32) -> String {
    let flags = [
        (kind == EntryKind::Directory, 'd'),
        (kind == EntryKind::Link, 'L'),
        (mode & SETUID != 0, 'u'),
        (mode & SETGID != 0, 'g'),
        (mode & STICKY != 0, 't'),
    ];
    let mut text: String = flags.iter().filter(|(holds, _)| *holds).map(|(_, letter)| *letter).collect();
    if text.is_empty() {
        text.push('-');
    }
    for (place, letter) in "rwxrwxrwx".chars().enumerate() {
        text.push(if mode & (0o400 >> place) != 0 { letter } else { '-' });
    }
    text
}

/// The order of names, each directory before what is in it.
pub(super) fn in_order(left: &[u8], right: &[u8]) -> Ordering {
    left.split(|byte| *byte == b'/').cmp(right.split(|byte| *byte == b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: EntryKind, mode: u32, link: Option<Link>) -> Entry {
        Entry { path: Vec::new(), kind, size: 5, mode, uid: 1000, gid: 65_534, modified_nanos: 1, link }
    }

    #[test]
    fn permissions_are_written_as_go_writes_them() {
        for (kind, mode, text) in [
            (EntryKind::File, 0o644, "-rw-r--r--"),
            (EntryKind::Directory, 0o755, "drwxr-xr-x"),
            (EntryKind::Link, 0o777, "Lrwxrwxrwx"),
            (EntryKind::Directory, 0o1777, "dtrwxrwxrwx"),
            (EntryKind::File, 0o4755, "urwxr-xr-x"),
        ] {
            assert_eq!(permissions(kind, mode), text);
        }
    }

    #[test]
    fn a_link_is_described_by_what_it_leads_to() {
        let beyond = Beyond { kind: EntryKind::Directory, mode: 0o700, path: b"/tmp/d".to_vec() };
        let link = Link { text: b"d".to_vec(), beyond: Some(beyond) };
        let shown = show("/tmp/l", &entry(EntryKind::Link, 0o777, Some(link)), None);
        assert_eq!((&shown["type"], &shown["mode"]), (&json!("FILE_TYPE_DIRECTORY"), &json!(0o700)));
        assert_eq!(
            (&shown["permissions"], &shown["symlinkTarget"]),
            (&json!("Lrwxrwxrwx"), &json!("/tmp/d"))
        );
        let dangling = Link { text: b"x".to_vec(), beyond: None };
        let shown = show("/tmp/l", &entry(EntryKind::Link, 0o777, Some(dangling)), None);
        assert_eq!(
            (&shown["type"], &shown["symlinkTarget"]),
            (&json!("FILE_TYPE_UNSPECIFIED"), &json!("/tmp/l"))
        );
    }

    #[test]
    fn a_file_says_who_owns_it_and_what_is_written_on_it() {
        let mark = Mark::from([("k".to_owned(), "v".to_owned())]);
        let shown = show("/a/b", &entry(EntryKind::File, 0o640, None), Some(mark));
        assert_eq!(
            (&shown["name"], &shown["size"], &shown["owner"]),
            (&json!("b"), &json!("5"), &json!("user"))
        );
        assert_eq!((&shown["group"], &shown["metadata"]["k"]), (&json!("nogroup"), &json!("v")));
        assert!(shown.get("symlinkTarget").is_none() && shown.get("isSymlink").is_none());
    }

    #[test]
    fn a_directory_comes_before_what_is_in_it() {
        let mut names = vec![&b"a-b"[..], b"a/c", b"a", b"b", b"a/b"];
        names.sort_by(|left, right| in_order(left, right));
        assert_eq!(names, [&b"a"[..], b"a/b", b"a/c", b"a-b", b"b"]);
    }
}
