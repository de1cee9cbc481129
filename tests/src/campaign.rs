//! A campaign of `blastbox escape` in the jail.

use std::time::Duration;

use serde_json::Value;

use crate::Caller;

/// The layers that test builds lack, one each (`make lifted`).
pub const LAYERS: [&str; 11] = [
    "seccomp",
    "landlock",
    "mounts",
    "network",
    "pids",
    "scratch",
    "overlay",
    "users",
    "capabilities",
    "processes",
    "descriptors",
];

/// Its exit code and its report.
pub fn campaign(caller: &Caller, options: &[&str]) -> (i32, Value) {
    let words = ["escape", "--tier", "jail", "--profile", "default", "--json"].iter().chain(options);
    let ended = caller.blastbox(words).start().end_within(Duration::from_secs(1200));
    let report = serde_json::from_slice(&ended.out);
    (ended.code, report.unwrap_or_else(|error| unreachable!("{error}: {}", ended.err)))
}
