//! What guests may import, asked before anybody runs one: the compiler refuses a module that wants more.

#[cfg(feature = "compiler")]
use wasmtime::component::{self, Component};
use wasmtime::{Engine, Linker, Module, ResourcesRequired};

#[cfg(feature = "compiler")]
use crate::engine::COMPONENT;
use crate::engine::{MODULE, MOST_ENTRIES, Parts};
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
    /// It is a component of another preview than ours, by this name in it.
    #[cfg(feature = "compiler")]
    Newer(String),
    /// It is a component and not a command.
    #[cfg(feature = "compiler")]
    NoRun,
    /// It needs more than a place in a worker has.
    Needs(String),
}

/// The version of the binary format that a component of ours has.
#[cfg(feature = "compiler")]
const FORMAT: [u8; 2] = [0x0d, 0];
/// How the names of WASI begin, and the versions of the preview that is offered.
#[cfg(feature = "compiler")]
const OURS: (&str, &str) = ("wasi:", "0.2.");

/// What one core module of a component may want. The 128 instances that a component consists of at most take some 350 MB so, and not
/// some GB.
#[cfg(feature = "compiler")]
const MOST_GLOBALS: u32 = 4096;
#[cfg(feature = "compiler")]
const MOST_IMPORTS: u32 = 16_384;
#[cfg(feature = "compiler")]
const MOST_NAMED: u32 = 65_536;
#[cfg(feature = "compiler")]
const NAMED: &str = "functions that are exported or lie in tables";

/// Refuses a component of another preview than ours, before the engine looks at it: of what is new there it would say that it is wrong.
/// And one with modules that would take too much of a worker.
#[cfg(feature = "compiler")]
pub fn check_preview(wasm: &[u8]) -> Result<(), Unfit> {
    use wasmtime_environ::wasmparser::{Parser, Payload};
    if wasm.get(4..6) != Some(&FORMAT) {
        return Err(Unfit::Newer("its binary format".to_owned()));
    }
    let mut depth = 0_u32;
    let mut wants = Wants::default();
    for payload in Parser::new(0).parse_all(wasm) {
        // What cannot be read the engine refuses.
        let Ok(payload) = payload else { return Ok(()) };
        let names: Vec<&str> = match payload {
            Payload::Version { .. } => {
                depth = depth.saturating_add(1);
                wants = Wants::default();
                continue;
            }
            Payload::End(_) => {
                depth = depth.saturating_sub(1);
                continue;
            }
            Payload::ComponentImportSection(all) if depth == 1 => {
                all.into_iter().filter_map(|import| Some(import.ok()?.name.name)).collect()
            }
            Payload::ComponentExportSection(all) if depth == 1 => {
                all.into_iter().filter_map(|export| Some(export.ok()?.name.name)).collect()
            }
            payload => {
                wants.see(&payload)?;
                continue;
            }
        };
        if let Some(name) = names.into_iter().find(|name| is_of_another_preview(name)) {
            return Err(Unfit::Newer(name.to_owned()));
        }
    }
    Ok(())
}

/// What one core module of a component wants of the worker's own memory, wherever it is put to use: its instances are counted, and what
/// each of them takes is in no budget.
#[cfg(feature = "compiler")]
#[derive(Default)]
struct Wants {
    globals: u32,
    imports: u32,
    /// Functions that tables or others may name, which have a place in each instance.
    named: u32,
}

#[cfg(feature = "compiler")]
impl Wants {
    fn see(&mut self, payload: &wasmtime_environ::wasmparser::Payload<'_>) -> Result<(), Unfit> {
        use wasmtime_environ::wasmparser::{ElementItems, Payload};
        let (sum, more, most, what) = match payload {
            Payload::GlobalSection(all) => (&mut self.globals, all.count(), MOST_GLOBALS, "globals"),
            Payload::ImportSection(all) => {
                let count = all.clone().into_imports().count();
                (&mut self.imports, u32::try_from(count).unwrap_or(u32::MAX), MOST_IMPORTS, "imports")
            }
            Payload::ExportSection(all) => (&mut self.named, all.count(), MOST_NAMED, NAMED),
            Payload::ElementSection(all) => {
                let items =
                    all.clone().into_iter().filter_map(Result::ok).map(|element| match element.items {
                        ElementItems::Functions(all) => all.count(),
                        ElementItems::Expressions(_, all) => all.count(),
                    });
                (&mut self.named, items.fold(0, u32::saturating_add), MOST_NAMED, NAMED)
            }
            _ => return Ok(()),
        };
        *sum = sum.saturating_add(more);
        if *sum <= most {
            return Ok(());
        }
        Err(Unfit::Needs(format!("a module in it with {sum} {what}, and one has at most {most}")))
    }
}

#[cfg(feature = "compiler")]
fn is_of_another_preview(name: &str) -> bool {
    let version = name.strip_prefix(OURS.0).and_then(|rest| rest.rsplit_once('@'));
    version.is_some_and(|(_, version)| !version.starts_with(OURS.1) && version != "0.2")
}

/// Holds a component against what components are offered.
#[cfg(feature = "compiler")]
pub fn check_component(engine: &Engine, component: &Component) -> Result<(), Unfit> {
    let mut linker = component::Linker::new(engine);
    let refused = |error: wasmtime::Error| Unfit::Imports(format!("{error:#}"));
    crate::component::link(&mut linker).map_err(refused)?;
    linker.instantiate_pre(component).map_err(refused)?;
    let needs = component.resources_required();
    fits(&needs.ok_or_else(|| Unfit::Needs("modules that it imports".to_owned()))?, COMPONENT)?;
    crate::component::command(component).map(drop).ok_or(Unfit::NoRun)
}

/// Holds a module against what guests of this kind are offered.
pub fn check(engine: &Engine, kind: Kind, module: &Module) -> Result<(), Unfit> {
    let mut linker = Linker::new(engine);
    let refused = |error: wasmtime::Error| Unfit::Imports(error.to_string());
    wasi::link(&mut linker).map_err(refused)?;
    guests::link(&mut linker, kind).map_err(refused)?;
    linker.instantiate_pre(module).map_err(refused)?;
    fits(&module.resources_required(), MODULE)?;
    let has_start = module.get_export("_start").is_some_and(|export| export.func().is_some());
    if kind == Kind::Module && !has_start { Err(Unfit::NoStart) } else { Ok(()) }
}

/// A worker's places are all of one size: what does not fit in one would keep the worker from loading it.
fn fits(needs: &ResourcesRequired, most: Parts) -> Result<(), Unfit> {
    let wants = |what: String| Err(Unfit::Needs(what));
    if needs.num_memories > most.memories {
        return wants(format!("{} memories, and a guest has {}", needs.num_memories, most.memories));
    }
    if needs.num_tables > most.tables {
        return wants(format!("{} tables, and a guest has {}", needs.num_tables, most.tables));
    }
    match needs.max_initial_table_size {
        Some(entries) if usize::try_from(entries).map_or(true, |entries| entries > MOST_ENTRIES) => {
            wants(format!("a table of {entries} entries, and a guest's has {MOST_ENTRIES}"))
        }
        _ => Ok(()),
    }
}

#[cfg(all(test, feature = "compiler"))]
mod tests {
    use super::*;

    #[test]
    fn a_preview_is_told_by_the_names_of_wasi_alone() {
        for name in ["wasi:cli/run@0.3.0", "wasi:io/poll@1.0.0", "wasi:io/poll@0.20.0", "wasi:io/poll@0.1.0"]
        {
            assert!(is_of_another_preview(name), "{name}");
        }
        for name in
            ["wasi:cli/run@0.2.0", "wasi:cli/run@0.2.12", "some:host/thing@0.3.0", "wasi:cli/run", "run"]
        {
            assert!(!is_of_another_preview(name), "{name}");
        }
        let newer = |head: &[u8]| check_preview(head) == Err(Unfit::Newer("its binary format".to_owned()));
        assert!(newer(b"\0asm\x0e\0\x01\0") && newer(b"\0asm"));
        assert_eq!(check_preview(b"\0asm\x0d\0\x01\0"), Ok(()));
        assert_eq!(check_preview(b"\0asm\x0d\0\x01\0rubbish"), Ok(()));
    }

    /// A number as the format writes it, in five bytes.
    fn number(value: usize) -> Vec<u8> {
        (0..5)
            .map(|at| u8::try_from(value >> (7 * at) & 0x7f).unwrap_or(0) | if at < 4 { 0x80 } else { 0 })
            .collect()
    }

    /// A component with one core module that has this section once, or twice in two modules.
    fn component(id: u8, count: usize, item: &[u8], modules: usize) -> Vec<u8> {
        let section = |id: u8, body: &[u8]| [&[id], number(body.len()).as_slice(), body].concat();
        let body = [number(count), item.repeat(count)].concat();
        let module = [b"\0asm\x01\0\0\0".as_slice(), &section(id, &body)].concat();
        [b"\0asm\x0d\0\x01\0".as_slice(), &section(1, &module).repeat(modules)].concat()
    }

    #[test]
    fn a_module_in_a_component_takes_only_so_much_of_its_worker() {
        let most = |count: u32| usize::try_from(count).unwrap();
        for (id, most, item, what) in [
            (6, most(MOST_GLOBALS), b"\x7f\x01\x41\0\x0b".as_slice(), "globals"),
            (2, most(MOST_IMPORTS), b"\x01a\x01b\x00\x00", "imports"),
            (7, most(MOST_NAMED), b"\x01a\x00\x00", NAMED),
            // A table of 64 functions.
            (9, most(MOST_NAMED) / 64, &[b"\x00\x41\0\x0b\x40".as_slice(), &[0; 64]].concat(), NAMED),
        ] {
            assert_eq!(check_preview(&component(id, most, item, 2)), Ok(()), "{what}");
            let refused = check_preview(&component(id, most + 1, item, 1));
            assert!(matches!(&refused, Err(Unfit::Needs(why)) if why.contains(what)), "{what}: {refused:?}");
        }
    }
}
