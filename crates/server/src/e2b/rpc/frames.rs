//! Frames of a stream: one byte of flags, a length, a message. Read as they come, bounded before anything is kept.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout, timeout_at};

use super::error::{Code, RpcError};
use crate::e2b::waiting::Waiting;
use crate::gather::{Account, NO_ROOM, NO_ROOM_CODE, Ungathered, gather};

/// Longest message. A command line of the kernel's own limit fits, however it is written.
const MOST: usize = 8 * 1024 * 1024;
const HEAD: usize = 5;
/// How long the body of a unary call, the first message of a stream, and each that has begun, may take to come. Between two
/// messages a stream may say nothing for as long as it likes.
const PATIENCE: Duration = Duration::from_secs(60);
/// The last frame of a stream.
pub(super) const END: u8 = 2;
const COMPRESSED: u8 = 1;

/// A frame as it is sent.
pub(super) fn frame(flags: u8, message: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(HEAD + message.len());
    frame.push(flags);
    // No message that is sent comes near to what a length can say.
    frame.extend(u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    frame.extend_from_slice(message);
    frame.into()
}

fn too_long(length: usize) -> RpcError {
    RpcError::new(
        Code::ResourceExhausted,
        format!("message size {length} is larger than configured max {MOST}"),
    )
}

fn late() -> RpcError {
    RpcError::new(Code::DeadlineExceeded, "the request did not arrive in time")
}

fn no_room() -> RpcError {
    RpcError::new(Code::ResourceExhausted, format!("{NO_ROOM_CODE}: {NO_ROOM}"))
}

/// What a caller sends, and what its tenant's requests hold.
#[derive(Debug)]
pub(crate) struct Sent {
    body: Body,
    gathered: Option<Arc<Account>>,
}

impl Sent {
    pub(super) fn with(request: Request) -> Self {
        let gathered = Account::of(request.extensions());
        Self { body: request.into_body(), gathered }
    }
}

/// The body of a unary call.
pub(super) async fn whole(Sent { body, gathered }: Sent) -> Result<Bytes, RpcError> {
    gather(body, gathered, MOST, PATIENCE).await.map_err(|why| match why {
        Ungathered::TooLong => too_long(MOST + 1),
        Ungathered::TooSlow => late(),
        Ungathered::NoRoom => no_room(),
        Ungathered::BrokeOff(_) => RpcError::new(Code::InvalidArgument, "the body broke off"),
    })
}

/// The messages of a request that streams.
#[derive(Debug)]
pub(crate) struct Frames {
    body: Body,
    waiting: Waiting,
    /// What waits, and the message that was given last, of the room of the caller's tenant.
    gathered: Option<Arc<Account>>,
    given: usize,
    /// When the message began that is not whole yet.
    began: Option<Instant>,
}

impl Frames {
    pub(crate) fn of(Sent { body, gathered }: Sent) -> Self {
        // Of its own: a stream may go on when the request is answered.
        let gathered = gathered.map(|gathered| gathered.another());
        Self { body, waiting: Waiting::default(), gathered, given: 0, began: None }
    }

    /// The first message, within a time: nobody holds a place by opening a stream and saying nothing.
    pub(crate) async fn first(&mut self) -> Result<Option<Vec<u8>>, RpcError> {
        timeout(PATIENCE, self.next()).await.map_err(|_| late())?
    }

    /// The next message; `None` after the last. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, RpcError> {
        // Whoever asks for the next one is done with the last.
        if let Some(gathered) = &self.gathered {
            gathered.give_back(std::mem::take(&mut self.given));
        }
        loop {
            if let Some(message) = self.take()? {
                self.began = None;
                return Ok(Some(message));
            }
            let frame = if self.waiting.is_empty() {
                self.body.frame().await
            } else {
                let began = *self.began.get_or_insert_with(Instant::now);
                timeout_at(began + PATIENCE, self.body.frame()).await.map_err(|_| late())?
            };
            match frame {
                None if self.waiting.is_empty() => return Ok(None),
                None => {
                    return Err(RpcError::new(Code::InvalidArgument, "protocol error: incomplete envelope"));
                }
                Some(Err(_)) => return Err(RpcError::new(Code::InvalidArgument, "the body broke off")),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        if self.gathered.as_ref().is_some_and(|gathered| !gathered.take(bytes.len())) {
                            return Err(no_room());
                        }
                        self.waiting.add(&bytes);
                    }
                }
            }
        }
    }

    fn take(&mut self) -> Result<Option<Vec<u8>>, RpcError> {
        let Some((&[flags, a, b, c, d], _)) = self.waiting.all().split_first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        match flags {
            0 => {}
            COMPRESSED => {
                let what = "protocol error: sent compressed message without compression support";
                return Err(RpcError::new(Code::Internal, what));
            }
            other => {
                let what = format!("protocol error: invalid envelope flags {other}");
                return Err(RpcError::new(Code::InvalidArgument, what));
            }
        }
        if length > MOST {
            return Err(too_long(length));
        }
        if self.waiting.len() < HEAD + length {
            return Ok(None);
        }
        self.given = HEAD + length;
        // With its head, so that a long one is not there twice.
        let mut message = self.waiting.take(HEAD + length);
        message.drain(..HEAD);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(body: Body) -> Frames {
        Frames::of(Sent { body, gathered: None })
    }

    async fn all(bytes: &[u8]) -> Result<Vec<Vec<u8>>, RpcError> {
        let (filler, body) = crate::e2b::feed::channel();
        let bytes = bytes.to_vec();
        tokio::spawn(async move {
            for byte in bytes {
                filler.send(vec![byte]).await;
            }
        });
        let (mut frames, mut all) = (frames(body), Vec::new());
        while let Some(message) = frames.next().await? {
            all.push(message);
        }
        Ok(all)
    }

    #[tokio::test]
    async fn frames_are_read_however_they_come() {
        let mut bytes = frame(0, b"{}").to_vec();
        bytes.extend(frame(0, b""));
        bytes.extend(frame(0, b"abc"));
        assert_eq!(all(&bytes).await.unwrap(), [b"{}".to_vec(), Vec::new(), b"abc".to_vec()]);
        assert_eq!(frame(0, br#"{"event":{"start":{"pid":7}}}"#)[..5], [0, 0, 0, 0, 0x1d]);
    }

    #[tokio::test]
    async fn what_is_cut_too_long_or_no_frame_is_refused() {
        let code = async |bytes: &[u8]| all(bytes).await.unwrap_err().code;
        assert_eq!(code(&[0, 0, 0, 0]).await, Code::InvalidArgument);
        assert_eq!(code(&[0, 0, 0, 0, 9, b'{']).await, Code::InvalidArgument);
        assert_eq!(code(&[0, 0xff, 0xff, 0xff, 0xff]).await, Code::ResourceExhausted);
        assert_eq!(code(&[1, 0, 0, 0, 0]).await, Code::Internal);
        assert_eq!(code(&[0x82, 0, 0, 0, 0]).await, Code::InvalidArgument);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_says_nothing_is_not_waited_for_and_one_that_began_is() {
        let (_silent, body) = crate::e2b::feed::channel();
        assert_eq!(frames(body).first().await.unwrap_err().code, Code::DeadlineExceeded);
        let (filler, body) = crate::e2b::feed::channel();
        let mut frames = frames(body);
        filler.send(frame(0, b"a")).await;
        assert_eq!(frames.first().await.unwrap(), Some(b"a".to_vec()));
        let slow = tokio::spawn(async move {
            tokio::time::sleep(2 * PATIENCE).await;
            filler.send(frame(0, b"b")).await;
        });
        assert_eq!(frames.next().await.unwrap(), Some(b"b".to_vec()));
        slow.await.unwrap();
    }
    #[tokio::test(start_paused = true)]
    async fn a_message_that_has_begun_is_not_waited_for_without_end() {
        let (filler, body) = crate::e2b::feed::channel();
        let mut frames = frames(body);
        filler.send(frame(0, b"a")).await;
        assert_eq!(frames.first().await.unwrap(), Some(b"a".to_vec()));
        // Byte by byte, each in time.
        let slow = tokio::spawn(async move {
            for byte in frame(0, &[b'b'; 100]) {
                filler.send(vec![byte]).await;
                tokio::time::sleep(PATIENCE / 10).await;
            }
        });
        assert_eq!(frames.next().await.unwrap_err().code, Code::DeadlineExceeded);
        slow.abort();
    }

    #[tokio::test]
    async fn messages_of_a_stream_count_for_their_tenant_until_the_next_is_asked_for() {
        let [request, other] = crate::gather::tests::requests(["a", "a"]);
        let (filler, body) = crate::e2b::feed::channel();
        let mut frames = Frames::of(Sent { body, gathered: Some(Arc::clone(&request)) });
        // A stream is answered long before it is over.
        drop(request);
        assert!(other.take(crate::room::OF_BODIES - 2 * HEAD - 2));
        filler.send(frame(0, b"a")).await;
        filler.send(frame(0, b"b")).await;
        assert_eq!(frames.next().await.unwrap(), Some(b"a".to_vec()));
        assert!(!other.take(HEAD + 2), "what was given last is still in somebody's hands");
        assert_eq!(frames.next().await.unwrap(), Some(b"b".to_vec()));
        filler.send(frame(0, &[0; 100])).await;
        assert_eq!(frames.next().await.unwrap_err().code, Code::ResourceExhausted);
        drop(frames);
        assert!(other.take(2 * HEAD + 2));
    }

    #[tokio::test]
    async fn many_small_messages_take_work_as_their_bytes() {
        let (filler, body) = crate::e2b::feed::channel();
        let bytes = frame(0, b"x").repeat(50_000);
        let length = bytes.len();
        let sending = tokio::spawn(async move { filler.send(bytes).await });
        let mut frames = frames(body);
        for _ in 0..50_000 {
            assert_eq!(frames.next().await.unwrap(), Some(b"x".to_vec()));
        }
        assert!(frames.waiting.is_empty() && frames.waiting.moved <= 3 * length, "{}", frames.waiting.moved);
        sending.await.unwrap();
    }
}
