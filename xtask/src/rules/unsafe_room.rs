//! Rule `unsafe`: the word stands in the unsafe room only, whatever a lint attribute says elsewhere.

use super::Finding;
use crate::house::House;

const ROOM: &str = "crates/sys/";
/// The one file outside it: Wasmtime loads machine code by an unsafe function only, and nothing but the worker may link Wasmtime.
const EXCEPTION: &str = "crates/wasm/src/machine_code.rs";

pub(super) fn check(house: &House) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in house.rust().filter(|file| !file.path.starts_with(ROOM) && file.path != EXCEPTION) {
        for (number, line) in (1..).zip(&file.source().lines) {
            if line.has_word("unsafe") {
                let what = format!("move it to {ROOM} and call a safe function from here");
                findings.push(Finding::new(&file.path, number, "unsafe", what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&House::of(&[(path, text)])).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn the_word_is_found_outside_the_room_even_in_tests() {
        let text = "//! Runs.\nfn a() {\n    unsafe { b() }\n}\n#[cfg(test)]\nmod tests {\n    unsafe fn c() {}\n}\n";
        assert_eq!(lines("crates/warden/src/main.rs", text), [3, 7]);
    }

    #[test]
    fn the_room_itself_and_mere_talk_pass() {
        assert!(lines("crates/sys/src/clone.rs", "unsafe fn a() {}\n").is_empty());
        assert!(lines(EXCEPTION, "unsafe fn a() {}\n").is_empty());
        assert_eq!(lines("crates/wasm/src/shelf.rs", "unsafe fn a() {}\n"), [1]);
        assert!(
            lines("crates/warden/src/main.rs", "//! unsafe\n#![deny(unsafe_code)]\nf(\"unsafe\");\n")
                .is_empty()
        );
    }
}
