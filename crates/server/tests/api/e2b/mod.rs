//! The face that E2B's SDKs talk to, byte by byte: statuses, words and frames that the SDKs act on.

mod control;
mod files;
mod ports;
mod rpc;
mod secrets;
mod wire;
