//! QEMU's words for falling asleep and waking, said over a line that it inherits. Another engine would have other words.
//!
//! Nobody has to read what QEMU answers before a copy speaks: what it could not do ends it, and then the copy never says a word.
//! The line is let go of as soon as one has spoken.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use blastbox_sys::channel;

/// Memory that lies in a file that others share is not part of the state.
const SHARED: &str = r#"{"execute":"migrate-set-capabilities","arguments":{"capabilities":[{"capability":"x-ignore-shared","state":true}]}}"#;
/// A machine that wakes says nothing to its network: nobody there knows it from elsewhere.
const QUIET: &str = r#"{"execute":"migrate-set-parameters","arguments":{"announce-rounds":0}}"#;
const BEGIN: &str = r#"{"execute":"qmp_capabilities"}"#;
const TAKE: &str = r#"{"execute":"getfd","arguments":{"fdname":"state"}}"#;
const WRITE: &str = r#"{"execute":"migrate","arguments":{"uri":"fd:state"}}"#;
const READ: &str = r#"{"execute":"migrate-incoming","arguments":{"uri":"fd:state"}}"#;
const ASK: &str = r#"{"execute":"query-migrate"}"#;

/// Has a machine write its state to a socket and stop. It writes it whole and closes its end, or says why not when it is asked.
pub fn order_sleep(line: impl AsFd, state: BorrowedFd<'_>) -> io::Result<()> {
    say(line, state, WRITE)
}

/// Has a machine that has just been started go on from a state.
pub fn order_wake(line: impl AsFd, state: BorrowedFd<'_>) -> io::Result<()> {
    say(line, state, READ)
}

/// Asks whether the state was written.
pub fn ask_whether_asleep(line: impl AsFd) -> io::Result<()> {
    channel::send(line, format!("{ASK}\n").as_bytes(), &[])
}

/// What a line of QEMU's answers says to that; `None`: nothing, or not yet.
#[must_use]
pub fn is_asleep(answer: &str) -> Option<bool> {
    let answer: serde_json::Value = serde_json::from_str(answer).ok()?;
    if answer.get("error").is_some() {
        return Some(false);
    }
    match answer.get("return")?.get("status")?.as_str()? {
        "completed" => Some(true),
        "failed" | "cancelled" => Some(false),
        _ => None,
    }
}

fn say(line: impl AsFd, state: BorrowedFd<'_>, last: &str) -> io::Result<()> {
    let line = line.as_fd();
    channel::send(line, format!("{BEGIN}\n{SHARED}\n{QUIET}\n").as_bytes(), &[])?;
    // Taken by the order that it comes with.
    channel::send(line, format!("{TAKE}\n").as_bytes(), &[state])?;
    channel::send(line, format!("{last}\n").as_bytes(), &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_counts_as_written_only_when_qemu_says_so() {
        assert_eq!(is_asleep(r#"{"return": {"status": "completed", "ram": {}}}"#), Some(true));
        assert_eq!(is_asleep(r#"{"return": {"status": "failed"}}"#), Some(false));
        assert_eq!(is_asleep(r#"{"error": {"class": "GenericError", "desc": "no"}}"#), Some(false));
        for other in ["", "{", r#"{"return": {}}"#, r#"{"return": {"status": "active"}}"#, r#"{"QMP": {}}"#] {
            assert_eq!(is_asleep(other), None, "{other}");
        }
    }

    #[test]
    fn the_state_travels_with_the_order_that_takes_it() {
        let (ours, theirs) = channel::pair().unwrap();
        let state = std::fs::File::open("/dev/null").unwrap();
        order_wake(&ours, state.as_fd()).unwrap();
        let mut heard = Vec::new();
        for _ in 0..3 {
            let mut bytes = [0; 512];
            let (count, fds) = channel::receive(&theirs, &mut bytes).unwrap().unwrap();
            let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
            assert_eq!(fds.len(), usize::from(text.contains("getfd")), "{text}");
            heard.push(text);
        }
        for order in heard.concat().lines() {
            assert!(serde_json::from_str::<serde_json::Value>(order).is_ok(), "{order}");
        }
        assert!(heard[0].contains("x-ignore-shared") && heard[2].contains("migrate-incoming"));
    }
}
