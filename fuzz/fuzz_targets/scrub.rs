//! Answers without secrets: however the bytes are cut, the result is the same, as long as before, and without the secret.
#![no_main]

use blastbox_egress::credentials::{Patterns, Scrubber, Secret};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, Vec<u8>, &[u8])| {
    let (size, secret, text) = input;
    let Ok(kept) = Secret::new(secret.clone()) else { return };
    let secret: &[u8] = secret.strip_suffix(b"\n").unwrap_or(&secret);
    let secret = secret.strip_suffix(b"\r").unwrap_or(secret);
    let Ok(patterns) = Patterns::of([&kept]) else { return };
    // The secret is put into the text, or it would hardly ever be there.
    let middle = text.len() / 2;
    let text = [&text[..middle], secret, &text[middle..]].concat();
    let pass = |size: usize| {
        let mut scrubber = Scrubber::default();
        let mut clean: Vec<u8> =
            text.chunks(size).flat_map(|piece| scrubber.feed(&patterns, piece)).collect();
        clean.extend(scrubber.finish(&patterns));
        clean
    };
    let clean = pass(usize::from(size).max(1));
    assert_eq!(clean.len(), text.len());
    assert_eq!(clean, pass(text.len()));
    assert!(
        secret.iter().all(|byte| *byte == b'*')
            || !clean.windows(secret.len()).any(|window| window == secret)
    );
});
