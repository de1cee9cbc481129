//! The one place where bytes of a file become instructions: the only unsafe line outside crates/sys, because Wasmtime
//! offers no other way to load what was compiled elsewhere.

use std::fs::File;

use wasmtime::{Engine, Module};

/// Loads what our compiler wrote. The caller has held the file against its manifest.
#[allow(
    unsafe_code,
    reason = "a forged artefact is native code: who may write the shelf may run anything in the box"
)]
pub(crate) fn load(engine: &Engine, file: File) -> wasmtime::Result<Module> {
    // SAFETY: the file was written by `blastbox-wasm-compile` and compared with the hash or size that it wrote beside
    // it; the shelf belongs to the host and is shown read-only. The worker is jailed as if this did not hold.
    unsafe { Module::deserialize_open_file(engine, file) }
}
