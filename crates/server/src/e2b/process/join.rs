//! Connect, and what Start and Connect have in common: listening to a process until it ends.

use axum::body::Body;
use axum::http::Response;
use blastbox_engine::keeper::{ExecEnded, TapeEvent, TapeReader};
use serde::Deserialize;
use tokio::time::{Instant, sleep, sleep_until};

use super::table::Mouth;
use super::{Selector, card_of, event, start};
use crate::e2b::rpc::error::{Code, RpcError};
use crate::e2b::rpc::stream::{Answering, Call};
use crate::e2b::rpc::{Context, Frames, Sent, decoded};

/// After the end of a tape.
const NEWEST: u64 = u64::MAX;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Connect {
    process: Selector,
}

/// Somebody who listens to a process.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) exec: u32,
    pub(super) mouth: Mouth,
    pub(super) tape: TapeReader,
    /// When the stream ends, whatever the process does.
    pub(super) deadline: Option<Instant>,
    /// The command and its directory, where this is whoever started it.
    pub(super) asked: Option<(String, String)>,
}

pub(crate) async fn answer(context: Context, call: Call, body: Sent) -> Response<Body> {
    match join(&context, &call, body).await {
        Ok(Joined::Runs(listener, pid)) => {
            let (answering, response) = call.begin();
            tokio::spawn(async move {
                if answering.send(&event::started(pid)).await {
                    follow(&context, listener, answering).await;
                }
            });
            response
        }
        Ok(Joined::Over(ended, pid)) => {
            let (answering, response) = call.begin();
            tokio::spawn(async move {
                answering.send(&event::started(pid)).await;
                finish(&ended, None, answering).await;
            });
            response
        }
        Err(error) => call.refuse(&error),
    }
}

enum Joined {
    Runs(Listener, u32),
    Over(ExecEnded, u32),
}

async fn join(context: &Context, call: &Call, body: Sent) -> Result<Joined, RpcError> {
    let mut frames = Frames::of(body);
    let message = frames.first().await?;
    let missing = || RpcError::new(Code::InvalidArgument, "protocol error: the stream has no message");
    let Connect { process } = decoded(call, &message.ok_or_else(missing)?)?;
    let sandbox = &context.sandbox;
    // In line before the look at how it stands, so that no end falls between the two.
    let cards = context.cards()?;
    let found = sandbox.processes.find(process.pid, process.tag.as_deref(), &cards);
    let found = found.ok_or_else(|| process.not_found())?;
    if let Some(ended) = found.ended {
        return Ok(Joined::Over(ended, found.pid));
    }
    let tape = context.desk.keeper().tape(&sandbox.tenant, &sandbox.box_id, found.exec, Some(NEWEST));
    let tape = tape.map_err(|_| process.not_found())?.hold_back();
    let deadline = context.timeout.map(|timeout| Instant::now() + timeout);
    let listener = Listener { exec: found.exec, mouth: found.mouth, tape, deadline, asked: None };
    Ok(Joined::Runs(listener, found.pid))
}

/// Listens from the start of a process on.
pub(super) fn listen(context: Context, call: Call, listener: Listener) -> Response<Body> {
    let (answering, response) = call.begin();
    tokio::spawn(async move { follow(&context, listener, answering).await });
    response
}

/// From the tape to the client, until the process ends, the box ends, the time is over or nobody listens. The process
/// goes on in the last case.
async fn follow(context: &Context, mut listener: Listener, answering: Answering) {
    loop {
        let over = async {
            match listener.deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let next = tokio::select! {
            biased;
            () = answering.left_alone() => return,
            next = listener.tape.next() => next,
            () = over => return answering.fail(&time_is_over()).await,
            () = sleep(context.keepalive) => {
                if answering.send(&event::keepalive()).await { continue } else { return }
            }
        };
        let there = match next.map(|(_, event)| event) {
            Some(TapeEvent::Started { pid }) => answering.send(&event::started(pid)).await,
            Some(TapeEvent::Output { stream, bytes }) => {
                let mut there = true;
                for piece in event::output(listener.mouth, stream, &bytes) {
                    there = there && answering.send(&piece).await;
                }
                there
            }
            // Only a reader that does not hold the tape back loses something.
            Some(TapeEvent::Dropped { .. }) => true,
            Some(TapeEvent::Ended { ended, .. }) => return end(context, &listener, &ended, answering).await,
            // It had ended when this reader came to the tape's end.
            None => match card_of(context, listener.exec).and_then(|card| card.ended) {
                Some(ended) => return end(context, &listener, &ended, answering).await,
                None => return answering.cut().await,
            },
        };
        if !there {
            return;
        }
    }
}

fn time_is_over() -> RpcError {
    RpcError::new(Code::DeadlineExceeded, "context deadline exceeded")
}

async fn end(context: &Context, listener: &Listener, ended: &ExecEnded, answering: Answering) {
    let processes = &context.sandbox.processes;
    processes.ended(listener.exec);
    if let ExecEnded::NotStarted { .. } = ended {
        processes.forget(listener.exec);
    }
    // Whoever started it set its time; the keeper has killed it for that.
    if listener.asked.is_some() && card_of(context, listener.exec).is_some_and(|card| card.timed_out) {
        return answering.fail(&time_is_over()).await;
    }
    finish(ended, listener.asked.as_ref(), answering).await;
}

async fn finish(ended: &ExecEnded, asked: Option<&(String, String)>, answering: Answering) {
    match (ended, event::ended(ended)) {
        (_, Some(last)) => {
            if answering.send(&last).await {
                answering.end().await;
            }
        }
        (ExecEnded::NotStarted { .. }, None) => answering.fail(&start::not_started(ended, asked)).await,
        // A clean end would look like a mistake of ours: the SDK asks whether the sandbox runs when it is cut off.
        (_, None) => answering.cut().await,
    }
}
