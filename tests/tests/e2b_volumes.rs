//! Directories that outlive sandboxes, with E2B's published SDKs against a real daemon (suites in `tests/e2b`).
#![expect(clippy::expect_used, clippy::panic, reason = "only tests; one that cannot work must fail at once")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use blastbox_tests::suites::{CONFIG, Daemon, installed, javascript_with, pytest, suite};
use blastbox_tests::{Caller, both_ways, wait_until};
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

both_ways!(
    volumes_outlive_sandboxes,
    there_are_no_volumes_unless_the_operator_says_so,
    what_is_left_of_a_volume_keeps_no_daemon_from_starting,
    a_record_that_is_damaged_keeps_no_daemon_from_starting,
    uploads_at_once_do_not_pass_a_size_together,
    an_upload_ends_when_the_disk_is_nearly_full,
    a_disk_that_is_nearly_full_ends_sandboxes_with_volumes_and_no_others
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

/// Sends the beginning of a request over a connection of its own.
fn begin(daemon: &Daemon, head: &str, body: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(daemon.url.trim_start_matches("http://")).expect("connect");
    stream
        .write_all(format!("{head}\r\nHost: volumes\r\nConnection: close\r\n\r\n").as_bytes())
        .expect("ask");
    // An error: it is answered before everything was sent.
    stream.write_all(body).ok();
    stream
}

/// Everything that is answered.
fn end(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    // An error: the connection ends behind the answer, with what nobody read.
    stream.read_to_end(&mut answer).ok();
    String::from_utf8_lossy(&answer).into_owned()
}

fn ask(daemon: &Daemon, head: &str, body: &[u8]) -> String {
    end(begin(daemon, head, body))
}

/// Asks with the daemon's key.
fn with_key(daemon: &Daemon, what: &str, body: &str) -> String {
    let head = format!(
        "{what} HTTP/1.1\r\nX-API-KEY: {}\r\nContent-Type: application/json\r\nContent-Length: {}",
        daemon.key,
        body.len()
    );
    ask(daemon, &head, body.as_bytes())
}

fn field(answer: &str, name: &str) -> String {
    let value = answer.split(&format!("\"{name}\":\"")).nth(1).and_then(|rest| rest.split('"').next());
    value.unwrap_or_else(|| panic!("no {name}: {answer}")).to_owned()
}

/// A new volume: its id and its token.
fn volume(daemon: &Daemon) -> (String, String) {
    let made = with_key(daemon, "POST /volumes", r#"{"name":"v"}"#);
    (field(&made, "volumeID"), field(&made, "token"))
}

/// The beginning of an upload of so many bytes.
fn upload((id, token): &(String, String), path: &str, bytes: usize) -> String {
    format!(
        "PUT /volumecontent/{id}/file?path={path} HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Length: {bytes}"
    )
}

fn drafts(volumes: &Path) -> usize {
    std::fs::read_dir(volumes.join("drafts")).expect("drafts").count()
}

fn a_record_that_is_damaged_keeps_no_daemon_from_starting(caller: &Caller) {
    let (key, volumes) = shelf(caller);
    let daemon = Daemon::start_again(caller, &config(), &[], key.clone());
    let made = volume(&daemon);
    let wrote = ask(&daemon, &upload(&made, "/file", 4), b"kept");
    assert!(wrote.starts_with("HTTP/1.1 201"), "{wrote}");
    drop(daemon);
    let record = volumes.join(format!("{}.json", made.0));
    let whole = std::fs::read(&record).expect("its record");
    std::fs::write(&record, whole.get(..whole.len() - 9).expect("a part of it")).expect("damage it");
    let daemon = Daemon::start_again(caller, &config(), &[], key.clone());
    assert!(with_key(&daemon, "GET /volumes", "").ends_with("[]"));
    let again = with_key(&daemon, "POST /volumes", r#"{"name":"v"}"#);
    assert!(again.starts_with("HTTP/1.1 409") && again.contains("repair"), "{again}");
    drop(daemon);
    std::fs::write(&record, whole).expect("repair it");
    let daemon = Daemon::start_again(caller, &config(), &[], key);
    let (id, token) = &made;
    let head = format!("GET /volumecontent/{id}/file?path=/file HTTP/1.1\r\nAuthorization: Bearer {token}");
    assert!(ask(&daemon, &head, b"").ends_with("kept"));
}

fn uploads_at_once_do_not_pass_a_size_together(caller: &Caller) {
    let (key, volumes) = shelf(caller);
    let daemon = Daemon::start_again(caller, &config(), &[], key);
    let made = volume(&daemon);
    let (half, most) = (vec![7; 5 << 20], 16 << 20);
    // Two that fit, one of which says no length: both are on their way, and nothing lies there yet.
    let mut one = begin(&daemon, &upload(&made, "/one", 10 << 20), &half);
    let chunked = upload(&made, "/two", 0).replace("Content-Length: 0", "Transfer-Encoding: chunked");
    let mut two = begin(&daemon, &chunked, format!("{:x}\r\n", half.len()).as_bytes());
    two.write_all(&half).expect("send");
    assert!(wait_until(|| drafts(&volumes) == 2));
    let third = ask(&daemon, &upload(&made, "/three", 7 << 20), &half);
    assert!(third.starts_with("HTTP/1.1 507") && third.contains(&format!("{most} bytes")), "{third}");
    // The second wants more than the first, which has said how much it will be, has left.
    two.write_all(format!("\r\n{:x}\r\n", half.len()).as_bytes()).expect("send");
    two.write_all(&half).ok();
    let two = end(two);
    assert!(two.starts_with("HTTP/1.1 507"), "{two}");
    one.write_all(&half).expect("send");
    let one = end(one);
    assert!(one.starts_with("HTTP/1.1 201"), "{one}");
    assert_eq!(drafts(&volumes), 0);
    // What was held for those that were refused is free again.
    let last = ask(&daemon, &upload(&made, "/last", 5 << 20), &half);
    assert!(last.starts_with("HTTP/1.1 201"), "{last}");
    let there = ["one", "two", "three", "last"].map(|name| volumes.join(&made.0).join(name).exists());
    assert_eq!(there, [true, false, false, true]);
}

fn an_upload_ends_when_the_disk_is_nearly_full(caller: &Caller) {
    let (key, volumes) = shelf(caller);
    // 512 MiB stay free, and there are 4 more.
    let Some(_disk) = Disk::mount(&volumes, 516) else {
        caller.skip("whoever runs this can mount no file system");
        return;
    };
    let daemon = Daemon::start_again(caller, &config(), &[], key);
    let made = volume(&daemon);
    // More was announced, and never comes: who looks only at the end would wait for it.
    let answer = ask(&daemon, &upload(&made, "/big", 12 << 20), &vec![7; 7 << 20]);
    assert!(answer.starts_with("HTTP/1.1 507") && answer.contains("the disk of the host"), "{answer}");
    assert_eq!((drafts(&volumes), volumes.join(&made.0).join("big").exists()), (0, false));
    drop(daemon);
}

fn a_disk_that_is_nearly_full_ends_sandboxes_with_volumes_and_no_others(caller: &Caller) {
    let (key, volumes) = shelf(caller);
    let Some(_disk) = Disk::mount(&volumes, 516) else {
        caller.skip("whoever runs this can mount no file system");
        return;
    };
    let daemon = Daemon::start_again(caller, &config(), &[], key);
    volume(&daemon);
    let without = with_key(&daemon, "POST /sandboxes", r#"{"templateID":"base"}"#);
    let mounts = r#"{"templateID":"base","volumeMounts":[{"name":"v","path":"/mnt/v"}]}"#;
    let with = with_key(&daemon, "POST /sandboxes", mounts);
    if with.contains("volumes_unavailable") {
        caller.skip("this host has no volumes");
        return;
    }
    let (with, without) = (field(&with, "sandboxID"), field(&without, "sandboxID"));
    let is_there = |id: &str| {
        let found = with_key(&daemon, &format!("GET /sandboxes/{id}"), "");
        found.starts_with("HTTP/1.1 200")
    };
    assert!(is_there(&with) && is_there(&without));
    // In no volume: whoever wrote it, it is the disk that has no room.
    std::fs::write(volumes.join("much"), vec![7; 8 << 20]).expect("fill the disk");
    assert!(wait_until(|| !is_there(&with)));
    assert!(is_there(&without));
    let refused = with_key(&daemon, "POST /sandboxes", mounts);
    assert!(refused.starts_with("HTTP/1.1 507"), "{refused}");
    std::fs::remove_file(volumes.join("much")).expect("make room");
    assert!(with_key(&daemon, "POST /sandboxes", mounts).starts_with("HTTP/1.1 201"));
    drop(daemon);
}
