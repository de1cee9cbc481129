//! What a command does, as the events of a stream.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blastbox_engine::Stream;
use blastbox_engine::keeper::ExecEnded;
use serde_json::{Value, json};

use super::table::Mouth;

/// Bytes of one event: of a pipe, of a terminal.
const PIPE_PIECE: usize = 32 * 1024;
const TERMINAL_PIECE: usize = 16 * 1024;

pub(super) fn started(pid: u32) -> Value {
    json!({ "event": { "start": { "pid": pid } } })
}

pub(super) fn keepalive() -> Value {
    json!({ "event": { "keepalive": {} } })
}

/// Output, in pieces that a client expects.
pub(super) fn output(mouth: Mouth, stream: Stream, bytes: &[u8]) -> Vec<Value> {
    let (name, piece) = match (mouth, stream) {
        (Mouth::Terminal, _) => ("pty", TERMINAL_PIECE),
        (_, Stream::Stdout) => ("stdout", PIPE_PIECE),
        (_, Stream::Stderr) => ("stderr", PIPE_PIECE),
    };
    let event = |bytes: &[u8]| json!({ "event": { "data": { name: STANDARD.encode(bytes) } } });
    bytes.chunks(piece).map(event).collect()
}

/// The end. `None`: there was none of its own, because the box ended or it never began.
pub(super) fn ended(ended: &ExecEnded) -> Option<Value> {
    let end = match ended {
        ExecEnded::Exited { code: 0 } => json!({ "exitCode": 0, "exited": true, "status": "exit status 0" }),
        ExecEnded::Exited { code } => {
            let status = format!("exit status {code}");
            json!({ "exitCode": code, "exited": true, "status": status, "error": status })
        }
        ExecEnded::Signalled { signal } => {
            let status = format!("signal: {}", signal_name(*signal));
            json!({ "exitCode": -1, "exited": false, "status": status, "error": status })
        }
        // E2B has no word of its own for it.
        ExecEnded::FuelSpent { .. } => {
            let status = "fuel spent";
            json!({ "exitCode": -1, "exited": false, "status": status, "error": status })
        }
        ExecEnded::NotStarted { .. } | ExecEnded::BoxEnded { .. } => return None,
    };
    Some(json!({ "event": { "end": end } }))
}

/// As Go names them, in which E2B's own daemon is written.
fn signal_name(signal: u8) -> String {
    let name = match signal {
        1 => "hangup",
        2 => "interrupt",
        3 => "quit",
        4 => "illegal instruction",
        5 => "trace/breakpoint trap",
        6 => "aborted",
        7 => "bus error",
        8 => "floating point exception",
        9 => "killed",
        10 => "user defined signal 1",
        11 => "segmentation fault",
        12 => "user defined signal 2",
        13 => "broken pipe",
        14 => "alarm clock",
        15 => "terminated",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_written_as_the_sdks_read_them() {
        let end = |ended: ExecEnded| super::ended(&ended).map(|event| event["event"]["end"].clone());
        assert_eq!(
            end(ExecEnded::Exited { code: 0 }).unwrap(),
            json!({ "exitCode": 0, "exited": true, "status": "exit status 0" })
        );
        assert_eq!(
            end(ExecEnded::Exited { code: 3 }).unwrap(),
            json!({ "exitCode": 3, "exited": true, "status": "exit status 3", "error": "exit status 3" })
        );
        assert_eq!(
            end(ExecEnded::Signalled { signal: 9 }).unwrap(),
            json!({ "exitCode": -1, "exited": false, "status": "signal: killed", "error": "signal: killed" })
        );
        assert_eq!(end(ExecEnded::BoxEnded { code: String::new(), message: String::new() }), None);
    }

    #[test]
    fn output_comes_in_pieces_of_the_size_that_clients_expect() {
        assert_eq!(output(Mouth::Pipe, Stream::Stderr, &[b'x'; 32 * 1024 + 1]).len(), 2);
        let pty = output(Mouth::Terminal, Stream::Stdout, &[b'x'; 16 * 1024]);
        assert!(pty.len() == 1 && pty[0]["event"]["data"]["pty"].is_string());
        assert!(output(Mouth::Pipe, Stream::Stdout, b"").is_empty());
    }
}
