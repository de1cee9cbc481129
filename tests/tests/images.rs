//! Images of the store: imported once, run by name or digest, refused whole where they are hostile, held while in use.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use blastbox_tests::{Caller, Ended, Served, both_ways, cc, fill_with};
use blastbox_wire::event::Hash;
use blastbox_wire::tar::{BLOCK, padding};
use flate2::Compression;
use flate2::write::GzEncoder;

both_ways!(
    an_imported_image_runs_by_name_and_by_digest,
    what_is_unknown_is_refused_with_what_is_known,
    a_hostile_archive_is_refused_with_its_word_and_leaves_nothing,
    ten_million_entries_in_a_small_file_are_refused_early,
    a_tree_that_was_changed_does_not_pass,
    an_image_that_a_box_uses_stays_and_its_digest_is_in_the_ledger,
    an_image_of_a_layout_brings_its_environment,
    what_docker_saved_comes_through_a_pipe_and_says_its_command,
    what_cannot_be_read_is_named_with_what_to_do,
);

const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
    char text[256] = "";
    FILE *file = fopen(count > 1 ? words[1] : "/data/note", "r");
    if (file) fgets(text, sizeof text, file);
    printf("%s|%s|%s\n", text, getenv("PATH") ? getenv("PATH") : "", getenv("X") ? getenv("X") : "");
    fflush(stdout);
    if (count > 2) pause();
    return 0;
}
"#;

fn text(path: &Path) -> String {
    path.to_str().expect("a path of the test is text").to_owned()
}

/// A root file system with one program and one note.
fn root(caller: &Caller) -> Option<PathBuf> {
    let Some(program) = cc(caller, "program", PROGRAM, &[]) else {
        caller.skip("no C compiler that makes static programs (apt-get install build-essential)");
        return None;
    };
    let root = caller.directory("root");
    fill_with(caller, &root, &[("bin/", ""), ("data/", ""), ("data/note", "hello")]);
    fs::copy(&program, root.join("bin/program")).expect("copy the program");
    caller.own(&root.join("bin/program"));
    Some(root)
}

/// `blastbox image WORDS` with the caller's own store.
fn image(caller: &Caller, words: &[&str]) -> Ended {
    let store = text(&caller.place().join("store"));
    caller.blastbox(["image"].iter().chain(words).copied().chain(["--store", store.as_str()])).end()
}

#[track_caller]
fn fine(caller: &Caller, words: &[&str]) -> String {
    let ended = image(caller, words);
    assert_eq!(ended.code, 0, "{words:?}: {}{}", ended.text(), ended.err);
    ended.text()
}

#[track_caller]
fn refused(caller: &Caller, words: &[&str], code: &str) -> String {
    let ended = image(caller, words);
    assert_eq!(ended.code, 125, "{words:?}: {}", ended.text());
    assert!(ended.err.contains(&format!("code: {code}\n")), "{words:?}: {}", ended.err);
    assert!(ended.err.contains("\nfix: "), "{words:?}: {}", ended.err);
    ended.err
}

/// The digest that an import has printed: `NAME@sha256:…`.
fn digest(printed: &str) -> String {
    let line = printed.lines().next().expect("an import prints a line");
    line.split_once('@').expect("it names the digest").1.to_owned()
}

fn an_imported_image_runs_by_name_and_by_digest(caller: &Caller) {
    let Some(root) = root(caller) else { return };
    let digest = digest(&fine(caller, &["import", &text(&root), "--name", "tools"]));
    // What happens to the source later is none of the image's business.
    fs::write(root.join("data/note"), "changed").expect("write the source");
    let store = text(&caller.place().join("store"));
    for name in ["tools", digest.as_str(), &format!("tools@{digest}")] {
        let boxed = caller.run(&["--store", &store, "--image", name], &["program"]).fine();
        assert!(boxed.stdout.starts_with("hello|"), "{name}: {}", boxed.stdout);
        assert!(boxed.receipt.image.ends_with(&digest), "{name}: {}", boxed.receipt.image);
        assert!(!boxed.receipt.gaps.iter().any(|gap| gap.code.as_str() == "host-image"), "{name}");
    }
    let listed: serde_json::Value =
        serde_json::from_str(&fine(caller, &["ls", "--json"])).expect("it is JSON");
    let said = |pointer: &str| listed.pointer(pointer).cloned().unwrap_or_default();
    assert_eq!(said("/0/names/0"), "tools");
    assert_eq!(said("/0/digest"), digest.as_str());
    assert_eq!(said("/0/in_use"), false);
    assert!(fine(caller, &["ls"]).contains("tools"));
    assert!(fine(caller, &["inspect", "tools"]).contains(&digest));
    assert!(fine(caller, &["verify", "tools"]).contains("as stored"));
    fine(caller, &["rm", "tools"]);
    refused(caller, &["inspect", "tools"], "image_unknown");
    assert_eq!(fs::read_dir(caller.place().join("store/trees")).expect("list").count(), 0);
}

fn what_is_unknown_is_refused_with_what_is_known(caller: &Caller) {
    let Some(root) = root(caller) else { return };
    let digest = digest(&fine(caller, &["import", &text(&root), "--name", "tools"]));
    let store = text(&caller.place().join("store"));
    let run = |name: &str| {
        let ended = caller.blastbox(["run", "--store", &store, "--image", name, "--", "program"]).end();
        assert_eq!((ended.code, ended.text().as_str()), (125, ""), "{}", ended.err);
        ended.err
    };
    let said = run("tool");
    for part in ["there is no image tool", "known are: host, tools", "code: image_unknown", "fix: "] {
        assert!(said.contains(part), "{said}");
    }
    let other = format!("sha256:{}", "0".repeat(64));
    assert_ne!(other, digest);
    assert!(run(&format!("tools@{other}")).contains("code: image_digest_mismatch"));
    assert!(run("tools@sha256:12").contains("code: image_name"));
    assert_eq!(image(caller, &["import", &text(&root), "--name", "host"]).code, 125);
    assert_eq!(image(caller, &["import", &text(&root), "--name", "../x"]).code, 125);
}

/// One entry of an archive, with nothing checked.
fn entry(kind: u8, path: &str, link: &str, content: &[u8]) -> Vec<u8> {
    let mut block = [0_u8; BLOCK];
    let size = u64::try_from(content.len()).expect("a length");
    let mut put = |at: usize, bytes: &[u8]| {
        block.iter_mut().skip(at).zip(bytes).for_each(|(to, from)| *to = *from);
    };
    put(0, path.as_bytes());
    put(100, b"0006755");
    put(124, format!("{size:011o}").as_bytes());
    put(136, b"00000000000");
    put(148, b"        ");
    put(156, &[kind]);
    put(157, link.as_bytes());
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    let sum = format!("{sum:06o}\0");
    block.iter_mut().skip(148).zip(sum.as_bytes()).for_each(|(to, from)| *to = *from);
    [&block[..], content, &vec![0; padding(size)]].concat()
}

fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    [entries.concat(), vec![0; 2 * BLOCK]].concat()
}

/// The word of the refusal, the archive, and options.
type Case<'a> = (&'a str, Vec<Vec<u8>>, &'a [&'a str]);

fn a_hostile_archive_is_refused_with_its_word_and_leaves_nothing(caller: &Caller) {
    let outside = caller.file("outside", "untouched");
    let sh = entry(b'0', "bin/sh", "", b"#!");
    let cases: [Case<'_>; 8] = [
        ("image_path_outside", vec![sh.clone(), entry(b'0', "../outside", "", b"x")], &[]),
        ("image_path_outside", vec![sh.clone(), entry(b'0', &text(&outside), "", b"x")], &[]),
        ("image_path_outside", vec![sh.clone(), entry(b'1', "bin/stolen", &text(&outside), b"")], &[]),
        (
            "image_path_outside",
            vec![entry(b'2', "way", &text(caller.place().path()), b""), entry(b'0', "way/outside", "", b"x")],
            &[],
        ),
        ("image_device", vec![sh.clone(), entry(b'4', "etc/disk", "", b"")], &[]),
        ("image_too_many_entries", vec![sh.clone(); 20], &["--max-entries", "10"]),
        ("image_too_large", vec![entry(b'0', "bin/sh", "", &[0; 5_000])], &["--max-size", "4KiB"]),
        ("image_unusable", vec![entry(b'0', "tmp/x", "", b"x")], &[]),
    ];
    for (code, entries, options) in cases {
        let file = text(&caller.file("hostile.tar", archive(&entries)));
        let words: Vec<&str> = ["import", &file, "--name", "x"].iter().chain(options).copied().collect();
        refused(caller, &words, code);
    }
    let cut = archive(&[entry(b'0', "bin/sh", "", &[7; 4_000])]);
    let file = text(&caller.file("cut.tar", cut.get(..3_000).expect("the beginning")));
    refused(caller, &["import", &file, "--name", "x"], "image_bad_archive");
    assert_eq!(fs::read_to_string(&outside).expect("read"), "untouched");
    for room in ["trees", "facts", "names", "drafts"] {
        let left = fs::read_dir(caller.place().join("store").join(room)).expect("list").count();
        assert_eq!(left, 0, "{room}");
    }
    // The neighbour is let in, and its set-id bits are gone.
    let file = text(&caller.file("good.tar", archive(&[sh])));
    let digest = digest(&fine(caller, &["import", &file, "--name", "x"])).replace(':', "-");
    let made = fs::metadata(caller.place().join("store/trees").join(digest).join("bin/sh")).expect("look");
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&made) & 0o7777, 0o755);
}

/// An empty file, again and again: 5 GB of headers in some megabytes.
fn ten_million_entries_in_a_small_file_are_refused_early(caller: &Caller) {
    let headers = entry(b'0', "bin/sh", "", b"").repeat(100_000);
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&headers).expect("pack");
    let file = text(&caller.file("many.tar.gz", packed.finish().expect("pack").repeat(100)));
    refused(caller, &["import", &file, "--name", "x", "--max-entries", "20000"], "image_too_many_entries");
    for room in ["trees", "facts", "names", "drafts"] {
        let left = fs::read_dir(caller.place().join("store").join(room)).expect("list").count();
        assert_eq!(left, 0, "{room}");
    }
}

fn a_tree_that_was_changed_does_not_pass(caller: &Caller) {
    let Some(root) = root(caller) else { return };
    let digest = digest(&fine(caller, &["import", &text(&root), "--name", "tools"]));
    let tree = caller.place().join("store/trees").join(digest.replace(':', "-"));
    fs::write(tree.join("data/note"), "evil").expect("change the tree");
    refused(caller, &["verify", "tools"], "image_digest_mismatch");
}

fn an_image_that_a_box_uses_stays_and_its_digest_is_in_the_ledger(caller: &Caller) {
    let Some(root) = root(caller) else { return };
    let digest = digest(&fine(caller, &["import", &text(&root), "--name", "tools"]));
    let store = text(&caller.place().join("store"));
    let config = text(&caller.file("daemon.toml", "[pool]\nmax = 0\n"));
    let served = Served::start(caller, &["--store", &store, "--config", &config]);
    let unknown = served.blastbox(["create", "--image", "tool"]).end();
    assert!(unknown.code != 0 && unknown.err.contains("known are: host, tools"), "{}", unknown.err);
    let id = served.ask(["create", "--image", "tools"]);
    assert!(served.ask(["exec", &id, "--", "program"]).starts_with("hello|"));
    assert!(served.ask(["inspect", &id]).contains(&digest));
    assert_eq!(fine(caller, &["ls"]).matches("yes").count(), 1);
    refused(caller, &["rm", "tools"], "image_in_use");
    // Without a name it stays as long as the box does.
    fs::write(root.join("data/note"), "new").expect("write the source");
    fine(caller, &["import", &text(&root), "--name", "tools"]);
    assert!(fine(caller, &["prune"]).contains("1 without a name stay"));
    assert!(served.ask(["exec", &id, "--", "program"]).starts_with("hello|"));
    let newer = served.ask(["create", "--image", "tools"]);
    assert!(served.ask(["exec", &newer, "--", "program"]).starts_with("new|"));
    served.stop();
    assert!(fine(caller, &["prune"]).starts_with("1 images removed"));
    let ledger = text(&caller.place().join("state/ledger"));
    let shown = caller.blastbox(["audit", "show", &ledger, "--json"]).end().text();
    assert!(shown.contains(&format!("\"digest\":\"{digest}\"")), "{shown}");
}

fn an_image_of_a_layout_brings_its_environment(caller: &Caller) {
    let Some(root) = root(caller) else { return };
    let program = fs::read(root.join("bin/program")).expect("read the program");
    let layer =
        archive(&[entry(b'0', "opt/tools/program", "", &program), entry(b'0', "data/note", "", b"layer")]);
    let layout = caller.directory("layout");
    for path in ["blobs", "blobs/sha256"] {
        fs::create_dir(layout.join(path)).expect("make a directory");
        caller.own(&layout.join(path));
    }
    let blob = |bytes: &[u8], media: &str| {
        let digest = Hash::of([bytes]).to_string();
        let path = layout.join("blobs").join(digest.replace(':', "/"));
        fs::write(&path, bytes).expect("write a blob");
        caller.own(&path);
        format!(
            r#"{{"mediaType":"application/vnd.oci.image.{media}","digest":"{digest}","size":{}}}"#,
            bytes.len()
        )
    };
    let plain = Hash::of([layer.as_slice()]);
    let config = format!(
        r#"{{"os":"linux","architecture":"amd64","rootfs":{{"type":"layers","diff_ids":["{plain}"]}},
        "config":{{"Env":["PATH=/opt/tools","X=image","HOME=/elsewhere"]}}}}"#
    );
    let config = blob(config.as_bytes(), "config.v1+json");
    let layer = blob(&layer, "layer.v1.tar");
    let manifest =
        blob(format!(r#"{{"config":{config},"layers":[{layer}]}}"#).as_bytes(), "manifest.v1+json");
    let files = [("oci-layout", "{}".to_owned()), ("index.json", format!(r#"{{"manifests":[{manifest}]}}"#))];
    for (name, text) in files {
        fs::write(layout.join(name), text).expect("write the layout");
        caller.own(&layout.join(name));
    }
    fine(caller, &["import", &text(&layout), "--platform", "linux/amd64", "--name", "layered"]);
    let store = text(&caller.place().join("store"));
    let options = ["--store", store.as_str(), "--image", "layered"];
    assert_eq!(caller.run(&options, &["program"]).fine().stdout, "layer|/opt/tools|image\n");
    // What the caller says goes before what the image says.
    let said: Vec<&str> = options.iter().copied().chain(["--env", "X=mine"]).collect();
    assert_eq!(caller.run(&said, &["program"]).fine().stdout, "layer|/opt/tools|mine\n");
}

fn what_docker_saved_comes_through_a_pipe_and_says_its_command(caller: &Caller) {
    let Some(root) = root(caller) else { return };
    let program = fs::read(root.join("bin/program")).expect("read the program");
    let layer = archive(&[entry(b'0', "bin/program", "", &program), entry(b'0', "data/note", "", b"saved")]);
    let plain = Hash::of([layer.as_slice()]);
    let config = format!(
        r#"{{"os":"linux","architecture":"amd64","rootfs":{{"diff_ids":["{plain}"]}},
        "config":{{"Entrypoint":["program"],"Cmd":["/data/no te"]}}}}"#
    );
    let list = r#"[{"Config":"c.json","RepoTags":["tools:1"],"Layers":["l/layer.tar"]}]"#;
    let saved = archive(&[
        entry(b'0', "c.json", "", config.as_bytes()),
        entry(b'0', "l/layer.tar", "", &layer),
        entry(b'0', "manifest.json", "", list.as_bytes()),
    ]);
    let store = text(&caller.place().join("store"));
    let words = ["image", "import", "-", "--platform", "linux/amd64", "--name", "saved", "--store", &store];
    let ended = caller.blastbox(words).input(&saved).end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    let options = ["--store", store.as_str(), "--image", "saved"];
    assert!(caller.run(&options, &["program"]).fine().stdout.starts_with("saved|"));
    let ended = caller.blastbox(["run"].iter().chain(&options).copied()).end();
    assert!(ended.code == 125 && ended.err.contains("code: no_command"), "{}", ended.err);
    assert!(ended.err.contains("-- program '/data/no te'"), "{}", ended.err);
}

fn what_cannot_be_read_is_named_with_what_to_do(caller: &Caller) {
    let said = refused(caller, &["import", "nosuch", "--name", "x"], "image_unusable");
    assert!(said.contains("cannot read nosuch") && said.contains("blastbox image pull"), "{said}");
    let store = text(&caller.place().join("store"));
    let ended = caller.blastbox(["kernel", "add", "/nope", "--store", &store]).end();
    assert!(ended.code == 125 && ended.err.contains("code: kernel_unusable"), "{}", ended.err);
    assert!(ended.err.contains("cannot read the kernel /nope: No such file"), "{}", ended.err);
    assert!(ended.err.contains("blastbox kernel get"), "{}", ended.err);
    let ended = image(caller, &["pull", "python:3.12"]);
    assert!(ended.code != 0 && ended.err.contains("its registry is missing"), "{}", ended.err);
}
