//! The one place where bytes of a file become instructions: the only unsafe lines outside crates/sys, because Wasmtime
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

/// The same of a component, by its path: Wasmtime takes no open file here. Where it lies nobody in the box can write.
#[cfg(feature = "components")]
#[allow(
    unsafe_code,
    reason = "a forged artefact is native code: who may write the shelf may run anything in the box"
)]
pub(crate) fn load_component(
    engine: &Engine,
    path: &std::path::Path,
) -> wasmtime::Result<wasmtime::component::Component> {
    // SAFETY: as above.
    unsafe { wasmtime::component::Component::deserialize_file(engine, path) }
}
