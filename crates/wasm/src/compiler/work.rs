//! What the compiler does: `compile KIND MODULE SHELF NAME`, `image KIND MODULE SHELF NAME`, `origin KIND HASH`, `keep MODULE CACHE NAME`,
//! `verify SHELF NAME` or `follow SHELF NAME`; with `--metered` in front, for code that counts its work.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

use blastbox_wasm::engine::Metering;
use blastbox_wasm::image;
use blastbox_wasm::manifest::{Hash, Kind, Manifest};

use crate::making::Making;
use crate::translate::{take, translate};
use crate::trouble::{MOST_CODE, MOST_MODULE, Trouble};

/// Longest manifest.
const MOST_MANIFEST: u64 = 4096;

/// Does what the command line says. Returns what to say about it.
pub(crate) fn carry_out(words: impl Iterator<Item = OsString>) -> Result<Vec<u8>, Trouble> {
    let mut words = words.peekable();
    let metering = match words.next_if(|word| word == "--metered") {
        Some(_) => Metering::Fuel,
        None => Metering::None,
    };
    let words: Vec<OsString> = words.collect();
    let said = match words.iter().map(|word| word.to_str()).collect::<Option<Vec<&str>>>().as_deref() {
        Some(["compile", kind, module, shelf, name]) => {
            let kind = Kind::parse(kind).ok_or(Trouble::Usage)?;
            compile((kind, metering), Path::new(module), Path::new(shelf), name)?.to_string()
        }
        Some(["image", "python-data", module, shelf, name]) => {
            image(metering, Path::new(module), Path::new(shelf), name)?.to_string()
        }
        Some(["origin", "python-data", hash]) => {
            format!("{}\n", image::origin(Hash::parse(hash).ok_or(Trouble::Usage)?))
        }
        Some(["keep", module, cache, name]) => keep(metering, Path::new(module), Path::new(cache), name)?,
        Some(["follow", shelf, name]) => {
            format!("pages written {}\n", image::follow(Path::new(shelf), name)?)
        }
        Some(["verify", shelf, name]) => verify(metering, Path::new(shelf), name)?.to_string(),
        // Started by this program alone.
        Some(["translate", kind]) => return translate(Kind::parse(kind).ok_or(Trouble::Usage)?, metering),
        _ => return Err(Trouble::Usage),
    };
    Ok(said.into_bytes())
}

fn compile(what: (Kind, Metering), module: &Path, shelf: &Path, name: &str) -> Result<Manifest, Trouble> {
    let wasm = read(module, MOST_MODULE)?;
    let making = Making::begin(shelf)?;
    let manifest = making.make(what, &wasm, Hash::of(&wasm), name)?;
    making.shelve(what.1, name)?;
    Ok(manifest)
}

/// Makes a guest of the image of another one, which lies on the same shelf, and holds it against that image.
fn image(metering: Metering, module: &Path, shelf: &Path, name: &str) -> Result<Manifest, Trouble> {
    let made_of = verify(Metering::None, shelf, "python")?.wasm;
    let taken = image::take(shelf, &read(module, MOST_MODULE)?, made_of)?;
    let making = Making::begin(shelf)?;
    let manifest = making.make((Kind::PythonData, metering), &taken, image::origin(made_of), name)?;
    if metering == Metering::None {
        image::prove(making.place(shelf)?, name, &taken)?;
    }
    making.shelve(metering, name)?;
    Ok(manifest)
}

/// Compiles a caller's module into a directory of its own, called by what it was made from and for. Says its name; what was
/// compiled before is held against its hashes and not compiled again.
fn keep(metering: Metering, module: &Path, cache: &Path, name: &str) -> Result<String, Trouble> {
    let wasm = read(module, MOST_MODULE)?;
    let hash = Hash::of(&wasm);
    let key = Hash::of([&hash.to_string(), metering.label(), name].concat().as_bytes()).to_string();
    let place = cache.join(&key);
    let is_whole = || {
        let found = verify(metering, &place, name);
        found.is_ok_and(|manifest| manifest.kind == Kind::Module && manifest.wasm == hash)
    };
    if !is_whole() {
        let making = Making::begin(cache)?;
        making.make((Kind::Module, metering), &wasm, hash, name)?;
        making.become_one(&place, is_whole)?;
    }
    Ok(key)
}

fn verify(metering: Metering, shelf: &Path, name: &str) -> Result<Manifest, Trouble> {
    let stem = metering.stem(name);
    let about = read(&shelf.join(format!("{stem}.guest")), MOST_MANIFEST)?;
    let manifest = Manifest::parse(&String::from_utf8_lossy(&about), metering).map_err(Trouble::Manifest)?;
    let code = read(&shelf.join(format!("{stem}.cwasm")), MOST_CODE.min(manifest.size.saturating_add(1)))?;
    if Hash::of(&code) == manifest.code { Ok(manifest) } else { Err(Trouble::Changed(name.to_owned())) }
}

fn read(path: &Path, most: u64) -> Result<Vec<u8>, Trouble> {
    let broken = |source| Trouble::File { what: "read", path: path.to_owned(), source };
    let mut file = File::open(path).map_err(broken)?;
    take(&mut file, most).map_err(broken)?.ok_or(Trouble::TooLarge)
}
