//! What `blastbox escape` makes of programs that are not the ones it ships: test builds that lack a layer, agents that lie, and others.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

use std::path::Path;

use blastbox_tests::campaign::{LAYERS, campaign};
use blastbox_tests::{Caller, both_ways};
use serde_json::Value;

both_ways!(
    an_agent_that_lies_is_found_out_and_blastbox_survives_it,
    a_build_that_does_not_lie_shows_nothing,
    a_program_that_was_named_speaks_for_itself,
    a_shipped_warden_lacks_no_layer,
    a_layer_that_was_not_lifted_proves_nothing_about_the_next,
);

/// What the engine says of each lie, where it finds it out; the others end as the second word says, without one.
const LIES: [(&str, &str); 14] = [
    ("unknown-kind", "a frame of unknown kind"),
    ("lying-length", "is over the limit"),
    ("short-body", "is malformed"),
    // It ends by itself, or by the host that has seen its line end: whichever comes first.
    ("cut", "lost the agent of the box "),
    ("host-frame", "a frame of unknown kind"),
    ("foreign-exit", "the end of a command that does not run"),
    ("foreign-output", "a frame about a command that does not run"),
    ("third-stream", "is malformed"),
    ("start-twice", "a second start of one command"),
    ("hello-twice", "a second hello"),
    ("beyond-window", "more output than its window"),
    ("denied-flood", "timed_out"),
    ("input-never-sent", "more input taken than was sent"),
    ("silence", "timed_out"),
];

/// Frames that no honest agent sends, each to a `blastbox run` of its own.
fn an_agent_that_lies_is_found_out_and_blastbox_survives_it(caller: &Caller) {
    let Some(lifted) = caller.lifted() else {
        return caller.skip("an agent that lies (make lifted)");
    };
    let (code, report) = campaign(caller, &["--only", "control", "--lifted", lifted.to_str().unwrap()]);
    assert_eq!(code, 0, "{report}");
    let rows = report["rows"].as_array().unwrap();
    let told = rows.iter().filter(|row| row["control"]["evidence"] == "the receipt says exited (0)").count();
    assert_eq!(told, LIES.len(), "{report}");
    for (lie, word) in LIES {
        let id = format!("control.frames-{lie}");
        let row = rows.iter().find(|row| row["id"] == id.as_str()).unwrap();
        let (cell, fired) = (&row["cells"][0], row["control"]["state"] == "fired");
        assert!(fired && cell["verdict"] == "held" && cell["proven"] == true, "{row}");
        let evidence = cell["evidence"].as_str().unwrap();
        let ending = match word {
            // Whoever takes as fast as it is sent to meets the limit first.
            _ if lie == "beyond-window" && evidence.contains("output_limit") => {
                "the box ended: output_limit".to_owned()
            }
            "timed_out" => "the box ended: timed_out".to_owned(),
            word if word.starts_with("lost ") => format!("the box ended: {word}"),
            word => {
                assert!(evidence.contains(word), "{lie}: {evidence}");
                "the box ended: lost the box broke the agent's protocol: ".to_owned()
            }
        };
        assert!(evidence.starts_with(&ending), "{lie}: {evidence}");
    }
}

/// Where the agent that should lie is an honest one, or there is none, no lie counts as found out.
fn a_build_that_does_not_lie_shows_nothing(caller: &Caller) {
    let fake = caller.directory("honest");
    let words = ["--only", "control.frames-silence", "--lifted", fake.to_str().unwrap()];
    let expect = |why: &str| {
        let (code, report) = campaign(caller, &words);
        let cell = &report["rows"][0]["cells"][0];
        assert_eq!((code, &cell["verdict"]), (2, &Value::from("could_not_run")), "{report}");
        assert!(cell["evidence"].as_str().unwrap().contains(why), "{cell}");
        assert!(report["test_builds"]["unusable"].to_string().contains(why), "{report}");
    };
    expect("there is no test build");
    std::fs::create_dir(fake.join("liar")).unwrap();
    copy_shipped(caller, &fake.join("liar"));
    expect("does not say that its agent lies");
}

/// What is known of the program that runs the campaign is not said of another one.
fn a_program_that_was_named_speaks_for_itself(caller: &Caller) {
    let program = caller.blastbox_path().display().to_string();
    let (_, named) = campaign(caller, &["--only", "control.lie-refused", "--program", &program]);
    assert_eq!(named["program"]["path"], program.as_str(), "{named}");
    let says = named["program"]["says"].as_str().unwrap();
    assert!(says.starts_with("blastbox ") && named["blastbox"] == says, "{named}");
    assert_eq!((&named["trusted_core"], &named["fuzzed"]), (&Value::Array(Vec::new()), &Value::Null));
    let (_, own) = campaign(caller, &["--only", "control.lie-refused"]);
    assert_eq!(own["program"], Value::Null);
}

/// The word with which a warden that lacks a layer begins is one that only such a warden holds.
fn a_shipped_warden_lacks_no_layer(caller: &Caller) {
    let has = |program: &std::path::Path, word: &[u8]| {
        let bytes = std::fs::read(program).unwrap();
        bytes.windows(word.len()).any(|piece| piece == word)
    };
    let holds = |program: &std::path::Path| has(program, b"BLASTBOX_LIFTED_LAYER");
    let lies = |program: &std::path::Path| has(program, b"ESCAPE_LIE=");
    for name in ["blastbox-warden", "blastbox-agent"] {
        let shipped = caller.blastbox_path().with_file_name(name);
        assert!(!holds(&shipped) && !lies(&shipped), "{name}");
    }
    let Some(lifted) = caller.lifted() else {
        return caller.skip("a warden that lacks a layer (make lifted)");
    };
    let liar = lifted.join("liar/blastbox-warden");
    assert!(holds(&liar) && lies(&liar), "one whose agent lies would be found");
    for layer in LAYERS {
        assert!(holds(&lifted.join(layer).join("blastbox-warden")), "one that lacks {layer} would be found");
    }
}

fn copy_shipped(caller: &Caller, to: &Path) {
    for name in [
        "blastbox",
        "blastbox-full",
        "blastbox-agent",
        "blastbox-egress",
        "blastbox-warden",
        "blastbox-gvisor",
    ] {
        std::fs::copy(caller.blastbox_path().with_file_name(name), to.join(name)).unwrap();
    }
}

/// A directory of shipped wardens where those that lack a layer should be.
fn a_layer_that_was_not_lifted_proves_nothing_about_the_next(caller: &Caller) {
    let fake = caller.directory("lifted");
    for layer in LAYERS {
        std::fs::create_dir(fake.join(layer)).unwrap();
        copy_shipped(caller, &fake.join(layer));
    }
    let (code, report) =
        campaign(caller, &["--only", "kernel.unshare-user", "--lifted", fake.to_str().unwrap()]);
    assert_eq!(code, 2, "it was to show something, and shows nothing");
    assert_eq!(report["rows"][0]["lifted"], "seccomp");
    assert_eq!(report["rows"][0]["second_state"]["state"], "not_tried", "{}", report["rows"][0]);
}
