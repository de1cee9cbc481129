//! How `blastbox mcp` ends, and that nothing of its boxes is left then. Alone in its program, because it counts.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on must fail at once"
)]

#[path = "mcp/client.rs"]
mod client;

use blastbox_tests::census::Census;
use blastbox_tests::{Caller, both_ways};
use client::{Client, PATIENCE};
use rustix::process::Signal;
use serde_json::json;

both_ways!(the_session_takes_its_boxes_along, a_signal_ends_the_server_while_its_client_stays);

fn the_session_takes_its_boxes_along(caller: &Caller) {
    let mut census = Census::begin(caller);
    census.expect_file("stderr");
    for killed in [false, true] {
        let mut client = Client::start(caller, &[]);
        client.done("start_box", json!({}));
        client.done("run_code", json!({ "language": "python", "code": "x = 1", "stateful": true }));
        // Nor is anything left of what was never begun.
        client.refused("run_command", json!({ "command": ["no-such-program"] }));
        census.see();
        if killed {
            client.held.as_ref().unwrap().signal(Signal::KILL);
            client.held.take().unwrap().end();
        } else {
            assert_eq!(client.end(), 0);
        }
        census.expect_nothing("a session");
    }
}

fn a_signal_ends_the_server_while_its_client_stays(caller: &Caller) {
    let mut census = Census::begin(caller);
    census.expect_file("stderr");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut client = Client::start(caller, &[]);
        client.done("run_command", json!({ "command": ["true"] }));
        census.see();
        let held = client.held.take().unwrap();
        held.signal(signal);
        // The client keeps its end of the server's standard input all the while.
        assert_eq!(held.end_within(PATIENCE / 2).code, 0, "{signal:?}");
        assert!(client.to.is_some());
        census.expect_nothing("a session that a signal ended");
    }
}
