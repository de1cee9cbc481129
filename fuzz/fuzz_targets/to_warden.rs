//! What a warden is asked: whoever asks may have been taken over, and the warden is root. A plan that it would carry out breaks no rule.
#![no_main]

use blastbox_wire::plan::{Step, VOLUMES_AT};
use blastbox_wire::warden::Ask;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(ask) = Ask::decode(bytes) else { return };
    assert_eq!(Ask::decode(&ask.encode()).as_ref(), Ok(&ask));
    let Ask::Launch(plan) = ask else { return };
    let Ok(checked) = plan.check(5) else { return };
    for step in &checked.plan().own {
        if let Step::Volume { at, .. } = step {
            let name = at.as_str().strip_prefix(VOLUMES_AT).and_then(|rest| rest.strip_prefix('/'));
            assert!(name.is_some_and(|name| !name.is_empty() && !name.contains('/')), "{at:?}");
            assert!(checked.plan().landlock.least_abi > 0, "{at:?}");
        }
    }
});
