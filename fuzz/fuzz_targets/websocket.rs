//! A line as a caller sends it, cut as a line may cut it: never more comes out than went in.
#![no_main]

use blastbox_wire::websocket::{Cutter, MAX_TEXT, Message, Side};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((size, line)) = bytes.split_first() else { return };
    for from in [Side::Client, Side::Server] {
        let (mut cutter, mut out) = (Cutter::new(from), 0);
        'line: for piece in line.chunks(usize::from(*size).max(1)) {
            cutter.add(piece);
            loop {
                match cutter.take() {
                    Ok(Some(Message::Bytes(part))) => {
                        assert!(!part.is_empty());
                        out += part.len();
                    }
                    Ok(Some(Message::Text(text))) => assert!(text.len() <= MAX_TEXT),
                    Ok(Some(Message::Ping(content))) => assert!(content.len() <= 125),
                    Ok(Some(Message::Pong | Message::Close)) => {}
                    Ok(None) => break,
                    Err(_) => break 'line,
                }
            }
        }
        assert!(out <= line.len());
    }
});
