//! What guests may import, asked before anybody runs one: the compiler refuses a module that wants more.

use wasmtime::{Engine, Linker, Module};

use crate::guests;
use crate::manifest::Kind;
use crate::wasi;

/// Why a module cannot be a guest of this kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// It imports what is not offered, or in another form.
    Imports(String),
    /// It is not a command.
    NoStart,
}

/// Holds a module against what guests of this kind are offered.
pub fn check(engine: &Engine, kind: Kind, module: &Module) -> Result<(), Unfit> {
    let mut linker = Linker::new(engine);
    let refused = |error: wasmtime::Error| Unfit::Imports(error.to_string());
    wasi::link(&mut linker).map_err(refused)?;
    match kind {
        Kind::Python | Kind::Js => guests::link(&mut linker).map_err(refused)?,
        Kind::Module => {}
    }
    linker.instantiate_pre(module).map_err(refused)?;
    let has_start = module.get_export("_start").is_some_and(|export| export.func().is_some());
    if kind == Kind::Module && !has_start { Err(Unfit::NoStart) } else { Ok(()) }
}
