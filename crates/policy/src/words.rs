//! Closed vocabularies: one spelling per variant for display, parsing, files and receipts.

use std::fmt;

/// The longest word that is repeated in a message or compared for a suggestion.
const LONGEST_ECHO: usize = 64;

/// A word that a closed vocabulary does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownWord {
    /// What the word should have named, such as `threat level`.
    pub what: &'static str,
    /// The word as it was given, cut where it is absurdly long.
    pub word: String,
    /// Every word that would have been understood.
    pub valid: Vec<&'static str>,
    /// The valid word that was probably meant.
    pub nearest: Option<&'static str>,
}

impl UnknownWord {
    pub(crate) fn new(what: &'static str, word: &str, valid: &[&'static str]) -> Self {
        Self { what, word: clip(word), valid: valid.to_vec(), nearest: nearest(word, valid) }
    }
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `{:?}` escapes: the word may come from a file or command line that is shown on a terminal.
        write!(f, "unknown {} {:?}; expected {}", self.what, self.word, one_of(&self.valid))?;
        f.write_str(&did_you_mean(self.nearest))
    }
}

impl std::error::Error for UnknownWord {}

/// `"a"`, or `one of "a", "b"`.
pub(crate) fn one_of(valid: &[&str]) -> String {
    let quoted: Vec<String> = valid.iter().map(|word| format!("{word:?}")).collect();
    match quoted.as_slice() {
        [only] => only.clone(),
        _ => format!("one of {}", quoted.join(", ")),
    }
}

/// The tail of a message about an unknown word; empty when nothing is near enough.
pub(crate) fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map(|word| format!("; did you mean {word:?}?")).unwrap_or_default()
}

/// Cuts text that is echoed in a message.
pub(crate) fn clip(text: &str) -> String {
    match text.char_indices().nth(LONGEST_ECHO).and_then(|(end, _)| text.get(..end)) {
        Some(head) => format!("{head}…"),
        None => text.to_owned(),
    }
}

/// The valid word that is nearest, if it is near: a third of the letters may differ, or two (one swap of
/// neighbours), but never all of them.
pub(crate) fn nearest(word: &str, valid: &[&'static str]) -> Option<&'static str> {
    let letters = word.chars().count();
    if letters > LONGEST_ECHO {
        return None;
    }
    let plain = word.to_lowercase().replace('_', "-");
    valid
        .iter()
        .map(|candidate| (distance(&plain, &candidate.replace('_', "-")), *candidate))
        .filter(|(far, candidate)| {
            *far < letters.min(candidate.len()) && *far <= (letters.max(candidate.len()) / 3).max(2)
        })
        .min_by_key(|(far, _)| *far)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's edit distance, one row at a time.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut next = vec![i + 1];
        let mut last = i + 1;
        for (pair, b) in row.windows(2).zip(&right) {
            let &[diagonal, above] = pair else { continue };
            let swap = diagonal + usize::from(a != *b);
            last = swap.min(above + 1).min(last + 1);
            next.push(last);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

/// Gives an enum without data its words: `ALL`, `as_str`, `Display`, `FromStr` and, with `text`, serde.
/// The match in `as_str` is exhaustive, so a variant without a word does not compile.
macro_rules! spoken {
    ($name:ident, $what:literal, { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl $name {
            /// Every value, in order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// Every word, in the same order.
            pub(crate) const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word for it in files, on the command line and in receipts.
            pub const fn as_str(&self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::words::UnknownWord;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err($crate::words::UnknownWord::new($what, text, Self::WORDS)),
                }
            }
        }

        $crate::words::serde_as_text!($name);
    };
}

/// Serde through `Display` and `FromStr`, so that a file and a receipt cannot spell a word differently.
macro_rules! serde_as_text {
    ($name:ident) => {
        #[cfg(feature = "text")]
        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        #[cfg(feature = "text")]
        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <::std::borrow::Cow<'de, str> as ::serde::Deserialize>::deserialize(from)?;
                text.parse().map_err(<D::Error as ::serde::de::Error>::custom)
            }
        }
    };
}

pub(crate) use serde_as_text;
pub(crate) use spoken;

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &[&str] = &["shared-kernel", "shared-uid", "memory"];

    #[test]
    fn distance_counts_single_edits() {
        assert_eq!(distance("", ""), 0);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", ""), 3);
        assert_eq!(distance("memroy", "memory"), 2);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn a_slip_is_suggested() {
        assert_eq!(nearest("memroy", WORDS), Some("memory"));
        assert_eq!(nearest("SHARED_KERNEL", WORDS), Some("shared-kernel"));
    }

    #[test]
    fn a_stranger_is_not_suggested() {
        assert_eq!(nearest("banana", WORDS), None);
        assert_eq!(nearest("", WORDS), None);
    }

    #[test]
    fn an_absurdly_long_word_is_neither_compared_nor_repeated() {
        let long = "m".repeat(10_000);
        let unknown = UnknownWord::new("gap", &long, WORDS);
        assert_eq!(unknown.nearest, None);
        assert!(unknown.to_string().len() < 300);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let shown = UnknownWord::new("gap", "\u{1b}[2J", WORDS).to_string();
        assert!(!shown.contains('\u{1b}'), "{shown}");
    }
}
