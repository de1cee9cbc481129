//! Bodies of the control plane: bounded, timed, typed. Fields that nobody knows are let be, as E2B does: what opens a
//! boundary is known, and refused by name where it is asked for.

use std::time::Duration;

use axum::extract::Request;
use serde::de::DeserializeOwned;

use crate::e2b::no::{No, echo};
use crate::gather::{Account, NO_ROOM, NO_ROOM_CODE, Ungathered, gather};

const MOST: usize = 1024 * 1024;
/// Of one that strangers may send. It counts for the owner of the sandbox, and as many as there are seats for strangers leave most of
/// its room for bodies.
const MOST_OF_STRANGERS: usize = 32 * 1024;
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest life of a sandbox, in seconds.
const LONGEST: i64 = 30 * 86_400;

/// Reads a body of JSON. An empty one is an empty object.
pub(in crate::e2b) async fn read<T: DeserializeOwned>(request: Request) -> Result<T, No> {
    parse(&bytes(request).await?)
}

/// The same from somebody who has shown nothing.
pub(in crate::e2b) async fn read_of_stranger<T: DeserializeOwned>(request: Request) -> Result<T, No> {
    parse(&bytes_up_to(request, MOST_OF_STRANGERS).await?)
}

pub(in crate::e2b) async fn bytes(request: Request) -> Result<Vec<u8>, No> {
    bytes_up_to(request, MOST).await
}

async fn bytes_up_to(request: Request, most: usize) -> Result<Vec<u8>, No> {
    let account = Account::of(request.extensions());
    let body = gather(request.into_body(), account, most, PATIENCE).await.map_err(|why| match why {
        Ungathered::TooLong => No::new(413, format!("the body is longer than {most} bytes")),
        Ungathered::TooSlow => No::new(408, "the request did not arrive in time"),
        Ungathered::NoRoom => No::new(429, NO_ROOM).coded(NO_ROOM_CODE),
        Ungathered::BrokeOff(_) => No::bad("the body broke off"),
    })?;
    Ok(body.into())
}

pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, No> {
    let bytes = if bytes.iter().all(u8::is_ascii_whitespace) { b"{}" } else { bytes };
    serde_json::from_slice(bytes).map_err(|error| {
        let error = error.to_string();
        // What stands there instead may be a secret in the wrong place: it is not repeated.
        let wanted = error.rsplit_once(", expected ").map(|(_, wanted)| format!("expected {wanted}"));
        No::bad(format!("the body is not what this call takes: {}", echo(&wanted.unwrap_or(error))))
    })
}

/// A time in whole seconds, within what any sandbox may have.
pub(in crate::e2b) fn seconds(name: &str, asked: i64) -> Result<Duration, No> {
    match u64::try_from(asked) {
        Ok(seconds) if asked <= LONGEST => Ok(Duration::from_secs(seconds)),
        _ => Err(No::bad(format!("{name} = {asked} is out of range; permitted is 0 to {LONGEST} seconds"))),
    }
}
