//! `blastbox mcp`, spoken to as a client speaks: one JSON document a line.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on must fail at once"
)]

#[path = "mcp/client.rs"]
mod client;

use std::io::Write as _;
use std::time::Instant;

use blastbox_tests::{Caller, Terminal, both_ways};
use client::{Client, PATIENCE};
use serde_json::json;

both_ways!(
    an_agent_runs_code_and_commands,
    a_python_remembers_until_it_is_lost,
    a_javascript_remembers_until_it_is_lost,
    both_remember_in_a_wasm_box_too,
    a_python_with_packages_remembers_in_a_wasm_box,
    what_an_agent_asks_wrongly_is_answered_in_words,
    files_go_in_and_come_out,
    boxes_are_started_listed_described_and_stopped,
    what_the_network_denied_is_told_with_its_reason,
    output_is_cut_in_the_middle,
    a_call_that_is_cancelled_ends_its_command,
    progress_is_told_to_whoever_wants_it,
    nonsense_ends_nothing,
    a_policy_that_cannot_be_had_is_refused_at_the_start,
    somebody_at_a_terminal_is_told_that_a_client_is_meant,
);

fn an_agent_runs_code_and_commands(caller: &Caller) {
    let mut client = Client::start(caller, &[]);
    let tools = client.ask("tools/list", json!({}));
    let names: Vec<&str> = tools["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    for name in ["run_code", "run_command", "read_file", "write_file", "list_files", "start_box", "stop_box"]
    {
        assert!(names.contains(&name), "{names:?}");
    }
    let ran = client.done("run_code", json!({ "language": "python", "code": "print(6 * 7)" }));
    assert_eq!(ran["stdout"], "42\n");
    assert_eq!(client.done("run_code", json!({ "language": "sh", "code": "id -u" }))["stdout"], "1000\n");
    let ran = client.done("run_command", json!({ "command": ["cat"], "stdin": "in\n", "cwd": "/tmp" }));
    assert_eq!((&ran["stdout"], &ran["exit_code"]), (&json!("in\n"), &json!(0)));
    let ran = client.done(
        "run_command",
        json!({ "command": ["sh", "-c", "echo $WHAT; pwd"], "env": { "WHAT": "x" }, "cwd": "/tmp" }),
    );
    assert_eq!(ran["stdout"], "x\n/tmp\n");
    let failed = client.call("run_command", json!({ "command": ["sh", "-c", "echo no >&2; exit 3"] }));
    assert_eq!(failed["isError"], true);
    assert_eq!(failed["structuredContent"]["exit_code"], 3);
    assert!(failed["content"][0]["text"].as_str().unwrap().contains("exit code 3"), "{failed}");
    let late = client.call("run_command", json!({ "command": ["sleep", "60"], "timeout_seconds": 1 }));
    assert_eq!(late["structuredContent"]["timed_out"], true, "{late}");
    assert_eq!(client.end(), 0);
}

fn a_python_remembers_until_it_is_lost(caller: &Caller) {
    python_remembers(Client::start(caller, &[]));
}

fn a_javascript_remembers_until_it_is_lost(caller: &Caller) {
    javascript_remembers(Client::start(caller, &[]));
}

fn both_remember_in_a_wasm_box_too(caller: &Caller) {
    let shelf = caller.blastbox_path().with_file_name("wasm");
    for guest in ["js", "python"] {
        if !shelf.join(format!("{guest}.guest")).is_file() {
            caller.skip(&format!("the guest {guest} is not built: `make wasm` builds it"));
            return;
        }
    }
    javascript_remembers(Client::start(caller, &["--tier", "wasm"]));
    python_remembers(Client::start(caller, &["--tier", "wasm"]));
}

fn a_python_with_packages_remembers_in_a_wasm_box(caller: &Caller) {
    if !caller.blastbox_path().with_file_name("wasm").join("python-data.guest").is_file() {
        return caller.skip("the guest python-data is not made: `make wasm DATA=yes` makes it");
    }
    let mut client = Client::start(caller, &["--tier", "wasm"]);
    let data = |code: &str| json!({ "language": "python-data", "code": code, "stateful": true });
    let first = "import pandas\nframe = pandas.DataFrame({'n': [1, 2, 3]})";
    client.done("run_code", data(first));
    assert_eq!(client.done("run_code", data("int(frame.n.sum())"))["stdout"], "6\n");
    let once = json!({ "language": "python-data", "code": "import numpy\nprint(numpy.arange(4).mean())" });
    assert_eq!(client.done("run_code", once)["stdout"], "1.5\n");
    client.end();
}

fn javascript_remembers(mut client: Client) {
    let js = |code: &str| json!({ "language": "javascript", "code": code, "stateful": true });
    let first = "let x = 41;\nconst twice = (n) => 2 * n;\nx + 1";
    assert_eq!(client.done("run_code", js(first))["stdout"], "42\n");
    assert_eq!(client.done("run_code", js("console.log(x, twice(4))"))["stdout"], "41 8\n");
    assert_eq!(client.done("run_code", js("Promise.resolve(x)"))["stdout"], "41\n");
    let raised = client.refused("run_code", js("console.log('before');\nnull.x"));
    assert!(raised.contains("before") && raised.contains("TypeError"), "{raised}");
    assert!(client.refused("run_code", js("this is no javascript")).contains("SyntaxError"));
    assert_eq!(client.done("run_code", js("x"))["stdout"], "41\n");
    let mut late = js("for (;;);");
    late["timeout_seconds"] = json!(1);
    assert_eq!(client.call("run_code", late)["structuredContent"]["timed_out"], true);
    assert!(client.refused("run_code", js("x")).contains("ReferenceError"));
    assert_eq!(client.done("run_code", js("1"))["stdout"], "1\n");
    client.end();
}

fn python_remembers(mut client: Client) {
    let python = |code: &str| json!({ "language": "python", "code": code, "stateful": true });
    assert_eq!(client.done("run_code", python("import math\nx = 41\nx + 1"))["stdout"], "42\n");
    assert_eq!(client.done("run_code", python("print(x, math.pi > 3)"))["stdout"], "41 True\n");
    let raised = client.call("run_code", python("print('before')\n1 / 0"));
    let text = raised["content"][0]["text"].as_str().unwrap();
    assert!(
        raised["isError"] == true && text.contains("before") && text.contains("ZeroDivisionError"),
        "{text}"
    );
    assert!(client.refused("run_code", python("this is no python")).contains("SyntaxError"));
    // Whatever happened, what was there before is still there.
    assert_eq!(client.done("run_code", python("x"))["stdout"], "41\n");
    // Standard input is not where the code comes from.
    assert_eq!(client.done("run_code", python("import sys\nsys.stdin.read()"))["stdout"], "''\n");
    let mut late = python("while True: pass");
    late["timeout_seconds"] = json!(1);
    assert_eq!(client.call("run_code", late)["structuredContent"]["timed_out"], true);
    assert!(client.refused("run_code", python("x")).contains("NameError"));
    let gone = client.refused("run_code", python("import os\nos._exit(7)"));
    assert!(gone.contains("the interpreter ended"), "{gone}");
    assert_eq!(client.done("run_code", python("1"))["stdout"], "1\n");
    client.end();
}

fn what_an_agent_asks_wrongly_is_answered_in_words(caller: &Caller) {
    let mut client = Client::start(caller, &[]);
    let said = client.refused("run_code", json!({ "language": "cobol", "code": "" }));
    assert!(said.contains("cobol") && said.contains("python"), "{said}");
    let said = client.refused("run_code", json!({ "language": "sh", "code": "", "stateful": true }));
    assert!(said.contains("only Python"), "{said}");
    let said =
        client.refused("run_command", json!({ "command": ["true"], "policy": "network = everything" }));
    assert!(said.contains("policy"), "{said}");
    let said = client.refused("run_command", json!({ "command": [] }));
    assert!(said.contains("`command` is empty"), "{said}");
    let said = client.refused("run_command", json!({ "command": ["no-such-program"] }));
    assert!(said.contains("not_found"), "{said}");
    let said = client.refused("run_command", json!({ "command": ["true"], "timeout_seconds": 0 }));
    assert!(said.contains("out of range"), "{said}");
    let said = client.refused("read_file", json!({ "path": "/home/user", "box": "bx_aaaaaaaaaaaaaaaaaaaa" }));
    assert!(said.contains("no box"), "{said}");
    let said = client.refused("read_file", json!({ "path": "/etc/shadow" }));
    assert!(said.contains("not_found"), "{said}");
    assert!(client.refused("no_such_tool", json!({})).contains("tool"));
    client.end();
}

fn files_go_in_and_come_out(caller: &Caller) {
    let project = caller.directory("project");
    caller.own(&project);
    std::fs::write(project.join("seen"), "from the host").unwrap();
    let mut client = Client::start(caller, &["--workspace", project.to_str().unwrap()]);
    assert_eq!(client.done("read_file", json!({ "path": "/workspace/seen" }))["text"], "from the host");
    let text = json!({ "path": "/workspace/a/b", "text": "grüße" });
    assert_eq!(client.done("write_file", text)["bytes"], 7);
    let bytes = json!({ "path": "tool", "base64": "AP8=", "executable": true });
    assert_eq!(client.done("write_file", bytes)["path"], "/workspace/tool");
    let read = client.done("read_file", json!({ "path": "/workspace/tool" }));
    assert_eq!((&read["base64"], &read["size"]), (&json!("AP8="), &json!(2)));
    let part = client.done("read_file", json!({ "path": "/workspace/seen", "offset": 5, "limit": 3 }));
    assert_eq!(part["text"], "the");
    let listed = client.done("list_files", json!({ "path": "/workspace", "depth": 2 }));
    let paths: Vec<&str> =
        listed["entries"].as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["a", "a/b", "seen", "tool"]);
    let said = client.refused("write_file", json!({ "path": "x", "text": "a", "base64": "YQ==" }));
    assert!(said.contains("exactly one"), "{said}");
    client.end();
    // What the box wrote into the workspace never reached the directory.
    assert!(!project.join("a").exists());
}

fn boxes_are_started_listed_described_and_stopped(caller: &Caller) {
    let mut client = Client::start(caller, &[]);
    let said = client.refused("stop_box", json!({}));
    assert!(said.contains("no box"), "{said}");
    let second = client.done("start_box", json!({}))["box"].clone();
    client.done("write_file", json!({ "path": "/tmp/mine", "text": "1", "box": second }));
    let said = client.refused("read_file", json!({ "path": "/tmp/mine" }));
    assert!(said.contains("not_found"), "{said}");
    let boxes = client.done("list_boxes", json!({}))["boxes"].clone();
    assert_eq!(boxes.as_array().unwrap().len(), 2, "{boxes}");
    let denied = "import ctypes; ctypes.CDLL(None).ptrace(0, 0, 0, 0)";
    client.done("run_code", json!({ "language": "python", "code": denied, "box": second }));
    let begun = Instant::now();
    loop {
        let about = client.done("describe_policy", json!({ "box": second }));
        let policy = about["policy"].as_str().unwrap();
        assert!(policy.contains("[network]"), "{about}");
        // The clock that it lives by, not the timeout of its policy.
        let ends = about["ends"].as_str().unwrap();
        assert!(ends.contains(about["box"]["ends_at"].as_str().unwrap()), "{about}");
        let timeout = policy.lines().find(|line| line.starts_with("timeout = ")).unwrap();
        assert!(timeout.ends_with(&format!("# of `blastbox run`; this box {ends}")), "{timeout}");
        if about["denied_system_calls"]["ptrace"] == 1 {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{about}");
    }
    let receipt = client.done("stop_box", json!({ "box": second }));
    assert_eq!(receipt["box_id"], second, "{receipt}");
    assert!(client.refused("stop_box", json!({ "box": second })).contains("no box"));
    client.end();
}

fn what_the_network_denied_is_told_with_its_reason(caller: &Caller) {
    let network = ["--allow", "a.example.com"];
    let tried = caller.blastbox(["run", "-q"].iter().chain(&network).chain(&["--", "true"])).end();
    if tried.err.contains("/dev/net/tun") {
        return caller.skip("boxes with network need /dev/net/tun");
    }
    let mut client = Client::start(caller, &network);
    // Nobody is asked outside: the gateway answers by its rules.
    let ask = json!({ "command": ["getent", "hosts", "b.example.com"] });
    client.call("run_command", ask);
    let begun = Instant::now();
    loop {
        let about = client.done("describe_policy", json!({}));
        assert!(about["policy"].as_str().unwrap().contains("a.example.com"), "{about}");
        let denied = about["denied_connections"].as_array().unwrap();
        if let Some(denied) = denied.iter().find(|denied| denied["target"] == "b.example.com") {
            assert_eq!(
                (&denied["port"], &denied["reason"]),
                (&json!(53), &json!("host-not-allowed")),
                "{about}"
            );
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{about}");
    }
    client.end();
}

fn output_is_cut_in_the_middle(caller: &Caller) {
    let mut client = Client::start(caller, &[]);
    let ran = client.done("run_command", json!({ "command": ["seq", "1000000"] }));
    let text = ran["stdout"].as_str().unwrap();
    assert!(text.starts_with("1\n2\n") && text.ends_with("999999\n1000000\n") && text.len() < 64 * 1024);
    assert!(ran["left_out"].as_u64().unwrap() > 6_000_000, "{}", ran["left_out"]);
    client.end();
}

fn a_call_that_is_cancelled_ends_its_command(caller: &Caller) {
    let mut client = Client::start(caller, &[]);
    let script = "echo begun > /tmp/begun; exec sleep 600";
    let params = json!({ "name": "run_command", "arguments": { "command": ["sh", "-c", script] } });
    let id = client.begin("tools/call", params);
    let running = |client: &mut Client| {
        let boxes = client.done("list_boxes", json!({}))["boxes"].clone();
        let commands = boxes[0]["commands"].as_array().cloned().unwrap_or_default();
        commands.iter().any(|command| command["pid"].is_u64() && command["ended"].is_null())
    };
    let begun = Instant::now();
    while !running(&mut client) {
        assert!(begun.elapsed() < PATIENCE, "it never ran");
    }
    // A process that is there has not yet done anything.
    while client.call("run_command", json!({ "command": ["grep", "begun", "/tmp/begun"] }))["isError"] == true
    {
        assert!(begun.elapsed() < PATIENCE, "it never began");
    }
    let cancel = json!({ "requestId": id, "reason": "changed my mind" });
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel }));
    while running(&mut client) {
        assert!(begun.elapsed() < PATIENCE * 2, "it goes on");
    }
    // The box and the session go on.
    assert_eq!(client.done("run_command", json!({ "command": ["cat", "/tmp/begun"] }))["stdout"], "begun\n");
    client.end();
}

fn progress_is_told_to_whoever_wants_it(caller: &Caller) {
    let mut client = Client::start(caller, &[]);
    let params = json!({
        "name": "run_command", "arguments": { "command": ["sh", "-c", "echo x; sleep 3"] },
        "_meta": { "progressToken": "mine" },
    });
    let answer = client.ask("tools/call", params);
    assert_eq!(answer["result"]["structuredContent"]["stdout"], "x\n", "{answer}");
    let told = client.notes.iter().find(|note| note["method"] == "notifications/progress").unwrap();
    assert_eq!(told["params"]["progressToken"], "mine");
    assert!(told["params"]["message"].as_str().unwrap().contains("bytes of output"), "{told}");
    client.end();
}

fn nonsense_ends_nothing(caller: &Caller) {
    let mut client = Client::start(caller, &[]);
    client
        .to
        .as_mut()
        .unwrap()
        .write_all(b"{\"jsonrpc\": \"2.0\", \"id\": true\n\xff\xfe\n[]\n{}\n")
        .unwrap();
    client.next = 100;
    let ran = client.done("run_command", json!({ "command": ["echo", "still here"] }));
    assert_eq!(ran["stdout"], "still here\n");
    assert_eq!(client.end(), 0);
}

fn a_policy_that_cannot_be_had_is_refused_at_the_start(caller: &Caller) {
    // What `plan` says no to no server begins with.
    let planned = caller.blastbox(["plan", "--profile", "strict"]).end();
    if planned.code == 0 {
        return caller.skip("this host has everything that the profile `strict` asks for");
    }
    let refused = caller.blastbox(["mcp", "--profile", "strict"]).end();
    assert_eq!((refused.code, refused.text().as_str()), (125, ""));
    // In the same words, and with the same thing to do.
    assert!(
        refused.err.starts_with("error: refused: ") && refused.err.contains("\nfix: "),
        "{}",
        refused.err
    );
    assert_eq!(refused.err, planned.err);
}

fn somebody_at_a_terminal_is_told_that_a_client_is_meant(caller: &Caller) {
    let Some(mut terminal) = Terminal::start(caller, 24, 80, &["mcp"]) else {
        return caller.skip("there is no setsid to give it a terminal");
    };
    terminal.expect("give the client `blastbox mcp` as its command");
    // The end of what is typed is the end of the client.
    terminal.type_in("\u{4}");
    terminal.end();
}
