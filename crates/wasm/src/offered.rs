//! What guests may import, asked before anybody runs one: the compiler refuses a module that wants more.

use wasmtime::{Engine, Linker, Module, ResourcesRequired};

use crate::engine::{MOST_ENTRIES, MOST_MEMORIES, MOST_TABLES};
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
    /// It needs more than a place in a worker has.
    Needs(String),
}

/// Holds a module against what guests of this kind are offered.
pub fn check(engine: &Engine, kind: Kind, module: &Module) -> Result<(), Unfit> {
    let mut linker = Linker::new(engine);
    let refused = |error: wasmtime::Error| Unfit::Imports(error.to_string());
    wasi::link(&mut linker).map_err(refused)?;
    guests::link(&mut linker, kind).map_err(refused)?;
    linker.instantiate_pre(module).map_err(refused)?;
    fits(&module.resources_required())?;
    let has_start = module.get_export("_start").is_some_and(|export| export.func().is_some());
    if kind == Kind::Module && !has_start { Err(Unfit::NoStart) } else { Ok(()) }
}

/// A worker's places are all of one size: what does not fit in one would keep the worker from loading it.
fn fits(needs: &ResourcesRequired) -> Result<(), Unfit> {
    let wants = |what: String| Err(Unfit::Needs(what));
    if needs.num_memories > MOST_MEMORIES {
        return wants(format!("{} memories, and a guest has {MOST_MEMORIES}", needs.num_memories));
    }
    if needs.num_tables > MOST_TABLES {
        return wants(format!("{} tables, and a guest has {MOST_TABLES}", needs.num_tables));
    }
    match needs.max_initial_table_size {
        Some(entries) if usize::try_from(entries).map_or(true, |entries| entries > MOST_ENTRIES) => {
            wants(format!("a table of {entries} entries, and a guest's has {MOST_ENTRIES}"))
        }
        _ => Ok(()),
    }
}
