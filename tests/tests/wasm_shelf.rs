//! Guests of the tier `wasm` are what their manifests say, however large they are: a bit that turned in machine code, in the image that
//! a guest begins with, or in Python's library is found before anything of it runs.
//!
//! Without `make wasm`, or where Python's package could not be fetched, it is skipped with that reason.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail at once")]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use blastbox_tests::{Caller, wait_until};

/// The programs once more, with a shelf of their own that holds nothing but Python. What is large is copied here and changed by nobody else.
fn own_programs(caller: &Caller) -> Option<PathBuf> {
    let from = caller.blastbox_path();
    let shelf = from.with_file_name("wasm");
    if !shelf.join("python.guest").is_file() {
        caller.skip("the guest python is not built: `make wasm` builds it where its package can be fetched");
        return None;
    }
    let programs = caller.directory("own");
    fs::create_dir(programs.join("wasm")).unwrap();
    for name in ["blastbox", "blastbox-full", "blastbox-warden", "blastbox-egress", "blastbox-agent"] {
        fs::copy(from.with_file_name(name), programs.join(name)).unwrap();
    }
    for name in [
        "blastbox-wasm",
        "blastbox-wasm-compile",
        "python.guest",
        "python.cwasm",
        "python.seal",
        "python315.zip",
    ] {
        fs::copy(shelf.join(name), programs.join("wasm").join(name)).unwrap();
    }
    Some(programs)
}

#[expect(clippy::disallowed_methods, reason = "what an operator starts")]
fn compiler(shelf: &Path, verb: &str) -> Output {
    std::process::Command::new(shelf.join("blastbox-wasm-compile")).arg(verb).arg(shelf).output().unwrap()
}

/// Turns one bit, and puts the file's time back.
fn turn(path: &Path, at: u64) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let before = file.metadata().unwrap().modified().unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&byte.map(|byte| byte ^ 1), at).unwrap();
    file.set_modified(before).unwrap();
}

/// Where the last of these bytes begin: behind the machine code lies the memory that a guest begins with.
fn last(path: &Path, bytes: &[u8]) -> u64 {
    const PIECE: u64 = 1 << 20;
    let file = File::open(path).unwrap();
    let size = file.metadata().unwrap().len();
    let mut from = size;
    loop {
        assert!(from > 0, "{} does not hold {bytes:?}", path.display());
        from = from.saturating_sub(PIECE);
        let length = (size - from).min(PIECE + u64::try_from(bytes.len()).unwrap());
        let mut piece = vec![0; usize::try_from(length).unwrap()];
        file.read_exact_at(&mut piece, from).unwrap();
        if let Some(at) = piece.windows(bytes.len()).rposition(|window| window == bytes) {
            return from + u64::try_from(at).unwrap();
        }
    }
}

#[test]
fn a_bit_that_turned_is_found_in_code_in_the_image_and_in_the_library() {
    let Some(caller) = Caller::root("wasm_shelf") else { return };
    let Some(programs) = own_programs(&caller) else { return };
    let shelf = programs.join("wasm");
    let words = ["run", "--tier", "wasm", "--", "python", "-c", "import json; print(json.dumps('ran'))"];
    let try_it = || caller.program(&programs.join("blastbox"), words).end();
    let check = || String::from_utf8(compiler(&shelf, "check").stdout).unwrap();
    // Copies look otherwise than what was sealed, and are hashed.
    assert_eq!((try_it().text(), check()), ("\"ran\"\n".to_owned(), "python unsealed\n".to_owned()));
    assert!(compiler(&shelf, "seal").status.success());
    assert_eq!((try_it().text(), check()), ("\"ran\"\n".to_owned(), "python whole\n".to_owned()));

    let (code, library) = (shelf.join("python.cwasm"), shelf.join("python315.zip"));
    let half = |path: &Path| fs::metadata(path).unwrap().len() / 2;
    for (what, path, at) in [
        ("machine code", &code, half(&code)),
        ("machine code", &code, last(&code, b"python315.zip")),
        ("library", &library, half(&library)),
    ] {
        // Until the clock of files has gone on.
        std::thread::sleep(Duration::from_millis(50));
        turn(path, at);
        let (ended, told) = (try_it(), format!("its {what} is not what its manifest says"));
        assert_eq!((ended.code, ended.text()), (126, String::new()), "{what} {at}: {}", ended.err);
        assert!(ended.err.contains(&told), "{what} {at}: {}", ended.err);
        assert!(check().contains(&format!("wasm_artefact_changed: the {what} of python")), "{}", check());
        assert!(!compiler(&shelf, "seal").status.success(), "nobody seals what is not whole");
        turn(path, at);
    }
    let doctor = caller.program(&programs.join("blastbox"), ["doctor", "--json"]).end();
    let found: serde_json::Value = serde_json::from_str(&doctor.text()).unwrap();
    let whole = found.as_array().unwrap().iter().find(|finding| finding["code"] == "wasm_whole").unwrap();
    assert!(whole["state"] == "weaker" && whole["detail"].as_str().unwrap().contains("python"), "{whole}");
    // Nothing stays of a worker that refused.
    let left = || {
        blastbox_tests::census::family(std::process::id())
            .into_iter()
            .any(|process| process.name.starts_with("blastbox"))
    };
    assert!(wait_until(|| !left()));
}
