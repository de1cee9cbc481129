//! What `explain`, `plan` and `doctor` say, held against what a run then does.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "only tests; one that cannot work must fail at once, and a field that is not there is null"
)]

use std::collections::BTreeSet;

use blastbox_tests::{Caller, both_ways};
use serde_json::{Value, json};

both_ways!(
    explain_says_what_the_receipt_of_a_run_says,
    a_refusal_is_explained_tier_by_tier,
    a_plan_is_the_policy_in_steps,
    the_doctor_has_a_finding_for_everything_and_a_fix_for_what_is_wrong,
);

fn said(caller: &Caller, words: &[&str], code: i32) -> Value {
    let ended = caller.blastbox(words).end();
    assert_eq!(ended.code, code, "{words:?}: {}", ended.err);
    serde_json::from_slice(&ended.out).expect("it is JSON")
}

fn explain_says_what_the_receipt_of_a_run_says(caller: &Caller) {
    let told = said(caller, &["explain", "--json", "--pids", "50"], 0);
    let receipt = caller.run(&["--pids", "50"], &["true"]).fine().receipt;
    let receipt = serde_json::to_value(receipt).expect("a receipt");
    let lowered = &told["chosen"]["lowered"];
    for field in ["threat", "policy", "image"] {
        assert_eq!(told[field], receipt[field], "{field}");
    }
    assert_eq!(lowered["tier"], receipt["tier"]);
    assert_eq!(lowered["report"], receipt["boundaries"]);
    let effective =
        lowered["report"].as_array().expect("a list").iter().filter(|line| line["effective"] == true);
    assert_eq!(told["effective"], json!(effective.count()));
    assert!(told["effective"].as_u64() >= Some(3), "{told}");
    let codes = receipt["gaps"].as_array().expect("a list").iter().map(|gap| gap["code"].clone());
    assert_eq!(lowered["gaps"], Value::Array(codes.collect()));
}

fn a_refusal_is_explained_tier_by_tier(caller: &Caller) {
    let told = said(caller, &["explain", "--json", "--profile", "strict", "--tier", "jail"], 125);
    assert_eq!(
        (&told["effective"], &told["chosen"]["refusal"]["code"]),
        (&json!(0), &json!("gap_not_accepted"))
    );
    let considered = told["considered"].as_array().expect("a list");
    assert_eq!(considered.len(), 1, "a named tier is the only one: {told}");
    assert_eq!(considered[0]["tier"], "jail");
    let told = said(caller, &["explain", "--json"], 0);
    let considered = told["considered"].as_array().expect("a list");
    let tiers: Vec<&str> = considered.iter().filter_map(|tier| tier["tier"].as_str()).collect();
    assert_eq!(tiers.first(), Some(&"microvm"), "the strongest first: {tiers:?}");
    for tier in considered {
        let refused = tier["verdict"] == "refused";
        assert_eq!(refused, tier["refusal"]["code"].is_string(), "each has its reason: {tier}");
    }
}

fn a_plan_is_the_policy_in_steps(caller: &Caller) {
    let words = ["plan", "--json", "--memory", "64MiB", "--pids", "50", "--cpus", "0.5", "--disk", "8MiB"];
    let plan = said(caller, &words, 0);
    let fields: BTreeSet<&str> = plan.as_object().expect("an object").keys().map(String::as_str).collect();
    let known =
        ["box-id", "template", "own", "ids", "network", "cgroups", "limits", "landlock", "denials", "first"];
    assert_eq!(fields, BTreeSet::from(known));
    let limits = &plan["limits"];
    assert_eq!(
        (&limits["memory"], &limits["pids"], &limits["millicpus"]),
        (&json!(64 << 20), &json!(50), &json!(500))
    );
    assert_eq!(plan["own"][0], json!({"step": "scratch", "bytes": 8 << 20, "inodes": 65_536}));
    assert_eq!((&plan["network"], &plan["first"]), (&json!("empty"), &json!("agent")));
    assert_eq!(plan["ids"] == "own-range", caller.is_root(), "{}", plan["ids"]);
    let grants = plan["landlock"]["grants"].as_array().expect("a list");
    let writable: BTreeSet<&str> = grants
        .iter()
        .filter(|grant| grant["access"].as_str().is_some_and(|access| access.contains("write")))
        .filter_map(|grant| grant["at"].as_str())
        .collect();
    assert!(
        writable.contains("/workspace") && !writable.contains("/usr") && !writable.contains("/etc"),
        "{writable:?}"
    );
}

fn the_doctor_has_a_finding_for_everything_and_a_fix_for_what_is_wrong(caller: &Caller) {
    let findings = said(caller, &["doctor", "--json"], 0);
    let findings = findings.as_array().expect("a list");
    let codes: Vec<&str> = findings.iter().filter_map(|finding| finding["code"].as_str()).collect();
    let known = [
        "jail_works",
        "network_by_kernel",
        "warden",
        "kernel_version",
        "user_namespaces",
        "fresh_proc",
        "seccomp",
        "denial_reports",
        "landlock",
        "cgroups",
        "memory_limit",
        "cpu_limit",
        "pids_limit",
        "swap",
        "wasm",
        "kvm",
        "runsc",
        "qemu",
    ];
    for code in known {
        assert_eq!(codes.iter().filter(|other| **other == code).count(), 1, "{code} in {codes:?}");
    }
    for finding in findings {
        let good = finding["state"] == "good";
        assert_eq!(good, finding["fix"].is_null(), "{finding}");
    }
    let state =
        |code: &str| findings.iter().find(|finding| finding["code"] == code).map(|found| &found["state"]);
    assert_eq!(state("jail_works"), Some(&json!("good")), "exit code 0 says the same");
    // What it says of limits is what a run has.
    let receipt = caller.run(&[], &["true"]).fine().receipt;
    let gaps: Vec<&str> = receipt.gaps.iter().map(|gap| gap.code.as_str()).collect();
    for (code, gap) in
        [("memory_limit", "no-memory-limit"), ("cpu_limit", "no-cpu-limit"), ("pids_limit", "no-pids-limit")]
    {
        assert_eq!(state(code) == Some(&json!("good")), !gaps.contains(&gap), "{code}: {gaps:?}");
    }
}
