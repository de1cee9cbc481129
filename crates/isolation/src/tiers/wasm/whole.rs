//! Whether the guests of a shelf are what their manifests say: every byte is hashed, by the compiler, which knows how.

use std::ffi::OsString;
use std::io;

use super::compile::COMPILER;
use super::{Compilers, Guests};
use crate::outside::{self, Compiler};

/// Most of what the compiler says that is read on.
const MOST_SAID: usize = 16 * 1024;

/// What is wrong with a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Nothing, but that each box hashes it once more.
    Unsealed(String),
    /// It is not what its manifest says, or the manifest is of another version: why.
    Broken(String, String),
}

/// Has every guest of the shelf hashed. What is wrong with some of them.
pub(crate) fn flaws(guests: &Guests) -> io::Result<Vec<Flaw>> {
    let program = guests.directory().join(COMPILER);
    let words = vec![OsString::from("check"), guests.directory().into()];
    let heard =
        outside::compile(Compiler { program, words }).and_then(|child| Compilers::default().hear(child))?;
    if !heard.status.success() {
        let said: String = String::from_utf8_lossy(&heard.stderr).chars().take(200).collect();
        return Err(io::Error::other(said.trim().to_owned()));
    }
    let said: String = String::from_utf8_lossy(&heard.stdout).chars().take(MOST_SAID).collect();
    Ok(said.lines().filter_map(flaw).collect())
}

fn flaw(line: &str) -> Option<Flaw> {
    match line.split_once(' ')? {
        (_, "whole") => None,
        (name, "unsealed") => Some(Flaw::Unsealed(name.to_owned())),
        (name, why) => Some(Flaw::Broken(name.to_owned(), why.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_whole_is_no_flaw() {
        assert_eq!(flaw("js whole"), None);
        assert_eq!(flaw("python unsealed"), Some(Flaw::Unsealed("python".to_owned())));
        let broken = Flaw::Broken("x.metered".to_owned(), "wasm_artefact_changed: it is".to_owned());
        assert_eq!(flaw("x.metered wasm_artefact_changed: it is"), Some(broken));
    }
}
