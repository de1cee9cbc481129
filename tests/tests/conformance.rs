//! What every tier does alike: the same bodies on the jail's kernel and on gVisor's, as root and as an ordinary user.
//!
//! A body says where a tier cannot do something: it reports that as skipped, with the reason, and the receipt must name the
//! gap that stands for it.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use blastbox_policy::{Gap, Tier};
use blastbox_tests::tiers::Bench;
use blastbox_tests::{Served, Terminal, conform};
use blastbox_wire::receipt::LimitName;

conform!(
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
    a_terminal_has_its_size,
    a_kept_box_takes_commands_and_files_pauses_and_ends,
);

fn a_command_ends_as_it_ended(bench: &Bench<'_>) {
    let boxed = bench.sh(&[], "id -u; pwd; echo out; echo err >&2; echo again >/dev/stderr; exit 7");
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("exited", 7), "{boxed:?}");
    assert_eq!((boxed.stdout.as_str(), boxed.stderr.as_str()), ("1000\n/workspace\nout\n", "err\nagain\n"));
    let boxed = bench.sh(&[], "kill -TERM $$");
    assert_eq!((boxed.outcome(), boxed.receipt.signal), ("signalled", Some(15)));
    for (command, code) in [("no-such-program", 127), ("/etc/passwd", 126)] {
        let boxed = bench.caller.run(&bench.with(&[]), &[command]);
        assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("not_started", code), "{command}");
    }
    let words = ["run", "--json", "-i"].into_iter().chain(bench.with(&[])).chain(["--", "/bin/cat"]);
    assert_eq!(bench.caller.blastbox(words).input("typed").end().boxed().fine().stdout, "typed");
}

fn the_receipt_tells_the_tier_and_its_gaps(bench: &Bench<'_>) {
    let receipt = bench.sh(&[], "true").fine().receipt;
    assert_eq!(receipt.tier, Some(bench.tier));
    let has = |gap| receipt.gaps.iter().any(|line| line.code == gap);
    assert_eq!(has(Gap::SharedKernel), bench.tier == Tier::Jail);
    assert_eq!(has(Gap::SilentDenials), bench.tier == Tier::Gvisor);
    assert_eq!(has(Gap::SharedUid), !bench.caller.is_root());
    assert_eq!(has(Gap::NoPidsLimit), bench.tier == Tier::Gvisor || !bench.caller.is_root());
    // Not accepted, not run.
    if bench.tier == Tier::Gvisor {
        let refused = bench.caller.run(&["--tier", "gvisor"], &["true"]);
        assert_eq!((refused.outcome(), refused.receipt.exit_code), ("refused", 125));
        assert_eq!(refused.receipt.reason.expect("a reason").code, "gap_not_accepted");
    }
}

fn a_denied_call_is_told(bench: &Bench<'_>) {
    let receipt = bench.sh(&[], "unshare --user true; true").fine().receipt;
    if bench.tier == Tier::Gvisor {
        assert_eq!(receipt.denied, []);
        return bench
            .caller
            .skip("gVisor answers calls without a word: the gap silent-denials stands for it");
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
    if !bench.caller.is_root() {
        return bench
            .caller
            .skip("without root nothing limits the memory of a whole box: the gap no-memory-limit");
    }
    // All in memory: pages that a program touches, and files.
    let boxed = bench.sh(&["--memory", "160MiB"], "head -c 400m /dev/zero | tail -c 300m >/dev/null");
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("out_of_memory", 137), "{boxed:?}");
    assert!(boxed.receipt.limits_hit.contains(&LimitName::Memory));
}

fn processes_are_limited(bench: &Bench<'_>) {
    if !bench.caller.is_root() {
        return bench
            .caller
            .skip("without root nothing counts the processes of a box alone: the gap no-pids-limit");
    }
    // gVisor's kernel ends where it cannot have a process of the host for one of the box.
    let boxed = bench.sh(&["--pids", "16"], "n=0; while [ $n -lt 400 ]; do sleep 30 & n=$((n+1)); done");
    assert_ne!(boxed.receipt.exit_code, 0, "{boxed:?}");
    assert!(boxed.receipt.limits_hit.contains(&LimitName::Pids), "{boxed:?}");
}

fn what_can_be_written_is_limited(bench: &Bench<'_>) {
    // One space for all of them.
    let fill = "cd $1 && head -c 6m /dev/zero >a; ls -l a | cut -d' ' -f5; rm a";
    for place in ["/tmp", "/home/user", "/workspace", "/dev/shm"] {
        let boxed = bench.caller.run(&bench.with(&["--disk", "4MiB"]), &["/bin/sh", "-c", fill, "sh", place]);
        assert_eq!(boxed.receipt.exit_code, 0, "{boxed:?}");
        let size: u64 = boxed.stdout.trim().parse().expect("a size");
        assert!(size <= 4 << 20, "{place}: {size}");
        assert!(boxed.stderr.contains("No space left"), "{place}: {}", boxed.stderr);
    }
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
    let script = "printf '#!/bin/sh\\necho ran\\n' >run; cp /bin/true true; chmod +x run true; ./run; ./true && echo ran; true";
    assert_eq!(bench.sh(&[], script).fine().stdout, "ran\nran\n");
    for place in ["/tmp", "/home/user", "/workspace", "/dev/shm"] {
        let boxed = bench.sh(&["--no-exec"], &format!("cd {place}; {script}")).fine();
        assert_eq!(boxed.stdout, "", "{place}");
    }
}

fn nothing_is_reached_without_network(bench: &Bench<'_>) {
    let code = "import socket\nfor at in [('1.1.1.1', 53), ('169.254.169.254', 80), ('10.0.0.1', 22)]:\n    s = socket.socket(); s.settimeout(2)\n    \
                print(s.connect_ex(at) == 0)\n";
    assert_eq!(bench.caller.python(&bench.with(&[]), code).fine().stdout, "False\n".repeat(3));
}

fn the_gateway_keeps_a_box_from_what_is_not_allowed(bench: &Bench<'_>) {
    if !std::path::Path::new("/dev/net/tun").exists() {
        return bench.caller.skip("this host has no /dev/net/tun");
    }
    let code = "import socket\ns = socket.socket(); s.settimeout(5)\nprint(s.connect_ex(('192.0.2.1', 80)) == 0)\n\
                try: socket.getaddrinfo('evil.example', 443); print('found')\nexcept OSError: print('none')\n";
    let boxed = bench.caller.python(&bench.with(&["--allow", "good.example"]), code);
    if boxed.outcome() == "refused" && !bench.caller.is_root() {
        return bench.caller.skip("an ordinary user may not open /dev/net/tun here");
    }
    let boxed = boxed.fine();
    assert_eq!(boxed.stdout, "False\nnone\n");
    let told = serde_json::to_string(&boxed.receipt.network).expect("text");
    assert!(told.contains("192.0.2.1") && told.contains("evil.example"), "{told}");
}

fn a_terminal_has_its_size(bench: &Bench<'_>) {
    let script = "tty; stty size; read line; echo got $line; exit 5";
    let words = ["run", "-t"].into_iter().chain(bench.with(&[])).chain(["--", "/bin/sh", "-c", script]);
    let words: Vec<&str> = words.collect();
    let Some(mut terminal) = Terminal::start(bench.caller, 31, 71, &words) else {
        return bench.caller.skip("there is no setsid to give it a terminal");
    };
    terminal.expect("/dev/pts/");
    terminal.expect("31 71");
    terminal.type_in("one\r");
    terminal.expect("got one");
    assert_eq!(terminal.end().0, 5);
}

fn a_kept_box_takes_commands_and_files_pauses_and_ends(bench: &Bench<'_>) {
    let daemon = Served::start(bench.caller, &[]);
    let id = daemon.ask(["create"].into_iter().chain(bench.with(&[])));
    assert_eq!(daemon.sh(&id, "echo one; echo two >file"), "one");
    bench.caller.file("in", "from outside");
    daemon.ask(["cp", "in", &format!("{id}:/workspace/in")]);
    assert_eq!(
        daemon.sh(&id, "cat in; ls -ln in | cut -d' ' -f3; ln -s /etc/passwd link"),
        "from outside1000"
    );
    daemon.ask(["cp", &format!("{id}:/workspace/file"), "out"]);
    assert_eq!(std::fs::read_to_string(bench.caller.place().join("out")).expect("the copy"), "two\n");
    let number = daemon.ask(["exec", "--detach", &id, "--", "/bin/sh", "-c", "sleep 60"]);
    assert!(!number.is_empty());
    if bench.caller.is_root() {
        daemon.ask(["pause", &id]);
        assert!(daemon.ask(["ps"]).contains("paused"));
        daemon.ask(["resume", &id]);
    } else {
        bench.caller.skip("pause: without root no freezer is the box's own");
    }
    assert_eq!(daemon.sh(&id, "echo after"), "after");
    daemon.ask(["kill", &id]);
    assert_eq!(daemon.stop().code, 0);
}
