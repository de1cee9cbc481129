//! What the compiler does: `compile KIND MODULE SHELF NAME`, `image python-data SHELF NAME`, `origin KIND HASH`, `keep MODULE CACHE NAME`,
//! `kept MODULE CACHE NAME`, `verify SHELF NAME`, `seal SHELF`, `check SHELF`, `rehearse SHELF NAME` or `follow SHELF NAME`; with `--metered` in front, for code that counts its work, and with
//! `--brief`, where a stranger's module is compiled at somebody else's expense.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use blastbox_wasm::engine::Metering;
use blastbox_wasm::image::{self, Followed};
use blastbox_wasm::manifest::{Begins, Hash, Kind, Manifest, is_component};

use crate::effort::Effort;
use crate::making::Making;
use crate::shelf::{self, seal_one, verify};
use crate::translate::{take, translate};
use crate::trouble::{MOST_CODE, MOST_MODULE, Trouble};

/// The guest that packages are imported in.
const PYTHON: &str = "python";

/// Does what the command line says. Returns what to say about it.
pub(crate) fn carry_out(words: impl Iterator<Item = OsString>) -> Result<Vec<u8>, Trouble> {
    let mut words = words.peekable();
    let effort = words.next_if(|word| word == "--brief").map_or(Effort::Whole, |_| Effort::Brief);
    let effort = words.next_if(|word| word == "--own").map_or(effort, |_| Effort::Own);
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
        // One that counts its work is offered to nobody.
        Some(["image", "python-data", shelf, name]) if metering == Metering::None => {
            with_packages(Path::new(shelf), name)?.to_string()
        }
        Some(["origin", kind, hash]) => {
            let kind = Kind::parse(kind).ok_or(Trouble::Usage)?;
            format!("{}\n", image::origin(kind, Hash::parse(hash).ok_or(Trouble::Usage)?))
        }
        Some(["keep", module, cache, name]) => {
            effort.begin().map_err(|source| Trouble::Process { what: "stand back", source })?;
            keep((metering, effort), Path::new(module), Path::new(cache), name)?
        }
        Some(["kept", module, cache, name]) => {
            effort.begin().map_err(|source| Trouble::Process { what: "stand back", source })?;
            kept(metering, Path::new(module), Path::new(cache), name)?
        }
        Some(["follow", shelf, name]) => {
            let Followed { written, late } = image::follow(Path::new(shelf), name, metering)?;
            format!("pages written {written}, become a guest's own only then {late}\n")
        }
        Some(["rehearse", shelf, name]) => rehearse(metering, Path::new(shelf), name)?.to_string(),
        Some(["seal", shelf]) => shelf::seal_all(Path::new(shelf))?,
        Some(["check", shelf]) => shelf::check_all(Path::new(shelf))?,
        Some(["verify", shelf, name]) => verify(metering, Path::new(shelf), name)?.to_string(),
        // Started by this program alone, and so is `--own`.
        Some(["translate", kind]) => {
            return translate(Kind::parse(kind).ok_or(Trouble::Usage)?, metering, effort);
        }
        _ => return Err(Trouble::Usage),
    };
    Ok(said.into_bytes())
}

/// Compiles a guest; an interpreter is also begun, and carries the image of that.
fn compile(what: (Kind, Metering), module: &Path, shelf: &Path, name: &str) -> Result<Manifest, Trouble> {
    let (kind, metering) = what;
    let is_interpreter = match kind {
        Kind::Python | Kind::Js => true,
        Kind::Module | Kind::Component => false,
        Kind::PythonData => return Err(Trouble::Usage),
    };
    let wasm = read(module, MOST_MODULE)?;
    let hash = Hash::of(&wasm);
    let making = Making::begin(shelf)?;
    // Older versions left it there bare: minutes of work that need not be done again.
    let is_it = |found: &Manifest| found.kind == kind && found.begins == Begins::Bare && found.wasm == hash;
    let mut manifest = match verify(metering, shelf, name).ok().filter(is_it).filter(|_| is_interpreter) {
        Some(found) => {
            making.take_over(shelf, metering, name)?;
            making.tell(Manifest { library: making.library(kind)?, ..found }, name)?
        }
        None => making.make(what, Effort::Own, &wasm, name)?,
    };
    if is_interpreter {
        making.furnish(kind, shelf)?;
        let place = making.directory();
        let taken = image::take(place, name, kind, metering)?;
        let code = read(&place.join(format!("{}.cwasm", metering.stem(name))), MOST_CODE)?;
        manifest = carry(&making, what, (&code, &taken), (name, hash))?;
    }
    making.shelve(metering, name)?;
    seal_one(shelf, metering, name)?;
    Ok(manifest)
}

/// Makes a guest of a Python on the same shelf that has imported packages: the same code, with another image.
fn with_packages(shelf: &Path, name: &str) -> Result<Manifest, Trouble> {
    let (kind, metering) = (Kind::PythonData, Metering::None);
    let python = verify(metering, shelf, PYTHON)?;
    if python.begins == Begins::Bare {
        return Err(Trouble::Bare);
    }
    let making = Making::begin(shelf)?;
    making.furnish(kind, shelf)?;
    let taken = image::take(shelf, PYTHON, kind, metering)?;
    let code = read(&shelf.join(format!("{PYTHON}.cwasm")), MOST_CODE)?;
    let manifest = carry(&making, (kind, metering), (&code, &taken), (name, python.wasm))?;
    making.shelve(metering, name)?;
    seal_one(shelf, metering, name)?;
    Ok(manifest)
}

/// Gives code the image that was taken, and holds a guest that begins from it against that.
fn carry(
    making: &Making,
    what: (Kind, Metering),
    (code, taken): (&[u8], &[u8]),
    (name, origin): (&str, Hash),
) -> Result<Manifest, Trouble> {
    let origin = image::origin(what.0, origin);
    let manifest = making.write(what, &image::put(code, taken)?, origin, name)?;
    image::prove(making.directory(), name, what.1, taken)?;
    let writes = image::writes(making.directory(), name, what.1)?;
    making.tell(Manifest { writes, ..manifest }, name)
}

/// Has the manifest of a guest that lies there say what its first command writes to, and which library it has.
fn rehearse(metering: Metering, shelf: &Path, name: &str) -> Result<Manifest, Trouble> {
    let found = verify(metering, shelf, name)?;
    let making = Making::begin(shelf)?;
    making.take_over(shelf, metering, name)?;
    making.furnish(found.kind, shelf)?;
    let manifest = making.tell(Manifest { library: making.library(found.kind)?, ..found }, name)?;
    let writes = image::writes(making.directory(), name, metering)?;
    let manifest = making.tell(Manifest { writes, ..manifest }, name)?;
    making.shelve(metering, name)?;
    seal_one(shelf, metering, name)?;
    Ok(manifest)
}

/// Compiles a caller's module or component into a directory of its own, called by what it was made from and for. Says its name, the hash
/// of the module, and whether it is a component; what was compiled before is held against its hashes and not compiled again.
fn keep(
    (metering, effort): (Metering, Effort),
    module: &Path,
    cache: &Path,
    name: &str,
) -> Result<String, Trouble> {
    let wanted = Wanted::of(metering, module, cache, name)?;
    if !wanted.is_whole() {
        let making = Making::begin(cache)?;
        making.make((wanted.kind, metering), effort, &wanted.wasm, name)?;
        making.become_one(&wanted.place, || wanted.is_whole())?;
    }
    // Without it each box that has the guest hashes it again, and nothing else is lost.
    seal_one(&wanted.place, metering, name).ok();
    Ok(wanted.said())
}

/// Says the same of what was compiled before, and `none` and the hash of what was not. Writes nothing.
fn kept(metering: Metering, module: &Path, cache: &Path, name: &str) -> Result<String, Trouble> {
    let wanted = Wanted::of(metering, module, cache, name)?;
    Ok(if wanted.is_whole() { wanted.said() } else { format!("none {}", wanted.hash) })
}

/// A caller's module or component, and where its machine code lies.
struct Wanted<'a> {
    metering: Metering,
    name: &'a str,
    wasm: Vec<u8>,
    hash: Hash,
    kind: Kind,
    key: String,
    place: PathBuf,
}

impl<'a> Wanted<'a> {
    fn of(metering: Metering, module: &Path, cache: &Path, name: &'a str) -> Result<Self, Trouble> {
        let wasm = read(module, MOST_MODULE)?;
        let hash = Hash::of(&wasm);
        let key = Hash::of([&hash.to_string(), metering.label(), name].concat().as_bytes()).to_string();
        let place = cache.join(&key);
        let kind = if is_component(&wasm) { Kind::Component } else { Kind::Module };
        Ok(Self { metering, name, wasm, hash, kind, key, place })
    }

    fn is_whole(&self) -> bool {
        let found = verify(self.metering, &self.place, self.name);
        found.is_ok_and(|manifest| manifest.kind == self.kind && manifest.wasm == self.hash)
    }

    fn said(&self) -> String {
        let Self { key, hash, kind, .. } = self;
        if *kind == Kind::Component {
            format!("{key} {hash} {}", kind.as_str())
        } else {
            format!("{key} {hash}")
        }
    }
}

pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>, Trouble> {
    let broken = |source| Trouble::File { what: "read", path: path.to_owned(), source };
    let mut file = File::open(path).map_err(broken)?;
    take(&mut file, most).map_err(broken)?.ok_or(Trouble::TooLarge)
}
