//! What a box did that somebody should hear of, counted by kind and bounded whatever it does.
//!
//! Numbers and paths come from a guest: beyond what is told apart they are counted as one, and none goes uncounted.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use blastbox_wire::agent::Oddity;
use blastbox_wire::limits::MAX_WRITE_PATHS;

/// Different system calls that are told apart. No kernel has so many; a guest's numbers might.
const MOST_CALLS: usize = 512;
/// The number that stands for all that are not told apart.
const ANY_OTHER: u32 = u32::MAX;

/// Something that a box can do again and again, in more kinds than anybody wants to hear of.
pub(crate) trait Kind: Ord + Clone {
    /// Kinds that are told apart.
    const MOST: usize;
    /// What stands for it where they are not.
    fn together(&self) -> Self;
    /// How many are counted already with which it shares that bound.
    fn alike<V>(&self, counted: &BTreeMap<Self, V>) -> usize {
        counted.len()
    }
}

/// A denied system call, by its number.
impl Kind for u32 {
    const MOST: usize = MOST_CALLS;
    fn together(&self) -> Self {
        ANY_OTHER
    }
}

/// A write where nobody expects it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wrote {
    pub(crate) oddity: Oddity,
    /// Escaped, and no longer than the agent may say it; empty where it is not known.
    pub(crate) path: String,
    /// The call, by its number.
    pub(crate) number: u32,
}

impl Kind for Wrote {
    const MOST: usize = MAX_WRITE_PATHS;
    fn together(&self) -> Self {
        Self { oddity: self.oddity, path: String::new(), number: ANY_OTHER }
    }
    /// Those of its own reason: noise of one must not hide another.
    fn alike<V>(&self, counted: &BTreeMap<Self, V>) -> usize {
        counted.keys().filter(|other| other.oddity == self.oddity).count()
    }
}

impl Wrote {
    /// As an agent told it.
    pub(crate) fn told(oddity: Oddity, number: u32, path: &[u8]) -> Self {
        Self { oddity, path: escaped(path), number }
    }

    /// The call's name, or its number where it has none.
    pub(crate) fn syscall(&self) -> String {
        name_of(self.number)
    }
}

/// A call's name, or its number where it has none.
pub(crate) fn name_of(number: u32) -> String {
    blastbox_isolation::syscall_name(number).map_or_else(|| number.to_string(), ToOwned::to_owned)
}

/// Where something is counted: under its own kind, or under the one of all others.
pub(crate) fn place<K: Kind, V>(counted: &BTreeMap<K, V>, kind: K) -> K {
    if counted.contains_key(&kind) || kind.alike(counted) < K::MOST { kind } else { kind.together() }
}

/// Counts something that was done.
pub(crate) fn add<K: Kind>(counted: &mut BTreeMap<K, u64>, kind: K, count: u64) {
    let kind = place(counted, kind);
    let known = counted.entry(kind).or_default();
    *known = known.saturating_add(count);
}

/// What was done since somebody asked last.
#[derive(Debug, Default)]
pub(crate) struct Deeds {
    pub(crate) denied: BTreeMap<u32, u64>,
    pub(crate) wrote: BTreeMap<Wrote, u64>,
}

/// Marks that turn the direction of writing or are not seen, and lines that are none.
fn is_mark(letter: char) -> bool {
    matches!(letter, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Text of a guest without anything that a terminal or a log would take for more than text.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter.is_control() || is_mark(letter) || letter == '\\' {
                text.extend(letter.escape_default());
            } else {
                text.push(letter);
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            write!(text, "\\x{byte:02x}").ok();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_without_end_are_counted_as_one_and_none_goes_uncounted() {
        let (mut calls, mut writes) = (BTreeMap::new(), BTreeMap::new());
        for number in 0..100_000 {
            add(&mut calls, number, 2);
            let oddity = Oddity::ALL[usize::try_from(number).unwrap() % 3];
            add(&mut writes, Wrote::told(oddity, number, format!("/etc/{number}").as_bytes()), 2);
        }
        assert_eq!((calls.len(), calls.values().sum()), (MOST_CALLS + 1, 200_000_u64));
        assert_eq!(writes.len(), (MAX_WRITE_PATHS + 1) * Oddity::ALL.len());
        assert_eq!(writes.values().sum::<u64>(), 200_000);
    }

    #[test]
    fn noise_of_one_reason_hides_no_path_of_another() {
        let mut writes = BTreeMap::new();
        for number in 0..=MAX_WRITE_PATHS {
            add(&mut writes, Wrote::told(Oddity::Outside, 257, format!("/etc/{number}").as_bytes()), 1);
        }
        let trusted = Wrote::told(Oddity::PoisonsTools, 257, b"/workspace/.git/config");
        add(&mut writes, trusted.clone(), 3);
        assert_eq!(writes.get(&trusted), Some(&3));
        assert_eq!(writes.get(&Wrote::told(Oddity::Outside, 257, b"/x").together()), Some(&1));
        assert_eq!(writes.len(), MAX_WRITE_PATHS + 2);
    }

    #[test]
    fn a_path_cannot_speak_to_a_terminal() {
        for (path, shown) in [
            (&b"/etc/pass wd"[..], "/etc/pass wd"),
            (b"/tmp/\x1b[2J\n", "/tmp/\\u{1b}[2J\\n"),
            (b"/a\xff\xc3b\\", "/a\\xff\\xc3b\\\\"),
            ("/ä/\u{202e}x".as_bytes(), "/ä/\\u{202e}x"),
            ("/\u{2066}a\u{200f}\u{61c}\u{feff}".as_bytes(), "/\\u{2066}a\\u{200f}\\u{61c}\\u{feff}"),
        ] {
            assert_eq!(escaped(path), shown);
        }
    }
}
