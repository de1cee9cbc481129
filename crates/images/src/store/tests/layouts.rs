//! OCI layouts: honest ones, and those that lie.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

/// A layout in the making.
struct Maker {
    path: PathBuf,
}

impl Maker {
    fn new(room: &Room) -> Self {
        let path = room.scratch.path().join("layout");
        fs::create_dir_all(path.join("blobs/sha256")).unwrap();
        fs::write(path.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        Self { path }
    }

    fn place(&self, digest: &str) -> PathBuf {
        self.path.join("blobs").join(digest.replace(':', "/"))
    }

    /// Writes a blob and says what it is.
    fn blob(&self, bytes: &[u8], media: &str) -> String {
        let digest = Hash::of([bytes]).to_string();
        fs::write(self.place(&digest), bytes).unwrap();
        format!(r#"{{"mediaType":"{media}","digest":"{digest}","size":{}}}"#, bytes.len())
    }

    fn image(&self, layers: &[Vec<u8>], plain: &[Vec<u8>], architecture: &str) -> String {
        self.image_with(layers, plain, architecture, "/opt/bin")
    }

    fn image_with(&self, layers: &[Vec<u8>], plain: &[Vec<u8>], architecture: &str, path: &str) -> String {
        let ids: Vec<String> =
            plain.iter().map(|layer| format!("{:?}", Hash::of([layer.as_slice()]).to_string())).collect();
        let config = format!(
            r#"{{"os":"linux","architecture":"{architecture}","config":{{"Env":["PATH={path}","X=1"],"WorkingDir":"/app"}},
            "rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
            ids.join(",")
        );
        let config = self.blob(config.as_bytes(), "application/vnd.oci.image.config.v1+json");
        let media = "application/vnd.oci.image.layer.v1.tar+gzip";
        let layers: Vec<String> = layers.iter().map(|layer| self.blob(layer, media)).collect();
        let manifest = format!(r#"{{"schemaVersion":2,"config":{config},"layers":[{}]}}"#, layers.join(","));
        self.blob(manifest.as_bytes(), "application/vnd.oci.image.manifest.v1+json")
    }

    fn index(&self, images: &[String]) {
        let text = format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, images.join(","));
        fs::write(self.path.join("index.json"), text).unwrap();
    }
}

fn packed(plain: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(plain).unwrap();
    packed.finish().unwrap()
}

fn two_layers() -> [Vec<u8>; 2] {
    [
        Archive::new().file("usr/bin/sh", 0o755, b"#!").file("etc/old", 0o644, b"1").finish(),
        Archive::new().file("etc/.wh.old", 0o644, b"").file("etc/new", 0o644, b"2").finish(),
    ]
}

fn here() -> String {
    Platform::here().architecture
}

fn with_platform(image: &str, architecture: &str) -> String {
    let platform = format!(r#","platform":{{"os":"linux","architecture":"{architecture}"}}}}"#);
    format!("{}{platform}", image.strip_suffix('}').unwrap())
}

fn with_tag(image: &str, tag: &str) -> String {
    let note = format!(r#","annotations":{{"org.opencontainers.image.ref.name":"{tag}"}}}}"#);
    format!("{}{note}", image.strip_suffix('}').unwrap())
}

#[test]
fn layers_are_laid_over_each_other_and_the_configuration_is_kept() {
    let room = Room::new("layout");
    let maker = Maker::new(&room);
    let plain = two_layers();
    maker.index(&[maker.image(&plain.clone().map(|layer| packed(&layer)), &plain, &here())]);
    let facts = room.import(&maker.path, "x").unwrap().facts;
    assert!(matches!(facts.source, Source::OciLayout { .. }));
    assert_eq!(facts.config.env.get("PATH").map(String::as_str), Some("/opt/bin"));
    assert_eq!(facts.config.workdir.as_deref(), Some("/app"));
    let tree = room.store.path().join("trees").join(facts.digest.to_string().replace(':', "-"));
    assert!(tree.join("etc/new").exists() && !tree.join("etc/old").exists());
}

#[test]
fn a_strangers_image_with_the_same_files_does_not_change_what_a_name_means() {
    let room = Room::new("same-tree");
    let maker = Maker::new(&room);
    let plain = two_layers();
    let layers = plain.clone().map(|layer| packed(&layer));
    let path = |text: &str| {
        let found = room.store.find(&image(text));
        found.map(|found| found.config().env.get("PATH").cloned().unwrap())
    };
    maker.index(&[maker.image_with(&layers, &plain, &here(), "/usr/bin")]);
    let digest = room.import(&maker.path, "mine").unwrap().facts.digest;
    assert_eq!(path(&digest.to_string()).unwrap(), "/usr/bin");
    maker.index(&[maker.image_with(&layers, &plain, &here(), "/tmp")]);
    let strange = room.import(&maker.path, "strange").unwrap();
    assert!(strange.known && strange.facts.digest == digest);
    for mine in ["mine".to_owned(), format!("mine@{digest}")] {
        assert_eq!(path(&mine).unwrap(), "/usr/bin", "{mine}");
    }
    assert_eq!(path("strange").unwrap(), "/tmp");
    // Each name is listed with its own facts, and files alone do not say how they are run.
    let listed = room.store.list().unwrap();
    assert_eq!((listed.len(), room.count("trees")), (2, 1));
    for one in &listed {
        let wanted = if one.names[0].as_str() == "mine" { "/usr/bin" } else { "/tmp" };
        assert_eq!(one.facts.config.env["PATH"], wanted);
    }
    assert_eq!(path(&digest.to_string()).unwrap_err().code(), "image_ambiguous");
    assert_eq!(room.store.remove(&image("strange")).unwrap(), None);
    assert_eq!(path(&digest.to_string()).unwrap(), "/usr/bin");
    assert_eq!(room.store.verify(&image("mine"), &mut |_| {}).unwrap().config.env["PATH"], "/usr/bin");
}

#[test]
fn a_name_without_facts_of_its_own_has_those_of_its_tree() {
    let room = Room::new("old-name");
    let maker = Maker::new(&room);
    let plain = two_layers();
    maker.index(&[maker.image(&plain.clone().map(|layer| packed(&layer)), &plain, &here())]);
    let digest = room.import(&maker.path, "x").unwrap().facts.digest;
    fs::write(room.store.path().join("names/x"), format!("{digest}\n")).unwrap();
    assert_eq!(room.store.find(&image("x")).unwrap().config().env["PATH"], "/opt/bin");
}

#[test]
fn a_blob_that_is_not_what_its_digest_says_is_refused() {
    let room = Room::new("lies");
    let maker = Maker::new(&room);
    let plain = two_layers();
    let layers = plain.clone().map(|layer| packed(&layer));
    maker.index(&[maker.image(&layers, &plain, &here())]);
    let digest = Hash::of([layers[1].as_slice()]).to_string();
    let honest = fs::read(maker.place(&digest)).unwrap();
    // Another archive, cut short, longer, or gone.
    let other = packed(&Archive::new().file("etc/evil", 0o644, b"2").finish());
    let longer = [honest.as_slice(), b"x"].concat();
    for lie in [other.as_slice(), &honest[..honest.len() - 1], &longer] {
        fs::write(maker.place(&digest), lie).unwrap();
        assert_eq!(room.import(&maker.path, "x").unwrap_err().code(), "image_digest_mismatch");
    }
    fs::remove_file(maker.place(&digest)).unwrap();
    assert_eq!(room.import(&maker.path, "x").unwrap_err().code(), "image_unreadable");
    assert_eq!((room.count("trees"), room.count("drafts")), (0, 0));
    fs::write(maker.place(&digest), &honest).unwrap();
    assert!(room.import(&maker.path, "x").is_ok());
}

#[test]
fn a_configuration_that_speaks_of_other_layers_is_refused() {
    let room = Room::new("diff");
    let maker = Maker::new(&room);
    let plain = two_layers();
    let layers = plain.clone().map(|layer| packed(&layer));
    maker.index(&[maker.image(&layers, &[plain[1].clone(), plain[0].clone()], &here())]);
    assert_eq!(room.import(&maker.path, "x").unwrap_err().code(), "image_digest_mismatch");
    maker.index(&[maker.image(&layers, &plain[..1], &here())]);
    assert_eq!(room.import(&maker.path, "x").unwrap_err().code(), "image_bad_document");
}

#[test]
fn a_blob_that_is_a_link_is_not_followed() {
    let room = Room::new("blob-link");
    let maker = Maker::new(&room);
    let plain = two_layers();
    maker.index(&[maker.image(&plain.clone().map(|layer| packed(&layer)), &plain, &here())]);
    let digest = Hash::of([packed(&plain[0]).as_slice()]).to_string();
    let aside = room.scratch.path().join("aside");
    fs::rename(maker.place(&digest), &aside).unwrap();
    symlink(&aside, maker.place(&digest)).unwrap();
    assert_eq!(room.import(&maker.path, "x").unwrap_err().code(), "image_unreadable");
}

#[test]
fn the_platform_and_the_tag_choose() {
    let room = Room::new("choose");
    let maker = Maker::new(&room);
    let [one, two] = two_layers();
    let mine = maker.image(&[packed(&one)], std::slice::from_ref(&one), &here());
    let other = maker.image(&[packed(&one), packed(&two)], &[one.clone(), two.clone()], "pdp11");
    maker.index(&[with_platform(&other, "pdp11"), with_platform(&mine, &here())]);
    assert!(room.import(&maker.path, "x").is_ok());
    maker.index(&[with_platform(&other, "pdp11")]);
    let refused = room.import(&maker.path, "x").unwrap_err();
    assert_eq!(refused.code(), "image_no_platform");
    assert!(refused.to_string().contains("linux/pdp11"), "{refused}");
    // One that says nothing is looked at before it is believed.
    maker.index(std::slice::from_ref(&other));
    assert_eq!(room.import(&maker.path, "x").unwrap_err().code(), "image_no_platform");
    maker.index(&[with_tag(&mine, "one"), with_tag(&other, "two")]);
    assert_eq!(room.import(&maker.path, "x").unwrap_err().code(), "image_ambiguous");
    let tagged = |tag| {
        let platform = Platform::here();
        let import =
            Import { path: &maker.path, name: None, tag: Some(tag), platform, caps: Caps::default() };
        room.store.import(&import, &mut |_| {})
    };
    assert!(tagged("one").is_ok());
    assert_eq!(tagged("three").unwrap_err().code(), "image_bad_document");
}

fn piped(room: &Room, archive: &[u8], tag: Option<&str>) -> Result<Kept, StoreError> {
    let name = "piped".parse().unwrap();
    let (path, platform, caps) = (Path::new("-"), Platform::here(), Caps::default());
    let what = Import { path, name: Some(&name), tag, platform, caps };
    room.store.import_piped(&mut &*archive, "standard input", &what, &mut |_| {})
}

/// As Docker before 25 and podman save images: a list, a configuration for each, and layers in directories of their own.
fn saved(layers: &[Vec<u8>], config_layers: &[Vec<u8>], names: &str) -> Archive {
    let ids: Vec<String> =
        config_layers.iter().map(|layer| format!("{:?}", Hash::of([layer.as_slice()]).to_string())).collect();
    let config = format!(
        r#"{{"os":"linux","architecture":"{}","config":{{"Cmd":["sh"],"Env":["X=1"]}},"rootfs":{{"diff_ids":[{}]}}}}"#,
        here(),
        ids.join(",")
    );
    let mut archive = Archive::new().file("c.json", 0o644, config.as_bytes());
    let mut paths = Vec::new();
    for (number, layer) in layers.iter().enumerate() {
        archive = archive.file(&format!("l{number}/layer.tar"), 0o644, layer);
        paths.push(format!(r#""l{number}/layer.tar""#));
    }
    let list = format!(r#"[{{"Config":"c.json","RepoTags":{names},"Layers":[{}]}}]"#, paths.join(","));
    archive.file("manifest.json", 0o644, list.as_bytes())
}

#[test]
fn what_docker_saves_is_imported_from_a_pipe_and_from_a_file() {
    let room = Room::new("docker-save");
    let layers = two_layers();
    let maker = Maker::new(&room);
    let packed = [packed(&layers[0]), packed(&layers[1])];
    maker.index(&[with_platform(&maker.image(&packed, &layers, &here()), &here())]);
    let layout = room.import(&maker.path, "layout").unwrap();
    // The same as an archive, as Docker writes it today.
    let mut archive = Archive::new();
    for at in ["oci-layout", "index.json"] {
        archive = archive.file(at, 0o644, &fs::read(maker.path.join(at)).unwrap());
    }
    for blob in fs::read_dir(maker.path.join("blobs/sha256")).unwrap() {
        let blob = blob.unwrap();
        let at = format!("blobs/sha256/{}", blob.file_name().to_str().unwrap());
        archive = archive.file(&at, 0o644, &fs::read(blob.path()).unwrap());
    }
    let new = piped(&room, &archive.finish(), None).unwrap();
    // And as it was once.
    let names = r#"["host:5000/tools:1.0","tools:two"]"#;
    let old = piped(&room, &saved(&layers, &layers, names).finish(), Some("two")).unwrap();
    let file = room.import(&room.archive(&saved(&layers, &layers, "null")), "file").unwrap();
    for (kept, what) in [(&new, "new"), (&old, "old"), (&file, "file")] {
        assert_eq!(kept.facts.digest, layout.facts.digest, "{what}");
    }
    assert_eq!(
        (&old.facts.config.command, old.facts.config.env["X"].as_str()),
        (&vec!["sh".to_owned()], "1")
    );
    assert!(new.facts.source.words().contains("standard input"));
    // A root file system is one, also from a pipe.
    let whole = Archive::new().file("usr/bin/sh", 0o755, b"#!").file("etc/new", 0o644, b"2");
    assert_eq!(piped(&room, &whole.finish(), None).unwrap().facts.digest, layout.facts.digest);
    assert_eq!(room.count("drafts"), 0);
}

#[test]
fn a_saved_image_that_lies_is_refused_and_leaves_nothing() {
    let room = Room::new("saved-lies");
    let layers = two_layers();
    let other = [layers[1].clone(), layers[0].clone()];
    let list = |text: &str| Archive::new().file("manifest.json", 0o644, text.as_bytes()).finish();
    let outside = r#"[{"Config":"../c.json","Layers":[]}]"#;
    let linked = Archive::new().link("c.json", "/etc/hostname").file(
        "manifest.json",
        0o644,
        br#"[{"Config":"c.json","Layers":[]}]"#,
    );
    for (archive, code) in [
        (saved(&layers, &other, "null").finish(), "image_digest_mismatch"),
        (saved(&layers, &layers[..1], "null").finish(), "image_bad_document"),
        (list("[]"), "image_no_platform"),
        (list("nonsense"), "image_bad_document"),
        (list(outside), "image_path_outside"),
        (linked.finish(), "image_bad_document"),
        (saved(&layers, &layers, r#"["x:1"]"#).finish()[..2048].to_vec(), "image_bad_archive"),
    ] {
        assert_eq!(piped(&room, &archive, None).unwrap_err().code(), code);
    }
    for place in ["trees", "facts", "names", "drafts"] {
        assert_eq!(room.count(place), 0, "{place}");
    }
}

#[test]
fn of_many_tags_a_few_are_named() {
    let room = Room::new("tags");
    let maker = Maker::new(&room);
    let layers = two_layers();
    let image = maker.image(&[packed(&layers[0])], &layers[..1], &here());
    let tagged = |number: usize| {
        let long = "t".repeat(300);
        let note = format!(r#","annotations":{{"org.opencontainers.image.ref.name":"{number}{long}"}}}}"#);
        format!("{}{note}", image.strip_suffix('}').unwrap())
    };
    maker.index(&(0..500).map(tagged).collect::<Vec<_>>());
    let layout = crate::oci::Layout::open(&maker.path).unwrap().unwrap();
    let said = layout.images(Some("none")).unwrap_err().to_string();
    assert!(said.contains("\"none\"") && said.ends_with("and 490 more") && said.len() < 1_000, "{said}");
}
