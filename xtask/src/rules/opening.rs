//! Rule `opening`: the first line of every Rust file says what the file is.

use super::Finding;
use crate::house::House;

pub(super) fn check(house: &House) -> Vec<Finding> {
    house
        .rust()
        .filter(|file| {
            let first = file.text.lines().next().unwrap_or_default();
            first.strip_prefix("//!").is_none_or(|words| words.trim().is_empty())
        })
        .map(|file| {
            Finding::new(&file.path, 1, "opening", "begin with `//!` and one sentence on what this file is")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> usize {
        check(&House::of(&[("crates/wire/build.rs", text)])).len()
    }

    #[test]
    fn a_file_that_does_not_introduce_itself_is_found() {
        for text in ["", "fn main() {}\n", "// Plans.\n", "//!\n//! Plans.\n", "\n//! Plans.\n"] {
            assert_eq!(findings(text), 1, "{text:?}");
        }
    }

    #[test]
    fn a_file_that_introduces_itself_passes() {
        assert_eq!(findings("//! Plans.\nfn main() {}\n"), 0);
    }
}
