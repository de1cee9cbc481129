//! Pulling from a real registry: the server of Debian's package `docker-registry`, on a loopback port of this test's own.
#![expect(clippy::expect_used, clippy::panic, reason = "only tests; one that cannot work must fail at once")]

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use blastbox_tests::{Caller, Held, both_ways, wait_until};
use blastbox_wire::event::Hash;
use blastbox_wire::tar::{BLOCK, padding};

both_ways!(an_image_that_was_pushed_to_a_real_registry_is_pulled_and_runs);

const CURL: &str = "/usr/bin/curl";

/// The registry's program: installed, or unpacked beside the built programs by `make test`, where not everybody may reach it.
fn server(caller: &Caller) -> Option<PathBuf> {
    let installed = PathBuf::from("/usr/bin/docker-registry");
    if installed.exists() {
        return Some(installed);
    }
    let beside = std::env::var_os("BLASTBOX_BIN_DIR").map(|dir| Path::new(&dir).with_file_name("registry"));
    let unpacked = beside?.join("usr/bin/docker-registry");
    let copy = caller.place().join("docker-registry");
    fs::copy(unpacked, &copy).ok().map(|_| copy)
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path of the test is text").to_owned()
}

/// A registry that ends with its test.
struct Registry {
    held: Held,
    port: u16,
}

impl Registry {
    fn start(caller: &Caller, program: &Path) -> Self {
        let (data, log) = (caller.directory("registry"), caller.file("registry.log", ""));
        let config = format!(
            "version: 0.1\nlog:\n  level: info\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: 127.0.0.1:0\n",
            text(&data)
        );
        let config = text(&caller.file("registry.yml", config));
        let open = |write: bool| -> OwnedFd {
            let mut options = File::options();
            if write {
                options.append(true)
            } else {
                options.read(true)
            };
            options.open(if write { &log } else { Path::new("/dev/null") }).expect("open a stream").into()
        };
        let words = ["serve", config.as_str()];
        let held = caller.program(program, words).start_with([open(false), open(true), open(true)]);
        let mut port = None;
        wait_until(|| {
            let said = fs::read_to_string(&log).unwrap_or_default();
            let after = said.split("listening on 127.0.0.1:").nth(1).unwrap_or_default();
            let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
            // A number that is still being written would be cut.
            port = digits.parse().ok().filter(|_| after.len() > digits.len());
            port.is_some()
        });
        let port = port.unwrap_or_else(|| panic!("{}", fs::read_to_string(&log).unwrap_or_default()));
        Self { held, port }
    }

    /// Pushes a blob as any client does: a place is asked for, and filled.
    fn push(&self, caller: &Caller, bytes: &[u8]) {
        let file = text(&caller.file("blob", bytes));
        let (digest, port) = (Hash::of([bytes]), self.port);
        let script = format!(
            "at=$({CURL} -fsS -D- -o /dev/null -X POST http://127.0.0.1:{port}/v2/team/app/blobs/uploads/ \
             | tr -d '\\r' | sed -n 's/^[Ll]ocation: //p'); \
             exec {CURL} -fsS -X PUT -H 'Content-Type: application/octet-stream' --data-binary @{file} \"$at&digest={digest}\""
        );
        self.sh(caller, &script);
    }

    fn tag(&self, caller: &Caller, manifest: &str) {
        let file = text(&caller.file("manifest", manifest));
        let script = format!(
            "exec {CURL} -fsS -X PUT -H 'Content-Type: application/vnd.oci.image.manifest.v1+json' --data-binary @{file} \
             http://127.0.0.1:{}/v2/team/app/manifests/1.0",
            self.port
        );
        self.sh(caller, &script);
    }

    fn sh(&self, caller: &Caller, script: &str) {
        let ended = caller.program(Path::new("/bin/sh"), ["-c", script]).end();
        assert_eq!(ended.code, 0, "{script}: {}{}", ended.text(), ended.err);
    }
}

fn a_program(caller: &Caller) -> Option<PathBuf> {
    let source = "#include <stdio.h>\nint main(void) { puts(\"pulled\"); return 0; }\n";
    blastbox_tests::cc(caller, "program", source, &[])
}

/// An archive with one program in it.
fn layer(program: &[u8]) -> Vec<u8> {
    let mut block = [0_u8; BLOCK];
    let size = u64::try_from(program.len()).expect("a length");
    let mut put = |at: usize, bytes: &[u8]| {
        block.iter_mut().skip(at).zip(bytes).for_each(|(to, from)| *to = *from);
    };
    put(0, b"bin/program");
    put(100, b"0000755");
    put(124, format!("{size:011o}").as_bytes());
    put(136, b"00000000000");
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    let sum = format!("{sum:06o}\0");
    block.iter_mut().skip(148).zip(sum.as_bytes()).for_each(|(to, from)| *to = *from);
    [&block[..], program, &vec![0; padding(size) + 2 * BLOCK]].concat()
}

fn an_image_that_was_pushed_to_a_real_registry_is_pulled_and_runs(caller: &Caller) {
    let Some(server) = server(caller).filter(|_| Path::new(CURL).exists()) else {
        return caller.skip("needs a registry and curl (tools/registry.sh, apt-get install curl)");
    };
    let Some(program) = a_program(caller) else {
        return caller.skip("no C compiler that makes static programs (apt-get install build-essential)");
    };
    let layer = layer(&fs::read(program).expect("read the program"));
    let config = format!(
        r#"{{"os":"linux","architecture":"amd64","rootfs":{{"type":"layers","diff_ids":["{}"]}},"config":{{}}}}"#,
        Hash::of([layer.as_slice()])
    );
    let about = |bytes: &[u8], media: &str| {
        let (digest, size) = (Hash::of([bytes]), bytes.len());
        format!(r#"{{"mediaType":"application/vnd.oci.image.{media}","digest":"{digest}","size":{size}}}"#)
    };
    let manifest = format!(
        r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{},"layers":[{}]}}"#,
        about(config.as_bytes(), "config.v1+json"),
        about(&layer, "layer.v1.tar")
    );
    let registry = Registry::start(caller, &server);
    registry.push(caller, &layer);
    registry.push(caller, config.as_bytes());
    registry.tag(caller, &manifest);
    let store = text(&caller.place().join("store"));
    let pull = |reference: &str| {
        let words = ["image", "pull", reference, "--platform", "linux/amd64", "--store", store.as_str()];
        caller.blastbox(words).end()
    };
    let here = format!("127.0.0.1:{}/team/app", registry.port);
    let missing = pull(&format!("{here}:2.0"));
    assert!(missing.code == 125 && missing.err.contains("code: registry_not_found"), "{}", missing.err);
    let pulled = pull(&format!("{here}:1.0"));
    assert_eq!(pulled.code, 0, "{}", pulled.err);
    assert!(pulled.text().starts_with("app:1.0@sha256:"), "{}", pulled.text());
    let boxed = caller.run(&["--store", &store, "--image", "app:1.0"], &["program"]).fine();
    assert_eq!(boxed.stdout, "pulled\n");
    let by_digest = pull(&format!("{here}@{}", Hash::of([manifest.as_bytes()])));
    assert_eq!(by_digest.code, 0, "{}", by_digest.err);
    assert!(by_digest.text().contains("which the store had already"), "{}", by_digest.text());
    drop(registry.held);
    let gone = pull(&format!("{here}:1.0"));
    assert!(gone.code == 125 && gone.err.contains("code: registry_unreachable"), "{}", gone.err);
}
