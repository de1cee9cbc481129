//! Writes at unexpected paths, where the policy has them reported: who hears of them, and that they go on as they would.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

use std::collections::BTreeMap;
use std::fs;

use blastbox_tests::census::Census;
use blastbox_tests::daemon::Daemon;
use blastbox_tests::{Boxed, Caller, both_ways, fill_with, wait_until};

both_ways!(
    writes_outside_the_places_of_a_box_are_named_and_those_inside_are_not,
    what_a_box_may_write_is_not_changed_by_the_report,
    files_that_tools_of_the_caller_trust_are_named,
    a_link_does_not_hide_where_it_leads,
    flags_that_no_filter_can_see_are_looked_at,
    a_process_that_hides_its_memory_is_named_as_one,
    paths_without_end_are_counted_as_one,
    many_processes_that_write_at_once_all_go_on,
    denied_calls_are_told_as_before,
    a_tier_that_cannot_report_writes_refuses,
    a_daemon_tells_it_everywhere,
);

const REPORT: &[&str] = &["--report-writes"];

/// The paths that a receipt names, with their reasons.
fn named(boxed: &Boxed) -> BTreeMap<&str, &str> {
    let writes = boxed.receipt.unexpected_writes.iter();
    writes.map(|write| (write.path.as_str(), write.reason.as_str())).collect()
}

fn writes_outside_the_places_of_a_box_are_named_and_those_inside_are_not(caller: &Caller) {
    let script = "exec 2>/dev/null
        for at in /tmp /var/tmp /home/user /workspace /dev/shm; do echo x > $at/x; mkdir $at/d; mv $at/x $at/d/y; rm -r $at/d; done
        echo x > /dev/null; echo x > /proc/self/comm; echo x | tee /dev/stderr >/dev/stdout; : < /etc/passwd; ls -lR /etc >/dev/null
        echo x > /etc/one; cd /usr; echo x > two; mkdir three; rm -f /etc/passwd; mv /tmp /four; ln -s x /five; echo x > /proc/sys/kernel/hostname; true";
    let boxed = caller.sh(REPORT, script).fine();
    let wanted =
        ["/etc/one", "/etc/passwd", "/five", "/four", "/proc/sys/kernel/hostname", "/usr/three", "/usr/two"];
    assert_eq!(named(&boxed), wanted.map(|path| (path, "outside")).into());
    let one = boxed.receipt.unexpected_writes.iter().find(|write| write.path == "/etc/one").unwrap();
    assert_eq!((one.count, one.syscall.as_str()), (1, "openat"));
    assert!(one.first_pid > 1);
    assert_eq!(boxed.receipt.denied, [], "a write is not a denied call");
    let quiet = caller.sh(&[], script).fine();
    assert!(quiet.receipt.unexpected_writes.is_empty(), "nobody asked for it");
}

fn what_a_box_may_write_is_not_changed_by_the_report(caller: &Caller) {
    let script = "for at in / /usr /etc /home /dev /tmp /home/user /workspace /dev/shm; do
            echo x > $at/x && echo $at open || echo $at closed; mkdir $at/d && echo made; rm -r $at/d; done 2>/dev/null; true";
    assert_eq!(caller.sh(REPORT, script).fine().stdout, caller.sh(&[], script).fine().stdout);
}

fn files_that_tools_of_the_caller_trust_are_named(caller: &Caller) {
    let directory = caller.directory("project");
    fill_with(caller, &directory, &[("main.c", "int main;"), (".gitignore", "x")]);
    let workspace = directory.to_str().unwrap().to_owned();
    let script = "cd /workspace && mkdir -p .git/hooks src && echo x > .git/hooks/pre-commit && echo x > CLAUDE.md && echo x > src/.mcp.json
        echo x > main.c; echo x > src/new.c; echo x > .gitignore; echo x > /tmp/.bashrc; echo x > ~/.bashrc";
    let boxed = caller.sh(&["--report-writes", "--workspace", &workspace], script).fine();
    let wanted = [".git", ".git/hooks", ".git/hooks/pre-commit", "CLAUDE.md", "src/.mcp.json"]
        .map(|name| (format!("/workspace/{name}"), "poisons-tools"));
    let wanted: BTreeMap<&str, &str> = wanted.iter().map(|(path, why)| (path.as_str(), *why)).collect();
    assert_eq!(named(&boxed), wanted);
    assert!(!directory.join("CLAUDE.md").exists());
    // Where the workspace is the box's own, they are nobody else's.
    assert!(named(&caller.sh(REPORT, "cd /workspace; echo x > CLAUDE.md").fine()).is_empty());
    // And where nothing can be written, everything is unexpected.
    let closed = format!("{workspace}:ro");
    let boxed =
        caller.sh(&["--report-writes", "--workspace", &closed], "echo x > /workspace/main.c || true").fine();
    assert_eq!(named(&boxed), [("/workspace/main.c", "outside")].into());
    assert_eq!(fs::read_to_string(directory.join("main.c")).unwrap(), "int main;");
}

fn a_link_does_not_hide_where_it_leads(caller: &Caller) {
    let script = "exec 2>/dev/null; cd /tmp; ln -s /etc there; ln -s /etc/passwd it; echo x > there/new; echo x > it; echo x > ../tmp/../usr/up
        echo x > /proc/self/root/etc/by-proc; exec 3< /usr; echo x > /proc/self/fd/3/by-descriptor; rm there it; true";
    let boxed = caller.sh(REPORT, script).fine();
    let wanted = ["/etc/by-proc", "/etc/new", "/etc/passwd", "/usr/by-descriptor", "/usr/up"];
    assert_eq!(named(&boxed), wanted.map(|path| (path, "outside")).into());
}

fn flags_that_no_filter_can_see_are_looked_at(caller: &Caller) {
    if !cfg!(target_arch = "x86_64") {
        caller.skip("the number of openat2 is that of x86_64");
        return;
    }
    let code = r#"
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
def openat2(path, flags, mode=0):
    how = ctypes.create_string_buffer(struct.pack("QQQ", flags, mode, 0))
    return libc.syscall(437, -100, path, how, 24)
assert openat2(b"/etc/passwd", 0) > 2
assert openat2(b"/tmp/x", 0o101, 0o600) > 2
print(openat2(b"/etc/new", 0o101, 0o600), libc.syscall(437, -100, 8, 8, 24))
"#;
    let boxed = caller.python(REPORT, code).fine();
    assert_eq!(boxed.stdout, "-1 -1\n");
    assert_eq!(
        named(&boxed),
        [("/etc/new", "outside"), ("", "unreadable")].into(),
        "a pointer to nowhere is not read"
    );
}

fn a_process_that_hides_its_memory_is_named_as_one(caller: &Caller) {
    let code = "import ctypes\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\nopen('/tmp/x', 'w').write('y')\nprint(open('/tmp/x').read())";
    let boxed = caller.python(REPORT, code).fine();
    assert_eq!(boxed.stdout, "y\n");
    assert_eq!(named(&boxed), [("", "unreadable")].into());
}

fn paths_without_end_are_counted_as_one(caller: &Caller) {
    let code = "
for number in range(3000):
    try: open('/etc/%d-%s' % (number, 'x' * (number % 250)), 'w')
    except OSError: pass
";
    let boxed = caller.python(REPORT, code).fine();
    let writes = &boxed.receipt.unexpected_writes;
    assert!(writes.len() <= 70, "{}", writes.len());
    assert_eq!(writes.iter().map(|write| write.count).sum::<u64>(), 3000);
    assert!(writes.iter().all(|write| write.path.len() <= 256));
}

fn many_processes_that_write_at_once_all_go_on(caller: &Caller) {
    let code = "
import os, threading
def work(who):
    for number in range(200):
        name = '/tmp/%s-%d' % (who, number)
        open(name, 'w').write('x'); os.rename(name, name + '.y'); os.unlink(name + '.y')
children = []
for child in range(8):
    pid = os.fork()
    if pid == 0:
        threads = [threading.Thread(target=work, args=('%d-%d' % (child, at),)) for at in range(4)]
        [thread.start() for thread in threads]; [thread.join() for thread in threads]
        os._exit(0)
    children.append(pid)
print([os.waitpid(pid, 0)[1] for pid in children], os.listdir('/tmp'))
";
    let boxed = caller.python(REPORT, code).fine();
    assert_eq!(boxed.stdout, "[0, 0, 0, 0, 0, 0, 0, 0] []\n");
    assert!(named(&boxed).is_empty());
}

fn denied_calls_are_told_as_before(caller: &Caller) {
    let boxed = caller.sh(REPORT, "for i in 1 2 3; do unshare -U true; done 2>/dev/null; echo on").fine();
    assert_eq!((boxed.denied("unshare"), boxed.stdout.as_str()), (3, "on\n"));
    let text = format!(
        "{}\n[kernel]\non_denied_syscall = \"kill\"\n[files]\nreport_writes = true\n",
        include_str!("../../profiles/default.toml")
    );
    let policy = caller.file("kill.toml", text).to_str().unwrap().to_owned();
    let boxed = caller.sh(&["--policy", &policy], "echo x > /etc/x; unshare -U true; echo on");
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("signalled", 137));
    assert_eq!((named(&boxed), boxed.stdout.as_str()), ([("/etc/x", "outside")].into(), ""));
}

fn a_tier_that_cannot_report_writes_refuses(caller: &Caller) {
    for tier in ["gvisor", "wasm"] {
        let accepted = ["--accept", "silent-denials", "--accept", "no-pids-limit"];
        let words = [&["run", "--report-writes", "--tier", tier], &accepted[..], &["--", "true"]].concat();
        let ended = caller.blastbox(words).end();
        assert_eq!(ended.code, 125, "{}", ended.err);
        assert!(ended.err.contains("files.report_writes"), "{tier}: {}", ended.err);
    }
}

fn a_daemon_tells_it_everywhere(caller: &Caller) {
    let mut census = Census::begin(caller);
    let mut daemon = Daemon::shipped(caller);
    daemon.start(None);
    assert!(daemon.await_answer());
    let made = daemon.ask(&["create", "--report-writes"]);
    let ours = caller.file("ours", "text").to_str().unwrap().to_owned();
    // What the host does with files of the box is the host's.
    daemon.ask(&["cp", &ours, &format!("{made}:/tmp/ours")]);
    assert_eq!(daemon.ask(&["exec", &made, "--", "cat", "/tmp/ours"]), "text");
    let script = "printf 'x' > '/etc/bad\u{1b}[2J' ; for i in 1 2 3; do echo x > /etc/again; done; true";
    daemon.ask(&["exec", &made, "--", "sh", "-c", &format!("exec 2>/dev/null; {script}")]);
    let told = |word: &str| daemon.ask(&["events", "--alerts", "--json"]).contains(word);
    assert!(wait_until(|| told("/etc/again")), "{}", daemon.ask(&["events", "--json"]));
    let events = daemon.ask(&["events", "--alerts", "--json"]);
    let all: Vec<serde_json::Value> =
        events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let writes: Vec<_> = all.iter().filter(|event| event["event"] == "unexpected_write").collect();
    assert!(
        writes
            .iter()
            .all(|event| event["alert"]["code"] == "unexpected_write" && event["reason"] == "outside")
    );
    assert!(writes.iter().any(|event| event["path"] == "/etc/bad\\u{1b}[2J"), "{events}");
    assert!(!events.contains("/tmp/ours"));
    // What was repeated is told a moment later, with its number.
    let four = "blastbox_unexpected_writes_total{reason=\"outside\"} 4";
    assert!(wait_until(|| daemon.ask(&["metrics"]).contains(four)), "{}", daemon.ask(&["metrics"]));
    daemon.ask(&["kill", &made]);
    let ledger = daemon.state().join("ledger").display().to_string();
    daemon.stop();
    let shown = caller.blastbox(["audit", "show", &ledger, "--box", &made, "--json"]).end().text();
    assert!(shown.contains("\"unexpected_write\"") && shown.contains("/etc/again"), "{shown}");
    assert_eq!(caller.blastbox(["audit", "verify", &ledger]).end().code, 0);
    census.accept_files();
    census.expect_nothing("a box whose writes were reported");
}
