//! The native API, one room per thing: boxes, commands in them, one-shot runs, and what tells about the daemon.

pub(crate) mod about;
pub(crate) mod boxes;
pub(crate) mod execs;
pub(crate) mod run;
pub(crate) mod stdin;

use std::future::Future;

use crate::Trouble;

/// Carries something out to its end, also when its caller goes away meanwhile: half of it would be worse.
async fn to_the_end<T, F>(work: F) -> Result<T, Trouble>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Trouble>> + Send + 'static,
{
    tokio::spawn(work).await.unwrap_or(Err(Trouble::Defect))
}
