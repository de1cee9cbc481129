//! Functions of the caller that a program of the tier `wasm` calls, with the built worker and real guests.
//!
//! Without `make wasm` these tests are skipped with that reason.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

use blastbox_tests::{Boxed, Caller, Served, both_ways, processes_naming, wait_until};
use serde_json::{Value, json};

both_ways!(
    a_program_calls_a_function_and_goes_on_with_what_it_gives,
    what_was_not_offered_or_cannot_be_said_is_refused_to_the_program,
    a_function_that_fails_is_an_error_in_the_program,
    a_program_that_is_ended_while_it_waits_leaves_nothing,
    the_owner_of_a_box_answers_over_the_api_and_the_ledger_has_every_call,
    an_answer_that_nobody_waits_for_is_refused,
    other_tiers_refuse_it_by_name,
);

/// Whether a guest lies there.
fn has(caller: &Caller, guest: &str) -> bool {
    let shelf = caller.blastbox_path().with_file_name("wasm");
    let found = shelf.join("blastbox-wasm").is_file() && shelf.join(format!("{guest}.guest")).is_file();
    if !found {
        caller.skip(&format!(
            "the guest {guest} is not built: `make wasm` builds it where its package can be fetched"
        ));
    }
    found
}

fn js(caller: &Caller, tools: &[&str], code: &str) -> Boxed {
    run(caller, tools, &["js", "-e", code])
}

fn run(caller: &Caller, tools: &[&str], command: &[&str]) -> Boxed {
    let tools = tools.iter().flat_map(|tool| ["--tool", tool]);
    let options: Vec<&str> = ["--tier", "wasm"].into_iter().chain(tools).collect();
    caller.run(&options, command)
}

const SAME: &str = "same=cat";

fn a_program_calls_a_function_and_goes_on_with_what_it_gives(caller: &Caller) {
    if !has(caller, "js") || !has(caller, "python") {
        return;
    }
    let code =
        "console.log(blastbox.tools().join(), JSON.stringify(blastbox.call('same', {a: [1, 'é', null]})));
        console.log(blastbox.call('same'), blastbox.call('len', 'x'.repeat(50000)))";
    let boxed = js(caller, &[SAME, "len=wc -c"], code).fine();
    assert_eq!(boxed.stdout, "same,len {\"a\":[1,\"é\",null]}\nnull 50002\n");
    let used: Vec<_> =
        boxed.receipt.tools.iter().map(|used| (used.tool.as_str(), used.calls, used.failed)).collect();
    assert_eq!(used, [("len", 1, 0), ("same", 2, 0)]);
    let code = "import blastbox\nprint(blastbox.tools(), blastbox.call('same', {'a': [1, 'é', None]}))\nprint(blastbox.call('same'))";
    let boxed = run(caller, &[SAME], &["python", "-c", code]);
    assert_eq!(boxed.fine().stdout, "['same'] {'a': [1, 'é', None]}\nNone\n");
    // Numbers arrive as they were said, or not at all.
    let code = "import blastbox
print(blastbox.call('same', [31.245270191439438, 2**64 - 1, -2**63]))
for bad in (10**20, [[-2**63 - 1]], {'a': [2**64]}):
    try: print(blastbox.call('same', bad))
    except blastbox.ToolError as error: print('64 bits' in str(error))";
    let boxed = run(caller, &[SAME], &["python", "-c", code]).fine();
    assert_eq!(
        boxed.stdout,
        "[31.245270191439438, 18446744073709551615, -9223372036854775808]\nTrue\nTrue\nTrue\n"
    );
    // The command line is the caller's: nothing that the program says becomes a part of it.
    let code = "console.log(blastbox.call('same', '$(id); `id`; \\'; id'))";
    assert_eq!(js(caller, &[SAME], code).fine().stdout, "$(id); `id`; '; id\n");
    // A long answer.
    let code = "console.log(blastbox.call('big').length)";
    let big = "big=printf '\"'; head -c 900000 /dev/zero | tr '\\0' x; printf '\"'";
    assert_eq!(js(caller, &[big], code).fine().stdout, "900000\n");
}

fn what_was_not_offered_or_cannot_be_said_is_refused_to_the_program(caller: &Caller) {
    if !has(caller, "js") || !has(caller, "python") {
        return;
    }
    let code = "for (const [name, input] of [['other', 1], ['', 1], ['x'.repeat(100), 1], ['same', 'x'.repeat(70000)]])
        try { console.log(blastbox.call(name, input)) } catch (error) { console.log(error.name, error.message) }";
    let boxed = js(caller, &[SAME], code).fine();
    let lines: Vec<&str> = boxed.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[..3].iter().all(|line| *line == "ToolError there is no such tool"), "{lines:?}");
    assert!(lines[3].contains("too long"), "{lines:?}");
    assert!(boxed.receipt.tools.is_empty(), "nothing of it reached the caller");
    // What was too long never left the worker.
    assert_eq!(boxed.receipt.tools_refused, 2);
    // However long it is: it is looked at and not copied.
    let code = "const long = 'x'.repeat(40e6); for (const [name, input] of [[long, 1], ['same', long]])
        try { console.log(blastbox.call(name, input)) } catch (error) { console.log(error.message) }";
    let options = ["--tier", "wasm", "--memory", "512MiB", "--tool", SAME];
    let boxed = caller.run(&options, &["js", "-e", code]).fine();
    let lines: Vec<&str> = boxed.stdout.lines().collect();
    assert!(
        lines.len() == 2 && lines[0].contains("no such tool") && lines[1].contains("too long"),
        "{lines:?}"
    );
    // Where nothing is offered, nobody is asked.
    let code = "try { blastbox.call('same', 1) } catch (error) { console.log(error.message) }";
    assert_eq!(js(caller, &[], code).fine().stdout, "no tools are offered to this command\n");
    let boxed = caller.run(&["--tier", "wasm", "--env", "BLASTBOX_TOOLS=same"], &["js", "-e", code]);
    assert_eq!(boxed.fine().stdout, "there is no such tool\n", "a variable offers nothing");
    let boxed = run(caller, &[], &["python", "-c", "import blastbox"]);
    assert!(boxed.receipt.exit_code == 1 && boxed.stderr.contains("ModuleNotFoundError"), "{}", boxed.stderr);
    // The door beneath the module, with what no program of ours says.
    let code = "import _host
for said in (b'', b'same', b'same\\n{', b'same\\n' + b'[' * 5000, b'\\xff\\n1', b'{\"v\":1,\"id\":1,\"op\":\"list\"}'):
    print(bytes(_host.call(said)))
print(bytes(_host.call(b'same\\n[1]')))";
    let boxed = run(caller, &[SAME], &["python", "-c", code]).fine();
    let lines: Vec<&str> = boxed.stdout.lines().collect();
    assert_eq!(lines.len(), 7, "{lines:?}");
    assert!(lines[..6].iter().all(|line| line.starts_with("b'-")), "{lines:?}");
    assert_eq!(lines[6], "b'+[1]'");
    // So many calls, and no more.
    let code = "let made = 0; try { for (;;) { try { blastbox.call('other') } catch (error) { if (!error.message.includes('no such')) throw error } made++ } } catch (error) { console.log(made, error.message) }";
    let boxed = js(caller, &[SAME], code);
    assert_eq!(boxed.fine().stdout, "4096 too_many: this command has made as many calls as it may\n");
}

fn a_function_that_fails_is_an_error_in_the_program(caller: &Caller) {
    if !has(caller, "python") {
        return;
    }
    let code = "import blastbox
for name in ('no', 'bad', 'much'):
    try: blastbox.call(name)
    except blastbox.ToolError as error: print(name, error)";
    let tools = ["no=exit 3", "bad=echo no json", "much=head -c 2000000 /dev/zero | tr '\\0' 1"];
    let boxed = run(caller, &tools, &["python", "-c", code]).fine();
    let lines: Vec<&str> = boxed.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?} {}", boxed.stderr);
    assert!(
        lines[0].contains("exit status: 3") && lines[1].contains("of no use") && lines[2].contains("bytes"),
        "{lines:?}"
    );
    assert!(
        boxed.receipt.tools.iter().all(|used| (used.calls, used.failed) == (1, 1)),
        "{:?}",
        boxed.receipt.tools
    );
}

fn a_program_that_is_ended_while_it_waits_leaves_nothing(caller: &Caller) {
    if !has(caller, "js") {
        return;
    }
    // A shell that waits for others: all of them go, and not the shell alone.
    let (marker, began) =
        (format!("50.{}{}", std::process::id(), u8::from(caller.is_root())), caller.place().join("began"));
    let slow = format!("slow=sleep {marker} | cat & touch {}; sleep {marker}; true", began.display());
    let boxed = caller.run(
        &["--tier", "wasm", "--timeout", "2s", "--tool", &slow],
        &["js", "-e", "console.log('asks'); blastbox.call('slow')"],
    );
    assert_eq!((boxed.outcome(), boxed.stdout.as_str()), ("timed_out", "asks\n"), "{}", boxed.stderr);
    assert!(began.exists(), "the function was at work by then");
    assert!(wait_until(|| processes_naming(&marker).is_empty()), "{:?}", processes_naming(&marker));
}

fn the_owner_of_a_box_answers_over_the_api_and_the_ledger_has_every_call(caller: &Caller) {
    if !has(caller, "js") {
        return;
    }
    let daemon = Served::start(caller, &[]);
    let id = daemon.ask(["create", "--tier", "wasm"]);
    let code = "const sum = blastbox.call('add', [1, 2]); console.log(sum);
        try { blastbox.call('add', 'x') } catch (error) { console.log(error.message) }";
    let new = json!({ "command": ["js", "-e", code], "tools": ["add", "other"] });
    let (status, begun) = daemon.request("POST", &format!("/v1/boxes/{id}/execs"), &new);
    assert_eq!(status, 201, "{begun}");
    let calls = format!("/v1/boxes/{id}/execs/{}/calls", begun["exec"]);
    let (status, open) = daemon.request("GET", &format!("{calls}?wait=60"), &Value::Null);
    assert_eq!((status, &open), (200, &json!({ "calls": [{ "call": 1, "tool": "add", "input": [1, 2] }] })));
    // It stays until it is answered, and is answered once.
    assert_eq!(daemon.request("GET", &calls, &Value::Null).1, open);
    let answer = format!("{calls}/1");
    for (bad, word) in [
        (json!({ "result": 3, "error": "both" }), "not both"),
        (json!({}), "not both"),
        (json!({ "results": 3 }), "results"),
    ] {
        let (status, no) = daemon.request("POST", &answer, &bad);
        assert_eq!((status, &no["error"]["code"]), (422, &json!("bad_field")), "{no}");
        assert!(no.to_string().contains(word), "{no}");
    }
    assert_eq!(daemon.request("POST", &answer, &json!({ "result": { "sum": 3 } })).0, 204);
    let (status, no) = daemon.request("POST", &answer, &json!({ "result": 4 }));
    assert_eq!((status, &no["error"]["code"]), (409, &json!("call_over")), "{no}");
    let (_, open) = daemon.request("GET", &format!("{calls}?wait=60"), &Value::Null);
    assert_eq!(open["calls"][0]["call"], 2, "{open}");
    assert_eq!(daemon.request("POST", &format!("{calls}/2"), &json!({ "error": "numbers only" })).0, 204);
    let (status, no) = daemon.request("GET", &format!("{calls}?wait=60"), &Value::Null);
    assert_eq!((status, &no["error"]["code"]), (409, &json!("command_over")), "{no}");
    let printed = daemon.ask(["logs", &id, "1"]);
    assert!(printed.contains("{ sum: 3 }\nnumbers only"), "{printed}");
    let (_, receipt) = daemon.request("DELETE", &format!("/v1/boxes/{id}"), &Value::Null);
    assert_eq!(receipt["tools"], json!([{ "tool": "add", "calls": 2, "failed": 1 }]));
    daemon.stop();
    let ledger = caller.place().join("state/ledger").display().to_string();
    let shown = caller.blastbox(["audit", "show", &ledger, "--box", &id, "--json"]).end().text();
    let events: Vec<Value> = shown
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["event"].clone())
        .filter(|event| event["kind"].as_str().is_some_and(|kind| kind.starts_with("tool_")))
        .collect();
    let told: Vec<_> =
        events.iter().map(|event| (event["kind"].as_str().unwrap(), &event["call"], &event["how"])).collect();
    let (one, two, none) = (json!(1), json!(2), Value::Null);
    let (answered, failed) = (json!("answered"), json!("failed"));
    assert_eq!(
        told,
        [
            ("tool_called", &one, &none),
            ("tool_answered", &one, &answered),
            ("tool_called", &two, &none),
            ("tool_answered", &two, &failed)
        ]
    );
    assert_eq!((&events[0]["tool"], &events[0]["bytes"]), (&json!("add"), &json!(5)));
    assert!(!shown.contains("numbers only"), "what was said is in no record");
}

fn an_answer_that_nobody_waits_for_is_refused(caller: &Caller) {
    if !has(caller, "js") {
        return;
    }
    let daemon = Served::start(caller, &[]);
    let id = daemon.ask(["create", "--tier", "wasm"]);
    let execs = format!("/v1/boxes/{id}/execs");
    let new = json!({ "command": ["js", "-e", "blastbox.call('add')"], "tools": ["add"] });
    let (_, begun) = daemon.request("POST", &execs, &new);
    let calls = format!("{execs}/{}/calls", begun["exec"]);
    assert_eq!(daemon.request("GET", &format!("{calls}?wait=60"), &Value::Null).0, 200);
    // A command that is ended while it waits is over.
    let signal = format!("{execs}/{}/signal", begun["exec"]);
    assert_eq!(daemon.request("POST", &signal, &json!({ "signal": 9 })).0, 204);
    assert!(wait_until(|| daemon.request("GET", &calls, &Value::Null).0 == 409));
    let (status, no) = daemon.request("POST", &format!("{calls}/1"), &json!({ "result": 1 }));
    assert_eq!((status, &no["error"]["code"]), (409, &json!("call_over")), "{no}");
    for (tools, word) in [(json!(["a b"]), "letter"), (json!(vec!["a"; 65]), "more than 64")] {
        let (status, no) = daemon.request("POST", &execs, &json!({ "command": ["js"], "tools": tools }));
        assert!(status == 422 && no.to_string().contains(word), "{no}");
    }
    let (status, no) = daemon.request("GET", &format!("{calls}?wait=61"), &Value::Null);
    assert_eq!(status, 400, "{no}");
}

fn other_tiers_refuse_it_by_name(caller: &Caller) {
    let ended = caller.blastbox(["run", "--tier", "jail", "--tool", SAME, "--", "true"]).end();
    assert!(ended.code == 125 && ended.err.contains("tier wasm"), "{}", ended.err);
    let daemon = Served::start(caller, &[]);
    let id = daemon.ask(["create", "--tier", "jail"]);
    let new = json!({ "command": ["true"], "tools": ["add"] });
    let (status, no) = daemon.request("POST", &format!("/v1/boxes/{id}/execs"), &new);
    assert_eq!((status, &no["error"]["code"]), (409, &json!("tools_unavailable")), "{no}");
}
