//! Every seed of the fuzzers, as a test: what they were found for stays refused, and nothing leaves its directory.
#![expect(clippy::unwrap_used, reason = "only tests; one that cannot work must fail at once")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use blastbox_images::oci::oci_text::{config, document};
use blastbox_images::tree::{Caps, Form, TreeWriter, unpack};

fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut all: Vec<_> = fs::read_dir(corpus)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(path).unwrap()))
        .collect();
    all.sort();
    assert!(all.len() >= 4, "{target} has hardly any seeds");
    all
}

/// What becomes of an archive as a layer: the word of the refusal, or `ok`.
fn outcome(place: &Path, bytes: &[u8]) -> String {
    let tree = place.join("tree");
    fs::create_dir(&tree).unwrap();
    let mut writer =
        TreeWriter::new(File::open(&tree).unwrap().into(), Caps { bytes: 1 << 20, entries: 200 });
    let word = match unpack(&mut writer, bytes, Form::Layer, &mut |_| {}) {
        Ok(_) => "ok",
        Err(error) => error.code(),
    };
    assert_eq!(fs::read(place.join("outside")).unwrap(), b"untouched");
    assert_eq!(fs::read_dir(place).unwrap().count(), 2);
    fs::remove_dir_all(&tree).unwrap();
    word.to_owned()
}

#[test]
fn archives_end_as_their_names_say() {
    let place: PathBuf = std::env::temp_dir().join(format!("images-corpus-{}", std::process::id()));
    fs::create_dir(&place).unwrap();
    fs::write(place.join("outside"), "untouched").unwrap();
    for (name, bytes) in seeds("unpack") {
        let expected = match name.as_str() {
            "plain" | "packed" | "whiteouts" | "long-pax" | "long-gnu" => "ok",
            "special" => "image_device",
            "dotdot" | "absolute" | "link-over" | "link-hard" => "image_path_outside",
            other => panic!("{other} is new: say here how it ends"),
        };
        assert_eq!(outcome(&place, &bytes), expected, "{name}");
        // Cut anywhere it is refused or shorter, and never more than that.
        for at in (0..bytes.len()).step_by(97) {
            outcome(&place, bytes.get(..at).unwrap());
        }
    }
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn documents_are_read_or_refused() {
    for (name, bytes) in seeds("oci_text") {
        let expected = match name.as_str() {
            "index" | "manifest" => (true, false),
            "config" => (false, true),
            "lying-digest" => (false, false),
            other => panic!("{other} is new: say here how it ends"),
        };
        assert_eq!((document(&bytes).is_ok(), config(&bytes).is_ok()), expected, "{name}");
        for at in 0..bytes.len() {
            let cut = bytes.get(..at).unwrap();
            assert!(document(cut).is_err() && config(cut).is_err(), "{name} cut at {at}");
        }
    }
}
