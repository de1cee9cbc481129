//! A policy file that somebody else wrote: parsing must end in a policy or an error, never in a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| drop(blastbox_policy::parse(text)));
