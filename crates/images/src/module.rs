//! What a box of the tier `wasm` has in the place of a root file system: a program that a caller brought, compiled.

use std::path::{Path, PathBuf};

use serde::Serialize;

/// What such a program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// A module of WASI preview 1.
    Module,
    /// A component of WASI 0.2.
    Component,
}

/// A module or component, compiled. Made by whoever compiles; looked at by nobody but its worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModuleImage {
    /// The directory that its code lies in, and no other guest's.
    pub directory: PathBuf,
    /// What it is called.
    pub name: String,
    /// What it is.
    pub form: Form,
    /// The hash of what was compiled, as 64 digits.
    pub digest: String,
}

impl ModuleImage {
    /// What such an image is called, before its name.
    pub const PREFIX: &'static str = "module:";

    /// Its name in receipts: what it is called, and what it was made of.
    pub(crate) fn label(&self) -> String {
        format!("{}{}@sha256:{}", Self::PREFIX, self.name, self.digest)
    }

    /// Whether a path says of itself that it leads to such a program.
    #[must_use]
    pub fn is_meant(path: &Path) -> bool {
        path.extension().is_some_and(|ending| ending == "wasm")
    }
}
