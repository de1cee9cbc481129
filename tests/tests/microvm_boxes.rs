//! What boxes that are virtual machines have and do not have, beside others: nothing is counted here, so that other tests may run meanwhile.
//! Where the host has no fast KVM the processor is emulated, and a boot takes seconds.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use blastbox_tests::herd;
use blastbox_tests::machines::{IMAGES_OWN, ONE_AT_A_TIME, PATIENCE, SMALL, Workshop};
use blastbox_tests::{Caller, Place, Served, both_ways};

both_ways!(
    a_guest_has_a_kernel_of_its_own_and_the_rules_of_its_box,
    what_a_machine_cannot_have_is_refused_with_what_helps,
    a_directory_of_the_host_goes_into_a_machine_and_is_never_changed,
    a_machine_can_use_most_of_its_memory,
);

#[test]
fn a_daemon_keeps_machines_as_any_other_box() {
    if let Some(caller) = Caller::root("a_daemon_keeps_machines_as_any_other_box") {
        daemon(&caller);
    }
}

/// What a box says about itself that no two boxes may have in common, a word each: what the kernel draws, where it puts a program
/// in memory, its name; then the time.
const SELF: &str = "
    head -c 16 /dev/urandom | hexdump -e '16/1 \"%02x\" \"\n\"'
    while read range _ _ _ _ name; do [ \"$name\" = '[stack]' ] && echo $range; done < /proc/self/maps
    uname -n
    cat /etc/machine-id
    date +%s";

/// What a directory of the host asks for by name, where the processor is emulated or nobody is root.
const GAPS: [&str; 6] =
    ["shared-uid", "no-memory-limit", "no-cpu-limit", "no-pids-limit", "shared-kernel", "swap-unlimited"];

fn text(path: &Path) -> String {
    blastbox_tests::text(path).to_owned()
}

fn a_guest_has_a_kernel_of_its_own_and_the_rules_of_its_box(caller: &Caller) {
    let _turn = ONE_AT_A_TIME.lock();
    let Some(workshop) = Workshop::as_shipped(caller) else { return };
    workshop.template(&[]);
    let script = "
        uname -r; id -u; uname -n
        touch /x 2>/dev/null && echo writable
        touch /tmp/y /home/user/y /workspace/y && echo scratch
        [ -e /usr ] || [ -e /sys/kernel ] || echo bare
        ls /dev | wc -l
        while read name rest; do case $name in *:*) echo $name;; esac; done < /proc/self/net/dev; nc -w 5 198.18.0.1 53 </dev/null 2>/dev/null || echo alone
        mount -t tmpfs none /tmp 2>/dev/null || echo refused
        cat; echo problem >&2; exit 7";
    let words = workshop.words(&["run", "--json", "-i"], &["--timeout", "200s"], &["sh", "-c", script]);
    let boxed = caller.blastbox(words).input("said\n").start().end_within(PATIENCE).boxed();
    let host = fs::read_to_string("/proc/sys/kernel/osrelease").expect("the host's kernel");
    let lines: Vec<&str> = boxed.stdout.lines().collect();
    let [kernel, user, name, rest @ ..] = lines.as_slice() else {
        unreachable!("{:?} {} {}", boxed.receipt.reason, boxed.stdout, boxed.stderr)
    };
    assert!(kernel.contains("cloud") && *kernel != host.trim(), "{kernel}");
    assert_eq!((*user, name.starts_with("bx-")), ("1000", true));
    assert_eq!(rest, ["scratch", "bare", "13", "lo:", "alone", "refused", "said"]);
    assert_eq!((boxed.stderr.trim(), boxed.receipt.exit_code), ("problem", 7));
    assert_eq!(boxed.receipt.tier.map(|tier| tier.as_str()), Some("microvm"));
    // The guest's own kernel says what was denied.
    assert!(boxed.denied("mount") > 0, "{:?}", boxed.receipt.denied);
    let gap = boxed.receipt.gaps.iter().any(|gap| gap.code.as_str() == "emulated-cpu");
    let how: Vec<&String> = boxed.receipt.boundaries.iter().flat_map(|line| &line.how).collect();
    assert_eq!(how.iter().any(|how| how.contains("not a security boundary")), gap, "{how:?}");
    assert!(how.iter().any(|how| how.contains("sha256:")), "{how:?}");
    assert!(
        how.iter().any(|how| how.contains("played by QEMU ") && how.contains("(engine qemu)")),
        "{how:?}"
    );
    assert!(how.iter().any(|how| how.contains("the machine has no network card")), "{how:?}");
    let copied = how.iter().any(|how| how.contains("it began as a copy"));
    assert!(copied, "{how:?}");
}

/// A copy pays for its own pages, and not for those of its template that were empty when it was copied.
fn a_machine_can_use_most_of_its_memory(caller: &Caller) {
    let _turn = ONE_AT_A_TIME.lock();
    let Some(workshop) = Workshop::new(caller) else { return };
    let options = ["--memory", "512MiB", "--disk", "400MiB"];
    workshop.template(&options);
    let options = [&["--timeout", "200s"], &options[..]].concat();
    // In large pieces, and not read again: an emulated processor takes half a minute for what costs others nothing.
    let fill = "dd if=/dev/zero of=/tmp/much bs=1000000 count=240 2>/dev/null && ls -l /tmp/much";
    let boxed = workshop.sh(&options, fill);
    assert!(
        boxed.stdout.contains(" 240000000 "),
        "{:?} {} {}",
        boxed.receipt.reason,
        boxed.stdout,
        boxed.stderr
    );
}

/// Seconds since 1970.
fn now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("a clock after 1970").as_secs()
}

/// Each of them began as a copy of one machine, which has the same memory, and so would draw the same.
fn expect_different(said: &[String], began: u64) {
    herd::expect_different(said);
    let lines: Vec<Vec<&str>> = said.iter().map(|said| said.lines().collect()).collect();
    for line in &lines {
        let number = line.get(3).expect("a number");
        let is_drawn = number.len() == 32 && number.bytes().all(|digit| digit.is_ascii_hexdigit());
        assert!(is_drawn && *number != IMAGES_OWN, "{number}");
        // Of the moment when it was made, not of that when the template fell asleep.
        let time: u64 = line.get(4).and_then(|time| time.parse().ok()).expect("a time");
        assert!((began.saturating_sub(1)..=now() + 1).contains(&time), "{began} {time} {}", now());
    }
}

/// Once: whoever asks, templates are made by the same hands.
#[test]
fn a_template_that_was_altered_is_refused_by_name_and_made_anew() {
    let test = "a_template_that_was_altered_is_refused_by_name_and_made_anew";
    let Some(caller) = &Caller::either(test) else { return };
    let _turn = ONE_AT_A_TIME.lock();
    let Some(workshop) = Workshop::with_number(caller) else { return };
    let run = || {
        let boxed = workshop.sh(&["--timeout", "200s"], SELF);
        assert_eq!(boxed.receipt.exit_code, 0, "{:?} {}", boxed.receipt.reason, boxed.stderr);
        let how: Vec<String> =
            boxed.receipt.boundaries.iter().flat_map(|line| &line.how).map(ToString::to_string).collect();
        (boxed.stdout, how.into_iter().find(|how| how.contains("it began as a copy")).expect("a copy"))
    };
    let began = now();
    let (first, made) = workshop.with_templates(run);
    assert!(!made.contains("anew"), "{made}");
    let folder = Path::new(&workshop.store).join("templates");
    let list = || -> Vec<PathBuf> {
        fs::read_dir(&folder).expect("a place for templates").map(|e| e.expect("an entry").path()).collect()
    };
    let [template] = list().try_into().expect("one template");
    let whole = fs::read(&template).expect("read it");
    let mut flipped = whole.clone();
    *flipped.get_mut(whole.len() / 2).expect("a middle") ^= 1;
    // Another file: the one that is there may be one that later tests begin with.
    fs::remove_file(&template).expect("take it away");
    fs::write(&template, &flipped).expect("alter it");
    caller.own(&template);
    let (second, told) = run();
    assert!(told.contains("was altered") && told.contains("made anew"), "{told}");
    assert!(fs::read(&template).expect("read it") != flipped, "the bad one is still there");
    let (third, told) = run();
    assert!(!told.contains("anew"), "{told}");
    assert_eq!(list().len(), 1);
    expect_different(&[first, second, third], began);
}

fn what_a_machine_cannot_have_is_refused_with_what_helps(caller: &Caller) {
    let Some(workshop) = Workshop::new(caller) else { return };
    let empty = text(&caller.place().join("empty"));
    let cases: [(&[&str], &str); 4] = [
        (&["--image", "host"], "blastbox image import"),
        (&["--image", "root"], "blastbox image import"),
        (&["--memory", "64MiB"], "--memory"),
        (&["--cpus", "1000"], "--cpus"),
    ];
    for (options, part) in cases {
        let ended = caller.blastbox(workshop.words(&["run"], options, &["sh", "-c", "true"])).end();
        assert_eq!(ended.code, 125, "{options:?}: {}", ended.text());
        assert!(ended.err.contains(part) && ended.err.contains("fix: "), "{options:?}: {}", ended.err);
    }
    // Without a kernel the command says how to get one; without a name for the gap a slow processor is refused.
    let import =
        ["image", "import", &text(&caller.place().join("root")), "--name", "tools", "--store", &empty];
    assert_eq!(caller.blastbox(import).end().code, 0);
    let run = |store: &str, more: &[&str]| {
        let words = ["run", "--store", store, "--tier", "microvm", "--image", "tools"];
        caller.blastbox(words.iter().chain(more).chain(&["--", "sh", "-c", "true"])).end()
    };
    let none = run(&empty, &["--accept", "emulated-cpu"]);
    assert!(none.code == 125 && none.err.contains("blastbox kernel get"), "{}", none.err);
    let critical = run(&workshop.store, &["--threat", "critical"]);
    let unnamed = run(&workshop.store, &[]);
    if unnamed.code == 0 {
        return caller.skip("KVM is fast here, so nothing has to be emulated");
    }
    assert!(unnamed.code == 125 && unnamed.err.contains("--accept emulated-cpu"), "{}", unnamed.err);
    // With what was found: how fast a KVM is that is there and may be opened.
    let found = unnamed.err.contains("; on this host ");
    let timed =
        !unnamed.err.contains("too slow") || unnamed.err.contains(" million guest instructions a second");
    assert!(found && timed, "{}", unnamed.err);
    // An ordinary user is refused for another reason first.
    let named = !caller.is_root() || critical.err.contains("emulated-cpu");
    assert!(critical.code == 125 && named, "{}", critical.err);
}

fn a_directory_of_the_host_goes_into_a_machine_and_is_never_changed(caller: &Caller) {
    let _turn = ONE_AT_A_TIME.lock();
    let Some(workshop) = Workshop::new(caller) else { return };
    let project = caller.directory("project");
    caller.directory("project/sub");
    caller.file("project/a", "one\n");
    caller.file("project/sub/b", "two\n");
    std::os::unix::fs::symlink("/etc/passwd", project.join("link")).expect("make a link");
    let at = text(&project);
    let console = caller.place().join("console");
    // As many processors as the host has for it, two at most.
    let processors =
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(2).to_string();
    let run = |access: &str, script: &str| {
        let given = format!("{at}{access}");
        let accept = GAPS.iter().flat_map(|gap| ["--accept", gap]);
        let usual =
            ["--profile", "medium", "--timeout", "200s", "--cpus", &processors, "--workspace", &given];
        let heard = ["--console", blastbox_tests::text(&console)];
        let options: Vec<&str> = usual.into_iter().chain(heard).chain(accept).collect();
        workshop.sh(&options, script)
    };
    let script = "
        pwd; cat a sub/b; cat link 2>/dev/null || echo leads nowhere
        (echo new > a) 2>/dev/null && cat a || echo kept
        (echo more > sub/c) 2>/dev/null && cat sub/c || echo kept
        ls sub; id -u; nproc
        ls /dev | grep ttyS || echo no console; (echo no > /dev/ttyS0) 2>/dev/null && echo written";
    let read =
        format!("/workspace\none\ntwo\nleads nowhere\nkept\nkept\nb\n1000\n{processors}\nno console\n");
    // With changes that stay there, as in every tier: `conformance.rs`.
    let boxed = run(":ro", script);
    assert_eq!(boxed.stdout, read, "{} {:?}", boxed.stderr, boxed.receipt.reason);
    assert_eq!(fs::read_to_string(project.join("a")).expect("it is there"), "one\n");
    assert!(!project.join("sub/c").exists());
    let heard = fs::read_to_string(&console).expect("what its kernel said");
    // The agent leaves when its last command has ended. A guest with a second processor may still say that its first process did.
    let gave_up =
        |line: &str| line.contains("Kernel panic") && !line.contains("kill init! exitcode=0x00000000");
    assert!(heard.contains("Linux version ") && !heard.lines().any(gave_up), "{heard}");
    assert!(heard.bytes().all(|byte| matches!(byte, b'\n' | b'\t' | b' '..=b'~')), "text alone");
    assert_eq!(fs::metadata(&console).expect("a file").permissions().mode() & 0o777, 0o600);
    // What does not fit, or is no file, keeps the box from starting.
    let made = caller.program(Path::new("/usr/bin/mkfifo"), [text(&project.join("pipe"))]).end();
    assert_eq!(made.code, 0, "{}", made.err);
    let refused = run("", "echo ran");
    assert!(refused.stdout.is_empty() && refused.receipt.exit_code == 125, "{}", refused.stdout);
    let reason = format!("{:?}", refused.receipt.reason);
    assert!(reason.contains("pipe") && reason.contains("neither file"), "{reason}");
}

fn daemon(caller: &Caller) {
    let _turn = ONE_AT_A_TIME.lock();
    let Some(workshop) = Workshop::with_number(caller) else { return };
    let config = text(&caller.file("daemon.toml", "[pool]\nmax = 0\n"));
    // A daemon reads its store, and writes to it where it lies with its state.
    workshop.first_files();
    let served = Served::start(caller, &["--store", &workshop.store, "--config", &config]);
    let usual = ["create", "--tier", "microvm", "--accept", "emulated-cpu", "--image", "tools"];
    let create = [&usual[..], &SMALL, &["--timeout", "200s"]].concat();
    let began = now();
    // All at once: one of them waits for the template, and the others for that one.
    let asked = [(); 3].map(|()| served.blastbox(&create).start());
    let [id, second, third] = asked.map(|asked| {
        let made = asked.end_within(PATIENCE);
        assert_eq!(made.code, 0, "{}", made.err);
        made.text().trim().to_owned()
    });
    let said = [&id, &second, &third].map(|id| served.sh(id, SELF));
    expect_different(&said, began);
    // What their kernel drew once, when the template booted, none of them can read, nor write the number that is theirs, which is the same
    // wherever the image had one.
    let shared = "for at in /proc/sys /proc/cmdline /sys/kernel; do [ -e $at ] && echo $at; done; \
                  read a < /etc/machine-id; read b < /var/lib/dbus/machine-id; [ \"$a\" = \"$b\" ] || echo $b; \
                  (echo mine > /etc/machine-id) 2>/dev/null && echo written; \
                  cat /proc/sys/kernel/random/boot_id 2>/dev/null; mount -t proc p /tmp 2>/dev/null; ls /tmp";
    for id in [&id, &second, &third] {
        assert_eq!(served.sh(id, shared), "", "{id}");
    }
    for id in [&second, &third] {
        served.ask(["kill", id]);
    }
    // A daemon opens no file of its callers, but for what lies where it works itself.
    let elsewhere = Place::new();
    fs::write(elsewhere.join("a"), "one").expect("write a file");
    let project = text(elsewhere.path());
    let shared = ["--accept", "shared-kernel", "--profile", "medium", "--workspace", &project];
    let refused = served.blastbox(create.iter().chain(&shared)).start().end_within(PATIENCE);
    assert!(refused.code != 0 && refused.err.contains("blastbox cp"), "{} {}", refused.code, refused.err);
    let note = caller.file("note", "from outside");
    served.ask(["cp", &text(&note), &format!("{id}:/workspace/note")]);
    assert_eq!(served.sh(&id, "cat /workspace/note; echo more > /workspace/other"), "from outside");
    let back = caller.place().join("back");
    served.ask(["cp", &format!("{id}:/workspace/other"), &text(&back)]);
    assert_eq!(fs::read_to_string(back).expect("it came back"), "more\n");
    // More than any window of the channel, whole.
    served.sh(&id, "dd if=/dev/urandom of=/workspace/large bs=65536 count=64 2>/dev/null");
    let large = caller.place().join("large");
    served.ask(["cp", &format!("{id}:/workspace/large"), &text(&large)]);
    assert_eq!(fs::metadata(large).expect("it came back").len(), 4 << 20);
    let ended = served.blastbox(["exec", &id, "--", "sh", "-c", "exit 9"]).end();
    assert_eq!(ended.code, 9, "{}", ended.err);
    let receipt = served.ask(["kill", "--json", &id]);
    // The kernel that it had, and who played its machine, are named alike in its receipt and in the ledger.
    let ledger = text(&caller.place().join("state/ledger"));
    let shown = served.ask(["audit", "show", &ledger, "--box", &id]);
    let ready = shown.lines().find(|line| line.contains("  box_ready")).expect("it was ready");
    let field = |name: &str| {
        let found = ready.split_whitespace().find_map(|word| word.strip_prefix(name));
        found.expect(name).trim_matches('"')
    };
    let (kernel, engine) = (field("kernel="), field("engine="));
    assert!(kernel.starts_with("sha256:") && receipt.contains(&format!("({kernel})")), "{ready} {receipt}");
    assert!(receipt.contains(&format!("(engine {engine})")), "{ready} {receipt}");
    served.stop();
}
