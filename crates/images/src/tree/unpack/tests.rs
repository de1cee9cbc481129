//! Archives as nobody honest writes them, beside something that must never change.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::*;
use crate::testing::{Archive, Scratch};
use crate::tree::Caps;

#[test]
fn a_second_name_is_for_what_is_in_the_same_archive() {
    let place = Place::new("second-name");
    let mut writer = place.writer(Caps::default());
    let settings = Archive::new().file("passwd", 0o644, b"etc's");
    unpack_at(&mut writer, settings.finish().as_slice(), b"etc").unwrap();
    let programs = Archive::new().file("one", 0o755, b"usr's").hard_link("two", "one");
    unpack_at(&mut writer, programs.finish().as_slice(), b"usr").unwrap();
    assert_eq!(fs::read(place.tree().join("usr/two")).unwrap(), b"usr's");
    let beside = Archive::new().hard_link("stolen", "etc/passwd");
    assert!(unpack_at(&mut writer, beside.finish().as_slice(), b"usr").is_err());
    assert!(!place.has("usr/stolen"));
}

/// A place to unpack into, with something beside it that must never change.
struct Place {
    scratch: Scratch,
}

impl Place {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        fs::create_dir(scratch.path().join("tree")).unwrap();
        fs::write(scratch.path().join("outside"), "untouched").unwrap();
        Self { scratch }
    }

    fn tree(&self) -> PathBuf {
        self.scratch.path().join("tree")
    }

    fn writer(&self, caps: Caps) -> TreeWriter {
        let tree = openat(CWD, self.tree(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        TreeWriter::new(tree, caps)
    }

    fn unpack(&self, archives: &[Vec<u8>], form: Form) -> Result<TreeWriter, TreeError> {
        let mut writer = self.writer(Caps::default());
        for archive in archives {
            unpack(&mut writer, archive.as_slice(), form, &mut |_| {})?;
        }
        Ok(writer)
    }

    /// The word that this archive is refused with. Nothing outside the tree has changed.
    fn refused(&self, archive: &Archive) -> &'static str {
        let code = self.unpack(&[archive.finish()], Form::Layer).unwrap_err().code();
        assert_eq!(fs::read_to_string(self.scratch.path().join("outside")).unwrap(), "untouched");
        let beside: Vec<_> =
            fs::read_dir(self.scratch.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(beside.len(), 2, "{beside:?}");
        code
    }

    fn has(&self, path: &str) -> bool {
        self.tree().join(path).symlink_metadata().is_ok()
    }
}

#[test]
fn files_directories_and_links_come_out_as_they_went_in() {
    let place = Place::new("plain");
    let archive = Archive::new()
        .directory("./", 0o755)
        .directory("usr/", 0o755)
        .file("usr/bin/tool", 0o755, b"#!")
        .link("bin", "usr/bin")
        .link("etc/target", "/usr/bin/tool")
        .hard_link("usr/bin/alias", "usr/bin/tool");
    let writer = place.unpack(&[archive.finish()], Form::Whole).unwrap();
    assert_eq!(fs::read(place.tree().join("usr/bin/alias")).unwrap(), b"#!");
    assert_eq!(fs::metadata(place.tree().join("usr/bin/tool")).unwrap().nlink(), 2);
    assert_eq!(fs::read_link(place.tree().join("bin")).unwrap(), Path::new("usr/bin"));
    // An absolute link is a text that means something in the box, and is never followed here.
    assert_eq!(fs::read_link(place.tree().join("etc/target")).unwrap(), Path::new("/usr/bin/tool"));
    // `usr/bin` and `etc` are implied.
    assert_eq!(writer.made().entries, 8);
}

#[test]
fn no_path_leaves_the_root() {
    let place = Place::new("dotdot");
    for path in ["../outside", "usr/../../outside", "/etc/passwd", "..", "usr/.."] {
        assert_eq!(place.refused(&Archive::new().file(path, 0o644, b"x")), "image_path_outside", "{path}");
    }
}

#[test]
fn no_link_of_the_archive_is_ever_walked_over() {
    let place = Place::new("over");
    let outside = place.scratch.path().to_str().unwrap().to_owned();
    for target in [outside.as_str(), "..", "/", "usr"] {
        let archive =
            Archive::new().directory("usr", 0o755).link("way", target).file("way/outside", 0o644, b"x");
        assert_eq!(place.refused(&archive), "image_path_outside", "{target}");
        let archive = Archive::new().link("deep/way", target).directory("deep/way/below/x", 0o755);
        assert_eq!(place.refused(&archive), "image_path_outside", "{target}");
    }
}

#[test]
fn a_file_replaces_a_link_instead_of_writing_through_it() {
    let place = Place::new("through");
    let outside = place.scratch.path().join("outside");
    let archive = Archive::new().link("note", outside.to_str().unwrap()).file("note", 0o644, b"mine");
    place.unpack(&[archive.finish()], Form::Whole).unwrap();
    assert_eq!(fs::read_to_string(outside).unwrap(), "untouched");
    assert_eq!(fs::read_to_string(place.tree().join("note")).unwrap(), "mine");
    assert!(place.tree().join("note").symlink_metadata().unwrap().is_file());
}

#[test]
fn a_second_name_is_only_for_what_is_in_the_image() {
    let place = Place::new("hard");
    let outside = place.scratch.path().join("outside").to_str().unwrap().to_owned();
    for target in ["../outside", &outside, "missing", "usr", "way/outside", ""] {
        let archive = Archive::new().directory("usr", 0o755).link("way", "..").hard_link("stolen", target);
        assert_eq!(place.refused(&archive), "image_path_outside", "{target}");
    }
    // What is written to the second name later does not reach the first.
    let archive = Archive::new().file("one", 0o644, b"1").hard_link("two", "one").file("two", 0o644, b"2");
    place.unpack(&[archive.finish()], Form::Whole).unwrap();
    assert_eq!(fs::read(place.tree().join("one")).unwrap(), b"1");
}

#[test]
fn devices_are_refused_and_pipes_left_out() {
    let place = Place::new("device");
    for kind in [b'3', b'4'] {
        assert_eq!(place.refused(&Archive::new().entry(kind, "etc/disk", "", 0o666, b"")), "image_device");
    }
    assert_eq!(place.refused(&Archive::new().entry(b'S', "etc/sparse", "", 0o666, b"")), "image_entry_kind");
    let archive = Archive::new()
        .entry(b'6', "etc/pipe", "", 0o666, b"")
        .entry(b'3', "dev/null", "", 0o666, b"")
        .file("tmp/left", 0o644, b"x")
        .file("etc/kept", 0o644, b"x");
    let writer = place.unpack(&[archive.finish()], Form::Whole).unwrap();
    assert!(
        place.has("etc/kept") && !place.has("etc/pipe") && !place.has("dev/null") && !place.has("tmp/left")
    );
    assert_eq!(writer.made().left_out, 3);
}

#[test]
fn no_bit_that_gives_power_survives() {
    let place = Place::new("setuid");
    let archive = Archive::new()
        .directory("usr", 0o7777)
        .file("usr/su", 0o6755, b"x")
        .file("usr/secret", 0o000, b"x")
        .file("usr/open", 0o666, b"x");
    place.unpack(&[archive.finish()], Form::Whole).unwrap();
    let mode = |path: &str| fs::metadata(place.tree().join(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("usr"), mode("usr/su")), (0o755, 0o755));
    // Readable for the owner, so that the store can check it; closed to everybody else as before.
    assert_eq!((mode("usr/secret"), mode("usr/open")), (0o600, 0o644));
}

#[test]
fn a_layer_takes_away_from_those_below_and_not_from_itself() {
    let place = Place::new("whiteout");
    let below = Archive::new()
        .file("etc/old", 0o644, b"1")
        .file("etc/kept", 0o644, b"1")
        .file("opt/app/data/a", 0o644, b"1")
        .file("opt/app/b", 0o644, b"1")
        .directory("usr/share/doc/x", 0o755);
    let above = Archive::new()
        .file("etc/new", 0o644, b"2")
        .file("etc/.wh.old", 0o644, b"")
        .file("etc/.wh.new", 0o644, b"")
        .file("etc/.wh..wh.plnk", 0o644, b"")
        .file("opt/app/data/c", 0o644, b"2")
        .file("opt/app/.wh..wh..opq", 0o644, b"")
        .file("usr/share/.wh.doc", 0o644, b"")
        .file("nowhere/.wh.x", 0o644, b"");
    place.unpack(&[below.finish(), above.finish()], Form::Layer).unwrap();
    for there in ["etc/kept", "etc/new", "opt/app/data/c"] {
        assert!(place.has(there), "{there}");
    }
    for gone in ["etc/old", "opt/app/data/a", "opt/app/b", "usr/share/doc", "etc/.wh.old", "etc/.wh..wh.plnk"]
    {
        assert!(!place.has(gone), "{gone}");
    }
}

#[test]
fn what_a_layer_takes_away_again_and_again_is_read_once() {
    let place = Place::new("again");
    let (mut below, mut above) = (Archive::new(), Archive::new());
    for number in 0..50 {
        below = below.file(&format!("d/{number}"), 0o644, b"").file(&format!("d/sub/{number}"), 0o644, b"");
        above = above.file(&format!("d/sub/new/{number}"), 0o644, b"");
    }
    // The same one, those around it and in it, and one that is none.
    for _ in 0..50 {
        above = above
            .file("d/sub/new/.wh..wh..opq", 0o644, b"")
            .file("d/sub/.wh..wh..opq", 0o644, b"")
            .file("d/.wh..wh..opq", 0o644, b"")
            .file("d/.wh.sub", 0o644, b"")
            .file("none/.wh..wh..opq", 0o644, b"")
            .file(".wh..wh..opq", 0o644, b"");
    }
    let writer = place.unpack(&[below.clone().finish(), above.clone().finish()], Form::Layer).unwrap();
    // The root, d, d/sub and d/sub/new.
    assert_eq!(writer.listings, 4);
    assert!(place.has("d/sub/new/49") && !place.has("d/1") && !place.has("d/sub/1"));
    // Another layer means what is there then.
    let again = Place::new("again-more");
    let archives = [below.clone().finish(), above.clone().finish(), below.finish(), above.finish()];
    assert_eq!(again.unpack(&archives, Form::Layer).unwrap().listings, 8);
    assert!(again.has("d/sub/new/49") && !again.has("d/1") && !again.has("d/sub/1"));
}

#[test]
fn paths_that_were_cleared_do_not_fill_the_memory() {
    let place = Place::new("cleared");
    let mut writer = place.writer(Caps::default());
    let mut layer = Archive::new();
    for number in 10..30 {
        let path = format!("{}{number}", "n".repeat(78));
        layer = layer.directory(&path, 0o755).file(&format!("{path}/.wh..wh..opq"), 0o644, b"");
    }
    unpack(&mut writer, layer.finish().as_slice(), Form::Layer, &mut |_| {}).unwrap();
    // Each is counted where it was made, and once more where it was cleared.
    assert_eq!(writer.remembered(), 20 * 80 * 2);
}

#[test]
fn a_whiteout_of_what_the_layer_has_made_takes_away_what_was_there_before() {
    let place = Place::new("whiteout-late");
    let below = Archive::new().file("a/b", 0o644, b"").file("a/d/e", 0o644, b"").file("f", 0o644, b"old");
    let above = Archive::new()
        .file("a/c", 0o644, b"")
        .file("a/d/g", 0o644, b"")
        .file("f", 0o644, b"new")
        .file(".wh.a", 0o644, b"")
        .file(".wh.f", 0o644, b"");
    place.unpack(&[below.finish(), above.finish()], Form::Layer).unwrap();
    assert!(place.has("a/c") && place.has("a/d/g") && place.has("f"));
    assert!(!place.has("a/b") && !place.has("a/d/e"), "they are of the layer below");
}

#[test]
fn a_whiteout_reaches_over_no_link_and_out_of_no_root() {
    let place = Place::new("whiteout-link");
    let below = Archive::new().link("way", "..").file("etc/x", 0o644, b"1");
    let above = Archive::new().file("way/.wh.outside", 0o644, b"").file("way/.wh..wh..opq", 0o644, b"");
    place.unpack(&[below.finish(), above.finish()], Form::Layer).unwrap();
    assert!(place.scratch.path().join("outside").exists());
    for name in [".wh.", ".wh..", ".wh..."] {
        let archive = Archive::new().file(name, 0o644, b"");
        assert_eq!(place.refused(&archive), "image_path_outside", "{name}");
    }
    // In an archive that is no layer such a name is a name.
    place.unpack(&[Archive::new().file("etc/.wh.x", 0o644, b"").finish()], Form::Whole).unwrap();
    assert!(place.has("etc/.wh.x") && place.has("etc/x"));
}

#[test]
fn a_layer_may_put_a_file_where_a_directory_was_and_back() {
    let place = Place::new("replace");
    let one = Archive::new().file("a/b/c", 0o644, b"1").file("f", 0o644, b"1");
    let two = Archive::new().file("a", 0o644, b"2").directory("f", 0o755).file("f/g", 0o644, b"2");
    place.unpack(&[one.finish(), two.finish()], Form::Layer).unwrap();
    assert_eq!(fs::read(place.tree().join("a")).unwrap(), b"2");
    assert_eq!(fs::read(place.tree().join("f/g")).unwrap(), b"2");
}

#[test]
fn directories_that_a_path_implies_are_entries_too() {
    let place = Place::new("implied");
    let deep = |top: &str| Archive::new().long(&format!("{top}{}/x", "/d".repeat(200)));
    let mut writer = place.writer(Caps { entries: 300, bytes: 1 << 20 });
    unpack(&mut writer, deep("a").finish().as_slice(), Form::Layer, &mut |_| {}).unwrap();
    // What is there already is not made again.
    unpack(&mut writer, deep("a").finish().as_slice(), Form::Layer, &mut |_| {}).unwrap();
    let error = unpack(&mut writer, deep("b").finish().as_slice(), Form::Layer, &mut |_| {}).unwrap_err();
    assert_eq!(error.code(), "image_too_many_entries");
}

#[test]
fn long_paths_do_not_fill_the_memory() {
    let place = Place::new("long-paths");
    let above = format!("{}/", "d".repeat(250)).repeat(15);
    let many = |count: u32| {
        let one = |at: u32| Archive::new().long(&format!("{above}{at}")).blocks();
        let end = Archive::new().finish();
        (0..count).map(one).chain([end]).collect::<Vec<_>>().concat()
    };
    let caps = Caps { entries: 2_000, bytes: 1 << 20 };
    let mut writer = place.writer(caps);
    unpack(&mut writer, many(200).as_slice(), Form::Layer, &mut |_| {}).unwrap();
    // The next layer remembers anew.
    unpack(&mut writer, many(200).as_slice(), Form::Layer, &mut |_| {}).unwrap();
    let error = unpack(&mut place.writer(caps), many(400).as_slice(), Form::Layer, &mut |_| {}).unwrap_err();
    assert_eq!(error.code(), "image_path_too_long");
}

#[test]
fn too_many_entries_end_the_import_early() {
    let place = Place::new("many");
    // An archive without end: only the count can end it.
    struct Endless(Vec<u8>, usize);
    impl Read for Endless {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            let rest = self.0.get(self.1..).unwrap();
            let count = rest.len().min(to.len());
            to[..count].copy_from_slice(&rest[..count]);
            self.1 = (self.1 + count) % self.0.len();
            Ok(count)
        }
    }
    let one = Archive::new().file("etc/same", 0o644, b"").blocks();
    let mut writer = place.writer(Caps { entries: 1_000, bytes: 1 << 20 });
    let error = unpack(&mut writer, Endless(one, 0), Form::Whole, &mut |_| {}).unwrap_err();
    assert_eq!(error.code(), "image_too_many_entries");
    // Records that belong to no entry are no entries, and end it as well.
    let records = Archive::new().entry(b'x', "pax", "", 0o644, b"").blocks();
    let mut writer = place.writer(Caps { entries: 10, bytes: 1 << 20 });
    let error = unpack(&mut writer, Endless(records, 0), Form::Whole, &mut |_| {}).unwrap_err();
    assert_eq!(error.code(), "image_too_large");
}

#[test]
fn more_content_than_permitted_is_refused_before_it_is_written() {
    let place = Place::new("large");
    let mut writer = place.writer(Caps { entries: 10, bytes: 1_000 });
    let archive = Archive::new().file("a", 0o644, &[0; 600]).file("b", 0o644, &[0; 600]).finish();
    let error = unpack(&mut writer, archive.as_slice(), Form::Whole, &mut |_| {}).unwrap_err();
    assert_eq!(error.code(), "image_too_large");
    assert!(!place.has("b"));
    // One that lies about its size is refused by what it says.
    let lie = Archive::new().lying("c", 1 << 60);
    assert_eq!(place.refused(&lie), "image_too_large");
}

#[test]
fn a_bomb_is_noticed_long_before_it_is_unpacked() {
    let place = Place::new("bomb");
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&Archive::new().lying("zeros", 1 << 30).blocks()).unwrap();
    let zeros = vec![0; 1 << 20];
    for _ in 0..96 {
        packed.write_all(&zeros).unwrap();
    }
    let packed = packed.finish().unwrap();
    let mut writer = place.writer(Caps::default());
    let error = unpack(&mut writer, packed.as_slice(), Form::Whole, &mut |_| {}).unwrap_err();
    assert_eq!(error.code(), "image_bomb");
    assert!(fs::metadata(place.tree().join("zeros")).unwrap().len() <= HARMLESS);
}

#[test]
fn long_and_deep_paths_are_refused_by_name() {
    let place = Place::new("deep");
    let deep = vec!["d"; 300].join("/");
    assert_eq!(place.refused(&Archive::new().long(&deep)), "image_path_too_long");
    let long = vec!["d".repeat(200); 25].join("/");
    assert_eq!(place.refused(&Archive::new().long(&long)), "image_path_too_long");
    assert!(place.unpack(&[Archive::new().long(&vec!["e"; 200].join("/")).finish()], Form::Whole).is_ok());
}

#[test]
fn what_breaks_off_or_is_no_archive_is_refused() {
    let place = Place::new("broken");
    let archive = Archive::new().file("etc/x", 0o644, &[7; 2_000]).finish();
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&archive).unwrap();
    let packed = packed.finish().unwrap();
    assert!(place.unpack(std::slice::from_ref(&packed), Form::Whole).is_ok());
    let code = |bytes: &[u8]| place.unpack(&[bytes.to_vec()], Form::Whole).unwrap_err().code();
    assert_eq!(code(&archive[..1_500]), "image_bad_archive");
    assert_eq!(code(&packed[..packed.len() - 12]), "image_bad_archive");
    assert_eq!(code(b"not an archive at all"), "image_bad_archive");
    assert_eq!(code(b""), "image_bad_archive");
    assert_eq!(code(&[0x28, 0xb5, 0x2f, 0xfd, 0]), "image_compression");
    assert_eq!(code(b"\xfd7zXZ\0"), "image_compression");
}

#[test]
fn only_an_end_mark_says_that_nothing_was_cut_off_between_entries() {
    let place = Place::new("cut");
    let archive = Archive::new().file("usr/bin/a", 0o755, b"x");
    let error = place.unpack(&[archive.blocks()], Form::Whole).unwrap_err();
    assert_eq!(error.code(), "image_bad_archive");
    assert!(place.unpack(&[archive.finish()], Form::Whole).is_ok());
    // A layer is held against its digest.
    assert!(place.unpack(&[archive.blocks()], Form::Layer).is_ok());
}

#[test]
fn what_layers_unpack_to_is_counted_together() {
    let place = Place::new("together");
    // Nothing after an end mark makes an entry, and somebody has to unpack it all the same.
    let layer = [Archive::new().file("usr/a", 0o644, b"x").finish(), vec![0; 60 << 10]].concat();
    let caps = Caps { bytes: 64 << 10, entries: 10 };
    let mut writer = place.writer(caps);
    unpack(&mut writer, layer.as_slice(), Form::Layer, &mut |_| {}).unwrap();
    let error = unpack(&mut writer, layer.as_slice(), Form::Layer, &mut |_| {}).unwrap_err();
    assert_eq!(error.code(), "image_too_large");
}

#[test]
fn the_digest_of_the_plain_archive_does_not_depend_on_its_compression() {
    let place = Place::new("plain-digest");
    let archive = Archive::new().file("etc/x", 0o644, b"x").finish();
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&archive).unwrap();
    let packed = packed.finish().unwrap();
    let mut writer = place.writer(Caps::default());
    let one = unpack(&mut writer, archive.as_slice(), Form::Whole, &mut |_| {}).unwrap();
    let two = unpack(&mut writer, packed.as_slice(), Form::Whole, &mut |_| {}).unwrap();
    assert_eq!(one.plain, two.plain);
    assert_eq!(one.plain, Hash::of([archive.as_slice()]));
}
