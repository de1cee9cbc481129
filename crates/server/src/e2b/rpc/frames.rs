//! Frames of a stream: one byte of flags, a length, a message. Read as they come, bounded before anything is kept.

use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::timeout;

use super::error::{Code, RpcError};

/// Longest message. A command line of the kernel's own limit fits, however it is written.
const MOST: usize = 8 * 1024 * 1024;
const HEAD: usize = 5;
/// How long the body of a unary call, and the first message of a stream, may take to come.
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

/// The body of a unary call.
pub(super) async fn whole(body: Body) -> Result<Bytes, RpcError> {
    match timeout(PATIENCE, Limited::new(body, MOST).collect()).await {
        Err(_) => Err(RpcError::new(Code::DeadlineExceeded, "the request did not arrive in time")),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_long(MOST + 1)),
        Ok(Err(_)) => Err(RpcError::new(Code::InvalidArgument, "the body broke off")),
        Ok(Ok(body)) => Ok(body.to_bytes()),
    }
}

/// The messages of a request that streams.
#[derive(Debug)]
pub(crate) struct Frames {
    body: Body,
    waiting: Vec<u8>,
}

impl Frames {
    pub(crate) fn of(body: Body) -> Self {
        Self { body, waiting: Vec::new() }
    }

    /// The first message, within a time: nobody holds a place by opening a stream and saying nothing.
    pub(crate) async fn first(&mut self) -> Result<Option<Vec<u8>>, RpcError> {
        let late = || RpcError::new(Code::DeadlineExceeded, "the request did not arrive in time");
        timeout(PATIENCE, self.next()).await.map_err(|_| late())?
    }

    /// The next message; `None` after the last. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, RpcError> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            match self.body.frame().await {
                None if self.waiting.is_empty() => return Ok(None),
                None => {
                    return Err(RpcError::new(Code::InvalidArgument, "protocol error: incomplete envelope"));
                }
                Some(Err(_)) => return Err(RpcError::new(Code::InvalidArgument, "the body broke off")),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.waiting.extend_from_slice(&bytes);
                    }
                }
            }
        }
    }

    fn take(&mut self) -> Result<Option<Vec<u8>>, RpcError> {
        let Some((&[flags, a, b, c, d], _)) = self.waiting.split_first_chunk::<HEAD>() else {
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
        let rest = self.waiting.split_off(HEAD + length);
        let mut message = std::mem::replace(&mut self.waiting, rest);
        message.drain(..HEAD);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(bytes: &[u8]) -> Result<Vec<Vec<u8>>, RpcError> {
        let (filler, body) = crate::e2b::feed::channel();
        let bytes = bytes.to_vec();
        tokio::spawn(async move {
            for byte in bytes {
                filler.send(vec![byte]).await;
            }
        });
        let (mut frames, mut all) = (Frames::of(body), Vec::new());
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
        assert_eq!(Frames::of(body).first().await.unwrap_err().code, Code::DeadlineExceeded);
        let (filler, body) = crate::e2b::feed::channel();
        let mut frames = Frames::of(body);
        filler.send(frame(0, b"a")).await;
        assert_eq!(frames.first().await.unwrap(), Some(b"a".to_vec()));
        let slow = tokio::spawn(async move {
            tokio::time::sleep(2 * PATIENCE).await;
            filler.send(frame(0, b"b")).await;
        });
        assert_eq!(frames.next().await.unwrap(), Some(b"b".to_vec()));
        slow.await.unwrap();
    }
}
