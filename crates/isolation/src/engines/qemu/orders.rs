//! QEMU's words for falling asleep and waking, said over a line that it inherits.
//!
//! Nobody has to read what QEMU answers before a copy speaks: what it could not do ends it, and then the copy never says a word.
//! The line is let go of as soon as one has spoken.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use blastbox_sys::channel;

use crate::engines::{MonitorAnswer, MonitorOrder};

/// Memory that lies in a file that others share is not part of the state.
const SHARED: &str = r#"{"execute":"migrate-set-capabilities","arguments":{"capabilities":[{"capability":"x-ignore-shared","state":true}]}}"#;
/// A machine that wakes says nothing to its network: nobody there knows it from elsewhere.
const QUIET: &str = r#"{"execute":"migrate-set-parameters","arguments":{"announce-rounds":0}}"#;
/// More than any wire of this host carries.
const FAST: &str =
    r#"{"execute":"migrate-set-parameters","arguments":{"max-bandwidth":17179869184,"downtime-limit":2000}}"#;
const BEGIN: &str = r#"{"execute":"qmp_capabilities"}"#;
const TAKE: &str = r#"{"execute":"getfd","arguments":{"fdname":"state"}}"#;
const WRITE: &str = r#"{"execute":"migrate","arguments":{"uri":"fd:state"}}"#;
const READ: &str = r#"{"execute":"migrate-incoming","arguments":{"uri":"fd:state"}}"#;
const ASK: &str = r#"{"execute":"query-migrate"}"#;

/// Has a machine that has just been started go on from a state.
pub(in crate::engines) fn wake(line: impl AsFd, state: BorrowedFd<'_>) -> io::Result<()> {
    let line = line.as_fd();
    channel::send(line, format!("{BEGIN}\n{SHARED}\n{QUIET}\n").as_bytes(), &[])?;
    // Taken by the order that it comes with.
    channel::send(line, format!("{TAKE}\n").as_bytes(), &[state])?;
    channel::send(line, format!("{READ}\n").as_bytes(), &[])
}

const LONGEST_WORDS: usize = 200;

/// Says an order under a number, by which its answer is known among all others.
pub(in crate::engines) fn say(
    line: impl AsFd,
    number: u32,
    order: MonitorOrder,
    with: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let text = match order {
        MonitorOrder::Begin => BEGIN.to_owned(),
        MonitorOrder::WithMemory => SHARED.replace("true", "false"),
        MonitorOrder::WithoutMemory => SHARED.to_owned(),
        MonitorOrder::Fast => FAST.to_owned(),
        MonitorOrder::Take => TAKE.to_owned(),
        MonitorOrder::Write => WRITE.to_owned(),
        MonitorOrder::Read => READ.to_owned(),
        MonitorOrder::Ask => ASK.to_owned(),
        MonitorOrder::GoOn => r#"{"execute":"cont"}"#.to_owned(),
        MonitorOrder::Cancel => r#"{"execute":"migrate_cancel"}"#.to_owned(),
    };
    // Every order is an object with something in it.
    let rest = text.strip_prefix('{').unwrap_or_default();
    let with: Vec<BorrowedFd<'_>> = with.into_iter().collect();
    channel::send(line, format!("{{\"id\":{number},{rest}\n").as_bytes(), &with)
}

/// What a line of QEMU's answers says to the order with this number; `None`: it is about something else.
pub(in crate::engines) fn hear(answer: &str, number: u32) -> Option<MonitorAnswer> {
    let answer: serde_json::Value = serde_json::from_str(answer).ok()?;
    if answer.get("id")?.as_u64()? != u64::from(number) {
        return None;
    }
    if let Some(error) = answer.get("error") {
        let words = error.get("desc").and_then(serde_json::Value::as_str).unwrap_or_default();
        return Some(MonitorAnswer::Failed(words.chars().take(LONGEST_WORDS).collect()));
    }
    Some(match answer.get("return")?.get("status").and_then(serde_json::Value::as_str) {
        None => MonitorAnswer::Done,
        Some("completed") => MonitorAnswer::Whole,
        Some("failed" | "cancelled") => {
            MonitorAnswer::Failed("its state could not be written or read".to_owned())
        }
        Some(_) => MonitorAnswer::NotYet,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_belongs_to_the_order_with_its_number() {
        let heard = |text: &str| hear(text, 7);
        assert_eq!(heard(r#"{"return": {}, "id": 7}"#), Some(MonitorAnswer::Done));
        assert_eq!(heard(r#"{"return": {"status": "active"}, "id": 7}"#), Some(MonitorAnswer::NotYet));
        assert_eq!(heard(r#"{"return": {"status": "completed"}, "id": 7}"#), Some(MonitorAnswer::Whole));
        assert!(matches!(
            heard(r#"{"return": {"status": "failed"}, "id": 7}"#),
            Some(MonitorAnswer::Failed(_))
        ));
        let no = heard(r#"{"error": {"class": "GenericError", "desc": "no"}, "id": 7}"#);
        assert_eq!(no, Some(MonitorAnswer::Failed("no".to_owned())));
        for other in ["", "{", r#"{"return": {}}"#, r#"{"return": {}, "id": 6}"#, r#"{"event": "STOP"}"#] {
            assert_eq!(heard(other), None, "{other}");
        }
    }

    #[test]
    fn every_order_is_one_line_with_its_number() {
        use MonitorOrder::{Ask, Begin, Cancel, Fast, GoOn, Read, Take, WithMemory, WithoutMemory, Write};
        for order in [Begin, WithMemory, WithoutMemory, Fast, Take, Write, Read, Ask, GoOn, Cancel] {
            let (ours, theirs) = channel::pair().unwrap();
            say(&ours, 9, order, None).unwrap();
            let mut bytes = [0; 512];
            let (count, _) = channel::receive(&theirs, &mut bytes).unwrap().unwrap();
            let said: serde_json::Value = serde_json::from_slice(&bytes[..count]).unwrap();
            assert_eq!(said["id"], 9, "{order:?}");
        }
    }

    #[test]
    fn the_state_travels_with_the_order_that_takes_it() {
        let (ours, theirs) = channel::pair().unwrap();
        let state = std::fs::File::open("/dev/null").unwrap();
        wake(&ours, state.as_fd()).unwrap();
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
