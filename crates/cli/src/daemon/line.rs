//! A WebSocket to a daemon, for terminals: one line both ways, which is made again where it was cut.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blastbox_engine::Stream;
use blastbox_wire::BoxId;
use blastbox_wire::websocket::{Cutter, Kind, Message, Side, closing, encode};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::client::Client;
use super::follow::Heard;
use super::problem::DaemonProblem;
use super::table::EndView;

const GULP: usize = 64 * 1024;
/// Words that may wait for a line that is slow.
const WORDS: usize = 16;
const GOODBYE: Duration = Duration::from_secs(1);

/// The end of a line that hears.
pub(crate) struct Ear {
    from: ReadHalf<TokioIo<Upgraded>>,
    cutter: Cutter,
    room: Vec<u8>,
    stream: Stream,
    /// The place after what was heard.
    pub(crate) place: u64,
}

/// The end of a line that speaks. What is said is written aside: whoever speaks goes on hearing meanwhile, so that a
/// command which waits for its output to be read is never waited for.
pub(crate) struct Mouth {
    words: mpsc::Sender<Vec<u8>>,
    input: mpsc::Sender<Vec<u8>>,
    writer: JoinHandle<()>,
}

#[derive(Debug, Deserialize)]
struct Told {
    event: String,
    #[serde(default)]
    id: Option<u64>,
    #[serde(default)]
    stream: Option<String>,
    #[serde(default)]
    bytes: Option<u64>,
    #[serde(flatten)]
    rest: Value,
}

/// Something that came over a line.
pub(crate) enum Came {
    Heard(Heard),
    /// To be answered with the same content.
    Ping(Vec<u8>),
}

/// A line to a command, from after this place.
pub(crate) async fn open(
    client: &Client,
    id: &BoxId,
    exec: u32,
    after: u64,
) -> Result<(Ear, Mouth), DaemonProblem> {
    let key = STANDARD.encode(random::<16>());
    let path = format!("/v1/boxes/{}/execs/{exec}/attach?after={after}", id.as_str());
    let headers = [
        ("connection", "upgrade".to_owned()),
        ("upgrade", "websocket".to_owned()),
        ("sec-websocket-version", "13".to_owned()),
        ("sec-websocket-key", key.clone()),
    ];
    let response = client.upgrade(&path, &headers).await?;
    let expected = blastbox_server::websocket_accept(&key);
    if response.headers().get("sec-websocket-accept").is_none_or(|proof| *proof != *expected) {
        return Err(DaemonProblem::BadEvent);
    }
    let line = hyper::upgrade::on(response).await.map_err(DaemonProblem::BrokeOff)?;
    let (from, to) = tokio::io::split(TokioIo::new(line));
    let cutter = Cutter::new(Side::Server);
    let ((words, spoken), (input, given)) = (mpsc::channel(WORDS), mpsc::channel(1));
    let writer = tokio::spawn(write(to, spoken, given));
    let ear = Ear { from, cutter, room: vec![0; GULP], stream: Stream::Stdout, place: after };
    Ok((ear, Mouth { words, input, writer }))
}

/// Writes frames until nobody speaks any more, or the line is cut.
async fn write(
    mut to: WriteHalf<TokioIo<Upgraded>>,
    mut words: mpsc::Receiver<Vec<u8>>,
    mut input: mpsc::Receiver<Vec<u8>>,
) {
    loop {
        let frame = tokio::select! {
            biased;
            Some(frame) = words.recv() => frame,
            Some(frame) = input.recv() => frame,
            else => return,
        };
        if to.write_all(&frame).await.is_err() {
            return;
        }
    }
}

fn frame(kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(payload.len().saturating_add(14));
    encode(kind, payload, Some(random()), &mut frame);
    frame
}

/// Masks are there against what stands in between and cannot tell a line from a page; nothing is hidden by them.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // An error leaves zeros, which are a mask as well.
    getrandom(&mut bytes, GetRandomFlags::empty()).ok();
    bytes
}

impl Ear {
    /// The next thing; `None` where the line is cut. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Came>, DaemonProblem> {
        loop {
            while let Some(message) = self.cutter.take().map_err(|_| DaemonProblem::BadEvent)? {
                match message {
                    Message::Bytes(bytes) => {
                        self.place = self.place.saturating_add(u64::try_from(bytes.len()).unwrap_or(0));
                        return Ok(Some(Came::Heard(Heard::Output(self.stream, bytes))));
                    }
                    Message::Text(text) => {
                        if let Some(heard) = self.read(&text)? {
                            return Ok(Some(Came::Heard(heard)));
                        }
                    }
                    Message::Ping(content) => return Ok(Some(Came::Ping(content))),
                    Message::Pong => {}
                    Message::Close => return Ok(None),
                }
            }
            match self.from.read(&mut self.room).await {
                Ok(0) | Err(_) => return Ok(None),
                Ok(count) => self.cutter.add(self.room.get(..count).unwrap_or_default()),
            }
        }
    }

    /// An event of a kind that this version does not know is passed over.
    fn read(&mut self, text: &str) -> Result<Option<Heard>, DaemonProblem> {
        let Told { event, id, stream, bytes, rest } =
            serde_json::from_str(text).map_err(DaemonProblem::Unreadable)?;
        let heard = match event.as_str() {
            "started" => Heard::Started,
            "dropped" => Heard::Dropped(bytes.unwrap_or(0)),
            "ended" => {
                let ended: EndView = serde_json::from_value(rest).map_err(DaemonProblem::Unreadable)?;
                Heard::Ended(ended)
            }
            "stream" => {
                let stderr = stream.as_deref() == Some("stderr");
                self.stream = if stderr { Stream::Stderr } else { Stream::Stdout };
                return Ok(None);
            }
            _ => return Ok(None),
        };
        self.place = id.unwrap_or(self.place);
        Ok(Some(heard))
    }
}

impl Mouth {
    /// Says a few words. Of a line that takes none they are lost, as they would be with it.
    pub(crate) fn say(&self, kind: Kind, payload: &[u8]) {
        self.words.try_send(frame(kind, payload)).ok();
    }

    /// Takes the next piece of input, when the line takes it. `None`: there is no more. Cancel safe.
    pub(crate) async fn feed(&self, pieces: &mut Option<mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
        match (pieces, self.input.reserve().await) {
            (Some(pieces), Ok(_room)) => pieces.recv().await,
            // The line is cut; its other end says so.
            (Some(_), Err(_)) => std::future::pending().await,
            (None, _) => None,
        }
    }

    /// Passes input on, which was taken with [`Self::feed`].
    pub(crate) fn pass(&self, bytes: &[u8]) {
        self.input.try_send(frame(Kind::Binary, bytes)).ok();
    }

    /// Says goodbye, and waits a moment until it is out.
    pub(crate) async fn close(self) {
        self.say(Kind::Close, &closing(1000));
        let Self { words, input, writer } = self;
        drop((words, input));
        timeout(GOODBYE, writer).await.ok();
    }
}
