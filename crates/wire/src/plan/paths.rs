//! Paths inside a box. One that exists as a value cannot leave the root.

use std::fmt;
use std::str::FromStr;

use crate::limits::MAX_PATH;

/// An absolute path inside a box: no `.` or `..`, no empty part, no NUL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestPath(String);

/// The text is not a plain absolute path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a plain absolute path (no `..`, no empty part, at most {MAX_PATH} bytes)")]
pub struct BadPath;

impl GuestPath {
    /// The whole path.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
    /// The path from the root on, without the leading slash; what is handed to the `…at` calls.
    #[must_use]
    pub fn relative(&self) -> &str {
        self.0.trim_start_matches('/')
    }
    /// The parts of the path.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.relative().split('/')
    }
}

/// A path without empty parts, `.` and `..`, as text alone says it: absolute, and never above the root.
#[must_use]
pub fn plain(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

impl FromStr for GuestPath {
    type Err = BadPath;
    fn from_str(text: &str) -> Result<Self, BadPath> {
        let inner = text.strip_prefix('/').ok_or(BadPath)?;
        let plain =
            inner.split('/').all(|part| !matches!(part, "" | "." | "..") && !part.bytes().any(|b| b == 0));
        if plain && text.len() <= MAX_PATH { Ok(Self(text.to_owned())) } else { Err(BadPath) }
    }
}

impl fmt::Display for GuestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for GuestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(feature = "text")]
impl serde::Serialize for GuestPath {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_path_never_leads_above_the_root() {
        for (given, is) in [("/a//./b/../c/", "/a/c"), ("../../x", "/x"), ("", "/"), ("/..", "/")] {
            assert_eq!(plain(given), is, "{given}");
        }
    }

    #[test]
    fn dotdot_cannot_leave_the_root() {
        for bad in ["", "/", "usr", "/..", "/usr/../etc", "/usr//lib", "/usr/", "/a\0b", "/."] {
            assert_eq!(bad.parse::<GuestPath>(), Err(BadPath), "{bad}");
        }
        for good in ["/usr", "/usr/lib/..foo", "/home/user"] {
            assert!(good.parse::<GuestPath>().is_ok(), "{good}");
        }
    }
}
