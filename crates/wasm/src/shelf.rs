//! The guests of this box, loaded from the shelf before anything of a guest runs.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(feature = "components")]
use wasmtime::component;
use wasmtime::{Engine, InstancePre, Linker, Module};

use crate::engine::Metering;
use crate::guests::LIBRARY;
use crate::machine_code;
use crate::manifest::{BadManifest, Begins, Kind, MOST, Manifest};
use crate::pages::Pages;
use crate::seal::{Seal, is_whole};
use crate::wasi::{self, Guest};

/// Whose a guest is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// One that lies on the shelf: a command names it, as it names a program that is installed.
    Shelf,
    /// A module or component of the caller: a command names the file that it was made of.
    Caller,
}

/// A guest, where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// The directory that its files lie in.
    pub directory: PathBuf,
    /// What its files are called.
    pub name: String,
    /// Whose it is.
    pub whose: Whose,
}

impl Placed {
    /// What commands call it. No guest of the shelf can be called like a file of the caller's: its name has no dot.
    fn called(&self) -> String {
        match self.whose {
            Whose::Shelf => self.name.clone(),
            Whose::Caller => format!("{}{MODULE}", self.name),
        }
    }
}

/// What ends the name of a file that is a program.
pub(crate) const MODULE: &str = ".wasm";

/// A guest that can be run.
pub(crate) struct Loaded {
    /// What commands call it.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) code: Code,
    /// Python's library.
    pub(crate) library: Option<Arc<File>>,
    /// Bytes of memory that are an image which all guests of it share until they write to it.
    pub(crate) shared: u64,
    /// What the first command of a guest writes to.
    pub(crate) writes: Pages,
}

/// What was loaded.
pub(crate) enum Code {
    Module(InstancePre<Guest>),
    #[cfg(feature = "components")]
    Component(component::InstancePre<Guest>),
}

/// A guest that everybody may ask for. It is made on request only, and never as code that counts its work.
const DATA: &str = "python-data";

/// What lies on the shelf.
pub(crate) struct Shelf {
    pub(crate) guests: Vec<Arc<Loaded>>,
    /// Those that cannot be loaded, and why. Whoever asks for one is told; the others run.
    pub(crate) unusable: Vec<(String, Arc<str>)>,
}

/// Why a guest cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShelfError {
    #[error("guest {name}: cannot read {what}: {source}; run `make wasm`")]
    Read {
        name: String,
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error(
        "guest {name} does not count its work: it has no {name}.metered.guest; run `make wasm METERED=all`, or leave `fuel` away"
    )]
    Unmetered { name: String },
    #[error("there is no {DATA} that counts its work: take python, or leave `fuel` away")]
    UnmeteredData,
    #[error(
        "the guest {DATA} is not on the shelf: `make wasm DATA=yes` makes it, once; numpy and pandas can also be imported by python"
    )]
    UnmadeData,
    #[error("guest {name}: {source}; run `make wasm`")]
    Manifest { name: String, source: BadManifest },
    #[error(
        "guest {name}: no image of it was taken, as older versions of blastbox took none; run `{}`",
        made_by(name)
    )]
    Bare { name: String },
    #[error(
        "guest {name} is a component, which needs a box of its own: one whose policy names it (guest = \"{name}\" under [kernel])"
    )]
    #[cfg(not(feature = "components"))]
    Component { name: String },
    #[error(
        "{name} names a file, and commands of a box name a guest of its shelf: `blastbox run --tier wasm -- {name}` runs a module of the \
         caller's, and an operator adds one to the shelf with blastbox-wasm-compile"
    )]
    File { name: String },
    #[error("guest {name}: its {what} is not what its manifest says; run `make wasm`")]
    Changed { name: String, what: &'static str },
    #[error(
        "guest {name}: its manifest does not say which library it has, as older versions of blastbox did not; run `make wasm`"
    )]
    Unfurnished { name: String },
    #[error(
        "guest {name}: the engine does not take it: {source}; run `make wasm`, or take it from the shelf"
    )]
    Engine { name: String, source: wasmtime::Error },
}

/// What makes a guest.
fn made_by(name: &str) -> &'static str {
    if name == DATA { "make wasm DATA=yes" } else { "make wasm" }
}

impl ShelfError {
    /// Why there is no code of this guest that counts its work.
    fn unmetered(name: &str) -> Self {
        if name == DATA { Self::UnmeteredData } else { Self::Unmetered { name: name.to_owned() } }
    }

    /// Why a guest that may be expected is not on the shelf at all. `None`: nobody expects it.
    pub(crate) fn unmade(name: &[u8], metering: Metering) -> Option<Self> {
        if name.ends_with(MODULE.as_bytes()) {
            return Some(Self::File { name: String::from_utf8_lossy(name).into_owned() });
        }
        let why = match metering {
            Metering::None => Self::UnmadeData,
            // Whoever made it would be told no all the same.
            Metering::Fuel => Self::UnmeteredData,
        };
        (name == DATA.as_bytes()).then_some(why)
    }
}

/// Loads these guests, if they are to be run.
pub(crate) fn load(engine: &Engine, metering: Metering, guests: &[Placed]) -> wasmtime::Result<Shelf> {
    load_all((engine, metering), guests, |kind, begins| match kind {
        Kind::Python | Kind::PythonData | Kind::Js => begins == Begins::FromImage,
        Kind::Module | Kind::Component => true,
    })
}

/// Loads these guests, where what they begin with is fit for what is done with them.
pub(crate) fn load_all(
    (engine, metering): (&Engine, Metering),
    guests: &[Placed],
    is_fit: impl Fn(Kind, Begins) -> bool,
) -> wasmtime::Result<Shelf> {
    let mut wasi = Linker::new(engine);
    wasi::link(&mut wasi)?;
    let mut shelf = Shelf { guests: Vec::new(), unusable: Vec::new() };
    for guest in guests {
        match load_one((engine, metering), &wasi, (&guest.directory, &guest.name), &is_fit) {
            Ok(loaded) => shelf.guests.push(Arc::new(Loaded { name: guest.called(), ..loaded })),
            Err(why) => shelf.unusable.push((guest.called(), why.to_string().into())),
        }
    }
    Ok(shelf)
}

fn load_one(
    (engine, metering): (&Engine, Metering),
    wasi: &Linker<Guest>,
    (shelf, name): (&Path, &str),
    is_fit: impl Fn(Kind, Begins) -> bool,
) -> Result<Loaded, ShelfError> {
    let stem = metering.stem(name);
    let read = |what: &'static str| move |source| ShelfError::Read { name: name.to_owned(), what, source };
    let mut text = String::new();
    let about = File::open(shelf.join(format!("{stem}.guest"))).map_err(|source| {
        match (metering, source.kind()) {
            (Metering::Fuel, io::ErrorKind::NotFound) => ShelfError::unmetered(name),
            _ => read("its manifest")(source),
        }
    })?;
    let most = u64::try_from(MOST).unwrap_or(u64::MAX);
    about.take(most).read_to_string(&mut text).map_err(read("its manifest"))?;
    let manifest = Manifest::parse(&text, metering)
        .map_err(|source| ShelfError::Manifest { name: name.to_owned(), source })?;
    if !is_fit(manifest.kind, manifest.begins) {
        return Err(ShelfError::Bare { name: name.to_owned() });
    }
    #[cfg(not(feature = "components"))]
    if manifest.kind == Kind::Component {
        return Err(ShelfError::Component { name: name.to_owned() });
    }
    let path = shelf.join(format!("{stem}.cwasm"));
    let code = File::open(&path).map_err(read("its machine code"))?;
    let size = code.metadata().map_err(read("its machine code"))?.len();
    let seal = Seal::read(shelf, &stem);
    let changed = |what: &'static str| ShelfError::Changed { name: name.to_owned(), what };
    if size != manifest.size || !is_whole(&code, manifest.code, &seal).map_err(read("its machine code"))? {
        return Err(changed("machine code"));
    }
    let engine_says = |source| ShelfError::Engine { name: name.to_owned(), source };
    #[cfg(feature = "components")]
    if manifest.kind == Kind::Component {
        return load_component(engine, &path, name, manifest).map_err(engine_says);
    }
    let module = machine_code::load(engine, code).map_err(engine_says)?;
    let mut linker = wasi.clone();
    crate::guests::link(&mut linker, manifest.kind).map_err(engine_says)?;
    let code = Code::Module(linker.instantiate_pre(&module).map_err(engine_says)?);
    let library = match manifest.kind {
        Kind::Python | Kind::PythonData => {
            let library = File::open(shelf.join(LIBRARY)).map_err(read("its library"))?;
            let wanted = manifest.library.ok_or(ShelfError::Unfurnished { name: name.to_owned() })?;
            if !is_whole(&library, wanted, &seal).map_err(read("its library"))? {
                return Err(changed("library"));
            }
            Some(Arc::new(library))
        }
        Kind::Js | Kind::Module | Kind::Component => None,
    };
    let shared = match manifest.kind {
        Kind::Python | Kind::PythonData => image_of(&module),
        Kind::Js | Kind::Module | Kind::Component => 0,
    };
    Ok(Loaded { name: name.to_owned(), kind: manifest.kind, code, library, shared, writes: manifest.writes })
}

#[cfg(feature = "components")]
fn load_component(engine: &Engine, path: &Path, name: &str, manifest: Manifest) -> wasmtime::Result<Loaded> {
    let component = machine_code::load_component(engine, path)?;
    let mut linker = component::Linker::new(engine);
    crate::component::link(&mut linker)?;
    let code = Code::Component(linker.instantiate_pre(&component)?);
    let Manifest { kind, writes, .. } = manifest;
    Ok(Loaded { name: name.to_owned(), kind, code, library: None, shared: 0, writes })
}

/// Bytes that a module's memory has when it begins.
fn image_of(module: &Module) -> u64 {
    let memory = module.get_export("memory").and_then(|export| export.memory().cloned());
    memory.map_or(0, |memory| memory.minimum().saturating_mul(memory.page_size()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_told_to_make_a_python_data_that_counts_its_work() {
        let unmade = |metering| ShelfError::unmade(b"python-data", metering).unwrap().to_string();
        for told in [ShelfError::unmetered(DATA).to_string(), unmade(Metering::Fuel)] {
            assert!(told.contains("take python, or leave `fuel` away"), "{told}");
            assert!(!told.contains("make wasm"), "{told}");
        }
        assert!(ShelfError::unmetered("python").to_string().contains("make wasm METERED=all"));
        assert!(unmade(Metering::None).contains("make wasm DATA=yes"));
        assert!(ShelfError::unmade(b"python", Metering::Fuel).is_none());
        assert!(ShelfError::Bare { name: DATA.to_owned() }.to_string().contains("make wasm DATA=yes"));
    }
    #[test]
    fn a_guest_of_the_caller_is_called_like_its_file_and_none_of_the_shelf_is() {
        let placed = |whose| Placed { directory: "/x".into(), name: "js".to_owned(), whose };
        assert_eq!(
            (placed(Whose::Shelf).called(), placed(Whose::Caller).called()),
            ("js".into(), "js.wasm".into())
        );
        let told = ShelfError::unmade(b"js.wasm", Metering::None).unwrap().to_string();
        assert!(told.contains("js.wasm names a file") && told.contains("blastbox run --tier wasm"), "{told}");
        assert!(ShelfError::unmade(b"./js", Metering::None).is_none(), "not found, as elsewhere");
    }
}
