//! A sink of the ledger over HTTP: records go there in order, and it says which is the last that it keeps.
//!
//! ```text
//! POST PATH   content-type: application/x-ndjson   x-blastbox-first-seq, x-blastbox-last-seq
//! {"seq":7,…}\n{"seq":8,…}\n
//! ◄── 200 {"acked": 8}
//! ```
//! A 200 alone is no acknowledgement: a proxy or a wrong address gives one as well.

use std::io;

use blastbox_engine::ledger::{Entry, Grade, Sink, SinkError};
use serde::Deserialize;
use tokio::runtime::Handle;

use super::target::Target;

/// A sink over HTTP. Lives on a thread of its own, beside the runtime that carries its requests.
#[derive(Debug)]
pub struct HttpSink {
    name: String,
    target: Target,
    runtime: Handle,
}

#[derive(Debug, Deserialize)]
struct Acknowledged {
    acked: u64,
}

impl HttpSink {
    /// A sink at this address. Inside a tokio runtime.
    #[must_use]
    pub fn new(name: String, target: Target) -> Self {
        Self { name, target, runtime: Handle::current() }
    }
}

impl Sink for HttpSink {
    fn name(&self) -> &str {
        &self.name
    }

    /// What it acknowledges it says it keeps; who runs it answers for that.
    fn grade(&self) -> Grade {
        Grade::Durable
    }

    fn deliver(&mut self, batch: &[Entry]) -> Result<u64, SinkError> {
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else {
            return Err(SinkError::NoProgress);
        };
        let mut lines = Vec::with_capacity(batch.iter().map(|entry| entry.line.len() + 1).sum());
        for entry in batch {
            lines.extend_from_slice(&entry.line);
            lines.push(b'\n');
        }
        let headers =
            [("x-blastbox-first-seq", first.seq.to_string()), ("x-blastbox-last-seq", last.seq.to_string())];
        let answer = self.runtime.block_on(self.target.post("application/x-ndjson", &headers, lines));
        let answer = answer.map_err(|error| SinkError::Unreachable(io::Error::other(error)))?;
        let Acknowledged { acked } = serde_json::from_slice(&answer)
            .map_err(|error| SinkError::Unreachable(io::Error::other(error)))?;
        // More than it was given it cannot have.
        if acked > last.seq { Err(SinkError::NoProgress) } else { Ok(acked) }
    }
}
