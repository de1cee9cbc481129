//! A line to a port inside a box: a command in the box connects to the port, and carries bytes between it and its own
//! standard streams. Nothing of the host listens or connects; the box reaches its own port with its own rights, the ledger
//! has the command, and it ends with the box.
//!
//! The programs that carry are the box's own: what they do with the bytes is what its server could do too. Nothing of them is
//! looked at here but the first byte.

use std::sync::Arc;
use std::time::Duration;

use blastbox_engine::keeper::{Keeper, TapeEvent, TapeReader, Tenant};
use blastbox_engine::{Command, Stream};
use blastbox_wire::BoxId;
use blastbox_wire::agent::{Io, User};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::e2b::sandbox::Sandbox;

/// Says `.` when it is connected. Of two processes one carries each way; whichever way ends, so does the line.
const SCRIPT: &str = "exec 3<>/dev/tcp/127.0.0.1/$1 || exec 3<>/dev/tcp/::1/$1 || exit 97; printf .; \
    cat <&0 >&3 2>/dev/null & exec cat <&3";
/// How long a port may take to answer.
const CONNECT: Duration = Duration::from_secs(20);
/// How long a server may still talk to somebody who has said everything.
const REST: Duration = Duration::from_secs(30);
/// Bytes that wait in a line, each way. What is behind them waits in the box, or with the client.
const AHEAD: usize = 64 * 1024;
const SIGKILL: u8 = 9;

/// Nothing listens there, or nothing in the box could connect.
#[derive(Debug)]
pub(super) struct Closed;

/// A command that carries. Dropped, it is killed with everything that it started.
struct Carrier {
    keeper: Keeper,
    tenant: Tenant,
    id: BoxId,
    exec: u32,
    _place: OwnedSemaphorePermit,
}

impl Drop for Carrier {
    fn drop(&mut self) {
        let (keeper, tenant, id, exec) =
            (self.keeper.clone(), self.tenant.clone(), self.id.clone(), self.exec);
        // One that has ended by itself is gone already.
        tokio::spawn(async move { keeper.signal(&tenant, &id, exec, SIGKILL).await.ok() });
    }
}

/// Opens a line to a port. `place` is given back when the line is gone.
pub(super) async fn dial(
    keeper: &Keeper,
    sandbox: &Arc<Sandbox>,
    port: u16,
    place: OwnedSemaphorePermit,
) -> Result<DuplexStream, Closed> {
    let port = port.to_string();
    let words = ["/bin/bash", "-c", SCRIPT, "blastbox-port", &port];
    let command = Command {
        arguments: words.iter().map(|word| word.as_bytes().to_vec()).collect(),
        environment: vec![b"PATH=/usr/local/bin:/usr/bin:/bin".to_vec(), b"LC_ALL=C".to_vec()],
        directory: b"/".to_vec(),
        io: Io::PipesWithStdin,
        user: User::Payload,
    };
    let (tenant, id) = (sandbox.tenant.clone(), sandbox.box_id.clone());
    let (exec, tape) = keeper.carry(&tenant, &id, command).await.map_err(|_| Closed)?;
    let carrier = Carrier { keeper: keeper.clone(), tenant, id, exec, _place: place };
    let mut tape = tape.hold_back();
    let first = timeout(CONNECT, first(&mut tape)).await.ok().flatten().ok_or(Closed)?;
    let (ours, theirs) = duplex(AHEAD);
    tokio::spawn(carry(carrier, tape, first, ours));
    Ok(theirs)
}

/// Waits until it is connected: what came behind the sign. `None`: it is not.
async fn first(tape: &mut TapeReader) -> Option<Vec<u8>> {
    while let Some((_, event)) = tape.next().await {
        match event {
            TapeEvent::Output { stream: Stream::Stdout, bytes } => {
                return bytes.strip_prefix(b".").map(<[u8]>::to_vec);
            }
            TapeEvent::Ended { .. } => return None,
            TapeEvent::Output { stream: Stream::Stderr, .. }
            | TapeEvent::Started { .. }
            | TapeEvent::Dropped { .. } => {}
        }
    }
    None
}

async fn carry(carrier: Carrier, tape: TapeReader, first: Vec<u8>, line: DuplexStream) {
    let (read, write) = split(line);
    let mut out = Box::pin(outward(tape, first, write));
    tokio::select! {
        () = inward(&carrier, read) => {
            carrier.keeper.end_stdin(&carrier.tenant, &carrier.id, carrier.exec).await.ok();
            // Whoever has said everything may still be told something.
            timeout(REST, out).await.ok();
        }
        () = &mut out => {}
    }
}

/// From the client to the server, until one of them is gone.
async fn inward(carrier: &Carrier, mut from: ReadHalf<DuplexStream>) {
    let mut buffer = vec![0; AHEAD];
    loop {
        match from.read(&mut buffer).await {
            Ok(length) if length > 0 => {
                let bytes = buffer.get(..length).unwrap_or_default();
                let Carrier { keeper, tenant, id, exec, .. } = carrier;
                if keeper.write_stdin(tenant, id, *exec, bytes).await.is_err() {
                    return;
                }
            }
            Ok(_) | Err(_) => return,
        }
    }
}

/// From the server to the client, until one of them is gone.
async fn outward(mut tape: TapeReader, first: Vec<u8>, mut to: WriteHalf<DuplexStream>) {
    if to.write_all(&first).await.is_err() {
        return;
    }
    while let Some((_, event)) = tape.next().await {
        match event {
            TapeEvent::Output { stream: Stream::Stdout, bytes } => {
                if to.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            TapeEvent::Ended { .. } => break,
            TapeEvent::Output { stream: Stream::Stderr, .. }
            | TapeEvent::Started { .. }
            | TapeEvent::Dropped { .. } => {}
        }
    }
    // A client that is gone needs no telling.
    to.shutdown().await.ok();
}
