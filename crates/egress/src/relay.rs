//! Carrying bytes both ways, unread.

use blastbox_wire::egress::Reason;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::flow::{Dialled, Flow};
use crate::limits::Stopped;

/// One piece of what is carried.
const PIECE: usize = 64 * 1024;

/// Carries bytes both ways until both sides have said everything, one breaks off, or a limit is met.
pub(crate) async fn relay<S>(mut stream: S, mut target: Dialled, flow: &Flow)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let carried =
        tokio::io::copy_bidirectional_with_sizes(&mut stream, &mut target.stream, PIECE, PIECE).await;
    if let Err(error) = carried
        && let Some(Stopped(reason)) = error.get_ref().and_then(|inner| inner.downcast_ref::<Stopped>())
    {
        let reason: Reason = *reason;
        flow.deny(reason);
    }
}
