//! Registries that are honest, and registries that lie: each a small server on a loopback port.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use blastbox_images::oci::Platform;
use blastbox_images::store::Source;
use blastbox_images::tree::Caps;
use blastbox_images::{ImageName, Store};
use blastbox_wire::event::Hash;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::testing::Scratch;

/// What a server answers to a path, and the headers that it heard.
type Answers = BTreeMap<String, Vec<Vec<u8>>>;

struct Server {
    address: SocketAddr,
    answers: Arc<Mutex<Answers>>,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answers = Arc::new(Mutex::new(Answers::new()));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (known, told) = (Arc::clone(&answers), Arc::clone(&heard));
        tokio::spawn(async move {
            loop {
                let (mut line, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if line.read(&mut byte).await.unwrap_or(0) == 0 {
                        break;
                    }
                    head.push(byte[0]);
                }
                let head = String::from_utf8(head).unwrap();
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                told.lock().unwrap().push(head);
                let answer = {
                    let mut known = known.lock().unwrap();
                    match known.get_mut(&path) {
                        // The last one for ever.
                        Some(several) if several.len() > 1 => several.remove(0),
                        Some(several) => several[0].clone(),
                        None => status(404, &[], b""),
                    }
                };
                // Who has seen enough may go.
                line.write_all(&answer).await.ok();
            }
        });
        Self { address, answers, heard }
    }

    fn on(&self, path: &str, answers: Vec<Vec<u8>>) {
        self.answers.lock().unwrap().insert(path.to_owned(), answers);
    }

    fn heard(&self, part: &str) -> usize {
        self.heard.lock().unwrap().iter().filter(|head| head.contains(part)).count()
    }
}

fn status(code: u16, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {code} X\r\ncontent-length: {}\r\nconnection: close\r\n", body.len());
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    [text.as_bytes(), b"\r\n", body].concat()
}

fn ok(body: &[u8]) -> Vec<u8> {
    status(200, &[], body)
}

/// An image of one layer.
struct Honest {
    layer: Vec<u8>,
    config: Vec<u8>,
    manifest: Vec<u8>,
}

impl Honest {
    fn new() -> Self {
        let layer = archive("usr/bin/tool", b"#!");
        let arch = Platform::here().architecture;
        let config = format!(
            r#"{{"os":"linux","architecture":"{arch}","rootfs":{{"type":"layers","diff_ids":["{}"]}}}}"#,
            Hash::of([layer.as_slice()])
        );
        let config = config.into_bytes();
        let (of_config, of_layer) = (about(&config), about(&layer));
        let manifest =
            format!(r#"{{"schemaVersion":2,"config":{of_config},"layers":[{of_layer}]}}"#).into_bytes();
        Self { layer, config, manifest }
    }

    fn on(&self, server: &Server) {
        server.on("/v2/team/app/manifests/1.0", vec![ok(&self.manifest)]);
        server.on(&blob(&self.config), vec![ok(&self.config)]);
        server.on(&blob(&self.layer), vec![ok(&self.layer)]);
    }
}

fn about(bytes: &[u8]) -> String {
    format!(r#"{{"digest":"{}","size":{}}}"#, Hash::of([bytes]), bytes.len())
}

fn blob(bytes: &[u8]) -> String {
    format!("/v2/team/app/blobs/{}", Hash::of([bytes]))
}

/// An archive with one file.
fn archive(path: &str, content: &[u8]) -> Vec<u8> {
    let mut block = [0_u8; 512];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, path.as_bytes());
    put(100, b"0000755");
    put(124, format!("{:011o}", content.len()).as_bytes());
    put(136, b"00000000000");
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let mut all = [&block[..], content].concat();
    all.resize(all.len().next_multiple_of(512) + 1024, 0);
    all
}

struct Room {
    scratch: Scratch,
    store: Store,
}

impl Room {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let store = Store::open(&scratch.path().join("store")).unwrap();
        Self { scratch, store }
    }

    async fn pull(&self, reference: &str, login: Option<Login>) -> Result<Hash, RegistryError> {
        self.pull_with(reference, login, false).await
    }

    async fn pull_with(
        &self,
        reference: &str,
        login: Option<Login>,
        insecure: bool,
    ) -> Result<Hash, RegistryError> {
        let reference: Reference = reference.parse().unwrap();
        let name: ImageName = "app".parse().unwrap();
        let what = Pull {
            reference: &reference,
            name: &name,
            platform: Platform::here(),
            caps: Caps { bytes: 1 << 20, entries: 100 },
            login,
            ca: None,
            insecure,
        };
        let kept = pull(&self.store, &what, &mut |_| {}).await?;
        assert!(matches!(kept.facts.source, Source::Registry { .. }));
        Ok(kept.facts.digest)
    }

    /// The word that it is refused with; no tree, no draft and no half of a download stays.
    async fn refused(&self, reference: &str) -> &'static str {
        let code = self.pull(reference, None).await.unwrap_err().code();
        for room in ["trees", "drafts", "names"] {
            assert_eq!(std::fs::read_dir(self.store.path().join(room)).unwrap().count(), 0, "{room}");
        }
        for left in std::fs::read_dir(self.store.path().join("blobs")).unwrap() {
            let left = left.unwrap();
            let name = left.file_name().to_str().unwrap().replacen('-', ":", 1);
            let content = std::fs::read(left.path()).unwrap();
            assert_eq!(Hash::of([content.as_slice()]).to_string(), name);
        }
        code
    }

    fn login(&self) -> Login {
        let file = self.scratch.path().join("password");
        std::fs::write(&file, "secret\n").unwrap();
        Login::new("me", &file).unwrap()
    }
}

fn app(server: &Server) -> String {
    format!("{}/team/app:1.0", server.address)
}

#[tokio::test]
async fn an_image_is_pulled_and_what_it_came_from_is_gone() {
    let (server, room, image) = (Server::start().await, Room::new("pull"), Honest::new());
    image.on(&server);
    let digest = room.pull(&app(&server), None).await.unwrap();
    assert_eq!(room.store.find(&"app".parse().unwrap()).unwrap().digest(), digest);
    assert_eq!(std::fs::read_dir(room.store.path().join("blobs")).unwrap().count(), 0);
    // By digest, and through an index that leads to it.
    let manifest = Hash::of([image.manifest.as_slice()]);
    server.on(&format!("/v2/team/app/manifests/{manifest}"), vec![ok(&image.manifest)]);
    assert_eq!(room.pull(&format!("{}/team/app@{manifest}", server.address), None).await.unwrap(), digest);
    let platform = Platform::here();
    let index = format!(
        r#"{{"manifests":[{{"digest":"{manifest}","size":{},"platform":{{"os":"linux","architecture":"{}"}}}},
        {{"digest":"{}","size":1,"platform":{{"os":"linux","architecture":"pdp11"}}}}]}}"#,
        image.manifest.len(),
        platform.architecture,
        Hash::NOTHING
    );
    server.on("/v2/team/app/manifests/many", vec![ok(index.as_bytes())]);
    assert_eq!(room.pull(&format!("{}/team/app:many", server.address), None).await.unwrap(), digest);
}

#[tokio::test]
async fn a_registry_that_lies_about_a_digest_is_caught() {
    let (server, room, image) = (Server::start().await, Room::new("lies"), Honest::new());
    image.on(&server);
    let evil = archive("usr/bin/evil", b"#!");
    server.on(&blob(&image.layer), vec![ok(&evil)]);
    assert_eq!(room.refused(&app(&server)).await, "image_digest_mismatch");
    // Longer than promised, by a lot: it is not waited for.
    server.on(&blob(&image.layer), vec![ok(&[image.layer.as_slice(), &vec![0; 1 << 20]].concat())]);
    assert_eq!(room.refused(&app(&server)).await, "image_digest_mismatch");
    // Shorter, and it says so honestly.
    server.on(&blob(&image.layer), vec![ok(&image.layer[..700])]);
    assert_eq!(room.refused(&app(&server)).await, "image_digest_mismatch");
    server.on(&blob(&image.layer), vec![ok(&image.layer)]);
    server.on(&blob(&image.config), vec![ok(b"{}")]);
    // The configuration that came whole before is not asked for again, so a new store asks.
    assert_eq!(Room::new("lies-config").refused(&app(&server)).await, "image_digest_mismatch");
    let other = Hash::of([b"other".as_slice()]);
    server.on(&format!("/v2/team/app/manifests/{other}"), vec![ok(&image.manifest)]);
    let pinned = format!("{}/team/app@{other}", server.address);
    assert_eq!(Room::new("lies-manifest").refused(&pinned).await, "image_digest_mismatch");
}

#[tokio::test]
async fn what_breaks_off_is_asked_for_again_and_what_came_whole_is_not() {
    let (server, room, image) = (Server::start().await, Room::new("cut"), Honest::new());
    image.on(&server);
    let whole = ok(&image.layer);
    let cut = whole[..whole.len() - 100].to_vec();
    server.on(&blob(&image.layer), vec![cut, status(503, &[], b""), whole]);
    room.pull(&app(&server), None).await.unwrap();
    assert_eq!(server.heard(&format!("GET {} ", blob(&image.layer))), 3);
    assert_eq!(server.heard(&format!("GET {} ", blob(&image.config))), 1);
}

#[tokio::test]
async fn a_registry_that_refuses_is_told_by_its_word() {
    let (server, room, image) = (Server::start().await, Room::new("refuses"), Honest::new());
    assert_eq!(room.refused(&app(&server)).await, "registry_not_found");
    server.on("/v2/team/app/manifests/1.0", vec![status(403, &[], b"")]);
    assert_eq!(room.refused(&app(&server)).await, "registry_auth");
    server.on("/v2/team/app/manifests/1.0", vec![ok(b"<html>")]);
    assert_eq!(room.refused(&app(&server)).await, "image_bad_document");
    server.on("/v2/team/app/manifests/1.0", vec![ok(&vec![b' '; (4 << 20) + 1])]);
    assert_eq!(room.refused(&app(&server)).await, "registry_bad_answer");
    // A layer that alone is more than is permitted is not even asked for.
    let manifest = String::from_utf8(image.manifest.clone()).unwrap();
    let manifest = manifest.replace(&format!("\"size\":{}", image.layer.len()), "\"size\":99999999999");
    server.on("/v2/team/app/manifests/1.0", vec![ok(manifest.as_bytes())]);
    assert_eq!(room.refused(&app(&server)).await, "image_too_large");
    assert_eq!(server.heard("/blobs/"), 0);
}

#[tokio::test]
async fn a_document_that_is_too_long_is_not_asked_for() {
    let (server, room, image) = (Server::start().await, Room::new("long"), Honest::new());
    image.on(&server);
    let manifest = String::from_utf8(image.manifest.clone()).unwrap();
    let grown = manifest.replace(&format!("\"size\":{}", image.config.len()), "\"size\":4194305");
    assert_ne!(grown, manifest);
    server.on("/v2/team/app/manifests/1.0", vec![ok(grown.as_bytes())]);
    assert_eq!(room.refused(&app(&server)).await, "image_too_large");
    let index = format!(
        r#"{{"manifests":[{{"digest":"{}","size":99999999999,"platform":{{"os":"linux","architecture":"{}"}}}}]}}"#,
        Hash::of([image.manifest.as_slice()]),
        Platform::here().architecture
    );
    server.on("/v2/team/app/manifests/1.0", vec![ok(index.as_bytes())]);
    assert_eq!(room.refused(&app(&server)).await, "image_too_large");
    assert_eq!((server.heard("/blobs/"), server.heard("/manifests/sha256")), (0, 0));
}

#[tokio::test]
async fn a_token_is_fetched_where_the_registry_says_and_goes_to_nobody_else() {
    let (server, room, image) = (Server::start().await, Room::new("token"), Honest::new());
    let elsewhere = Server::start().await;
    image.on(&server);
    let realm = format!("Bearer realm=\"http://{}/token\",service=\"reg\"", server.address);
    let no = status(401, &[("www-authenticate", &realm)], b"");
    server.on("/v2/team/app/manifests/1.0", vec![no.clone(), ok(&image.manifest)]);
    let asked = "/token?scope=repository:team/app:pull&service=reg";
    server.on(asked, vec![ok(br#"{"token":"lent"}"#)]);
    let there = format!("http://{}/layer", elsewhere.address);
    server.on(&blob(&image.layer), vec![status(307, &[("location", &there)], b"")]);
    elsewhere.on("/layer", vec![ok(&image.layer)]);
    room.pull(&app(&server), Some(room.login())).await.unwrap();
    assert_eq!(server.heard("authorization: Basic bWU6c2VjcmV0"), 1);
    assert_eq!(server.heard("authorization: Bearer lent"), 3);
    assert_eq!((elsewhere.heard("GET /layer"), elsewhere.heard("authorization")), (1, 0));
}

#[tokio::test]
async fn a_password_is_kept_from_a_realm_of_another_house() {
    let (server, room, image) = (Server::start().await, Room::new("realm"), Honest::new());
    image.on(&server);
    // The same machine by another name, which is another house.
    let realm = format!("Bearer realm=\"http://localhost:{}/token\"", server.address.port());
    server.on("/v2/team/app/manifests/1.0", vec![status(401, &[("www-authenticate", &realm)], b"")]);
    server.on("/token?scope=repository:team/app:pull", vec![status(401, &[], b"")]);
    let error = room.pull(&app(&server), Some(room.login())).await.unwrap_err();
    assert_eq!(error.code(), "registry_auth");
    assert!(error.to_string().contains("the password was kept"), "{error}");
    assert_eq!((server.heard("GET /token"), server.heard("authorization")), (1, 0));
    server.on(
        "/v2/team/app/manifests/1.0",
        vec![status(401, &[("www-authenticate", "Basic realm=\"x\"")], b"")],
    );
    assert_eq!(room.refused(&app(&server)).await, "registry_auth");
}

#[tokio::test]
async fn a_realm_belongs_to_the_host_that_is_really_asked() {
    let (server, room) = (Server::start().await, Room::new("fragment"));
    // Cut at its first slash this ends like the registry; what is asked is `localhost`.
    let port = server.address.port();
    let realm = format!("Bearer realm=\"http://localhost:{port}#:@127.0.0.1:{port}/token\"");
    server.on("/v2/team/app/manifests/1.0", vec![status(401, &[("www-authenticate", &realm)], b"")]);
    let error = room.pull(&app(&server), Some(room.login())).await.unwrap_err();
    assert_eq!(error.code(), "registry_auth", "{error}");
    assert_eq!((server.heard("GET "), server.heard("authorization")), (2, 0));
}

#[tokio::test]
async fn redirects_have_an_end_and_never_lead_into_the_open() {
    let (server, room) = (Server::start().await, Room::new("redirect"));
    let path = "/v2/team/app/manifests/1.0";
    server.on(path, vec![status(302, &[("location", path)], b"")]);
    assert_eq!(room.refused(&app(&server)).await, "registry_redirect");
    for (to, code) in [
        ("http://192.0.2.1/x", "registry_insecure"),
        ("file:///etc/passwd", "registry_redirect"),
        ("http://me:secret@127.0.0.1/x", "registry_redirect"),
    ] {
        server.on(path, vec![status(302, &[("location", to)], b"")]);
        assert_eq!(room.refused(&app(&server)).await, code, "{to}");
    }
    assert_eq!(room.refused("http://192.0.2.1/team/app:1.0").await, "registry_insecure");
    // Who did not write `http://` is not led there, whatever else is permitted.
    server.on(path, vec![status(302, &[("location", "http://192.0.2.1/x")], b"")]);
    let error = room.pull_with(&app(&server), None, true).await.unwrap_err();
    assert_eq!(error.code(), "registry_insecure");
}

#[test]
fn a_reference_names_its_registry() {
    for (text, base, name) in [
        ("registry.example/app", "https://registry.example/v2/app", "app"),
        ("registry.example:5000/a/b:V1", "https://registry.example:5000/v2/a/b", "b:v1"),
        ("localhost:5000/app:latest", "http://localhost:5000/v2/app", "app"),
        ("127.0.0.1:5000/app", "http://127.0.0.1:5000/v2/app", "app"),
        ("http://registry.example/app", "http://registry.example/v2/app", "app"),
        ("https://localhost/app", "https://localhost/v2/app", "app"),
        ("[::1]:5000/app", "http://[::1]:5000/v2/app", "app"),
    ] {
        let reference: Reference = text.parse().unwrap();
        assert_eq!((reference.base().as_str(), reference.usual_name().as_str()), (base, name), "{text}");
    }
    for bad in [
        "app",
        "team/app",
        "",
        "registry.example/",
        "registry.example/../x",
        "registry.example/A",
        "r.example/a:",
        "r.example/a@sha256:1",
        "u@r.example/a",
        "r.example/a b",
    ] {
        assert!(bad.parse::<Reference>().is_err(), "{bad}");
    }
    for short in ["python:3.12", "team/app"] {
        let said = short.parse::<Reference>().unwrap_err().to_string();
        assert!(said.contains("registry is missing") && said.contains("write HOST"), "{said}");
    }
}
