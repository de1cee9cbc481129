//! `/v1/boxes/{id}/execs/{exec}/output`: what a command prints, as it is: for much of it, where base64 would be a third more
//! bytes and most of the work.
//!
//! Bytes alone cannot say that some are missing. So the command waits for this reader, and what was overwritten before it
//! came is refused rather than skipped; a command that ended with its box breaks the answer off.

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Response};
use blastbox_engine::Stream;
use blastbox_engine::keeper::{ExecEnded, Keeper, TapeEvent, TapeReader};

use crate::Trouble;
use crate::caller::Caller;
use crate::pull::pulled;
use crate::sse::Until;
use crate::take::{ExecPath, Query};

/// Why an answer is not whole.
#[derive(Debug, thiserror::Error)]
#[error("the box ended before the command: {code}")]
struct BrokenOff {
    code: String,
}

/// Which output is wanted; all of it, in the order in which it came, where nobody says.
type Wanted = Option<Stream>;

pub(crate) async fn output(
    State(keeper): State<Keeper>,
    caller: Caller,
    ExecPath(id, exec): ExecPath,
    query: Query,
) -> Result<Response<Body>, Trouble> {
    let query = query.only(&["after", "stream", "follow"])?;
    let wanted = match query.text("stream") {
        None => None,
        Some("stdout") => Some(Stream::Stdout),
        Some("stderr") => Some(Stream::Stderr),
        Some(_) => {
            return Err(Trouble::BadQuery("the parameter `stream` is `stdout` or `stderr`".to_owned()));
        }
    };
    let until = Until::from(&query)?;
    let after = query.parsed("after", "a number")?;
    let reader = keeper.tape(&caller.tenant, &id, exec, after)?.hold_back();
    let missed = reader.missed();
    if missed > 0 {
        return Err(Trouble::OutputOverwritten { bytes: missed, oldest: after.unwrap_or(0).max(1) + missed });
    }
    let mut response =
        Response::new(pulled(reader, move |reader| async move { next(reader, wanted, until).await }));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

async fn next(
    mut reader: TapeReader,
    wanted: Wanted,
    until: Until,
) -> Result<Option<(Bytes, TapeReader)>, BrokenOff> {
    loop {
        let over = async {
            match until {
                Until::Now => {}
                Until::Over => std::future::pending().await,
            }
        };
        let event = tokio::select! {
            biased;
            event = reader.next() => event.map(|(_, event)| event),
            () = over => None,
        };
        match event {
            Some(TapeEvent::Output { stream, bytes }) if wanted.is_none_or(|wanted| wanted == stream) => {
                return Ok(Some((bytes, reader)));
            }
            Some(TapeEvent::Output { .. } | TapeEvent::Started { .. } | TapeEvent::Dropped { .. }) => {}
            Some(TapeEvent::Ended { ended: ExecEnded::BoxEnded { code, .. }, .. }) => {
                return Err(BrokenOff { code });
            }
            Some(TapeEvent::Ended {
                ended:
                    ExecEnded::Exited { .. }
                    | ExecEnded::Signalled { .. }
                    | ExecEnded::FuelSpent { .. }
                    | ExecEnded::NotStarted { .. },
                ..
            })
            | None => return Ok(None),
        }
    }
}
