//! Directories that outlive sandboxes, with E2B's published SDKs against a real daemon (suites in `tests/e2b`).
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::fs::File;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;

use blastbox_tests::ear::Ear;
use blastbox_tests::spoken::{ask, begin, end, field, with_key};
use blastbox_tests::suites::{CONFIG, Daemon, installed, javascript_with, pytest, suite};
use blastbox_tests::{Caller, both_ways, wait_until};
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

both_ways!(
    volumes_outlive_sandboxes,
    there_are_no_volumes_unless_the_operator_says_so,
    what_is_left_of_a_volume_keeps_no_daemon_from_starting,
    a_record_that_is_damaged_keeps_no_daemon_from_starting,
    a_volume_stays_while_its_sandbox_ends,
    whoever_hangs_up_leaves_a_volume_that_can_be_deleted,
    whoever_hangs_up_frees_no_volume_before_its_sandbox_has_come_and_gone,
    a_volume_stays_while_somebody_writes_to_it,
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
    javascript_with(caller, "volumes.test.mjs", &daemon, &more);
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

const MOUNTS: &str = r#"{"templateID":"base","volumeMounts":[{"name":"v","path":"/mnt/v"}]}"#;

fn a_volume_stays_while_its_sandbox_ends(caller: &Caller) {
    let ear = Ear::new(true);
    let sink = format!("[[sinks]]\nname = \"siem\"\nkind = \"http\"\nurl = \"http://{}/in\"\n", ear.address);
    let daemon = Daemon::start_with(caller, &format!("{}{sink}require_ack = true\n", config()));
    let (id, _) = volume(&daemon);
    let place = caller.place().join("state/e2b/volumes").join(&id);
    let made = with_key(&daemon, "POST /sandboxes", MOUNTS);
    if made.contains("volumes_unavailable") {
        caller.skip("this host has no volumes");
        return;
    }
    let sandbox = field(&made, "sandboxID");
    // Until this has heard of its end, a sandbox has not ended.
    ear.open.store(false, Ordering::SeqCst);
    let head = format!("DELETE /sandboxes/{sandbox} HTTP/1.1\r\nX-API-KEY: {}", daemon.key);
    let killed = begin(&daemon, &head, b"");
    let is_there = || with_key(&daemon, &format!("GET /sandboxes/{sandbox}"), "").starts_with("HTTP/1.1 200");
    assert!(wait_until(|| !is_there()));
    let head = format!("DELETE /volumes/{id} HTTP/1.1\r\nX-API-KEY: {}", daemon.key);
    let deleted = begin(&daemon, &head, b"");
    // It is waited for, and refused where that takes too long.
    for _ in 0..20 {
        assert!(place.exists());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    ear.open.store(true, Ordering::SeqCst);
    let killed = end(killed);
    assert!(killed.starts_with("HTTP/1.1 204"), "{killed}");
    let deleted = end(deleted);
    assert!(deleted.starts_with("HTTP/1.1 204") || deleted.contains("volume_in_use"), "{deleted}");
    assert!(wait_until(|| ask(&daemon, &head, b"").starts_with("HTTP/1.1 404")));
    assert!(!place.exists());
}

/// Asks for a sandbox, and does not wait for it.
fn wished(daemon: &Daemon, body: &str) -> TcpStream {
    let head = format!(
        "POST /sandboxes HTTP/1.1\r\nX-API-KEY: {}\r\nContent-Type: application/json\r\nContent-Length: {}",
        daemon.key,
        body.len()
    );
    begin(daemon, &head, body.as_bytes())
}

/// A sandbox that nobody waits for any more is made to its end, and ended: only then its volume is nobody's.
fn whoever_hangs_up_leaves_a_volume_that_can_be_deleted(caller: &Caller) {
    let daemon = Daemon::start_with(caller, &config());
    let (id, _) = volume(&daemon);
    for _ in 0..3 {
        drop(wished(&daemon, MOUNTS));
    }
    let none = || with_key(&daemon, "GET /v2/sandboxes", "").ends_with("[]");
    assert!(wait_until(none), "none is left");
    let delete = format!("DELETE /volumes/{id}");
    assert!(wait_until(|| with_key(&daemon, &delete, "").starts_with("HTTP/1.1 204")));
    assert!(!caller.place().join("state/e2b/volumes").join(&id).exists());
}

/// Where the host is full a sandbox waits for room, and its volume is held: also when nobody waits for the sandbox any more.
fn whoever_hangs_up_frees_no_volume_before_its_sandbox_has_come_and_gone(caller: &Caller) {
    let narrow = config().replace("boxes = 100", "boxes = 1");
    let daemon = Daemon::start_with(
        caller,
        &format!("{narrow}[default_quota]\nboxes = 9\n[pool]\nmin = 0\nmax = 0\n"),
    );
    let (id, _) = volume(&daemon);
    let place = caller.place().join("state/e2b/volumes").join(&id);
    let made = with_key(&daemon, "POST /sandboxes", MOUNTS);
    if made.contains("volumes_unavailable") {
        caller.skip("this host has no volumes");
        return;
    }
    let kill = |made: &str| with_key(&daemon, &format!("DELETE /sandboxes/{}", field(made, "sandboxID")), "");
    assert!(kill(&made).starts_with("HTTP/1.1 204"));
    let plain = r#"{"templateID":"base","timeout":3600}"#;
    let first = with_key(&daemon, "POST /sandboxes", plain);
    assert!(first.starts_with("HTTP/1.1 201"), "{first}");
    let wait = |count: u32| {
        let line = format!("\nblastbox_create_waiting {count}\n");
        assert!(wait_until(|| with_key(&daemon, "GET /metrics", "").contains(&line)), "{count} wait");
    };
    let with = wished(&daemon, MOUNTS);
    wait(1);
    let without = wished(&daemon, plain);
    wait(2);
    drop((with, without));
    // One without volumes is let go: the daemon has heard that somebody hung up.
    wait(1);
    let delete = format!("DELETE /volumes/{id}");
    let early = with_key(&daemon, &delete, "");
    assert!(early.starts_with("HTTP/1.1 409") && early.contains("volume_in_use"), "{early}");
    wait(1);
    assert!(place.exists());
    assert!(kill(&first).starts_with("HTTP/1.1 204"));
    wait(0);
    assert!(wait_until(|| with_key(&daemon, &delete, "").starts_with("HTTP/1.1 204")));
    assert!(!place.exists());
    assert!(with_key(&daemon, "GET /v2/sandboxes", "").ends_with("[]"));
}

fn a_volume_stays_while_somebody_writes_to_it(caller: &Caller) {
    let (key, volumes) = shelf(caller);
    let daemon = Daemon::start_again(caller, &config(), &[], key);
    let made = volume(&daemon);
    let mut comes = begin(&daemon, &upload(&made, "/file", 8), b"half");
    assert!(wait_until(|| drafts(&volumes) == 1));
    let delete = format!("DELETE /volumes/{}", made.0);
    let early = with_key(&daemon, &delete, "");
    assert!(early.starts_with("HTTP/1.1 409") && early.contains("volume_in_use"), "{early}");
    comes.write_all(b"half").expect("send");
    let came = end(comes);
    assert!(came.starts_with("HTTP/1.1 201"), "{came}");
    // One of those who delete it at once does, and nothing of it is left.
    let both = [(); 2].map(|()| {
        let head = format!("{delete} HTTP/1.1\r\nX-API-KEY: {}", daemon.key);
        begin(&daemon, &head, b"")
    });
    let both = both.map(end);
    assert_eq!(both.iter().filter(|said| said.starts_with("HTTP/1.1 204")).count(), 1, "{both:?}");
    assert!(!volumes.join(&made.0).exists());
    let late = ask(&daemon, &upload(&made, "/late", 4), b"late");
    assert!(late.starts_with("HTTP/1.1 401"), "{late}");
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
    let with = with_key(&daemon, "POST /sandboxes", MOUNTS);
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
    let refused = with_key(&daemon, "POST /sandboxes", MOUNTS);
    assert!(refused.starts_with("HTTP/1.1 507"), "{refused}");
    std::fs::remove_file(volumes.join("much")).expect("make room");
    assert!(with_key(&daemon, "POST /sandboxes", MOUNTS).starts_with("HTTP/1.1 201"));
    drop(daemon);
}
