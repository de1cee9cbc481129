//! The tarball of `make dist`, on what could be a machine without a toolchain: unpacked anywhere, with an empty PATH.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::path::{Path, PathBuf};

use blastbox_tests::{Caller, both_ways};

both_ways!(the_tarball_runs_where_it_is_unpacked, systemd_takes_the_unit_as_it_is);

/// The tarball, which `make test` builds and names.
fn tarball() -> Option<PathBuf> {
    std::env::var_os("BLASTBOX_DIST").map(PathBuf::from).filter(|path| path.is_file())
}

fn the_tarball_runs_where_it_is_unpacked(caller: &Caller) {
    let Some(tarball) = tarball() else {
        return caller.skip("there is no tarball: `make dist` makes it, and `make test` names it");
    };
    let to = caller.directory("unpacked");
    // A copy of the caller's own: where it was built may be closed to others.
    let copy = caller.place().join("blastbox.tar.gz");
    std::fs::copy(&tarball, &copy).expect("copy the tarball");
    caller.own(&copy);
    let (from, into) = (copy.display().to_string(), to.display().to_string());
    let words = ["xzf", from.as_str(), "-C", into.as_str(), "--strip-components=1", "--no-same-owner"];
    let unpacked = caller.program(Path::new("/bin/tar"), words).end();
    assert_eq!(unpacked.code, 0, "{}", unpacked.err);
    let program = to.join("bin/blastbox");
    let start = caller.program(&program, ["run", "--quiet", "--", "/bin/sh", "-c", "echo from the tarball"]);
    let ended = start.env("PATH", "/nowhere").end();
    assert_eq!((ended.code, ended.text().as_str()), (0, "from the tarball\n"), "{}", ended.err);
    let read = |path: &str| std::fs::read_to_string(to.join(path)).expect("read what was unpacked");
    assert!(read("share/man/man1/blastbox-attach.1").contains("blastbox"));
    for completion in [
        "share/bash-completion/completions/blastbox",
        "share/zsh/site-functions/_blastbox",
        "share/fish/vendor_completions.d/blastbox.fish",
    ] {
        assert!(read(completion).contains("attach"), "{completion}");
    }
    assert!(read("lib/systemd/system/blastbox.service").contains("ExecStart=/usr/local/bin/blastbox serve"));
    let others = read("share/doc/blastbox/THIRD-PARTY");
    assert!(others.contains("tokio ") && others.contains("===="), "each crate of others, and its text");
    assert!(read("share/doc/blastbox/LICENSE").contains("Apache License"));
    let papers = papers(&to.join("share/doc/blastbox"));
    assert!(papers.len() > 40, "the documents have their tree: {papers:?}");
    let dead: Vec<String> = papers.iter().flat_map(|paper| dead_links(paper)).collect();
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

/// Every document beneath a directory.
fn papers(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("look into the documents") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(papers(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found
}

/// What a document links to that is not there.
fn dead_links(paper: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(paper).expect("read a document");
    let directory = paper.parent().expect("it lies in a directory");
    let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
    let local = links.filter(|link| !link.contains("://") && !link.starts_with('#'));
    let files = local.map(|link| link.split_once('#').map_or(link, |(file, _)| file));
    let dead = files.filter(|file| !directory.join(file).exists());
    dead.map(|file| format!("{}: {file} is not there", paper.display())).collect()
}

/// What systemd does not know it passes over, with a word: a misspelt wall would be none.
fn systemd_takes_the_unit_as_it_is(caller: &Caller) {
    let analyze = Path::new("/usr/bin/systemd-analyze");
    if !analyze.is_file() {
        return caller.skip("there is no systemd-analyze on this host");
    }
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/blastbox.service");
    let unit = std::fs::read_to_string(unit).expect("read the unit");
    let program = caller.blastbox_path().display().to_string();
    let complaints = |unit: String| {
        let file = caller.file("blastbox.service", unit).display().to_string();
        caller.program(analyze, ["--man=no", "verify", file.as_str()]).end().err
    };
    let told = complaints(unit.replace("@BINDIR@/blastbox", &program));
    // Known from version 254 on; what an older one lacks by that is in docs/operate.md.
    let told: Vec<&str> = told.lines().filter(|line| !line.contains("'DelegateSubgroup'")).collect();
    assert!(told.is_empty(), "{told:?}");
    let misspelt = unit.replace("@BINDIR@/blastbox", &program).replace("ProtectHome=", "ProtectHoem=");
    assert!(complaints(misspelt).contains("ProtectHoem"), "and one that is not right would be found");
}
