//! What a command of a box says to a function of the caller: a name, a line break, and JSON.
#![no_main]

use blastbox_wire::tools::{ToolName, read_answer, read_input};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
    let (name, input) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if let Ok(name) = std::str::from_utf8(name)
        && let Ok(tool) = name.parse::<ToolName>()
    {
        assert_eq!(tool.as_str(), name);
        assert!(!name.contains([',', '/', '=', ' ', '\0']) && !name.starts_with('-'));
    }
    if let Ok(value) = read_input(input) {
        // What is passed on is the same for whoever reads it next.
        assert_eq!(read_answer(value.to_string().as_bytes()), Ok(value));
    }
});
