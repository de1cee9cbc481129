//! The files boundary: what of the host is seen, what can be written, and that nothing of it reaches the host.
//!
//! Landlock, the second layer, refuses most of this a second time. It cannot be seen alone from here: nothing switches
//! the first layer off. Its own tests are in `crates/sys/src/landlock.rs`.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use blastbox_tests::{
    Caller, Place, TRIED, Who, both_ways, canary, cc, fill_with, processes_naming, text, tried, wait_until,
};
use rustix::fs::{Mode, OFlags};

both_ways!(
    the_root_is_read_only_and_the_scratch_places_are_not,
    nothing_of_the_hosts_own_files_is_there,
    a_file_of_the_host_is_found_nowhere_in_the_box,
    accounts_are_invented_not_the_hosts,
    proc_shows_the_boxs_own_processes_and_nothing_of_the_machine,
    the_agent_is_not_to_be_seen,
    dev_has_exactly_what_programs_expect,
    devices_of_the_box_work,
    no_mount_honours_setuid_or_devices_and_a_setuid_program_gives_nothing,
    the_byte_cap_holds_for_all_scratch_places_together,
    the_inode_cap_holds_for_all_scratch_places_together,
    scratch_files_can_be_executed_unless_the_policy_says_no,
    a_payload_has_three_descriptors_and_none_of_the_callers,
    neither_dots_nor_descriptors_lead_out_of_the_root,
    programs_behind_processes_cannot_be_overwritten,
    the_agents_program_cannot_be_changed_and_it_holds_nothing_of_the_caller,
    a_directory_can_be_the_image_and_stays_as_it_is,
    two_boxes_do_not_see_each_others_files,
);

fn policy(caller: &Caller, rules: &str) -> String {
    let text = format!("{}\n{rules}", include_str!("../../profiles/default.toml"));
    caller.file("policy.toml", text).to_str().unwrap().to_owned()
}

fn the_root_is_read_only_and_the_scratch_places_are_not(caller: &Caller) {
    let code = r#"
closed = ["/", "/usr", "/usr/bin", "/etc", "/etc/ssl", "/var", "/run", "/home", "/opt", "/mnt", "/srv", "/dev", "/dev/pts"]
opened = ["/tmp", "/var/tmp", "/home/user", "/workspace", "/dev/shm"]
print(json.dumps({"closed": {at: tried(write, at.rstrip("/") + "/x") for at in closed},
    "existing": {at: tried(open, at, "r+") for at in ["/etc/passwd", "/etc/hosts", "/usr/bin/env"]},
    "gone": {at: tried(os.unlink, at) for at in ["/etc/passwd", "/bin", "/usr/bin/env"]},
    "moved": tried(os.rename, "/etc", "/tmp/etc"), "mode": tried(os.chmod, "/usr", 0o777),
    "opened": {at: tried(write, at + "/x") for at in opened}}))
"#;
    let seen = tried(caller, &[], code);
    for group in ["closed", "existing", "gone"] {
        for (at, answer) in seen[group].as_object().unwrap() {
            assert!(
                ["EROFS", "EACCES", "EPERM"].contains(&answer.as_str().unwrap()),
                "{group} {at}: {answer}"
            );
        }
    }
    assert!(["EROFS", "EACCES", "EPERM", "EXDEV"].contains(&seen["moved"].as_str().unwrap()), "{seen}");
    assert!(["EROFS", "EPERM"].contains(&seen["mode"].as_str().unwrap()), "{seen}");
    for (at, answer) in seen["opened"].as_object().unwrap() {
        assert_eq!(answer, "ok", "{at}");
    }
}

fn nothing_of_the_hosts_own_files_is_there(caller: &Caller) {
    let code = r#"
absent = ["/root", "/sys", "/boot", "/etc/shadow", "/etc/gshadow", "/etc/hostname", "/etc/machine-id", "/etc/fstab", "/etc/ssh",
    "/etc/sudoers", "/etc/environment", "/var/lib", "/var/log", "/var/run", "/run/systemd", "/run/docker.sock", "/dev/kmsg",
    "/dev/mem", "/dev/kvm", "/dev/sda", "/dev/vda", "/dev/fuse", "/dev/net", "/dev/console", "/lost+found", "/media"]
print(json.dumps({"absent": {at: os.path.lexists(at) for at in absent},
    "home": os.listdir("/home"), "own": os.listdir("/home/user"), "var": os.listdir("/var"), "run": os.listdir("/run"),
    "empty": [os.listdir(at) for at in ("/tmp", "/workspace", "/opt", "/mnt", "/srv", "/dev/shm")],
    "present": [os.path.exists(at) for at in ("/usr/bin/env", "/bin/sh", "/etc/passwd")]}))
"#;
    let seen = tried(caller, &[], code);
    for (at, there) in seen["absent"].as_object().unwrap() {
        assert_eq!(there, false, "{at}");
    }
    assert_eq!(seen["home"], serde_json::json!(["user"]));
    assert_eq!(seen["own"], serde_json::json!([]));
    assert_eq!(seen["var"], serde_json::json!(["tmp"]));
    assert_eq!(seen["run"], serde_json::json!([]));
    assert_eq!(seen["empty"], serde_json::json!([[], [], [], [], [], []]));
    assert_eq!(seen["present"], serde_json::json!([true, true, true]));
}

fn a_file_of_the_host_is_found_nowhere_in_the_box(caller: &Caller) {
    let secret = canary();
    let beside = Place::new();
    fs::write(beside.join("secret"), &secret).unwrap();
    fs::set_permissions(beside.join("secret"), fs::Permissions::from_mode(0o644)).unwrap();
    caller.file("secret", &secret);
    // Half of it each, so that the program that looks for it is not what it finds.
    let (left, right) = secret.split_at(secret.len() / 2);
    let code = format!(
        r#"
import os
secret = ("{left}" + "{right}").encode()
found, read = [], 0
for top, directories, files in os.walk("/", followlinks=False):
    if top == "/":
        directories[:] = [name for name in directories if name not in ("usr", "proc")]
    for name in files:
        path = os.path.join(top, name)
        if not os.path.isfile(path): continue
        try:
            with open(path, "rb") as file: text = file.read(1 << 20)
        except OSError: continue
        read += 1
        if secret in text: found.append(path)
for path in ["{beside}/secret", "{own}/secret", "/proc/self/root{own}/secret", "/proc/self/cwd/../..{own}/secret"]:
    if os.path.exists(path): found.append(path)
import json
print(json.dumps({{"found": found, "read": read}}))
"#,
        beside = beside.path().display(),
        own = caller.place().path().display(),
    );
    let seen = caller.python(&[], &code).fine().json();
    assert_eq!(seen["found"], serde_json::json!([]));
    assert!(seen["read"].as_u64().unwrap() > 5, "it looked at nothing: {seen}");
    // The same search finds what the box was given: it is no empty green.
    let boxed = caller.python(&["--workspace", text(caller.place().path())], &code).fine().json();
    assert_eq!(boxed["found"], serde_json::json!(["/workspace/secret"]));
}

fn accounts_are_invented_not_the_hosts(caller: &Caller) {
    let boxed =
        caller.sh(&[], "cut -d: -f1 /etc/passwd; cut -d: -f1 /etc/group; id -un; cat /etc/hosts").fine();
    assert_eq!(
        boxed.stdout,
        "root\nuser\nnobody\nroot\nuser\nnogroup\nuser\n127.0.0.1 localhost\n::1 localhost\n"
    );
}

fn proc_shows_the_boxs_own_processes_and_nothing_of_the_machine(caller: &Caller) {
    let code = r#"
names = os.listdir("/proc")
print(json.dumps({"other": [name for name in names if not name.isdigit()],
    "pids": sorted(int(name) for name in names if name.isdigit()), "me": os.getpid(),
    "absent": [name for name in ("sys", "kcore", "keys", "kallsyms", "sysrq-trigger", "meminfo", "cmdline", "version", "mounts",
        "net", "modules", "interrupts", "bus", "fs", "irq", "acpi", "scsi") if os.path.lexists("/proc/" + name)],
    "written": [tried(write, "/proc/self/" + name) for name in ("uid_map", "gid_map", "setgroups", "attr/current")]}))
"#;
    let seen = tried(caller, &[], code);
    assert_eq!(seen["other"], serde_json::json!(["self", "thread-self"]));
    assert_eq!(seen["pids"], serde_json::json!([seen["me"]]), "itself, and not the agent");
    assert_eq!(seen["absent"], serde_json::json!([]));
    for answer in seen["written"].as_array().unwrap() {
        assert_ne!(answer, "ok");
    }
}

fn the_agent_is_not_to_be_seen(caller: &Caller) {
    let code = r#"
import signal
paths = ["/proc/1", "/proc/1/exe", "/proc/1/mem", "/proc/1/environ", "/proc/1/fd", "/proc/1/root", "/proc/1/cwd", "/proc/1/maps"]
print(json.dumps({"paths": [tried(os.stat, path) for path in paths],
    "root": tried(os.listdir, "/proc/1/root/"), "memory": tried(open, "/proc/1/mem", "rb"),
    "own": tried(os.stat, "/proc/self/exe"), "kill": tried(os.kill, 1, signal.SIGKILL), "stop": tried(os.kill, 1, signal.SIGSTOP)}))
"#;
    let boxed = caller.python(&[], &format!("{TRIED}\n{code}")).fine();
    let seen = boxed.json();
    for answer in seen["paths"].as_array().unwrap() {
        assert_eq!(answer, "ENOENT");
    }
    assert_eq!((&seen["root"], &seen["memory"]), (&"ENOENT".into(), &"ENOENT".into()));
    assert_eq!(seen["own"], "ok");
    // A first process takes no signal from its own namespace; one that it could be hit by would have ended the run.
    assert_eq!(boxed.outcome(), "exited");
}

fn dev_has_exactly_what_programs_expect(caller: &Caller) {
    let code = r#"
print(json.dumps({"names": sorted(os.listdir("/dev")), "pts": os.listdir("/dev/pts"), "devices": sorted(
    f"{name} {os.major(about.st_rdev)}:{os.minor(about.st_rdev)}" for name in os.listdir("/dev")
    if stat.S_ISCHR((about := os.lstat("/dev/" + name)).st_mode) or stat.S_ISBLK(about.st_mode))}))
"#;
    let seen = tried(caller, &[], code);
    let names = [
        "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom",
        "zero",
    ];
    assert_eq!(seen["names"], serde_json::json!(names));
    assert_eq!(
        seen["devices"],
        serde_json::json!(["full 1:7", "null 1:3", "random 1:8", "tty 5:0", "urandom 1:9", "zero 1:5"])
    );
    assert_eq!(seen["pts"], serde_json::json!(["ptmx"]), "no terminal of anybody else");
}

fn devices_of_the_box_work(caller: &Caller) {
    let script = "head -c 4 /dev/zero | wc -c; head -c 4 /dev/urandom | wc -c; echo x >/dev/null && echo null; echo x >/dev/full || echo full; echo out >/dev/stdout; cat </dev/null";
    let boxed = caller.sh(&[], script).fine();
    assert_eq!(boxed.stdout, "4\n4\nnull\nfull\nout\n");
}

fn no_mount_honours_setuid_or_devices_and_a_setuid_program_gives_nothing(caller: &Caller) {
    let directory = caller.directory("project");
    let program = directory.join("who");
    fs::copy("/usr/bin/id", &program).unwrap();
    // As root it belongs to the host's root: the worst case.
    caller.own(&program);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o6755)).unwrap();
    let code = r#"
import subprocess
mounts = [line.split()[4] for line in open("/proc/self/mountinfo")]
print(json.dumps({"honour": [at for at in mounts if not os.statvfs(at).f_flag & os.ST_NOSUID], "mounts": len(mounts),
    "devices": sorted(at for at in mounts if not os.statvfs(at).f_flag & os.ST_NODEV),
    "ids": [subprocess.run(["/workspace/who", *words], capture_output=True, text=True).stdout.strip()
        for words in (["-u"], ["-ru"], ["-g"])]}))
"#;
    let seen = tried(caller, &["--workspace", text(&directory)], code);
    assert_eq!(seen["honour"], serde_json::json!([]));
    // Each of these is one device that is mounted alone, or the terminals of the box; nothing else can hold one.
    let devices =
        ["full", "null", "pts", "random", "tty", "urandom", "zero"].map(|name| format!("/dev/{name}"));
    assert_eq!(seen["devices"], serde_json::json!(devices));
    assert!(seen["mounts"].as_u64().unwrap() > 5, "{seen}");
    assert_eq!(seen["ids"], serde_json::json!(["1000", "1000", "1000"]));
}

fn the_byte_cap_holds_for_all_scratch_places_together(caller: &Caller) {
    let code = r#"
def fill(path, size):
    with open(path, "wb", buffering=0) as file:
        while size > 0: size -= file.write(bytes(min(size, 65536)))
places = ["/tmp", "/home/user", "/workspace", "/dev/shm"]
print(json.dumps([tried(fill, at + "/big", 400 << 10) for at in places] + [tried(os.unlink, "/tmp/big"),
    tried(fill, "/dev/shm/more", 200 << 10)]))
"#;
    let seen = tried(caller, &["--disk", "1MiB"], code);
    // 400 + 400 KiB fit into one MiB, the third place is over it, and what is freed in one place is free in another.
    assert_eq!(seen, serde_json::json!(["ok", "ok", "ENOSPC", "ENOSPC", "ok", "ok"]));
}

fn the_inode_cap_holds_for_all_scratch_places_together(caller: &Caller) {
    let policy = policy(caller, "[files]\ninodes = 64\n");
    let code = r#"
made, answers = 0, []
for at in ["/tmp", "/home/user", "/workspace", "/dev/shm"]:
    for number in range(20):
        answer = tried(write, f"{at}/{number}")
        made += answer == "ok"
        if answer not in ("ok",) and answer not in answers: answers.append(answer)
print(json.dumps({"made": made, "answers": answers}))
"#;
    let seen = tried(caller, &["--policy", &policy], code);
    assert_eq!(seen["answers"], serde_json::json!(["ENOSPC"]));
    let made = seen["made"].as_u64().unwrap();
    assert!((41..64).contains(&made), "{made}: more than two places can hold, and fewer than the cap");
}

fn scratch_files_can_be_executed_unless_the_policy_says_no(caller: &Caller) {
    let script = "for at in /tmp /home/user /workspace /dev/shm; do cp /usr/bin/true $at/program; $at/program && echo $at; done 2>/dev/null; true";
    assert_eq!(caller.sh(&[], script).fine().stdout, "/tmp\n/home/user\n/workspace\n", "never shared memory");
    assert_eq!(caller.sh(&["--no-exec"], script).fine().stdout, "");
    // Mapping as code is the same door.
    let code = r#"
import mmap, shutil
shutil.copy("/usr/bin/true", "/tmp/program")
file = os.open("/tmp/program", os.O_RDONLY)
print(json.dumps(tried(mmap.mmap, file, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)))
"#;
    assert_eq!(tried(caller, &["--no-exec"], code), "EPERM");
    assert_eq!(tried(caller, &[], code), "ok");
}

fn a_payload_has_three_descriptors_and_none_of_the_callers(caller: &Caller) {
    // Left open across exec, as a careless caller does: a directory (CVE-2024-21626), a file, a socket.
    let secret = canary();
    let inherited = [
        rustix::fs::open("/", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap(),
        rustix::fs::open(caller.file("secret", &secret).as_path(), OFlags::RDWR, Mode::empty()).unwrap(),
    ];
    for descriptor in &inherited {
        rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::empty()).unwrap();
        let high = rustix::io::fcntl_dupfd_cloexec(descriptor, 200).unwrap();
        rustix::io::fcntl_setfd(&high, rustix::io::FdFlags::empty()).unwrap();
        // The control: any other program that this caller starts has it.
        let name = high.as_raw_fd().to_string();
        let outside = caller.program(Path::new("/bin/ls"), ["/proc/self/fd"]).end().text();
        assert!(outside.lines().any(|line| line == name), "{outside}");
        let code = r#"
def is_open(number):
    try: os.fstat(number); return True
    except OSError: return False
listed = [int(name) for name in os.listdir("/proc/self/fd")]
print(json.dumps({"open": [number for number in range(1024) if is_open(number)], "listed": [n for n in listed if is_open(n)],
    "names": [os.readlink(f"/proc/self/fd/{n}") for n in range(3)]}))
"#;
        let seen = tried(caller, &[], code);
        assert_eq!(
            (&seen["open"], &seen["listed"]),
            (&serde_json::json!([0, 1, 2]), &serde_json::json!([0, 1, 2]))
        );
        for name in seen["names"].as_array().unwrap() {
            assert!(name.as_str().unwrap().starts_with("pipe:"), "{name}");
        }
    }
}

fn neither_dots_nor_descriptors_lead_out_of_the_root(caller: &Caller) {
    let code = r#"
root = os.stat("/")
same = lambda at: (os.stat(at).st_dev, os.stat(at).st_ino) == (root.st_dev, root.st_ino)
os.mkdir("/tmp/a")
top = os.open("/", os.O_RDONLY)
answers = {"chroot": tried(os.chroot, "/tmp/a")}
os.chdir("/tmp/a")
os.fchdir(top)
for _ in range(64): os.chdir("..")
answers["dots"] = same(".")
os.chdir("/tmp/a"); os.rename("/tmp/a", "/home/user/a") if os.stat("/tmp").st_dev != os.stat("/home/user").st_dev else None
answers["long"] = same("../" * 200)
answers["root"] = [os.readlink("/proc/self/root"), same("/proc/self/root"), same("/proc/self/root/.."), same("/proc/self/task/%d/root/../.." % os.getpid())]
answers["through"] = tried(os.chdir, "/proc/self/fd/%d/../../../.." % top); answers["still"] = same(".")
print(json.dumps(answers))
"#;
    let seen = tried(caller, &[], code);
    assert_eq!(seen["chroot"], "EPERM");
    assert_eq!(seen["dots"], true);
    assert_eq!(seen["long"], true);
    assert_eq!(seen["root"], serde_json::json!(["/", true, true, true]));
    assert_eq!(seen["still"], true);
}

fn programs_behind_processes_cannot_be_overwritten(caller: &Caller) {
    let code = r#"
import subprocess
child = subprocess.Popen(["sleep", "60"])
print(json.dumps([tried(open, at, "r+b") for at in ("/proc/self/exe", f"/proc/{child.pid}/exe", "/proc/1/exe", sys.executable)]))
child.kill(); child.wait()
"#;
    let seen = tried(caller, &[], code);
    for answer in seen.as_array().unwrap() {
        assert!(["EROFS", "EACCES", "ETXTBSY", "ENOENT"].contains(&answer.as_str().unwrap()), "{seen}");
    }
    assert_eq!(seen[2], "ENOENT");
}

/// The number in a line of /proc/PID/status.
fn number(pid: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let found =
        status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t").map(str::to_owned));
    found.unwrap()
}

fn the_agents_program_cannot_be_changed_and_it_holds_nothing_of_the_caller(caller: &Caller) {
    if !rustix::process::geteuid().is_root() {
        return caller.skip("only root can look at the agent from outside");
    }
    // As they are installed, and as somebody has them who has built them himself.
    look_at_the_agent(caller, &caller.blastbox_path());
    if !caller.is_root() {
        look_at_the_agent(caller, &caller.own_programs().join("blastbox"));
    }
}

fn look_at_the_agent(caller: &Caller, blastbox: &Path) {
    let marker = canary();
    let words = ["run", "--json", "--", "sh", "-c", "sleep 60; exit 0", &marker];
    let held = caller.program(blastbox, words).start();
    let payload = || {
        processes_naming(&marker)
            .into_iter()
            .find(|&pid| pid != held.id() && number(pid, "NSpid").contains('\t'))
    };
    assert!(wait_until(|| payload().is_some()), "no payload came");
    let payload = payload().unwrap();
    let agent: u32 = number(payload, "PPid").parse().unwrap();
    assert_eq!(
        number(agent, "NSpid").rsplit('\t').next(),
        Some("1"),
        "its parent is the first process of the box"
    );

    let program = format!("/proc/{agent}/exe");
    if caller.is_root() {
        // While it runs the kernel calls it busy, whoever asks. What holds afterwards is the mount behind every way to it.
        fs::OpenOptions::new().append(true).open(&program).unwrap_err();
        let held = fs::File::open(&program).unwrap();
        let mount = rustix::fs::fstatvfs(&held).unwrap().f_flag;
        assert!(mount.contains(rustix::fs::StatVfsMountFlags::RDONLY), "{mount:?}");
        let disk = rustix::fs::statvfs(caller.blastbox_path()).unwrap().f_flag;
        assert!(
            !disk.contains(rustix::fs::StatVfsMountFlags::RDONLY),
            "the programs under test lie on {disk:?}"
        );
    } else if *blastbox == caller.blastbox_path() {
        // Somebody else's: its caller neither owns it nor may write to it, whichever way he comes by it.
        let about = fs::metadata(&program).unwrap();
        assert_eq!(fs::read_link(&program).unwrap(), blastbox.with_file_name("blastbox-warden"));
        assert_ne!(Who::User(about.uid()), caller.who());
        assert_eq!(about.mode() & 0o6022, 0);
    } else {
        let name = fs::read_link(&program).unwrap();
        assert!(text(&name).starts_with("/memfd:"), "{name:?}");
        let seals = rustix::fs::fcntl_get_seals(fs::File::open(&program).unwrap().as_fd()).unwrap();
        use rustix::fs::SealFlags;
        assert!(
            seals.contains(SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL),
            "{seals:?}"
        );
    }

    assert_eq!(number(agent, "Seccomp"), "2");
    assert_eq!(number(agent, "NoNewPrivs"), "1");
    assert_eq!(number(agent, "CapBnd"), "0000000000000000");
    assert_eq!(fs::read(format!("/proc/{agent}/environ")).unwrap(), b"", "no environment");
    for entry in fs::read_dir(format!("/proc/{agent}/fd")).unwrap() {
        let at = entry.unwrap().path();
        let Ok(to) = fs::read_link(&at) else { continue };
        let harmless = ["/dev/null", "pipe:", "socket:", "anon_inode:"];
        assert!(harmless.iter().any(|start| text(&to).starts_with(start)), "{} is {to:?}", at.display());
    }
    let uid = |pid| number(pid, "Uid").split('\t').next().unwrap().parse::<u32>().unwrap();
    if caller.is_root() {
        assert!(uid(agent) >= 0x7000_0000 && uid(payload) >= 0x7000_0000, "never the host's root");
        assert_ne!(uid(agent), uid(payload), "a payload cannot look into an agent of another user");
    }
    drop(held);
    assert!(wait_until(|| processes_naming(&marker).is_empty()), "it outlived its caller");
}

fn a_directory_can_be_the_image_and_stays_as_it_is(caller: &Caller) {
    let source = r#"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
static void tried(const char *at, int flags) {
    printf("%s %s\n", at, open(at, flags, 0644) < 0 ? strerror(errno) : "ok");
}
int main(void) {
    tried("/data/file", O_RDONLY); tried("/data/file", O_WRONLY); tried("/data/new", O_WRONLY | O_CREAT);
    tried("/tmp/new", O_WRONLY | O_CREAT); tried("/usr/bin/env", O_RDONLY); tried("/etc/passwd", O_RDONLY);
    tried("/escape/etc/passwd", O_RDONLY); tried("/proc/self/exe", O_WRONLY); tried("/home/user/x", O_WRONLY | O_CREAT);
    return 7;
}
"#;
    let Some(program) = cc(caller, "program", source, &[]) else {
        return caller.skip("no C compiler that makes static programs (apt-get install build-essential)");
    };
    let image = caller.directory("image");
    fill_with(
        caller,
        &image,
        &[("bin/", ""), ("data/", ""), ("data/file", "text"), ("home/", ""), ("home/secret", "x")],
    );
    symlink("../../../../../../../..", image.join("escape")).unwrap();
    fs::copy(&program, image.join("bin/program")).unwrap();
    let boxed = caller.run(&["--image", text(&image)], &["program"]);
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("exited", 7), "{:?}", boxed.receipt.reason);
    let expected = [
        ("/data/file", "ok"),
        ("/data/file", "Read-only file system"),
        ("/data/new", "Read-only file system"),
        ("/tmp/new", "ok"),
        ("/usr/bin/env", "No such file or directory"),
        ("/etc/passwd", "No such file or directory"),
        ("/escape/etc/passwd", "No such file or directory"),
        ("/proc/self/exe", "Read-only file system"),
        ("/home/user/x", "ok"),
    ];
    let lines: Vec<&str> = boxed.stdout.lines().collect();
    for ((at, answer), line) in expected.iter().zip(&lines) {
        let refused = ["Permission denied", "Read-only file system", "Text file busy"];
        let both = refused.contains(answer) && refused.iter().any(|word| *line == format!("{at} {word}"));
        assert!(both || *line == format!("{at} {answer}"), "{line}, not {at} {answer}");
    }
    assert_eq!(lines.len(), expected.len());
    assert!(
        !boxed.receipt.gaps.iter().any(|gap| gap.code.as_str() == "host-image"),
        "nothing of the host is seen"
    );
    assert!(fs::read_dir(image.join("data")).unwrap().count() == 1, "the image stays as it is");
    // The shell of the host is not in it.
    assert_eq!(caller.run(&["--image", text(&image)], &["sh"]).receipt.exit_code, 127);
}

fn two_boxes_do_not_see_each_others_files(caller: &Caller) {
    let script =
        "echo mine >/tmp/mine; echo mine >/dev/shm/mine; echo mine >~/mine; ls /tmp /dev/shm ~ /workspace";
    let first = caller.sh(&[], script).fine();
    let second = caller.sh(&[], "ls /tmp /dev/shm ~ /workspace").fine();
    assert_eq!(first.stdout.matches("mine").count(), 3);
    assert!(!second.stdout.contains("mine"), "{}", second.stdout);
}
