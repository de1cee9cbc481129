//! The path of a request: one form that is its own form, without anything that two servers read differently.
#![no_main]

use blastbox_policy::path::canonical;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(form) = canonical(text) else { return };
    assert_eq!(canonical(&form).as_deref(), Ok(form.as_str()), "the form is its own");
    assert!(form.starts_with('/') && form.is_ascii() && !form.contains("//") && !form.contains('\\'));
    assert!(form.split('/').all(|segment| segment != "." && segment != ".."), "{form}");
    let folded = form.to_ascii_lowercase();
    assert!(
        !folded.contains("%2f")
            && !folded.contains("%5c")
            && !folded.contains("%2e")
            && !folded.contains("%00")
    );
});
