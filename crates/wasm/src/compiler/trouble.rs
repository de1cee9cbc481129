//! Why nothing was compiled.

use std::io;
use std::path::PathBuf;

use blastbox_wasm::image::ImageError;
use blastbox_wasm::manifest::BadManifest;

/// Largest module. Python's is 100 MB.
pub(crate) const MOST_MODULE: u64 = 160 << 20;
/// Largest machine code. Python's is 292 MB.
pub(crate) const MOST_CODE: u64 = 1 << 30;

/// Why nothing came of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error(
        "write `blastbox-wasm-compile [--metered] compile KIND MODULE SHELF NAME`, `… image python-data SHELF NAME`, `… keep MODULE CACHE NAME`, `… kept MODULE CACHE NAME`, `… verify SHELF NAME`, `… seal SHELF`, `… check SHELF`, `… rehearse SHELF NAME` or `… follow SHELF NAME`"
    )]
    Usage,
    #[error("cannot {what} {}: {source}", path.display())]
    File { what: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot {what}: {source}")]
    Process { what: &'static str, source: io::Error },
    #[error(
        "wasm_too_large: the module has more than {MOST_MODULE} bytes, or its machine code more than is kept of one ({MOST_CODE} bytes, of one that a \
         daemon compiles for its callers a quarter of that)"
    )]
    TooLarge,
    #[error(
        "wasm_component: this is a component and no module: `blastbox run --tier wasm -- FILE` runs one, and `compile component FILE SHELF NAME` \
         adds one to a shelf, for boxes whose policy names it (kernel.guest)"
    )]
    Component,
    #[error(
        "wasm_component_newer: the component is of another preview of WASI than 0.2, as {0} says: build it for wasm32-wasip2 or wasm32-wasip1"
    )]
    Newer(String),
    #[error(
        "wasm_no_run: the component exports no `run` of `wasi:cli/run@0.2`: it is a library, not a command"
    )]
    NoRun,
    #[error("wasm_invalid: the engine does not take it: {0}")]
    Invalid(String),
    #[error("wasm_import_unknown: it imports what is not offered: {0}")]
    Imports(String),
    #[error("wasm_no_start: the module has no function `_start`: it is a library, not a command")]
    NoStart,
    #[error("wasm_needs_too_much: it needs {0}")]
    Needs(String),
    #[error("wasm_compile_limit: the compiler was ended: over its limit of time or memory")]
    Ended,
    /// What the process said that looked into the module.
    #[error("{said}")]
    Said { code: u8, said: String },
    #[error("wasm_no_image: {0}")]
    Image(#[from] ImageError),
    #[error("wasm_no_image: the guest python on this shelf has not begun; run `make wasm`")]
    Bare,
    #[error("{0}")]
    Manifest(BadManifest),
    #[error("wasm_artefact_changed: the {what} of {name} is not what its manifest says; make it again")]
    Changed { name: String, what: &'static str },
}

impl Trouble {
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Usage => 2,
            Self::TooLarge
            | Self::Component
            | Self::Newer(_)
            | Self::NoRun
            | Self::Invalid(_)
            | Self::Imports(_)
            | Self::NoStart
            | Self::Needs(_)
            | Self::Ended => 3,
            Self::Said { code, .. } => *code,
            Self::Manifest(_) | Self::Changed { .. } | Self::Image(_) | Self::Bare => 4,
            Self::File { .. } | Self::Process { .. } => 1,
        }
    }
}

/// Words of a stranger, short and on one line.
pub(crate) fn one_line(text: &str) -> String {
    let plain = text.split_whitespace().collect::<Vec<_>>().join(" ");
    plain.chars().filter(|letter| !letter.is_control()).take(300).collect()
}
