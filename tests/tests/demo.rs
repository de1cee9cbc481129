//! `make run`, the first thing that a newcomer sees: its script against the built programs.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::path::Path;

use blastbox_tests::{Caller, both_ways};

both_ways!(the_demonstration_names_a_boundary_for_each_attempt_and_shows_a_receipt);

/// The script with what belongs to it, where everybody can read it.
fn script(caller: &Caller) -> std::path::PathBuf {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools");
    caller.directory("demo");
    for entry in std::fs::read_dir(tools.join("demo")).expect("list the demonstration") {
        let from = entry.expect("read a name").path();
        let name = from.file_name().expect("a name").to_owned();
        caller.file(&format!("demo/{}", name.to_string_lossy()), std::fs::read(&from).expect("read a part"));
    }
    caller.file("demo.sh", std::fs::read(tools.join("demo.sh")).expect("read the script"))
}

fn the_demonstration_names_a_boundary_for_each_attempt_and_shows_a_receipt(caller: &Caller) {
    let script = script(caller);
    let words = [script.as_path(), caller.blastbox_path().as_path()].map(|path| path.display().to_string());
    let ended = caller.program(Path::new("/bin/bash"), words).end();
    let said = format!("{}\n{}", ended.text(), ended.err);
    assert_eq!(ended.code, 0, "{said}");
    assert!(!said.contains("GOT AWAY") && !said.contains('\u{1b}'), "{said}");
    for boundary in ["files", "credentials", "kernel", "lifecycle"] {
        let row = format!("\n  {boundary:<12} ");
        assert!(said.contains(&row), "no attempt on {boundary}: {said}");
    }
    assert!(said.contains("\nthe receipt"), "{said}");
    assert!(said.contains("the key is untouched, 0 processes of the box are left"), "{said}");
}
