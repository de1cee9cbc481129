//! What a copy leaves out: all of it counted, and the first of it named.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blastbox_wire::limits::MAX_LEFT_OUT;
use hyper::HeaderMap;
use serde::{Deserialize, Serialize};

/// What the daemon says behind the last bytes of an archive.
const SKIPPED: &str = "blastbox-skipped";
const LEFT_OUT: &str = "blastbox-left-out";
/// Names in one line for a person.
const SHOWN: usize = 5;

/// What was left out.
#[derive(Debug, Default, Serialize)]
pub(super) struct LeftOut {
    skipped: u64,
    /// The first of them.
    left_out: Vec<Name>,
}

/// A name: text, or base64 where it is none.
#[derive(Debug, Serialize, Deserialize)]
struct Name {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path_base64: Option<String>,
}

impl Name {
    fn shown(&self) -> String {
        let other = || {
            let bytes = STANDARD.decode(self.path_base64.as_deref().unwrap_or_default()).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        // A box chooses its names, and a terminal does what it is told.
        format!("{:?}", self.path.clone().unwrap_or_else(other))
    }
}

impl LeftOut {
    /// One more.
    pub(super) fn add(&mut self, path: &[u8]) {
        self.skipped = self.skipped.saturating_add(1);
        if self.left_out.len() < MAX_LEFT_OUT {
            let (path, path_base64) = match std::str::from_utf8(path) {
                Ok(text) => (Some(text.to_owned()), None),
                Err(_) => (None, Some(STANDARD.encode(path))),
            };
            self.left_out.push(Name { path, path_base64 });
        }
    }

    /// What both have left out.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.skipped = self.skipped.saturating_add(other.skipped);
        self.left_out.extend(other.left_out);
        self.left_out.truncate(MAX_LEFT_OUT);
        self
    }

    /// What a box has left out of its archive.
    pub(super) fn said_by(trailers: &HeaderMap) -> Self {
        let text = |name: &str| trailers.get(name).and_then(|value| value.to_str().ok());
        let skipped = text(SKIPPED).and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut left_out: Vec<Name> =
            text(LEFT_OUT).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        left_out.truncate(MAX_LEFT_OUT);
        Self { skipped, left_out }
    }

    pub(super) fn count(&self) -> u64 {
        self.skipped
    }

    /// A line about it; `None` where everything was copied.
    pub(super) fn line(&self) -> Option<String> {
        let entries = match self.skipped {
            0 => return None,
            1 => "1 entry was".to_owned(),
            many => format!("{many} entries were"),
        };
        let mut names: Vec<String> = self.left_out.iter().take(SHOWN).map(Name::shown).collect();
        let more = self.skipped.saturating_sub(u64::try_from(names.len()).unwrap_or(u64::MAX));
        if more > 0 && !names.is_empty() {
            names.push(format!("and {more} more"));
        }
        let (colon, names) = if names.is_empty() { ("", String::new()) } else { (": ", names.join(", ")) };
        Some(format!(
            "{entries} left out (not readable, a link that leads elsewhere, or neither file, directory nor link){colon}{names}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_counted_and_the_first_are_named() {
        let mut out = LeftOut::default();
        assert_eq!(out.line(), None);
        out.add(b"a\x1b[2J");
        out.add(b"\xff");
        let line = out.line().unwrap();
        assert!(
            line.starts_with("2 entries were left out") && line.ends_with(": \"a\\u{1b}[2J\", \"\u{fffd}\""),
            "{line}"
        );
        for _ in 0..100 {
            out.add(b"x");
        }
        let shown = serde_json::to_value(&out).unwrap();
        assert_eq!(
            (&shown["skipped"], shown["left_out"].as_array().unwrap().len()),
            (&102.into(), MAX_LEFT_OUT)
        );
        assert_eq!(shown["left_out"][1], serde_json::json!({ "path_base64": "/w==" }));
        assert!(out.line().unwrap().ends_with("and 97 more"));
    }

    #[test]
    fn what_a_daemon_says_is_taken_as_far_as_it_makes_sense() {
        let said = |skipped: &str, names: &str| {
            let trailers = [(SKIPPED, skipped), (LEFT_OUT, names)]
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            LeftOut::said_by(&HeaderMap::from_iter(trailers))
        };
        assert!(
            said("3", r#"[{"path":"a"},{"path_base64":"/w=="}]"#).line().unwrap().ends_with("and 1 more")
        );
        assert_eq!(said("2", "nonsense").count(), 2);
        assert!(said("1", "nonsense").line().unwrap().ends_with("nor link)"));
        assert_eq!(LeftOut::said_by(&HeaderMap::new()).count(), 0);
    }
}
