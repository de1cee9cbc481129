//! `/v1/boxes/{id}/execs/{exec}/attach`: a command and its terminal over one WebSocket.
//!
//! ```text
//! daemon → caller   bytes: output. text: {"event":"started"|"stream"|"dropped"|"ended", "id": place, …}
//! caller → daemon   bytes: input.  text: {"resize":{"rows","columns"}} │ {"signal":n} │ {"stdin_end":true}
//! ```
//! Output is of `stdout` until a text says otherwise; a terminal has nothing else. A place is what `events` calls an id:
//! 1 after the start, and one more for each byte. Whoever was cut off comes back with `?after=`.
//!
//! A caller that reads slowly holds the command back; one that is not there any more is found out and let go.

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::Response;
use blastbox_engine::Stream;
use blastbox_engine::keeper::{ExecEnded, Keeper, TapeEvent, TapeReader, Tenant};
use blastbox_wire::BoxId;
use blastbox_wire::websocket::{Cutter, Kind, Message, Side, closing, encode};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use crate::Trouble;
use crate::ask::TerminalSize;
use crate::caller::Caller;
use crate::rest::execs::{SIGNALS, held};
use crate::sse::word;
use crate::take::{ExecPath, Query};
use crate::upgrade::Upgrade;

const GULP: usize = 64 * 1024;
/// Answers that may wait to be sent: a caller that only asks is not read any further.
const REPLIES: usize = 4;
/// How often a silent caller is asked whether it is there.
const BEAT: Duration = Duration::from_secs(15);
/// How long one that is asked may stay silent. What it does not read for so long is lost with it.
const SILENCE: Duration = Duration::from_secs(60);
/// How long the end of a line may take.
const GOODBYE: Duration = Duration::from_secs(2);
/// The good end, by the standard.
const NORMAL: u16 = 1000;
/// A text that means nothing here.
const NOT_UNDERSTOOD: u16 = 1008;

/// What a caller may say in a text.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Said {
    Resize(TerminalSize),
    Signal(u8),
    StdinEnd(bool),
}

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Told<'a> {
    Started {
        id: u64,
        pid: u32,
    },
    Stream {
        stream: &'static str,
    },
    Dropped {
        id: u64,
        bytes: u64,
    },
    Ended {
        id: u64,
        #[serde(flatten)]
        ended: &'a ExecEnded,
        timed_out: bool,
    },
}

/// Whose command it is.
struct Command {
    keeper: Keeper,
    tenant: Tenant,
    id: BoxId,
    exec: u32,
}

pub(crate) async fn attach(
    State(keeper): State<Keeper>,
    caller: Caller,
    ExecPath(id, exec): ExecPath,
    query: Query,
    upgrade: Upgrade,
) -> Result<Response<Body>, Trouble> {
    let query = query.only(&["after", "slow"])?;
    let reader = keeper.tape(&caller.tenant, &id, exec, query.parsed("after", "a number")?)?;
    let reader = held(reader, &query)?;
    let command = Command { keeper, tenant: caller.tenant, id, exec };
    Ok(upgrade.then(move |line| talk(line, reader, command)))
}

async fn talk<S: AsyncRead + AsyncWrite>(line: S, reader: TapeReader, command: Command) {
    let (from, mut to) = tokio::io::split(line);
    let (reply, replies) = mpsc::channel(REPLIES);
    let mut heard = std::pin::pin!(hear(from, &command, reply));
    let (code, listens) = tokio::select! {
        said = say(&mut to, reader, replies) => match said {
            Ok(()) => (NORMAL, true),
            Err(Gone) => return,
        },
        code = heard.as_mut() => (code, false),
    };
    let mut frame = Vec::new();
    encode(Kind::Close, &closing(code), None, &mut frame);
    let goodbye = async {
        let sent = to.write_all(&frame).await.is_ok() && to.shutdown().await.is_ok();
        if sent && listens {
            // What it still sends is read, so that what was sent to it is not lost with the line.
            heard.await;
        }
    };
    timeout(GOODBYE, goodbye).await.ok();
}

/// The caller is not there any more.
struct Gone;

/// What is to be sent beside the output.
enum Reply {
    Pong(Vec<u8>),
    /// Something was heard.
    Alive,
}

/// Sends what the command prints, to its end.
async fn say(
    to: &mut (impl AsyncWrite + Unpin),
    mut reader: TapeReader,
    mut replies: mpsc::Receiver<Reply>,
) -> Result<(), Gone> {
    let (mut stream, mut alive) = (Stream::Stdout, Instant::now());
    loop {
        let mut frames = Vec::new();
        let mut over = false;
        tokio::select! {
            biased;
            Some(reply) = replies.recv() => {
                alive = Instant::now();
                match reply {
                    Reply::Pong(content) => encode(Kind::Pong, &content, None, &mut frames),
                    Reply::Alive => continue,
                }
            }
            next = reader.next() => match next {
                Some((id, event)) => over = frame(id, &event, &mut stream, &mut frames),
                None => return Ok(()),
            },
            () = sleep(BEAT) => {
                if alive.elapsed() > SILENCE {
                    return Err(Gone);
                }
                encode(Kind::Ping, b"", None, &mut frames);
            }
        }
        send(to, &frames).await?;
        if over {
            return Ok(());
        }
    }
}

/// Sends frames, however slowly they are taken. A caller that takes nothing at all for so long is not slow, but gone.
async fn send(to: &mut (impl AsyncWrite + Unpin), mut frames: &[u8]) -> Result<(), Gone> {
    while !frames.is_empty() {
        let Ok(Ok(count @ 1..)) = timeout(SILENCE, to.write(frames)).await else { return Err(Gone) };
        frames = frames.get(count..).unwrap_or_default();
    }
    Ok(())
}

/// One event as it is sent. Whether it was the last one.
fn frame(id: u64, event: &TapeEvent, stream: &mut Stream, frames: &mut Vec<u8>) -> bool {
    let text = |told: &Told<'_>, frames: &mut Vec<u8>| {
        // Numbers and strings always become JSON.
        let text = serde_json::to_vec(told).unwrap_or_default();
        encode(Kind::Text, &text, None, frames);
    };
    match event {
        TapeEvent::Started { pid } => text(&Told::Started { id, pid: *pid }, frames),
        TapeEvent::Output { stream: of, bytes } => {
            if of != stream {
                *stream = *of;
                text(&Told::Stream { stream: word(*of) }, frames);
            }
            encode(Kind::Binary, bytes, None, frames);
        }
        TapeEvent::Dropped { bytes } => text(&Told::Dropped { id, bytes: *bytes }, frames),
        TapeEvent::Ended { ended, timed_out } => {
            text(&Told::Ended { id, ended, timed_out: *timed_out }, frames);
            return true;
        }
    }
    false
}

/// Passes on what the caller says, until it says no more. The code that closes the line.
async fn hear(mut from: impl AsyncRead + Unpin, command: &Command, reply: mpsc::Sender<Reply>) -> u16 {
    let (mut cutter, mut room) = (Cutter::new(Side::Client), vec![0; GULP]);
    loop {
        let Ok(count @ 1..) = from.read(&mut room).await else { return NORMAL };
        cutter.add(room.get(..count).unwrap_or_default());
        // Full: whoever sends replies has other work, and knows from it that somebody is there.
        reply.try_send(Reply::Alive).ok();
        loop {
            let message = match cutter.take() {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(broken) => return broken.code(),
            };
            match message {
                // An error: the command is over, or takes no input any more. Its end says so.
                Message::Bytes(bytes) => command.write(&bytes).await,
                Message::Text(text) => match serde_json::from_str(&text) {
                    Ok(said) => command.tell(said).await,
                    Err(_) => return NOT_UNDERSTOOD,
                },
                Message::Ping(content) => {
                    if reply.send(Reply::Pong(content)).await.is_err() {
                        return NORMAL;
                    }
                }
                Message::Pong => {}
                Message::Close => return NORMAL,
            }
        }
    }
}

impl Command {
    async fn write(&self, bytes: &[u8]) {
        self.keeper.write_stdin(&self.tenant, &self.id, self.exec, bytes).await.ok();
    }

    async fn tell(&self, said: Said) {
        let Self { keeper, tenant, id, exec } = self;
        let told = match said {
            Said::Resize(TerminalSize { rows, columns }) => {
                keeper.resize(tenant, id, *exec, rows, columns).await
            }
            Said::Signal(signal) if SIGNALS.contains(&signal) => {
                keeper.signal(tenant, id, *exec, signal).await
            }
            Said::StdinEnd(true) => keeper.end_stdin(tenant, id, *exec).await,
            Said::Signal(_) | Said::StdinEnd(false) => Ok(()),
        };
        // An error: the command is over, and its end says so.
        told.ok();
    }
}
