//! The guests of this box, loaded from the shelf before anything of a guest runs.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wasmtime::{Engine, InstancePre, Linker, Module};

use crate::engine::Metering;
use crate::guests::LIBRARY;
use crate::machine_code;
use crate::manifest::{BadManifest, HASHED_ALWAYS, Hash, Kind, MOST, Manifest};
use crate::wasi::{self, Guest};

/// A guest that can be run.
pub(crate) struct Loaded {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) ready: InstancePre<Guest>,
    /// Python's library.
    pub(crate) library: Option<Arc<File>>,
    /// Bytes of memory that are an image which all guests of it share until they write to it.
    pub(crate) shared: u64,
}

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
    #[error("guest {name}: {source}; run `make wasm`")]
    Manifest { name: String, source: BadManifest },
    #[error("guest {name}: its machine code is not what its manifest says; run `make wasm`")]
    Changed { name: String },
    #[error(
        "guest {name}: the engine does not take it: {source}; run `make wasm`, or take it from the shelf"
    )]
    Engine { name: String, source: wasmtime::Error },
}

/// Loads these guests.
pub(crate) fn load(
    engine: &Engine,
    metering: Metering,
    guests: &[(PathBuf, String)],
) -> wasmtime::Result<Shelf> {
    let mut wasi = Linker::new(engine);
    wasi::link(&mut wasi)?;
    let mut shelf = Shelf { guests: Vec::new(), unusable: Vec::new() };
    for (directory, name) in guests {
        match load_one((engine, metering), &wasi, directory, name) {
            Ok(loaded) => shelf.guests.push(Arc::new(loaded)),
            Err(why) => shelf.unusable.push((name.clone(), why.to_string().into())),
        }
    }
    Ok(shelf)
}

fn load_one(
    (engine, metering): (&Engine, Metering),
    wasi: &Linker<Guest>,
    shelf: &Path,
    name: &str,
) -> Result<Loaded, ShelfError> {
    let stem = metering.stem(name);
    let read = |what: &'static str| move |source| ShelfError::Read { name: name.to_owned(), what, source };
    let mut text = String::new();
    let about = File::open(shelf.join(format!("{stem}.guest"))).map_err(|source| {
        match (metering, source.kind()) {
            (Metering::Fuel, io::ErrorKind::NotFound) => ShelfError::Unmetered { name: name.to_owned() },
            _ => read("its manifest")(source),
        }
    })?;
    let most = u64::try_from(MOST).unwrap_or(u64::MAX);
    about.take(most).read_to_string(&mut text).map_err(read("its manifest"))?;
    let manifest = Manifest::parse(&text, metering)
        .map_err(|source| ShelfError::Manifest { name: name.to_owned(), source })?;

    let code = File::open(shelf.join(format!("{stem}.cwasm"))).map_err(read("its machine code"))?;
    let size = code.metadata().map_err(read("its machine code"))?.len();
    let mut same = size == manifest.size;
    if same && size <= HASHED_ALWAYS {
        let mut bytes = Vec::new();
        (&code).take(HASHED_ALWAYS).read_to_end(&mut bytes).map_err(read("its machine code"))?;
        same = Hash::of(&bytes) == manifest.code;
    }
    if !same {
        return Err(ShelfError::Changed { name: name.to_owned() });
    }
    let engine_says = |source| ShelfError::Engine { name: name.to_owned(), source };
    let module = machine_code::load(engine, code).map_err(engine_says)?;
    let mut linker = wasi.clone();
    crate::guests::link(&mut linker, manifest.kind).map_err(engine_says)?;
    let ready = linker.instantiate_pre(&module).map_err(engine_says)?;
    let library = match manifest.kind {
        Kind::Python | Kind::PythonData => {
            Some(Arc::new(File::open(shelf.join(LIBRARY)).map_err(read("its library"))?))
        }
        Kind::Js | Kind::Module => None,
    };
    let shared = match manifest.kind {
        Kind::Python | Kind::PythonData => image_of(&module),
        Kind::Js | Kind::Module => 0,
    };
    Ok(Loaded { name: name.to_owned(), kind: manifest.kind, ready, library, shared })
}

/// Bytes that a module's memory has when it begins.
fn image_of(module: &Module) -> u64 {
    let memory = module.get_export("memory").and_then(|export| export.memory().cloned());
    memory.map_or(0, |memory| memory.minimum().saturating_mul(memory.page_size()))
}
