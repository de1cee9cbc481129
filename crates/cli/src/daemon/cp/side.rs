//! Where something is copied from or to: a path of this host, or one in a box.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::str::FromStr;

use blastbox_wire::BoxId;

/// `PATH` or `BOX:PATH`.
#[derive(Debug, Clone)]
pub(crate) enum Side {
    Host(PathBuf),
    Box(BoxFile),
}

/// A path in a box. Bytes: what a box calls its files need not be text.
#[derive(Debug, Clone)]
pub(crate) struct BoxFile {
    id: BoxId,
    path: Vec<u8>,
}

impl From<OsString> for Side {
    fn from(text: OsString) -> Self {
        let bytes = text.into_vec();
        let colon = bytes.iter().position(|&byte| byte == b':');
        let id = colon
            .and_then(|at| std::str::from_utf8(bytes.get(..at)?).ok())
            .and_then(|name| BoxId::from_str(name).ok());
        match (id, colon) {
            (Some(id), Some(at)) => {
                let path = bytes.get(at.saturating_add(1)..).unwrap_or_default();
                // Nothing is where its commands start.
                let path = if path.is_empty() { b".".to_vec() } else { path.to_vec() };
                Self::Box(BoxFile { id, path })
            }
            _ => Self::Host(OsString::from_vec(bytes).into()),
        }
    }
}

impl BoxFile {
    /// The address of a question about it.
    pub(crate) fn route(&self, which: &str, more: &str) -> String {
        let mut text = format!("/v1/boxes/{}/files{which}?path=", self.id.as_str());
        for &byte in &self.path {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                    text.push(char::from(byte));
                }
                // Writing to a string cannot fail.
                _ => drop(write!(text, "%{byte:02X}")),
            }
        }
        text.push_str(more);
        text
    }

    /// Its last name; `None` where what is in it is meant and not itself, as with `.`, `..`, `dir/.` and `/`.
    pub(crate) fn name(&self) -> Option<&[u8]> {
        last_name(&self.path)
    }

    /// Whether it can only be a directory.
    pub(crate) fn names_a_directory(&self) -> bool {
        self.path.ends_with(b"/") || self.name().is_none()
    }

    pub(crate) fn join(&self, name: &[u8]) -> Self {
        let between: &[u8] = if self.path.ends_with(b"/") { b"" } else { b"/" };
        Self { id: self.id.clone(), path: [&self.path, between, name].concat() }
    }

    /// The same with the path that the daemon gave it, where it is text.
    pub(crate) fn shown_at(&self, path: Option<&str>) -> String {
        path.map_or_else(|| self.shown(), |path| format!("{}:{path}", self.id.as_str()))
    }

    pub(crate) fn shown(&self) -> String {
        format!("{}:{}", self.id.as_str(), String::from_utf8_lossy(&self.path))
    }
}

/// The last name of a path, if it has one.
pub(super) fn last_name(path: &[u8]) -> Option<&[u8]> {
    let end = path.iter().rposition(|&byte| byte != b'/')?;
    let path = path.get(..=end)?;
    let name = path.rsplit(|&byte| byte == b'/').next()?;
    (!matches!(name, b"." | b"..")).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_is_told_from_a_path_by_its_form() {
        let id = "bx_aaaaaaaaaaaaaaaaaaaa";
        let side = |text: &str| Side::from(OsString::from(text));
        assert!(matches!(side("a:b"), Side::Host(path) if path == *"a:b"));
        assert!(matches!(side("./bx_aaaaaaaaaaaaaaaaaaaa:x"), Side::Host(_)));
        let Side::Box(home) = side(&format!("{id}:")) else { panic!("no box") };
        assert_eq!((home.path.as_slice(), home.names_a_directory()), (b".".as_slice(), true));
        let Side::Box(odd) = side(&format!("{id}:/a b&c\n")) else { panic!("no box") };
        assert_eq!(odd.route("/stat", "&x=1"), format!("/v1/boxes/{id}/files/stat?path=/a%20b%26c%0A&x=1"));
    }

    #[test]
    fn a_name_is_the_last_one_and_dots_are_none() {
        for (path, name) in [
            ("a", Some("a")),
            ("/a/b", Some("b")),
            ("a/b//", Some("b")),
            ("a/.", None),
            ("..", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(last_name(path.as_bytes()), name.map(str::as_bytes), "{path}");
        }
    }
}
