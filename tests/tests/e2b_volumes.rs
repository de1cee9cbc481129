//! Directories that outlive sandboxes, with E2B's published SDKs against a real daemon (suites in `tests/e2b`).
#![expect(clippy::expect_used, clippy::panic, reason = "only tests; one that cannot work must fail at once")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use blastbox_tests::suites::{CONFIG, Daemon, installed, javascript_with, pytest, suite};
use blastbox_tests::{Caller, both_ways};
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

both_ways!(
    volumes_outlive_sandboxes,
    there_are_no_volumes_unless_the_operator_says_so,
    what_is_left_of_a_volume_keeps_no_daemon_from_starting,
    an_upload_ends_when_the_disk_is_nearly_full
);

fn config() -> String {
    format!("{CONFIG}[e2b.volumes]\ncount = 6\nsize = \"16MiB\"\n")
}

/// Where the daemon of this caller keeps volumes. Made, with a key for the daemon.
fn shelf(caller: &Caller) -> (String, PathBuf) {
    let key = Daemon::key(caller, &["suite"], "bbx_");
    let e2b = caller.place().join("state/e2b");
    let volumes = e2b.join("volumes");
    for directory in [&e2b, &volumes] {
        std::fs::create_dir(directory).expect("a directory of the state");
        caller.own(directory);
    }
    (key, volumes)
}

fn volumes_outlive_sandboxes(caller: &Caller) {
    let Some(place) = installed(caller, "python") else { return };
    let daemon = Daemon::start_with(caller, &config());
    let (url, state) = (daemon.url.clone(), caller.place().join("state"));
    let more = [("E2B_VOLUME_API_URL", Path::new(&url)), ("BLASTBOX_STATE", state.as_path())];
    pytest(caller, &place, &[suite("volumes")], &daemon, &more);
    javascript_with(caller, "js/volumes.cjs", &daemon, &more);
}

fn there_are_no_volumes_unless_the_operator_says_so(caller: &Caller) {
    let Some(place) = installed(caller, "python") else { return };
    pytest(caller, &place, &[suite("volumes_off")], &Daemon::start(caller), &[]);
}

/// Something that nobody removes, until this is dropped.
struct Immutable(File);

impl Immutable {
    fn make(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let flags = ioctl_getflags(&file).ok()?;
        ioctl_setflags(&file, flags | IFlags::IMMUTABLE).ok()?;
        Some(Self(file))
    }
}

impl Drop for Immutable {
    fn drop(&mut self) {
        if let Ok(flags) = ioctl_getflags(&self.0) {
            ioctl_setflags(&self.0, flags - IFlags::IMMUTABLE).ok();
        }
    }
}

fn what_is_left_of_a_volume_keeps_no_daemon_from_starting(caller: &Caller) {
    let (key, volumes) = shelf(caller);
    let orphan = volumes.join("volnobody");
    std::fs::create_dir(&orphan).expect("a directory without a record");
    caller.own(&orphan);
    std::fs::write(orphan.join("file"), "left").expect("a file in it");
    let Some(held) = Immutable::make(&orphan) else {
        caller.skip("whoever runs this can make no file immutable here");
        return;
    };
    let daemon = Daemon::start_again(caller, &config(), &[], key.clone());
    assert!(orphan.exists());
    drop(held);
    drop(daemon);
    drop(Daemon::start_again(caller, &config(), &[], key));
    assert!(!orphan.exists());
}

/// A small disk, gone when this is dropped.
struct Disk(PathBuf);

impl Disk {
    #[expect(clippy::disallowed_methods, reason = "a program of the host")]
    fn mount(at: &Path, mebibytes: u32) -> Option<Self> {
        let options = format!("size={mebibytes}m,mode=777");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "blastbox-test"]).arg(at);
        mount.output().is_ok_and(|ended| ended.status.success()).then(|| Self(at.to_owned()))
    }
}

impl Drop for Disk {
    #[expect(clippy::disallowed_methods, reason = "a program of the host")]
    fn drop(&mut self) {
        Command::new("umount").arg(&self.0).output().ok();
    }
}

/// Sends one request over a connection of its own, and hands back everything that is answered.
fn ask(daemon: &Daemon, head: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(daemon.url.trim_start_matches("http://")).expect("connect");
    stream
        .write_all(format!("{head}\r\nHost: volumes\r\nConnection: close\r\n\r\n").as_bytes())
        .expect("ask");
    // An error: it is answered before everything was sent.
    stream.write_all(body).ok();
    let mut answer = Vec::new();
    // An error: the connection ends behind the answer, with what nobody read.
    stream.read_to_end(&mut answer).ok();
    String::from_utf8_lossy(&answer).into_owned()
}

fn an_upload_ends_when_the_disk_is_nearly_full(caller: &Caller) {
    let (key, volumes) = shelf(caller);
    // 512 MiB stay free, and there are 4 more.
    let Some(_disk) = Disk::mount(&volumes, 516) else {
        caller.skip("whoever runs this can mount no file system");
        return;
    };
    let daemon = Daemon::start_again(caller, &config(), &[], key);
    let new = br#"{"name":"v"}"#;
    let head = format!(
        "POST /volumes HTTP/1.1\r\nX-API-KEY: {}\r\nContent-Type: application/json\r\nContent-Length: {}",
        daemon.key,
        new.len()
    );
    let made = ask(&daemon, &head, new);
    let field = |name: &str| {
        let value = made.split(&format!("\"{name}\":\"")).nth(1).and_then(|rest| rest.split('"').next());
        value.unwrap_or_else(|| panic!("no {name}: {made}")).to_owned()
    };
    let (id, token) = (field("volumeID"), field("token"));
    // More was announced, and never comes: who looks only at the end would wait for it.
    let head = format!(
        "PUT /volumecontent/{id}/file?path=/big HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Length: {}",
        12 << 20
    );
    let answer = ask(&daemon, &head, &vec![7; 7 << 20]);
    assert!(answer.starts_with("HTTP/1.1 507") && answer.contains("the disk of the host"), "{answer}");
    let drafts = std::fs::read_dir(volumes.join("drafts")).expect("drafts").count();
    assert_eq!((drafts, volumes.join(&id).join("big").exists()), (0, false));
    drop(daemon);
}
