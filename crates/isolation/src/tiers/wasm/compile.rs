//! A module that a caller brings becomes a guest: compiled once, in a process of its own, kept by its hash.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Guests;
use super::found::is_plain;

/// The compiler's program.
const COMPILER: &str = "blastbox-wasm-compile";
/// Longest complaint of the compiler that is passed on.
const MOST_WORDS: usize = 500;

/// A guest that was made from the caller's module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// The directory that it alone lies in.
    pub directory: PathBuf,
    /// What it is called.
    pub name: String,
}

/// Why a module did not become a guest.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// The name says nothing.
    #[error("{} has no name that a guest can have: letters, digits, - and _, at most 80", .0.display())]
    Name(PathBuf),
    /// The compiler could not be started.
    #[error("cannot start {}", path.display())]
    Start {
        /// Which program.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The directory for compiled modules cannot be used.
    #[error("cannot use {} for compiled modules", path.display())]
    Cache {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The compiler refused the module, with a code in front.
    #[error("{0}")]
    Refused(String),
    /// The compiler was ended, most often by one of its limits.
    #[error("wasm_compile_limit: the compiler was ended while it compiled {}: over its limit of time or memory", .0.display())]
    Ended(PathBuf),
}

/// Compiles a module into a directory of its own beneath `cache`, unless the same bytes were compiled before.
///
/// # Errors
/// What the compiler said.
#[expect(clippy::disallowed_methods, reason = "isolation starts processes")]
pub fn compile(guests: &Guests, module: &Path, cache: &Path) -> Result<Compiled, CompileError> {
    let stem = module.file_stem().and_then(|stem| stem.to_str()).filter(|stem| is_plain(stem));
    let name = stem.ok_or_else(|| CompileError::Name(module.to_owned()))?.to_owned();
    let usable = |source| CompileError::Cache { path: cache.to_owned(), source };
    std::fs::create_dir_all(cache).map_err(usable)?;
    let program = guests.directory().join(COMPILER);
    let start = |source| CompileError::Start { path: program.clone(), source };
    let ended = Command::new(&program)
        .arg("keep")
        .arg(module)
        .arg(cache)
        .arg(&name)
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(start)?;
    if ended.status.code().is_none() {
        return Err(CompileError::Ended(module.to_owned()));
    }
    let said = if ended.status.success() { &ended.stdout } else { &ended.stderr };
    let said: String = String::from_utf8_lossy(said).chars().take(MOST_WORDS).collect();
    if !ended.status.success() {
        return Err(CompileError::Refused(said.trim().to_owned()));
    }
    Ok(Compiled { directory: PathBuf::from(said.trim()), name })
}
