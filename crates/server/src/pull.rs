//! A body that asks for its next piece when the connection takes one.
//!
//! There is no task and no queue between whatever gives the pieces and the socket: a caller that does not read costs the
//! piece that it was offered last, and one that goes away takes the source with it.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::Frame;

/// The next piece and what gives the one after it; `None` at the end. An error breaks the answer off.
type Step<S, E> = Pin<Box<dyn Future<Output = Result<Option<(Bytes, S)>, E>> + Send>>;

struct Pulled<S, E, F> {
    /// `None` once it is over.
    step: Option<Step<S, E>>,
    next: F,
}

impl<S, E, F> hyper::body::Body for Pulled<S, E, F>
where
    S: Unpin,
    E: Unpin,
    F: FnMut(S) -> Step<S, E> + Unpin,
{
    type Data = Bytes;
    type Error = E;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, E>>> {
        let Some(step) = self.step.as_mut() else { return Poll::Ready(None) };
        let Poll::Ready(done) = step.as_mut().poll(context) else { return Poll::Pending };
        let (step, piece) = match done {
            Ok(Some((piece, source))) => (Some((self.next)(source)), Some(Ok(Frame::data(piece)))),
            Ok(None) => (None, None),
            Err(error) => (None, Some(Err(error))),
        };
        self.step = step;
        Poll::Ready(piece)
    }
}

/// A body of the pieces that `next` makes of the source, one after the other.
pub(crate) fn pulled<S, E, F, P>(source: S, mut next: F) -> Body
where
    S: Send + Unpin + 'static,
    E: std::error::Error + Send + Sync + Unpin + 'static,
    F: FnMut(S) -> P + Send + Unpin + 'static,
    P: Future<Output = Result<Option<(Bytes, S)>, E>> + Send + 'static,
{
    let mut next = move |source| -> Step<S, E> { Box::pin(next(source)) };
    Body::new(Pulled { step: Some(next(source)), next })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::io;

    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn pieces_come_in_order_until_there_are_no_more() {
        let body = pulled(0_u8, |count| async move {
            Ok::<_, Infallible>((count < 3).then(|| (Bytes::from(vec![count]), count + 1)))
        });
        assert_eq!(body.collect().await.unwrap().to_bytes(), [0, 1, 2][..]);
    }

    #[tokio::test]
    async fn an_error_breaks_it_off_and_nothing_follows() {
        let mut body = pulled(0_u8, |count| async move {
            if count == 0 { Ok(Some((Bytes::from_static(b"a"), 1))) } else { Err(io::Error::other("cut")) }
        });
        assert!(body.frame().await.unwrap().is_ok());
        assert!(body.frame().await.unwrap().is_err());
        assert!(body.frame().await.is_none());
    }
}
