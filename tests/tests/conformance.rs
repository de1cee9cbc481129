//! What every tier does alike: the same bodies on the jail's kernel, on gVisor's and on one in a virtual machine, as root and as an
//! ordinary user.
//!
//! A body says where a tier cannot do something: it reports that as skipped, with the reason, and the receipt must name the
//! gap that stands for it.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::io::Read as _;

use blastbox_policy::{Gap, Tier};
use blastbox_tests::tiers::{Bench, LITTLE, WITH_GATEWAY};
use blastbox_tests::{Boxed, Served, Terminal, conform_everywhere, wait_until};
use blastbox_wire::receipt::LimitName;

conform_everywhere!(
    a_command_ends_as_it_ended,
    the_receipt_tells_the_tier_and_its_gaps,
    a_denied_call_is_told,
    time_output_and_memory_are_limited,
    processes_are_limited,
    what_can_be_written_is_limited,
    the_root_is_read_only_and_nothing_of_the_host_is_changed,
    what_the_box_wrote_is_not_executed_where_the_policy_says_so,
    nothing_is_reached_without_network,
    the_gateway_keeps_a_box_from_what_is_not_allowed,
    a_terminal_has_its_size_and_passes_on_every_byte,
    a_kept_box_takes_commands_files_and_signals_is_watched_pauses_and_ends,
);

fn a_command_ends_as_it_ended(bench: &Bench<'_>) {
    let boxed = bench.sh(&[], "id -u; pwd; echo out; echo err >&2; echo again >/dev/stderr; exit 7");
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("exited", 7), "{boxed:?}");
    assert_eq!((boxed.stdout.as_str(), boxed.stderr.as_str()), ("1000\n/workspace\nout\n", "err\nagain\n"));
    let boxed = bench.sh(&[], "kill -TERM $$");
    assert_eq!((boxed.outcome(), boxed.receipt.signal), ("signalled", Some(15)));
    for (command, code) in [("no-such-program", 127), ("/etc/passwd", 126)] {
        let boxed = bench.run(&[], &[command], "");
        assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("not_started", code), "{command}");
    }
    assert_eq!(bench.run(&["-i"], &["/bin/cat"], "typed").fine().stdout, "typed");
}

fn the_receipt_tells_the_tier_and_its_gaps(bench: &Bench<'_>) {
    let receipt = bench.sh(&[], "true").fine().receipt;
    assert_eq!(receipt.tier, Some(bench.tier));
    let has = |gap| receipt.gaps.iter().any(|line| line.code == gap);
    let emulated = has(Gap::EmulatedCpu);
    assert_eq!(has(Gap::SharedKernel), bench.tier == Tier::Jail || emulated);
    assert!(!emulated || bench.tier == Tier::Microvm);
    assert_eq!(has(Gap::SilentDenials), bench.tier == Tier::Gvisor);
    assert_eq!(has(Gap::SharedUid), !bench.caller.is_root());
    assert_eq!(has(Gap::NoPidsLimit), bench.tier == Tier::Gvisor || !bench.caller.is_root());
    // Not accepted, not run.
    if bench.tier == Tier::Gvisor || emulated {
        let options: Vec<&str> =
            bench.with(&[]).into_iter().filter(|word| !word.starts_with("--accept")).collect();
        let options: Vec<&str> = options.into_iter().filter(|word| *word != "silent-denials").collect();
        let refused = bench.caller.run(&options, &["true"]);
        assert_eq!((refused.outcome(), refused.receipt.exit_code), ("refused", 125));
        assert_eq!(refused.receipt.reason.expect("a reason").code, "gap_not_accepted");
    }
}

fn a_denied_call_is_told(bench: &Bench<'_>) {
    let receipt = bench.sh(&[], "unshare --user true; true").fine().receipt;
    if bench.tier == Tier::Gvisor {
        assert_eq!(receipt.denied, []);
        return bench.skip("gVisor answers calls without a word: the gap silent-denials stands for it");
    }
    assert!(
        receipt.denied.iter().any(|call| call.name.as_deref() == Some("unshare")),
        "{:?}",
        receipt.denied
    );
}

fn time_output_and_memory_are_limited(bench: &Bench<'_>) {
    let boxed = bench.sh(&["--timeout", "3s"], "sleep 60");
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("timed_out", 124));
    let boxed = bench.sh(&["--output-limit", "64KiB"], "while :; do echo 0123456789012345678901234567; done");
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("output_limit", 153));
    assert!(boxed.receipt.output.stdout_bytes <= 64 * 1024);
    let machine = bench.tier == Tier::Microvm;
    if !machine && !bench.caller.is_root() {
        return bench.skip("without root nothing limits the memory of a whole box: the gap no-memory-limit");
    }
    // All in memory: pages that a program touches, and files.
    let boxed = match machine {
        true => bench.sh(&[], GREEDY),
        false => bench.sh(&["--memory", "160MiB"], "head -c 400m /dev/zero | tail -c 300m >/dev/null"),
    };
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("out_of_memory", 137), "{boxed:?}");
    assert!(boxed.receipt.limits_hit.contains(&LimitName::Memory));
}

/// Takes memory little by little and reads its own program all the while, which a guest's kernel without swap could drop and read again
/// for ever instead of killing anybody.
const GREEDY: &str = "busybox awk 'BEGIN { s = sprintf(\"%65536s\", 1); while (1) a[n++] = s n }'";

/// This limit; in a machine all of them at once, because one boots for each set of limits.
fn little<'w>(bench: &Bench<'_>, limit: &[&'w str]) -> Vec<&'w str> {
    if bench.tier == Tier::Microvm { LITTLE.to_vec() } else { limit.to_vec() }
}

fn processes_are_limited(bench: &Bench<'_>) {
    if bench.tier != Tier::Microvm && !bench.caller.is_root() {
        return bench.skip("without root nothing counts the processes of a box alone: the gap no-pids-limit");
    }
    // gVisor's kernel ends where it cannot have a process of the host for one of the box.
    let boxed = bench
        .sh(&little(bench, &["--pids", "16"]), "n=0; while [ $n -lt 400 ]; do sleep 30 & n=$((n+1)); done");
    assert_ne!(boxed.receipt.exit_code, 0, "{boxed:?}");
    if bench.tier == Tier::Microvm {
        assert!(boxed.stderr.contains("fork"), "{boxed:?}");
        assert_eq!(boxed.outcome(), "pids_exhausted", "{boxed:?}");
    }
    assert!(boxed.receipt.limits_hit.contains(&LimitName::Pids), "{boxed:?}");
}

fn what_can_be_written_is_limited(bench: &Bench<'_>) {
    // One space for all of them.
    let fill = "for at in /tmp /home/user /workspace /dev/shm; do cd $at && dd if=/dev/zero of=a bs=65536 count=96; wc -c <a; rm a; done";
    let boxed = bench.sh(&little(bench, &["--disk", "4MiB"]), fill);
    assert_eq!(boxed.receipt.exit_code, 0, "{boxed:?}");
    let sizes: Vec<u64> = boxed.stdout.lines().map(|line| line.trim().parse().expect("a size")).collect();
    assert!(sizes.len() == 4 && sizes.iter().all(|size| *size <= 4 << 20), "{sizes:?}");
    assert_eq!(boxed.stderr.matches("No space left").count(), 4, "{}", boxed.stderr);
}

fn the_root_is_read_only_and_nothing_of_the_host_is_changed(bench: &Bench<'_>) {
    let script = "for at in /etc/x /usr/x /x /bin/x /.blastbox/x; do echo no >$at && echo wrote $at; done 2>/dev/null; true";
    assert_eq!(bench.sh(&[], script).fine().stdout, "");
    let workspace = bench.caller.directory("project");
    let file = bench.caller.file("project/kept", "as it was");
    let options = ["--profile", "medium", "--workspace", workspace.to_str().expect("a name")];
    let options = bench.with(&options);
    let script = "cat kept; echo changed >kept; mkdir new; ln -s kept new/link; mv kept moved; cat moved; ls";
    let boxed = bench.caller.sh(&options, script).fine();
    assert_eq!(boxed.stdout, "as it waschanged\nmoved\nnew\n");
    assert_eq!(std::fs::read_to_string(&file).expect("the file"), "as it was");
    assert!(!workspace.join("new").exists());
}

fn what_the_box_wrote_is_not_executed_where_the_policy_says_so(bench: &Bench<'_>) {
    let script = |places: &str| {
        format!(
            "for at in {places}; do cd $at; printf '#!/bin/sh\\necho ran\\n' >run; cp /bin/true true; chmod +x run true; \
             ./run; ./true && echo ran; rm run true; done; true"
        )
    };
    let places = "/tmp /home/user /workspace";
    assert_eq!(bench.sh(&[], &script(places)).fine().stdout, "ran\n".repeat(6));
    // Nothing is executed in /dev/shm in any case.
    let none = bench.sh(&little(bench, &["--no-exec"]), &script(&format!("{places} /dev/shm"))).fine();
    assert_eq!(none.stdout, "");
}

/// Tries these addresses, and says of each whether somebody was there. A machine here has no Python.
fn knock(bench: &Bench<'_>, more: &[&str], at: &[(&str, u16)]) -> Boxed {
    if bench.tier == Tier::Microvm {
        let knock = |(host, port): &(&str, u16)| {
            format!("nc -w 5 {host} {port} </dev/null 2>/dev/null && echo True || echo False\n")
        };
        return bench.sh(more, &at.iter().map(knock).collect::<String>());
    }
    let tuples: String = at.iter().map(|(host, port)| format!("('{host}', {port}), ")).collect();
    let code = format!(
        "import socket\nfor at in [{tuples}]:\n    try: socket.create_connection(at, 5); print(True)\n    except OSError: print(False)\n"
    );
    bench.caller.python(&bench.with(more), &code)
}

fn nothing_is_reached_without_network(bench: &Bench<'_>) {
    let boxed = knock(bench, &[], &[("1.1.1.1", 53), ("169.254.169.254", 80), ("10.0.0.1", 22)]);
    assert_eq!(boxed.fine().stdout, "False\n".repeat(3));
}

fn the_gateway_keeps_a_box_from_what_is_not_allowed(bench: &Bench<'_>) {
    // A machine has a card of its own.
    let tun = bench.tier != Tier::Microvm;
    if tun && !std::path::Path::new("/dev/net/tun").exists() {
        return bench.skip("this host has no /dev/net/tun");
    }
    let boxed = knock(bench, WITH_GATEWAY, &[("192.0.2.1", 80), ("evil.example", 443)]);
    if tun && boxed.outcome() == "refused" && !bench.caller.is_root() {
        return bench.skip("an ordinary user may not open /dev/net/tun here");
    }
    let boxed = boxed.fine();
    assert_eq!(boxed.stdout, "False\nFalse\n");
    let told = serde_json::to_string(&boxed.receipt.network).expect("text");
    assert!(told.contains("192.0.2.1") && told.contains("evil.example"), "{told}");
}

fn a_terminal_has_its_size_and_passes_on_every_byte(bench: &Bench<'_>) {
    let script = "tty; stty size; read line; echo got $line; while read line && [ $line = size ]; do stty size; done; \
                  stty raw -echo; echo ready; dd bs=1 count=5 2>/dev/null | od -An -tx1; dd bs=1 count=2 2>/dev/null | od -An -tx1; exit 5";
    let words = ["run", "-t"].into_iter().chain(bench.with(&[])).chain(["--", "/bin/sh", "-c", script]);
    let words: Vec<&str> = words.collect();
    let Some(mut terminal) = Terminal::start(bench.caller, 31, 71, &words) else {
        return bench.skip("there is no setsid to give it a terminal");
    };
    terminal.expect("/dev/pts/");
    terminal.expect("31 71");
    terminal.type_in("one\r");
    terminal.expect("got one");
    // A resize travels beside what is typed, so it is asked for until it has arrived.
    terminal.resize(41, 81);
    let arrived = (0..1000).any(|_| {
        terminal.type_in("size\r");
        terminal.expect("size\r\n");
        terminal.line() == "41 81"
    });
    assert!(arrived, "the window keeps its size");
    terminal.type_in("on\r");
    terminal.expect("ready");
    // What a terminal would take for itself otherwise: the end of a file, an erased letter; and a letter of two bytes.
    terminal.type_in("\u{1}\u{4}\u{7f}é");
    terminal.expect("01 04 7f c3 a9");
    // Interrupt and stop, which gVisor turns into signals all the same.
    let (last, shown) = if bench.tier == Tier::Gvisor { ("ab", "61 62") } else { ("\u{3}\u{1a}", "03 1a") };
    terminal.type_in(last);
    terminal.expect(shown);
    assert_eq!(terminal.end().0, 5);
    if bench.tier == Tier::Gvisor {
        bench.skip(
            "^C and ^Z as bytes: gVisor's terminals signal although they were told not to (docs/gvisor.md)",
        );
    }
}

fn a_kept_box_takes_commands_files_and_signals_is_watched_pauses_and_ends(bench: &Bench<'_>) {
    let daemon = bench.serve();
    let id = daemon.ask(["create"].into_iter().chain(bench.create(&[])));
    assert_eq!(daemon.sh(&id, "echo one; echo two >file"), "one");
    bench.caller.file("in", "from outside");
    daemon.ask(["cp", "in", &format!("{id}:/workspace/in")]);
    assert_eq!(daemon.sh(&id, "cat in; [ -O in ] && id -u; ln -s /etc/passwd link"), "from outside1000");
    daemon.ask(["cp", &format!("{id}:/workspace/file"), "out"]);
    assert_eq!(std::fs::read_to_string(bench.caller.place().join("out")).expect("the copy"), "two\n");
    watched(&daemon, &id);
    signalled(&daemon, &id);
    let number = daemon.ask(["exec", "--detach", &id, "--", "/bin/sh", "-c", "sleep 60"]);
    assert!(!number.is_empty());
    if bench.caller.is_root() {
        daemon.ask(["pause", &id]);
        assert!(daemon.ask(["ps"]).contains("paused"));
        daemon.ask(["resume", &id]);
    } else {
        bench.skip("pause: without root no freezer is the box's own");
    }
    assert_eq!(daemon.sh(&id, "echo after"), "after");
    if bench.tier == Tier::Microvm {
        outgrown(&daemon, &id);
    } else {
        daemon.ask(["kill", &id]);
    }
    assert_eq!(daemon.stop().code, 0);
}

/// A guest whose memory files have filled answers, and one of whose commands wants more than is left: that one is killed, and no other.
fn outgrown(daemon: &Served<'_>, id: &str) {
    let number = daemon.ask(["exec", "--detach", id, "--", "/bin/sh", "-c", "sleep 1000"]);
    let fill = "dd if=/dev/zero of=/tmp/much bs=1000000 count=200 2>&1 | grep -o 'No space left'; id -u";
    assert_eq!(daemon.sh(id, fill), "No space left\n1000");
    let ended = daemon.blastbox(["exec", id, "--", "/bin/sh", "-c", GREEDY]).end();
    assert_eq!(ended.code, 137, "{}", ended.err);
    assert_eq!(daemon.sh(id, "rm /tmp/much; echo after"), "after");
    let shown: serde_json::Value =
        serde_json::from_str(&daemon.ask(["inspect", id, "--json"])).expect("a box");
    let execs = shown.get("execs").and_then(serde_json::Value::as_array).expect("its commands");
    let still = |exec: &&serde_json::Value| exec.get("ended").is_none_or(serde_json::Value::is_null);
    let running = |exec: &serde_json::Value| {
        exec.get("exec").and_then(serde_json::Value::as_u64) == number.parse().ok()
    };
    assert!(execs.iter().filter(still).any(running), "{shown}");
    let (_, receipt) = daemon.request("DELETE", &format!("/v1/boxes/{id}"), &serde_json::Value::Null);
    assert_eq!(receipt.get("limits_hit"), Some(&serde_json::json!(["memory", "disk"])), "{receipt}");
}

/// Whoever watches a directory hears what happens in it, until it is gone.
fn watched(daemon: &Served<'_>, id: &str) {
    daemon.sh(id, "mkdir -p /tmp/w/sub");
    let mut watching = daemon.open(&format!("/v1/boxes/{id}/files/watch?path=/tmp/w&recursive=true"));
    daemon.sh(id, "echo 1 >/tmp/w/sub/new; rm -r /tmp/w");
    let mut told = String::new();
    watching.read_to_string(&mut told).expect("what happened");
    let has = |kind: &str, path: &str| {
        let lines = told.lines().filter_map(|line| line.strip_prefix("data: "));
        let mut changes = lines.filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        changes.any(|change| {
            let is = |key: &str, value: &str| change.get(key).is_some_and(|found| found == value);
            is("kind", kind) && is("path", path)
        })
    };
    assert!(has("created", "sub/new") && has("removed", "sub") && has("ended", ""), "{told}");
}

/// A command hears the signal that it is sent, and decides.
fn signalled(daemon: &Served<'_>, id: &str) {
    let script = "trap 'echo told; exit 3' TERM; echo ready; while :; do sleep 1; done";
    let number = daemon.ask(["exec", "--detach", id, "--", "/bin/sh", "-c", script]);
    assert!(wait_until(|| daemon.ask(["logs", id, &number]).contains("ready")));
    let at = format!("/v1/boxes/{id}/execs/{number}/signal");
    let (status, answer) = daemon.request("POST", &at, &serde_json::json!({ "signal": 15 }));
    assert!((200..300).contains(&status), "{status} {answer}");
    let ended = daemon.blastbox(["attach", "--no-stdin", id, &number]).end();
    assert_eq!((ended.code, ended.text().as_str()), (3, "ready\ntold\n"), "{}", ended.err);
}
