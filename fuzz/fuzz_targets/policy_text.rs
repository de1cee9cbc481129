//! A policy file that somebody else wrote: it ends in a policy or an error, never in a panic, and what is printed
//! of a policy means that policy again.
#![no_main]

use blastbox_policy::{parse, to_toml};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(policy) = parse(text).and_then(|draft| draft.seal()) else { return };
    let printed = to_toml(&policy);
    let again = parse(&printed).and_then(|draft| draft.seal()).expect("what we print, we can read");
    assert_eq!(policy.digest().to_string(), again.digest().to_string(), "{printed}");
});
