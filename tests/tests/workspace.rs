//! A directory of the caller in a box: changes stay in a copy, and nothing in it leads to the host.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;

use blastbox_tests::{Caller, TRIED, both_ways, canary, fill_with, text, tried};
use rustix::fs::{Mode, OFlags};

both_ways!(
    changes_to_a_copy_on_write_workspace_never_reach_the_directory,
    private_files_of_the_caller_are_readable_in_its_workspace,
    a_read_only_workspace_cannot_be_changed,
    a_link_in_the_workspace_leads_to_the_box_and_not_to_the_host,
    a_socket_in_the_workspace_leads_nowhere,
    a_pipe_in_the_workspace_leads_nowhere,
    a_device_in_the_workspace_is_dead,
    the_path_of_the_workspace_is_not_told,
    a_user_is_told_why_a_directory_with_mounts_beneath_it_is_not_to_be_had,
);

fn changes_to_a_copy_on_write_workspace_never_reach_the_directory(caller: &Caller) {
    let directory = caller.directory("project");
    fill_with(caller, &directory, &[("kept", "old"), ("gone", "old"), ("sub/", ""), ("sub/moved", "old")]);
    let script = "cd /workspace && echo new >kept && rm gone && mv sub/moved there && mkdir made && echo x >made/file && chmod 777 . kept && ln -s / link && cat kept there && ls";
    let boxed = caller.sh(&["--workspace", text(&directory)], script).fine();
    assert_eq!(boxed.stdout, "new\noldkept\nlink\nmade\nsub\nthere\n");
    let mut names: Vec<String> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["gone", "kept", "sub"]);
    assert_eq!(fs::read_to_string(directory.join("kept")).unwrap(), "old");
    assert_eq!(fs::read_to_string(directory.join("sub/moved")).unwrap(), "old");
    assert_eq!(fs::metadata(directory.join("kept")).unwrap().permissions().mode() & 0o777, 0o644);
    // Nor does the next box see what this one did.
    let boxed = caller.sh(&["--workspace", &format!("{}:cow", text(&directory))], "cat kept; ls").fine();
    assert_eq!(boxed.stdout, "oldgone\nkept\nsub\n");
}

fn private_files_of_the_caller_are_readable_in_its_workspace(caller: &Caller) {
    let directory = caller.directory("project");
    fill_with(caller, &directory, &[("private", "mine"), ("closed/", ""), ("closed/deep", "deep")]);
    for (name, mode) in [("private", 0o600), ("closed", 0o700), ("closed/deep", 0o400)] {
        fs::set_permissions(directory.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let script = "cat private closed/deep; echo changed >private; cat private; stat -c %u private";
    for access in ["", ":ro"] {
        let boxed = caller.sh(&["--workspace", &format!("{}{access}", text(&directory))], script);
        let expected = if access.is_empty() { "minedeepchanged\n1000\n" } else { "minedeepmine1000\n" };
        assert_eq!(boxed.stdout, expected, "{}", boxed.stderr);
    }
    assert_eq!(fs::read_to_string(directory.join("private")).unwrap(), "mine");
}

fn a_read_only_workspace_cannot_be_changed(caller: &Caller) {
    let directory = caller.directory("project");
    fill_with(caller, &directory, &[("file", "old"), ("sub/", "")]);
    let code = r#"
print(json.dumps({"closed": [tried(write, "/workspace/new"), tried(write, "/workspace/file"), tried(os.unlink, "/workspace/file"),
    tried(os.mkdir, "/workspace/d"), tried(os.rename, "/workspace/file", "/workspace/other"), tried(os.rmdir, "/workspace/sub"),
    tried(os.chmod, "/workspace/file", 0o777), tried(os.symlink, "/", "/workspace/link"), tried(os.truncate, "/workspace/file", 0)],
    "read": open("/workspace/file").read(), "scratch": tried(write, "/tmp/x")}))
"#;
    let seen = tried(caller, &["--workspace", &format!("{}:ro", text(&directory))], code);
    for answer in seen["closed"].as_array().unwrap() {
        assert!(["EROFS", "EACCES"].contains(&answer.as_str().unwrap()), "{seen}");
    }
    assert_eq!((&seen["read"], &seen["scratch"]), (&"old".into(), &"ok".into()));
    assert_eq!(fs::read_to_string(directory.join("file")).unwrap(), "old");
}

fn a_link_in_the_workspace_leads_to_the_box_and_not_to_the_host(caller: &Caller) {
    let secret = canary();
    let outside = caller.file("secret", &secret);
    let directory = caller.directory("project");
    fill_with(caller, &directory, &[("inside", "inside")]);
    symlink(&outside, directory.join("absolute")).unwrap();
    symlink("../secret", directory.join("relative")).unwrap();
    symlink(outside.parent().unwrap(), directory.join("parent")).unwrap();
    symlink("inside", directory.join("neighbour")).unwrap();
    symlink("/etc/passwd", directory.join("accounts")).unwrap();
    let script = "cat absolute relative parent/secret; cat neighbour; head -n 1 accounts; echo x >relative";
    let boxed = caller.sh(&["--workspace", text(&directory)], script);
    assert!(!boxed.stdout.contains(&secret), "{}", boxed.stdout);
    assert_eq!(boxed.stdout, "insideroot:x:0:0:root:/:/usr/sbin/nologin\n", "the box's own accounts");
    assert_eq!(fs::read_to_string(&outside).unwrap(), secret);
}

fn a_socket_in_the_workspace_leads_nowhere(caller: &Caller) {
    let directory = caller.directory("project");
    let listener = UnixListener::bind(directory.join("socket")).unwrap();
    listener.set_nonblocking(true).unwrap();
    caller.own(&directory.join("socket"));
    fs::set_permissions(directory.join("socket"), fs::Permissions::from_mode(0o666)).unwrap();
    let code = r#"
import socket
def connect(kind, at): socket.socket(socket.AF_UNIX, kind).connect(at)
os.link("/workspace/socket", "/workspace/second") if sys.argv[-1] == "cow" else None
answers = [tried(connect, kind, at) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET)
    for at in ("/workspace/socket", "/workspace/second")]
own = socket.socket(socket.AF_UNIX); own.bind("/tmp/own"); own.listen()
print(json.dumps({"answers": answers, "own": tried(connect, socket.SOCK_STREAM, "/tmp/own")}))
"#;
    for access in ["cow", "ro"] {
        let workspace = format!("{}:{access}", text(&directory));
        let boxed =
            caller.blastbox(["run", "--json", "--lang", "python", "--workspace", &workspace, "--", access]);
        let seen = boxed.input(format!("{TRIED}\n{code}")).end().boxed().fine().json();
        for answer in seen["answers"].as_array().unwrap() {
            assert_ne!(answer, "ok", "{access}");
        }
        assert_eq!(seen["own"], "ok");
        let heard = listener.accept().map(drop).unwrap_err();
        assert_eq!(heard.kind(), std::io::ErrorKind::WouldBlock, "somebody came through");
    }
}

fn a_pipe_in_the_workspace_leads_nowhere(caller: &Caller) {
    let directory = caller.directory("project");
    let at = directory.join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &at, Mode::from_raw_mode(0o666)).unwrap();
    fs::set_permissions(&at, fs::Permissions::from_mode(0o666)).unwrap();
    caller.own(&at);
    // Held open both ways on the host: whoever opens the same pipe finds a partner.
    let mut host = fs::File::options()
        .read(true)
        .write(true)
        .custom_flags(i32::try_from(OFlags::NONBLOCK.bits()).unwrap())
        .open(&at)
        .unwrap();
    let code = r#"
def into(flags):
    file = os.open("/workspace/pipe", flags | os.O_NONBLOCK)
    if flags != os.O_RDONLY: os.write(file, b"out")
    else: assert not os.read(file, 9)
print(json.dumps([tried(into, flags) for flags in (os.O_WRONLY, os.O_RDONLY, os.O_RDWR)]))
"#;
    for access in ["cow", "ro"] {
        let seen = tried(caller, &["--workspace", &format!("{}:{access}", text(&directory))], code);
        assert_ne!(seen[0], "ok", "{access}: a writer finds no reader");
        let error = host.read(&mut [0_u8; 9]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{access}: something came through");
    }
}

fn a_device_in_the_workspace_is_dead(caller: &Caller) {
    let directory = caller.directory("project");
    let at = directory.join("zero");
    let made = rustix::fs::mknodat(
        rustix::fs::CWD,
        &at,
        rustix::fs::FileType::CharacterDevice,
        Mode::from_raw_mode(0o666),
        rustix::fs::makedev(1, 5),
    );
    if made.is_err() {
        return caller.skip("device nodes cannot be made without root");
    }
    fs::set_permissions(&at, fs::Permissions::from_mode(0o666)).unwrap();
    caller.own(&at);
    assert!(fs::metadata(&at).unwrap().file_type().is_char_device());
    for access in ["cow", "ro"] {
        let code = r#"print(json.dumps([tried(open, at, "rb") for at in ("/workspace/zero", "/dev/zero")]))"#;
        let seen = tried(caller, &["--workspace", &format!("{}:{access}", text(&directory))], code);
        assert_eq!(seen, serde_json::json!(["EACCES", "ok"]), "{access}");
    }
}

fn the_path_of_the_workspace_is_not_told(caller: &Caller) {
    let directory = caller.directory("project");
    let name = text(caller.place().path()).rsplit('/').next().unwrap();
    for access in ["cow", "ro"] {
        let workspace = format!("{}:{access}", text(&directory));
        let boxed = caller
            .sh(
                &["--workspace", &workspace],
                "cat /proc/self/mountinfo /proc/self/mounts /proc/self/mountstats; pwd",
            )
            .fine();
        assert!(boxed.stdout.contains("/workspace"), "{}", boxed.stdout);
        assert!(!boxed.stdout.contains(name), "{}", boxed.stdout);
    }
}

fn a_user_is_told_why_a_directory_with_mounts_beneath_it_is_not_to_be_had(caller: &Caller) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    if !mounts.lines().any(|line| line.split(' ').nth(4).is_some_and(|place| place.starts_with("/dev/"))) {
        return caller.skip("nothing is mounted beneath /dev");
    }
    let boxed = caller.sh(&["--workspace", "/dev:ro"], "ls /workspace/shm | wc -l");
    if caller.is_root() {
        assert_eq!(boxed.fine().stdout.trim(), "0");
        return;
    }
    let why = boxed.receipt.reason.as_ref().unwrap();
    assert!(why.message.contains("without what is mounted beneath it, as root alone can"), "{why:?}");
}
