//! What the daemon sends by itself: copies of the ledger, alerts, numbers. Only to where the operator said.
//!
//! - [`Target`]: an address, and how it is reached: HTTP/1.1, plain or with TLS.
//! - [`HttpSink`]: a sink of the ledger. [`Webhook`]: alerts. [`Otlp`]: numbers for OpenTelemetry.

mod hmac;
mod orders;
mod otlp;
mod sink;
mod target;
pub(crate) mod tls;
mod webhook;

#[cfg(test)]
mod tests;

pub use orders::{OrderError, Orders};
pub(crate) use orders::{OtlpText, SinkText, WebhookText};
pub use otlp::Otlp;
pub use sink::HttpSink;
pub(crate) use target::read_secret;
pub use target::{BadTarget, SendError, Target};
pub use webhook::Webhook;
