//! Where the built programs are, for whoever is to start them.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};

use crate::Place;
use crate::campaign::LAYERS;

const NAMES: [&str; 6] =
    ["blastbox", "blastbox-full", "blastbox-warden", "blastbox-agent", "blastbox-egress", "blastbox-gvisor"];
/// gVisor's own program, which `tools/runsc.sh` puts beside ours where the host has none that is new enough.
const RUNSC: &str = "runsc";
/// The directory of the Wasm worker and its guests, some of which are large.
const WASM: &str = "wasm";

/// The directory that `BLASTBOX_BIN_DIR` names, or the one that `make build` fills.
pub(crate) fn built() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/blastbox");
    let dir = std::env::var_os("BLASTBOX_BIN_DIR").map_or_else(beside, PathBuf::from);
    let dir = std::path::absolute(&dir).expect("name the directory of the programs");
    for name in NAMES {
        assert!(dir.join(name).is_file(), "{} is not built: run `make build`", dir.join(name).display());
    }
    dir
}

/// The programs that were built with places to be stopped at, where everybody can reach them: beside those that are
/// shipped, in `failpoints`. `None`: nobody built them.
pub(crate) fn with_failpoints(place: &Place) -> Option<PathBuf> {
    let dir = built().with_file_name("failpoints");
    let names = ["blastbox", "blastbox-full", "blastbox-warden", "blastbox-agent"];
    if !names.iter().all(|name| dir.join(name).is_file()) {
        return None;
    }
    let closed = |at: &Path| fs::metadata(at).is_ok_and(|about| about.mode() & 0o001 == 0);
    if !dir.ancestors().any(closed) {
        return Some(dir);
    }
    let copy = place.join("failpoints");
    fs::create_dir(&copy).expect("make a directory for the programs");
    for name in names {
        fs::copy(dir.join(name), copy.join(name)).expect("copy a program");
    }
    Some(copy)
}

/// The directory of builds that lack one layer each, where everybody can reach it: beside those that are shipped, in
/// `lifted`. `None`: nobody built them.
pub(crate) fn lifted(place: &Place) -> Option<PathBuf> {
    let dir = built().with_file_name("lifted");
    let layers: Vec<&str> = LAYERS.into_iter().chain(["liar"]).collect();
    if !layers.iter().all(|layer| dir.join(layer).join("blastbox-warden").is_file()) {
        return None;
    }
    let closed = |at: &Path| fs::metadata(at).is_ok_and(|about| about.mode() & 0o001 == 0);
    if !dir.ancestors().any(closed) {
        return Some(dir);
    }
    let copy = place.join("lifted");
    for layer in layers {
        fs::create_dir_all(copy.join(layer)).expect("make a directory for the programs");
        for name in NAMES {
            fs::copy(dir.join(layer).join(name), copy.join(layer).join(name)).expect("copy a program");
        }
    }
    Some(copy)
}

/// The programs with an agent that dies in a machine where a test says so, where everybody can reach them: beside those that are
/// shipped, in `mortal`. `None`: nobody built them.
pub(crate) fn mortal(place: &Place) -> Option<PathBuf> {
    let dir = built().with_file_name("mortal");
    if !NAMES.iter().all(|name| dir.join(name).is_file()) {
        return None;
    }
    let closed = |at: &Path| fs::metadata(at).is_ok_and(|about| about.mode() & 0o001 == 0);
    if !dir.ancestors().any(closed) {
        return Some(dir);
    }
    let copy = place.join("mortal");
    fs::create_dir(&copy).expect("make a directory for the programs");
    for name in NAMES {
        fs::copy(dir.join(name), copy.join(name)).expect("copy a program");
    }
    Some(copy)
}

/// The store with a kernel and an image `python` for virtual machines, beside the programs. `None`: nobody made it.
pub(crate) fn machines() -> Option<PathBuf> {
    let store = built().with_file_name("machine");
    (store.join("names/python").exists() && store.join("kernels/current").exists()).then_some(store)
}

/// A component for tests of the tier wasm, beside the programs.
pub(crate) fn component(name: &str) -> PathBuf {
    built().with_file_name("component").join(name)
}

/// Copies of them that belong to this user.
pub(crate) fn copied(place: &Place, from: &Path, owner: Option<u32>) -> PathBuf {
    let copy = place.join("own-programs");
    fs::create_dir_all(&copy).expect("make a directory for the programs");
    for name in NAMES {
        fs::copy(from.join(name), copy.join(name)).expect("copy a program");
        chown(copy.join(name), owner, owner).expect("give a program away");
    }
    copy
}

/// The same directory where everybody can reach it; a copy in `place` where it lies behind a closed door.
pub(crate) fn for_everybody(place: &Place) -> PathBuf {
    let built = built();
    let closed = |at: &Path| fs::metadata(at).is_ok_and(|about| about.mode() & 0o001 == 0);
    if !built.ancestors().any(closed) && NAMES.iter().all(|name| !closed(&built.join(name))) {
        return built;
    }
    let copy = place.join("programs");
    fs::create_dir(&copy).expect("make a directory for the programs");
    for name in NAMES {
        fs::copy(built.join(name), copy.join(name)).expect("copy a program");
    }
    if built.join(RUNSC).is_file() {
        fs::copy(built.join(RUNSC), copy.join(RUNSC)).expect("copy gVisor's program");
    }
    if let Ok(guests) = fs::read_dir(built.join(WASM)) {
        fs::create_dir(copy.join(WASM)).expect("make a directory for the guests");
        for guest in guests.filter_map(Result::ok).filter(|guest| guest.path().is_file()) {
            let (from, to) = (guest.path(), copy.join(WASM).join(guest.file_name()));
            fs::hard_link(&from, &to).or_else(|_| fs::copy(&from, &to).map(drop)).expect("copy a guest");
        }
    }
    copy
}
