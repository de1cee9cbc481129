//! A shelf that is held against what its manifests say: `verify`, `check` and `seal`.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use blastbox_wasm::engine::Metering;
use blastbox_wasm::manifest::Manifest;
use blastbox_wasm::seal::{Seal, Stamp, hash};

use crate::making::{LIBRARY, library_of};
use crate::trouble::Trouble;
use crate::work::read;

/// Longest manifest.
const MOST_MANIFEST: u64 = 4096;
/// What ends the name of a manifest.
const MANIFEST: &str = ".guest";
/// Longer than the clock of a file system stands still: whoever writes to a file from here on is seen.
const TICK: Duration = Duration::from_millis(50);

/// Reads the manifest of a guest, and hashes all that it speaks of.
pub(crate) fn verify(metering: Metering, shelf: &Path, name: &str) -> Result<Manifest, Trouble> {
    let stem = metering.stem(name);
    let about = read(&shelf.join(format!("{stem}{MANIFEST}")), MOST_MANIFEST)?;
    let manifest = Manifest::parse(&String::from_utf8_lossy(&about), metering).map_err(Trouble::Manifest)?;
    let path = shelf.join(format!("{stem}.cwasm"));
    let code = File::open(&path).and_then(|file| {
        let size = file.metadata()?.len();
        // One of another size is not worth hashing.
        if size == manifest.size { hash(&file, size).map(Some) } else { Ok(None) }
    });
    let code = code.map_err(|source| Trouble::File { what: "read", path, source })?;
    let changed = |what| Trouble::Changed { name: name.to_owned(), what };
    if code != Some(manifest.code) {
        return Err(changed("machine code"));
    }
    match manifest.library {
        Some(wanted) if library_of(shelf, manifest.kind)? != Some(wanted) => Err(changed("library")),
        _ => Ok(manifest),
    }
}

/// Every guest of a shelf, one in a line: its name, and `whole`, `unsealed` (each box hashes it) or what is wrong.
pub(crate) fn check_all(shelf: &Path) -> Result<String, Trouble> {
    let state = |metering, name: &str| match verify(metering, shelf, name) {
        Err(trouble) => trouble.to_string(),
        Ok(manifest) => {
            let known = Seal::read(shelf, &metering.stem(name));
            match look(shelf, &manifest, name) {
                Ok(found) if found.0.iter().all(|(hash, stamp)| known.knows(*hash, *stamp)) => {
                    "whole".to_owned()
                }
                Ok(_) => "unsealed".to_owned(),
                Err(trouble) => trouble.to_string(),
            }
        }
    };
    let guests = guests(shelf)?;
    Ok(guests
        .iter()
        .map(|(metering, name)| format!("{} {}\n", metering.stem(name), state(*metering, name)))
        .collect())
}

/// Hashes every guest of a shelf, and writes beside it what its large files look like now: boxes need not hash them then. One that is
/// not whole stays as it is, and is told of when all others are sealed.
pub(crate) fn seal_all(shelf: &Path) -> Result<String, Trouble> {
    let guests = guests(shelf)?;
    let sealed: Vec<_> = guests.iter().map(|(metering, name)| seal_one(shelf, *metering, name)).collect();
    sealed.into_iter().collect::<Result<Vec<()>, Trouble>>()?;
    Ok(format!("sealed {}\n", guests.len()))
}

/// The same of one guest.
pub(crate) fn seal_one(shelf: &Path, metering: Metering, name: &str) -> Result<(), Trouble> {
    let about = read(&shelf.join(format!("{}{MANIFEST}", metering.stem(name))), MOST_MANIFEST)?;
    let manifest = Manifest::parse(&String::from_utf8_lossy(&about), metering).map_err(Trouble::Manifest)?;
    let stem = metering.stem(name);
    let known = Seal::read(shelf, &stem);
    let seal = look(shelf, &manifest, name)?;
    if seal.0.iter().all(|(hash, stamp)| known.knows(*hash, *stamp)) {
        return Ok(());
    }
    std::thread::sleep(TICK);
    let manifest = verify(metering, shelf, name)?;
    if look(shelf, &manifest, name)? != seal {
        return Err(Trouble::Changed { name: name.to_owned(), what: "machine code or library" });
    }
    let path = shelf.join(Seal::file(&stem));
    write(&path, &seal.to_string()).map_err(|source| Trouble::File { what: "write", path, source })
}

/// What the large files of a guest look like, beside the hashes that they should have.
fn look(shelf: &Path, manifest: &Manifest, name: &str) -> Result<Seal, Trouble> {
    let code = format!("{}.cwasm", manifest.metering.stem(name));
    let library = manifest.library.map(|hash| (LIBRARY.to_owned(), hash));
    let mut seal = Seal::default();
    for (file, hash) in std::iter::once((code, manifest.code)).chain(library) {
        let path = shelf.join(file);
        let stamp = File::open(&path).and_then(|file| Stamp::of(&file));
        let stamp = stamp.map_err(|source| Trouble::File { what: "read", path, source })?;
        seal.0.extend(stamp.is_large().then_some((hash, stamp)));
    }
    Ok(seal)
}

/// In one step: a worker may be reading the old one.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("seal.new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::options().write(true).create_new(true).open(&new)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&new, path)
}

/// The guests of a shelf.
fn guests(shelf: &Path) -> Result<Vec<(Metering, String)>, Trouble> {
    let broken = |source| Trouble::File { what: "read", path: shelf.to_owned(), source };
    let entries = fs::read_dir(shelf).map_err(broken)?;
    let names = entries.filter_map(Result::ok).filter_map(|entry| entry.file_name().into_string().ok());
    let metered = Metering::Fuel.stem("");
    let mut guests: Vec<(Metering, String)> = names
        .filter_map(|name| {
            let stem = name.strip_suffix(MANIFEST)?;
            Some(match stem.strip_suffix(&metered) {
                Some(name) => (Metering::Fuel, name.to_owned()),
                None => (Metering::None, stem.to_owned()),
            })
        })
        .collect();
    guests
        .sort_by(|one, other| (&one.1, one.0 == Metering::Fuel).cmp(&(&other.1, other.0 == Metering::Fuel)));
    Ok(guests)
}
