//! Urgent data of TCP in the middle of bulk: carried like any other, in its place.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::Duration;

use blastbox_tests::internet::{Internet, PUBLIC};
use blastbox_tests::{Caller, both_ways};
use rustix::net::{SendFlags, send};
use serde_json::json;

use super::seen;

both_ways!(urgent_data_in_bulk_neither_stalls_nor_cuts_off_a_connection);

const PIECE: usize = 300_000;
const PIECES: usize = 8;

/// What one of them says in one go.
fn expected(of: u8) -> Vec<u8> {
    [&[of; PIECE][..], b"!"].concat().repeat(PIECES)
}

fn answer(mut stream: TcpStream) -> std::io::Result<Vec<u8>> {
    // Only where something is wrong is anything waited for.
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut heard = vec![0; expected(1).len()];
    stream.read_exact(&mut heard)?;
    let say = |mut stream: &TcpStream| -> std::io::Result<()> {
        for _ in 0..PIECES {
            stream.write_all(&[2; PIECE])?;
            send(stream, b"!", SendFlags::OOB)?;
        }
        Ok(())
    };
    say(&stream)?;
    stream.read_to_end(&mut heard)?;
    say(&stream)?;
    stream.shutdown(std::net::Shutdown::Write)?;
    Ok(heard)
}

/// Each side has its last urgent byte heard before it says anything more, and ends behind one.
fn urgent_data_in_bulk_neither_stalls_nor_cuts_off_a_connection(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    internet.name("echo.example.com", &[&[PUBLIC]]);
    let (told, heard) = mpsc::channel();
    internet.server(7, move |stream| {
        // Nobody listens any more where the test has failed.
        told.send(answer(stream)).ok();
    });
    let code = format!(
        r#"
one = reach(7)
one.settimeout(60)
def say():
    for _ in range({PIECES}):
        one.sendall(b"\x01" * {PIECE})
        one.send(b"!", socket.MSG_OOB)
def hear(most):
    got = b""
    while len(got) < most and (piece := one.recv(1 << 20)): got += piece
    return got
expected = (b"\x02" * {PIECE} + b"!") * {PIECES}
one.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
was_carried = carried(one)
say()
answered = hear(len(expected)) == expected
say()
one.shutdown(socket.SHUT_WR)
print(json.dumps([answered, hear(1 << 30) == expected] if was_carried else "not carried"))"#
    );
    let found = seen(&internet, caller, &["--allow", "echo.example.com:7"], &code);
    let Some((seen, boxed)) = found else { return };
    assert_eq!(seen, json!([true, true]));
    let heard = heard.recv_timeout(Duration::from_secs(60)).unwrap().unwrap();
    assert!(heard == expected(1).repeat(2), "{} bytes", heard.len());
    let allowed = &boxed.receipt.network.allowed;
    let counted: Vec<(u64, u64)> =
        allowed.iter().map(|line| (line.sent_bytes, line.received_bytes)).collect();
    let each = 2 * u64::try_from(expected(1).len()).unwrap();
    assert_eq!(counted, [(each, each)]);
}
