//! What the compiler does: `compile KIND MODULE SHELF NAME`, `keep MODULE CACHE NAME`, or `verify SHELF NAME`.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use blastbox_sys::identity::limit;
use blastbox_sys::landlock::{Access, Grant, Tcp, restrict};
use blastbox_sys::seccomp::{Filter, Visibility};
use blastbox_wasm::engine::{LABEL, Purpose, engine};
use blastbox_wasm::manifest::{BadManifest, Hash, Kind, Manifest};
use blastbox_wasm::offered::{self, Unfit};
use rustix::fs::{Mode, OFlags};
use rustix::process::Resource;

/// Largest module of a caller. Python's is 100 MB.
const MOST_MODULE: u64 = 160 << 20;
/// Processor seconds: Python's takes 160.
const MOST_SECONDS: u64 = 1200;
/// Memory: Python's takes 2.3 GB.
const MOST_MEMORY: u64 = 6 << 30;

/// Why nothing came of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error(
        "write `blastbox-wasm-compile compile KIND MODULE SHELF NAME`, `… keep MODULE CACHE NAME` or `… verify SHELF NAME`"
    )]
    Usage,
    #[error("cannot {what} {}: {source}", path.display())]
    File { what: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot limit this process: {0}")]
    Limit(io::Error),
    #[error("wasm_too_large: the module has more than {MOST_MODULE} bytes")]
    TooLarge,
    #[error("wasm_component: a component, and this version runs preview-1 modules only")]
    Component,
    #[error("wasm_invalid: the engine does not take the module: {0}")]
    Invalid(String),
    #[error("wasm_import_unknown: the module imports what is not offered: {0}")]
    Imports(String),
    #[error("wasm_no_start: the module has no function `_start`: it is a library, not a command")]
    NoStart,
    #[error("{0}")]
    Manifest(BadManifest),
    #[error("wasm_artefact_changed: the machine code of {0} is not what its manifest says; make it again")]
    Changed(String),
}

impl Trouble {
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Usage => 2,
            Self::TooLarge | Self::Component | Self::Invalid(_) | Self::Imports(_) | Self::NoStart => 3,
            Self::Manifest(_) | Self::Changed(_) => 4,
            Self::File { .. } | Self::Limit(_) => 1,
        }
    }
}

/// Does what the command line says. Returns what to say about it.
pub(crate) fn carry_out(words: impl Iterator<Item = OsString>) -> Result<String, Trouble> {
    let words: Vec<OsString> = words.collect();
    match words.iter().map(|word| word.to_str()).collect::<Option<Vec<&str>>>().as_deref() {
        Some(["compile", kind, module, shelf, name]) => {
            let kind = Kind::parse(kind).ok_or(Trouble::Usage)?;
            compile(kind, Path::new(module), Path::new(shelf), name)
        }
        Some(["keep", module, cache, name]) => keep(Path::new(module), Path::new(cache), name),
        Some(["verify", shelf, name]) => verify(Path::new(shelf), name),
        _ => Err(Trouble::Usage),
    }
}

fn compile(kind: Kind, module: &Path, shelf: &Path, name: &str) -> Result<String, Trouble> {
    limits()?;
    let wasm = read(module, MOST_MODULE)?;
    make(kind, &wasm, shelf, name).map(|manifest| manifest.to_string())
}

/// Compiles a caller's module into a directory of its own, called by what it was made from and for. Says where; what was
/// compiled before is held against its hash and not compiled again.
fn keep(module: &Path, cache: &Path, name: &str) -> Result<String, Trouble> {
    limits()?;
    let wasm = read(module, MOST_MODULE)?;
    let place = cache.join(
        Hash::of(&[Hash::of(&wasm).to_string(), LABEL.to_owned(), name.to_owned()].concat().into_bytes())
            .to_string(),
    );
    if verify(&place, name).is_ok() {
        return Ok(place.display().to_string());
    }
    let broken = |source| Trouble::File { what: "make", path: place.clone(), source };
    fs::create_dir_all(&place).map_err(broken)?;
    make(Kind::Module, &wasm, &place, name)?;
    Ok(place.display().to_string())
}

fn limits() -> Result<(), Trouble> {
    for (what, most) in [(Resource::Cpu, MOST_SECONDS), (Resource::As, MOST_MEMORY), (Resource::Core, 0)] {
        limit(what, most).map_err(Trouble::Limit)?;
    }
    Ok(())
}

/// Nothing but the shelf can be opened from here on, nothing can be reached, and the kernel hears no call that a payload
/// may not make: what is compiled is a stranger's.
fn confine(shelf: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(shelf, flags, Mode::empty())?;
    rustix::thread::set_no_new_privs(true)?;
    restrict(&[Grant { dir: dir.as_fd(), access: Access::ReadWrite }], Tcp::DenyAll, 0).map(drop)?;
    Filter::compile(Visibility::Silent).install().map(|_| ())
}

fn make(kind: Kind, wasm: &[u8], shelf: &Path, name: &str) -> Result<Manifest, Trouble> {
    confine(shelf).map_err(Trouble::Limit)?;
    if wasm.get(..8).is_some_and(|head| head.starts_with(b"\0asm") && head.get(4..6) != Some(&[1, 0])) {
        return Err(Trouble::Component);
    }
    let invalid = |error: wasmtime::Error| Trouble::Invalid(one_line(&format!("{error:?}")));
    let engine = engine(Purpose::Compile).map_err(invalid)?;
    let wasm_hash = Hash::of(wasm);
    let module = wasmtime::Module::from_binary(&engine, wasm).map_err(invalid)?;
    offered::check(&engine, kind, &module).map_err(|unfit| match unfit {
        Unfit::Imports(what) => Trouble::Imports(one_line(&what)),
        Unfit::NoStart => Trouble::NoStart,
    })?;
    let code = module.serialize().map_err(invalid)?;
    let manifest = Manifest {
        kind,
        wasm: wasm_hash,
        code: Hash::of(&code),
        size: u64::try_from(code.len()).unwrap_or(u64::MAX),
    };
    put(shelf, &format!("{name}.cwasm"), &code)?;
    // Last: a shelf with a manifest is whole.
    put(shelf, &format!("{name}.guest"), manifest.to_string().as_bytes())?;
    Ok(manifest)
}

fn verify(shelf: &Path, name: &str) -> Result<String, Trouble> {
    let about = read(&shelf.join(format!("{name}.guest")), 4096)?;
    let manifest = Manifest::parse(&String::from_utf8_lossy(&about)).map_err(Trouble::Manifest)?;
    let code = read(&shelf.join(format!("{name}.cwasm")), manifest.size.saturating_add(1))?;
    if Hash::of(&code) == manifest.code {
        Ok(manifest.to_string())
    } else {
        Err(Trouble::Changed(name.to_owned()))
    }
}

fn read(path: &Path, most: u64) -> Result<Vec<u8>, Trouble> {
    let broken = |source| Trouble::File { what: "read", path: path.to_owned(), source };
    let file = File::open(path).map_err(broken)?;
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(broken)?;
    if u64::try_from(bytes.len()).map_or(true, |length| length > most) {
        return Err(Trouble::TooLarge);
    }
    Ok(bytes)
}

/// Writes beside, then renames: whoever loads meanwhile has the old one or the new one, whole.
fn put(shelf: &Path, name: &str, bytes: &[u8]) -> Result<(), Trouble> {
    let path = shelf.join(name);
    let draft = shelf.join(format!(".{name}.{}", std::process::id()));
    let broken = |source| Trouble::File { what: "write", path: path.clone(), source };
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o444).open(&draft)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&draft, &path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&draft))).map_err(broken)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect()
}
