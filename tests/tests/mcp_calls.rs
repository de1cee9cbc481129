//! Functions that a client of `blastbox mcp` offers to a program, and answers itself.
//!
//! Without `make wasm` these tests are skipped with that reason.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on must fail at once"
)]

#[path = "mcp/client.rs"]
mod client;

use blastbox_tests::{Caller, both_ways};
use client::Client;
use serde_json::{Value, json};

both_ways!(
    a_program_calls_what_the_client_offers_and_goes_on_with_its_answer,
    what_cannot_be_offered_or_answered_is_said_in_words,
    a_client_that_gives_up_while_a_program_waits_ends_it,
    an_interpreter_that_remembers_calls_and_goes_on_remembering,
);

/// A client whose boxes are of the tier, if these guests lie there.
fn start(caller: &Caller, guests: &[&str]) -> Option<Client> {
    let shelf = caller.blastbox_path().with_file_name("wasm");
    for guest in guests {
        if !shelf.join(format!("{guest}.guest")).is_file() {
            caller.skip(&format!("the guest {guest} is not built: `make wasm` builds it"));
            return None;
        }
    }
    Some(Client::start(caller, &["--tier", "wasm"]))
}

fn answer(told: &Value, what: Value) -> Value {
    let mut arguments = what;
    arguments["exec"] = told["exec"].clone();
    arguments["call"] = told["waits"]["call"].clone();
    arguments
}

fn a_program_calls_what_the_client_offers_and_goes_on_with_its_answer(caller: &Caller) {
    let Some(mut client) = start(caller, &["js", "python"]) else { return };
    let code = "import blastbox
print('asks')
print(blastbox.call('weather', {'city': 'Oslo'})['degrees'])
try: blastbox.call('other')
except blastbox.ToolError as error: print(error)
print(blastbox.call('other'))";
    let new = json!({ "language": "python", "code": code, "tools": ["weather", "other"] });
    let told = client.done("run_code", new);
    assert_eq!(told["waits"], json!({ "call": 1, "tool": "weather", "input": { "city": "Oslo" } }), "{told}");
    assert_eq!((&told["exit_code"], &told["timed_out"]), (&Value::Null, &json!(false)), "{told}");
    let told = client.done("answer_call", answer(&told, json!({ "result": { "degrees": 7 } })));
    assert_eq!((&told["waits"]["call"], &told["waits"]["tool"]), (&json!(2), &json!("other")), "{told}");
    let told = client.done("answer_call", answer(&told, json!({ "error": "not today" })));
    // Nothing is something to give.
    let last = answer(&told, json!({ "result": null }));
    let ended = client.done("answer_call", last.clone());
    assert_eq!((&ended["exit_code"], &ended["waits"]), (&json!(0), &Value::Null), "{ended}");
    assert_eq!(ended["stdout"], "asks\n7\nnot today\nNone\n");
    assert!(client.refused("answer_call", last).contains("call_over"));
    // A command too, in a box of its own; one that fails in the end is an error of the last answer.
    let of = client.done("start_box", json!({}))["box"].clone();
    let code = "const sum = blastbox.call('add', [1, 2]); console.log(sum); throw new Error(sum)";
    let new = json!({ "command": ["js", "-e", code], "tools": ["add"], "box": of });
    let told = client.done("run_command", new);
    assert_eq!(told["waits"]["input"], json!([1, 2]), "{told}");
    let mut arguments = answer(&told, json!({ "result": 3 }));
    let elsewhere = client.refused("answer_call", arguments.clone());
    assert!(!elsewhere.is_empty(), "it waits in another box");
    arguments["box"] = of.clone();
    let ended = client.call("answer_call", arguments);
    assert_eq!((&ended["isError"], &ended["structuredContent"]["exit_code"]), (&json!(true), &json!(1)));
    let receipt = client.done("stop_box", json!({ "box": of }));
    assert_eq!(receipt["tools"], json!([{ "tool": "add", "calls": 1, "failed": 0 }]));
    assert_eq!(client.end(), 0);
}

fn what_cannot_be_offered_or_answered_is_said_in_words(caller: &Caller) {
    let Some(mut client) = start(caller, &["js"]) else { return };
    // There is no box yet, and none is made to be asked.
    let early = client.refused("answer_call", json!({ "exec": 1, "call": 1, "result": 1 }));
    assert!(early.contains("no box"), "{early}");
    let js = |code: &str, tools: Value| json!({ "language": "javascript", "code": code, "tools": tools });
    assert!(client.refused("run_code", js("1", json!(["a b"]))).contains("letter"));
    // What was not offered is refused to the program, and nobody is asked.
    let code = "try { blastbox.call('other') } catch (error) { console.log(error.message) }";
    assert_eq!(client.done("run_code", js(code, json!(["add"])))["stdout"], "there is no such tool\n");
    let told = client.done("run_code", js("console.log(blastbox.call('add'))", json!(["add"])));
    for bad in [json!({}), json!({ "result": 1, "error": "both" })] {
        assert!(client.refused("answer_call", answer(&told, bad)).contains("not both"));
    }
    let mut other = answer(&told, json!({ "result": 1 }));
    other["call"] = json!(7);
    assert!(client.refused("answer_call", other).contains("call_over"));
    assert_eq!(client.done("answer_call", answer(&told, json!({ "result": 5 })))["stdout"], "5\n");
    assert_eq!(client.end(), 0);
    let mut jail = Client::start(caller, &["--tier", "jail"]);
    let command = json!({ "command": ["true"], "tools": ["add"] });
    let stateful = json!({ "language": "python", "code": "1", "stateful": true, "tools": ["add"] });
    for (tool, asked) in [("run_command", command), ("run_code", stateful)] {
        let no = jail.refused(tool, asked);
        assert!(no.contains("tools_unavailable"), "{no}");
    }
    jail.end();
}

fn a_client_that_gives_up_while_a_program_waits_ends_it(caller: &Caller) {
    let Some(mut client) = start(caller, &["js"]) else { return };
    let code = "blastbox.call('first'); console.log('on'); for (;;);";
    let new = json!({ "language": "javascript", "code": code, "tools": ["first"] });
    let told = client.done("run_code", new);
    let arguments = answer(&told, json!({ "result": 1 }));
    let id = client.begin("tools/call", json!({ "name": "answer_call", "arguments": arguments }));
    client.send(&json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id },
    }));
    // The box lives, and the command in it does not.
    let over = |client: &mut Client| {
        let boxes = client.done("list_boxes", json!({}));
        boxes["boxes"][0]["commands"][0]["ended"].is_object()
    };
    assert!(blastbox_tests::wait_until(|| over(&mut client)), "it still runs");
    assert_eq!(client.end(), 0);
}

fn an_interpreter_that_remembers_calls_and_goes_on_remembering(caller: &Caller) {
    let Some(mut client) = start(caller, &["js", "python"]) else { return };
    let python = |code: &str, tools: &[&str]| json!({ "language": "python", "code": code, "stateful": true, "tools": tools });
    let code =
        "import blastbox\nprint('asks')\nn = blastbox.call('add', [1, 2])\nprint(blastbox.call('add', n))\nn";
    let told = client.done("run_code", python(code, &["add"]));
    assert_eq!(told["waits"], json!({ "call": 1, "tool": "add", "input": [1, 2] }), "{told}");
    assert_eq!((&told["stdout"], &told["exit_code"]), (&json!("asks\n"), &Value::Null), "{told}");
    // Meanwhile it takes nothing else, neither code nor another answer, and JavaScript's goes on.
    assert!(client.refused("run_code", python("1", &[])).contains("answer_call with exec = "));
    let mut other = answer(&told, json!({ "result": 1 }));
    other["call"] = json!(7);
    assert!(client.refused("answer_call", other).contains("call_over"));
    let js =
        |code: &str| json!({ "language": "javascript", "code": code, "stateful": true, "tools": ["get"] });
    let asked = client.done("run_code", js("const x = blastbox.call('get'); x"));
    assert_eq!(client.done("answer_call", answer(&asked, json!({ "result": 5 })))["stdout"], "5\n");
    assert_eq!(client.done("run_code", js("x + 1"))["stdout"], "6\n");
    let told = client.done("answer_call", answer(&told, json!({ "result": 3 })));
    assert_eq!((&told["waits"]["call"], &told["waits"]["input"]), (&json!(2), &json!(3)), "{told}");
    let ended = client.done("answer_call", answer(&told, json!({ "result": "six" })));
    assert_eq!((&ended["exit_code"], &ended["waits"]), (&json!(0), &Value::Null), "{ended}");
    assert_eq!(ended["stdout"], "asks\nsix\n3\n");
    // The next piece of code has what this one left, and the same functions; one that fails takes nothing with it.
    let told = client.done("run_code", python("blastbox.call('add', n + 1)", &[]));
    assert_eq!(told["waits"]["input"], json!(4), "{told}");
    let raised = client.refused("answer_call", answer(&told, json!({ "error": "not today" })));
    assert!(raised.contains("ToolError") && raised.contains("not today"), "{raised}");
    let others = client.refused("run_code", python("n", &["sub"]));
    assert!(others.contains("begun with add") && others.contains("start_box"), "{others}");
    assert_eq!(client.done("run_code", python("n", &["add"]))["stdout"], "3\n");
    // Nobody answers: at its time it ends, and the next one begins anew.
    let mut late = python("blastbox.call('add')", &[]);
    late["timeout_seconds"] = json!(1);
    let exec = client.done("run_code", late)["exec"].clone();
    let over = |client: &mut Client| {
        let boxes = client.done("list_boxes", json!({}));
        let commands = boxes["boxes"][0]["commands"].as_array().unwrap().clone();
        commands.iter().any(|card| card["exec"] == exec && card["ended"].is_object())
    };
    assert!(blastbox_tests::wait_until(|| over(&mut client)), "it still waits");
    assert!(client.refused("run_code", python("n", &[])).contains("NameError"));
    assert_eq!(client.end(), 0);
}
