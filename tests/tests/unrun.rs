//! A run that never began has a receipt too, for whoever asked for one: refused where blastbox said no, failed where it could
//! not work; and nothing of what lies in a directory decides what a box may do.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::fs;

use blastbox_tests::census::Census;
use blastbox_tests::{Boxed, Caller, both_ways};
use blastbox_wire::receipt::Receipt;

both_ways!(
    what_is_refused_before_a_box_is_asked_for_has_a_receipt,
    a_warden_that_cannot_start_has_a_receipt,
    a_receipt_that_cannot_be_written_is_in_the_json,
    nothing_in_a_workspace_or_a_working_directory_is_read_as_policy,
);

/// A run that ends before its box is asked for: with `--json`, and with the same receipt in a file.
#[track_caller]
fn unrun(caller: &Caller, options: &[&str], outcome: &str, code: &str) -> Boxed {
    let file = caller.place().join("r.json");
    let named: Vec<&str> =
        ["--receipt", file.to_str().expect("text")].iter().chain(options).copied().collect();
    let boxed = caller.run(&named, &["echo", "ran"]);
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), (outcome, 125), "{options:?}");
    let reason = boxed.receipt.reason.as_ref().expect("it says why");
    assert_eq!(reason.code, code, "{options:?}: {reason:?}");
    // One message says itself what to do.
    assert!(reason.fix.is_some() || code == "no_interpreter", "{options:?}: {reason:?}");
    assert_eq!(boxed.receipt.command, ["echo", "ran"], "{options:?}");
    assert!(boxed.receipt.box_id.is_none() && boxed.receipt.tier.is_none(), "{options:?}");
    assert_eq!((boxed.stdout.as_str(), boxed.stderr.as_str()), ("", ""), "{options:?}");
    let written: Receipt = serde_json::from_slice(&fs::read(&file).expect("read it")).expect("a receipt");
    let same = (written.outcome, written.reason, written.policy);
    assert_eq!(
        same,
        (boxed.receipt.outcome, boxed.receipt.reason.clone(), boxed.receipt.policy),
        "{options:?}"
    );
    fs::remove_file(&file).expect("remove the receipt");
    boxed
}

fn what_is_refused_before_a_box_is_asked_for_has_a_receipt(caller: &Caller) {
    let broken = caller.file("broken.toml", "[kernel]\ncpuz = 2\n");
    let broken = broken.to_str().expect("text");
    let bare = caller.directory("bare");
    fs::create_dir(bare.join("bin")).expect("make a directory");
    let census = Census::begin(caller);
    let no_policy = [
        (&["--policy", broken][..], "policy_invalid"),
        (&["--policy", "/nowhere.toml"], "policy_invalid"),
        (&["--memory", "0"], "policy_invalid"),
    ];
    for (options, code) in no_policy {
        let receipt = unrun(caller, options, "refused", code).receipt;
        // What was never sealed has no name, no level and no limits.
        assert!(receipt.policy.is_none() && receipt.threat.is_none() && receipt.limits.is_none(), "{code}");
    }
    let sealed = [
        (&["--workspace", "/nowhere"][..], "workspace_unusable"),
        (&["--image", "/nowhere"], "image_unusable"),
        (&["--image", bare.to_str().expect("text"), "--lang", "python"], "no_interpreter"),
        (&["--output-limit", "2GiB"], "output_limit_too_large"),
        (&["--secrets", "/nowhere.toml"], "secrets_invalid"),
    ];
    for (options, code) in sealed {
        let receipt = unrun(caller, options, "refused", code).receipt;
        assert!(receipt.policy.is_some() && receipt.threat.is_some() && receipt.limits.is_some(), "{code}");
        let named = options.iter().skip_while(|word| **word != "--image").nth(1);
        assert_eq!(receipt.image.as_str(), *named.unwrap_or(&"host"));
    }
    // More words than can be passed on: as many of them are repeated as a receipt repeats.
    let boxed = caller.run(&[], &vec!["x"; 70_000]);
    let receipt = boxed.receipt;
    assert_eq!(receipt.reason.expect("it says why").code, "arguments_too_long");
    assert_eq!(receipt.command.last().map(String::as_str), Some("… 69936 more"));
    // Nobody asked for a receipt: standard output is the program's.
    let ended = caller.blastbox(["run", "--memory", "0", "--", "true"]).end();
    assert_eq!((ended.code, ended.text().as_str()), (125, ""));
    assert!(ended.err.contains("\ncode: policy_invalid\n"), "{}", ended.err);
    census.expect_nothing("runs that never began");
}

fn a_warden_that_cannot_start_has_a_receipt(caller: &Caller) {
    let alone = caller.directory("alone");
    let blastbox = alone.join("blastbox");
    // The program without its neighbours, copied by another process: what ours has open for writing, a child of a neighbouring
    // test may hold for a moment, and then it cannot be executed.
    let words = [caller.blastbox_path(), blastbox.clone()];
    assert_eq!(caller.program(std::path::Path::new("/bin/cp"), words).end().code, 0);
    let boxed = caller.program(&blastbox, ["run", "--json", "--", "true"]).end().boxed();
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("failed", 125));
    let reason = boxed.receipt.reason.expect("it says why");
    assert_eq!(reason.code, "warden_failed");
    assert!(reason.fix.is_some_and(|fix| fix.contains("make build")), "{}", reason.message);
    assert!(boxed.receipt.policy.is_some(), "the policy was fine");
}

fn a_receipt_that_cannot_be_written_is_in_the_json(caller: &Caller) {
    let boxed = caller.run(&["--receipt", "/nowhere/r.json"], &["echo", "ran"]);
    assert_eq!((boxed.outcome(), boxed.stdout.as_str()), ("refused", ""));
    assert_eq!(boxed.receipt.reason.expect("it says why").code, "receipt_unwritable");
}

fn nothing_in_a_workspace_or_a_working_directory_is_read_as_policy(caller: &Caller) {
    let project = caller.directory("project");
    let path = project.to_str().expect("text");
    let run = || caller.run(&["--workspace", path], &["/bin/true"]).fine().receipt;
    let (before, elsewhere) = (run(), caller.run(&[], &["/bin/true"]).fine().receipt);
    let open = "threat = \"low\"\n[lifetime]\ntimeout = \"9h\"\n[kernel]\nmemory = \"9GiB\"\n";
    let names = ["blastbox.toml", ".blastbox.toml", "policy.toml", ".blastbox", "blastbox"];
    // In the workspace, and where blastbox is called.
    for place in [project.clone(), caller.place().path().to_owned()] {
        for name in names {
            fs::write(place.join(name), open).expect("write a policy that nobody asked for");
        }
        fs::create_dir_all(place.join(".config/blastbox")).expect("make a directory");
        fs::write(place.join(".config/blastbox/policy.toml"), open).expect("write a policy");
    }
    let after = run();
    assert_eq!((after.policy, after.threat, after.limits), (before.policy, before.threat, before.limits));
    let after = caller.run(&[], &["/bin/true"]).fine().receipt;
    assert_eq!((after.policy, after.limits), (elsewhere.policy, elsewhere.limits));
}
