//! `blastbox escape` on this host: nothing comes out, and no cell is empty of proof.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

use blastbox_tests::tiers::gvisor;
use blastbox_tests::{Caller, Held, both_ways, census, processes_naming, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;

/// Of 359 attempts under one profile: more than a busy host breaks, less than would go unnoticed. `make escape` lets as many pass.
const MOST_DOUBTFUL: usize = 8;
/// Of a hundred attempts, how many controls must be seen to succeed: what a kernel does not have loaded, root cannot show either,
/// and an ordinary user can show less.
const FIRED: [usize; 2] = [70, 85];

const LAYERS: [&str; 4] = ["seccomp", "landlock", "mounts", "network"];

both_ways!(
    nothing_comes_out_and_what_proves_nothing_is_named,
    the_same_attempt_comes_out_where_its_control_is_off,
    a_tier_with_a_kernel_of_its_own_is_judged_by_the_host,
    every_tier_of_this_host_has_a_column_and_the_jail_the_first,
    what_an_allowlist_does_not_name_stays_in_the_box,
    what_a_lying_box_answers_to_a_copy_stays_in_the_target,
    an_agent_that_lies_is_found_out_and_blastbox_survives_it,
    a_shipped_warden_lacks_no_layer,
    a_layer_that_was_not_lifted_proves_nothing_about_the_next,
    a_name_that_is_none_is_refused_and_the_list_runs_nothing,
    a_report_is_sealed_and_what_was_changed_is_found_out,
    a_campaign_that_is_told_to_end_leaves_nothing,
    what_a_killed_campaign_leaves_ends_or_is_released_by_the_next,
);

fn campaign(caller: &Caller, options: &[&str]) -> (i32, Value) {
    let words = ["escape", "--tier", "jail", "--profile", "default", "--json"].iter().chain(options);
    let ended = caller.blastbox(words).start().end_within(std::time::Duration::from_secs(1200));
    let report = serde_json::from_slice(&ended.out);
    (ended.code, report.unwrap_or_else(|error| unreachable!("{error}: {}", ended.err)))
}

fn nothing_comes_out_and_what_proves_nothing_is_named(caller: &Caller) {
    let page = caller.directory("report").join("escape.html");
    let lifted = caller.lifted();
    let mut options = vec!["--html", page.to_str().unwrap()];
    match &lifted {
        Some(lifted) => options.extend(["--lifted", lifted.to_str().unwrap()]),
        None => {
            caller.skip("the second layers alone: nobody built programs that lack the first (make lifted)")
        }
    }
    let (code, report) = campaign(caller, &options);
    let rows = report["rows"].as_array().unwrap();
    let (mut out, mut doubtful) = (Vec::new(), Vec::new());
    for row in rows {
        if row["second_state"]["state"] == "fell" {
            out.push(format!("{}: the second layer fell: {}", row["id"], row["second_state"]["evidence"]));
        }
        for cell in row["cells"].as_array().unwrap() {
            let told = format!("{}: {} {}", row["id"], cell["verdict"], cell["evidence"]);
            match cell["verdict"].as_str().unwrap() {
                "held" | "not_applicable" => {}
                "escaped" => out.push(told),
                _ => doubtful.push(told),
            }
        }
    }
    assert!(out.is_empty(), "{}", out.join("\n"));
    // A host that is busy, or lacks what a control needs, proves less: said, and bounded, so that green is not empty.
    assert!(doubtful.len() <= MOST_DOUBTFUL, "{}", doubtful.join("\n"));
    assert_eq!(code, if doubtful.is_empty() { 0 } else { 2 }, "{}", doubtful.join("\n"));
    if !doubtful.is_empty() {
        caller.skip(&format!("{} attempts prove nothing here: {}", doubtful.len(), doubtful.join("; ")));
    }
    assert!(rows.len() >= 120, "{}", rows.len());
    let fired = rows.iter().filter(|row| row["control"]["state"] == "fired").count();
    let least = FIRED[usize::from(caller.is_root())] * rows.len() / 100;
    assert!(fired >= least, "only {fired} of {} controls were seen to succeed", rows.len());
    let none: Vec<_> =
        rows.iter().filter(|row| row["control"]["state"] == "none").map(|row| &row["id"]).collect();
    assert_eq!(none.len(), 3, "attempts without any control: {none:?}");
    let unproven = |row: &&Value| row["cells"][0]["verdict"] == "held" && row["cells"][0]["proven"] == false;
    assert!(rows.iter().filter(unproven).all(|row| row["control"]["state"] != "fired"));
    let alone = rows.iter().filter(|row| row["second_state"]["state"] == "held").count();
    assert!(lifted.is_none() || alone > 80, "only {alone} second layers were seen to hold alone");
    // Without mounts of its own a box is stopped by Landlock, and not by the modes of a stage that it never saw.
    let reached = |row: &&Value| {
        let told = row["second_state"]["evidence"].as_str().unwrap_or_default();
        row["lifted"] == "mounts"
            && row["second_state"]["state"] == "held"
            && told.contains("/host/")
            && told.contains("EACCES")
    };
    let reached = rows.iter().filter(reached).count();
    assert!(lifted.is_none() || reached > 25, "only {reached} were stopped at what the host's root shows");
    let unlifted = |row: &&Value| row["second_state"].to_string().contains("does not say that it lacks");
    assert_eq!(rows.iter().find(unlifted), None, "a build that should lack a layer has them all");
    let core: Vec<_> = report["trusted_core"]
        .as_array()
        .unwrap()
        .iter()
        .map(|share| share["part"].as_str().unwrap())
        .collect();
    match core.is_empty() {
        true => caller.skip("the size of the trusted core: this build did not measure it (make build)"),
        false => {
            assert_eq!(core, ["warden", "agent", "sys", "wire"]);
            assert!(report["fuzzed"]["targets"].as_u64() >= Some(20), "{}", report["fuzzed"]);
        }
    }
    let text = std::fs::read_to_string(page).unwrap();
    assert!(text.contains("Nothing came out") && text.ends_with("</html>\n"));
}

/// Green can turn red: a box with more time is outlived.
fn the_same_attempt_comes_out_where_its_control_is_off(caller: &Caller) {
    let options = ["--only", "lifecycle.outlive-deadline"];
    let (code, report) = campaign(caller, &options);
    assert_eq!((code, &report["rows"][0]["cells"][0]["verdict"]), (0, &Value::from("held")));
    assert_eq!(
        report["rows"][0]["control"]["state"], "fired",
        "the same attempt succeeds in a box with more time"
    );
}

/// Whether the tier wasm and its Python lie beside blastbox.
fn has_python_in_wasm(caller: &Caller) -> bool {
    let shelf = caller.blastbox_path().with_file_name("wasm");
    shelf.join("blastbox-wasm").is_file() && shelf.join("python.guest").is_file()
}

/// The cell of an attempt in the only column.
fn cell<'a>(report: &'a Value, id: &str) -> &'a Value {
    let row = report["rows"].as_array().unwrap().iter().find(|row| row["id"] == id);
    row.map_or(&Value::Null, |row| &row["cells"][0])
}

/// What gVisor's kernel and the Wasm worker answer by themselves is neither an escape nor held; what the host can compare is.
fn a_tier_with_a_kernel_of_its_own_is_judged_by_the_host(caller: &Caller) {
    let only =
        ["kernel.unshare-user", "kernel.nested-root", "kernel.syslog", "files.read-secret", "files.dev-tun"];
    let more = [
        "information.kernel-command-line",
        "control.agent-channel",
        "control.lie-killed",
        "resources.thread-bomb",
    ];
    let names: Vec<&str> = only.iter().chain(&more).flat_map(|name| ["--only", name]).collect();
    for (tier, bench) in [("gvisor", gvisor(caller).is_some()), ("wasm", has_python_in_wasm(caller))] {
        if !bench {
            caller.skip(&format!("no tier {tier} here"));
            continue;
        }
        let words = ["escape", "--tier", tier, "--profile", "default", "--json"];
        let ended = caller
            .blastbox(words.iter().chain(&names))
            .start()
            .end_within(std::time::Duration::from_secs(600));
        let report: Value = serde_json::from_slice(&ended.out).unwrap();
        assert_eq!(ended.code, 0, "{tier}: {report}");
        let verdict = |id: &str| cell(&report, id)["verdict"].as_str().unwrap_or_default().to_owned();
        for id in [
            "files.read-secret",
            "information.kernel-command-line",
            "control.agent-channel",
            "control.lie-killed",
        ] {
            assert_eq!(verdict(id), "held", "{tier}: {id}: {}", cell(&report, id));
        }
        assert_eq!(verdict("kernel.unshare-user"), "not_applicable");
        if tier == "gvisor" {
            assert_eq!(verdict("kernel.nested-root"), "held", "{}", cell(&report, "kernel.nested-root"));
            let why = cell(&report, "kernel.unshare-user")["evidence"].as_str().unwrap().to_owned();
            assert!(why.contains("gVisor's own kernel") && why.contains("kernel.nested-root"), "{why}");
            let accepted = &report["columns"][0]["accepted"];
            assert!(accepted.to_string().contains("silent-denials"), "told, not silent: {accepted}");
        }
    }
}

fn every_tier_of_this_host_has_a_column_and_the_jail_the_first(caller: &Caller) {
    let words = ["escape", "--only", "control.lie-refused", "--only", "files.read-secret", "--json"];
    let machines = caller.machines();
    if machines.is_none() {
        caller
            .skip("a column of virtual machines: no store with an image of this caller's (tools/machine.sh)");
    }
    let store = machines.as_ref().map(|store| store.to_str().unwrap());
    let more = store.iter().flat_map(|store| ["--machine-image", "python", "--store", store]);
    let words: Vec<&str> = words.into_iter().chain(more).collect();
    let ended = caller.blastbox(words).start().end_within(std::time::Duration::from_secs(600));
    let report: Value = serde_json::from_slice(&ended.out).unwrap();
    assert_eq!(ended.code, 0, "{report}");
    let columns: Vec<&str> =
        report["columns"].as_array().unwrap().iter().filter_map(|column| column["tier"].as_str()).collect();
    assert_eq!(columns[0], "jail", "{columns:?}");
    let missing = report["missing"].to_string();
    for (tier, here) in [
        ("gvisor", gvisor(caller).is_some()),
        ("wasm", has_python_in_wasm(caller)),
        ("microvm", machines.is_some()),
    ] {
        assert_eq!(columns.contains(&tier), here, "{tier}: {columns:?}");
        assert!(here || missing.contains(&format!("{tier}/default")), "why is not said: {missing}");
    }
}

/// A policy of one's own that opens the network to one host: whatever else is sent comes as far as the gateway.
fn what_an_allowlist_does_not_name_stays_in_the_box(caller: &Caller) {
    let rules = include_str!("../../profiles/default.toml").to_owned()
        + "[network]\nmode = \"allow\"\nallow = [{ host = \"api.example.com\", ports = [443] }]\n";
    let policy = caller.file("allowlist.toml", rules);
    let words =
        ["escape", "--tier", "jail", "--policy", policy.to_str().unwrap(), "--only", "network", "--json"];
    let ended = caller.blastbox(words).start().end_within(std::time::Duration::from_secs(600));
    if ended.code == 125 && ended.err.contains("/dev/net/tun") {
        return caller.skip("boxes with network: this user may not open /dev/net/tun");
    }
    let report: Value = serde_json::from_slice(&ended.out).unwrap();
    assert_eq!(ended.code, 0, "{report}");
    for (id, word) in [
        ("network.quic", "the gateway refused"),
        ("network.dns-udp", "the gateway refused"),
        ("network.gateway-dns", "refused with code"),
        ("network.gateway-proxy", "the proxy says"),
        ("network.metadata-v4", "ECONNREFUSED"),
    ] {
        let cell = cell(&report, id);
        assert_eq!(cell["verdict"], "held", "{id}: {cell}");
        assert!(cell["evidence"].as_str().unwrap().contains(word), "{id}: {cell}");
    }
}

/// Each lie, and the same lie told to a copy that believes it.
fn what_a_lying_box_answers_to_a_copy_stays_in_the_target(caller: &Caller) {
    let (code, report) = campaign(caller, &["--only", "control"]);
    assert_eq!(code, 0, "{report}");
    let lies =
        report["rows"].as_array().unwrap().iter().filter(|row| row["id"].to_string().contains("control.cp-"));
    let mut count = 0;
    for row in lies {
        assert_eq!(row["cells"][0]["verdict"], "held", "{row}");
        let state = row["control"]["state"].as_str().unwrap();
        // Only root makes devices.
        assert!(state == "fired" || row["id"] == "control.cp-device", "{row}");
        count += 1;
    }
    assert_eq!(count, 15);
}

fn a_name_that_is_none_is_refused_and_the_list_runs_nothing(caller: &Caller) {
    let refused = caller.blastbox(["escape", "--only", "kernel.nonsense"]).end();
    assert_eq!(refused.code, 125);
    assert!(refused.err.contains("kernel.nonsense"), "{}", refused.err);
    let list = caller.blastbox(["escape", "--list", "--only", "kernel.ptrace"]).end();
    assert_eq!(list.code, 0);
    assert!(list.text().contains("kernel.ptrace") && list.text().contains("1 attempts"), "{}", list.text());
}

/// Frames that no honest agent sends, each to a `blastbox run` of its own.
fn an_agent_that_lies_is_found_out_and_blastbox_survives_it(caller: &Caller) {
    let Some(lifted) = caller.lifted() else {
        return caller.skip("an agent that lies (make lifted)");
    };
    let (code, report) = campaign(caller, &["--only", "control", "--lifted", lifted.to_str().unwrap()]);
    assert_eq!(code, 0, "{report}");
    let rows = report["rows"].as_array().unwrap().iter();
    let told: Vec<_> =
        rows.filter(|row| row["control"]["evidence"] == "the receipt says exited (0)").collect();
    assert_eq!(told.len(), 14, "{report}");
    for row in &told {
        assert_eq!(
            (&row["cells"][0]["verdict"], &row["control"]["state"]),
            (&"held".into(), &"fired".into()),
            "{row}"
        );
    }
    let broke = told
        .iter()
        .filter(|row| row["cells"][0]["evidence"].to_string().contains("broke the agent's protocol"));
    assert!(broke.count() >= 9, "{report}");
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

/// A directory of shipped wardens where those that lack a layer should be.
fn a_layer_that_was_not_lifted_proves_nothing_about_the_next(caller: &Caller) {
    let fake = caller.directory("lifted");
    let shipped = caller.blastbox_path();
    for layer in LAYERS {
        std::fs::create_dir(fake.join(layer)).unwrap();
        for name in [
            "blastbox",
            "blastbox-full",
            "blastbox-agent",
            "blastbox-egress",
            "blastbox-warden",
            "blastbox-gvisor",
        ] {
            std::fs::copy(shipped.with_file_name(name), fake.join(layer).join(name)).unwrap();
        }
    }
    let (_, report) =
        campaign(caller, &["--only", "kernel.unshare-user", "--lifted", fake.to_str().unwrap()]);
    assert_eq!(report["rows"][0]["lifted"], "seccomp");
    assert_eq!(report["rows"][0]["second_state"]["state"], "not_tried", "{}", report["rows"][0]);
}

/// A long campaign, and the names of its stages once it has some.
fn halfway(caller: &Caller, place: &Path) -> (Held, Vec<String>) {
    let words = ["escape", "--tier", "jail", "--profile", "default"];
    let classes = ["--only", "control", "--only", "lifecycle", "--only", "persistence"];
    let held = caller.blastbox(words.iter().chain(&classes)).env("TMPDIR", place.to_str().unwrap()).start();
    assert!(wait_until(|| !stages(place).is_empty()), "no attempt was begun");
    (held, stages(place))
}

fn stages(place: &Path) -> Vec<String> {
    let all = std::fs::read_dir(place).unwrap().flatten();
    all.map(|entry| entry.file_name().to_str().unwrap().to_owned()).collect()
}

/// Processes of the host that belong to a stage.
fn of_stages(stages: &[String]) -> Vec<u32> {
    stages.iter().flat_map(|name| processes_naming(name.rsplit('-').next().unwrap())).collect()
}

fn a_campaign_that_is_told_to_end_leaves_nothing(caller: &Caller) {
    for (name, signal, code) in [("t", Signal::TERM, 143), ("i", Signal::INT, 130)] {
        let place = caller.directory(name);
        let (held, begun) = halfway(caller, &place);
        let started = census::family(held.id());
        held.signal(signal);
        let ended = held.end();
        assert_eq!(ended.code, code, "{}", ended.err);
        assert_eq!(stages(&place), Vec::<String>::new());
        assert!(
            wait_until(|| of_stages(&begun).is_empty() && !started.iter().any(census::lives)),
            "{started:?}"
        );
    }
}

fn what_a_killed_campaign_leaves_ends_or_is_released_by_the_next(caller: &Caller) {
    let place = caller.directory("k");
    let (held, begun) = halfway(caller, &place);
    let started = census::family(held.id());
    held.signal(Signal::KILL);
    held.end();
    let next = ["escape", "--tier", "jail", "--profile", "default", "--only", "kernel.ptrace"];
    let ended = caller.blastbox(next).env("TMPDIR", place.to_str().unwrap()).end();
    assert!(ended.code <= 2, "{}: {}", ended.code, ended.err);
    assert_eq!(stages(&place), Vec::<String>::new());
    assert!(wait_until(|| of_stages(&begun).is_empty() && !started.iter().any(census::lives)), "{started:?}");
}

fn a_report_is_sealed_and_what_was_changed_is_found_out(caller: &Caller) {
    let state = caller.directory("state");
    let (state, ledger) = (state.to_str().unwrap(), state.join("ledger"));
    let options = ["--only", "control.lie-refused", "--state-dir", state];
    let (code, report) = campaign(caller, &options);
    let (_, second) = campaign(caller, &options);
    let seal = &report["seal"];
    assert_eq!((code, seal["key"] == second["seal"]["key"]), (0, true), "one ledger, one key: {seal}");
    let ledger = ledger.to_str().unwrap();
    assert_eq!(caller.blastbox(["audit", "verify", "--complete", ledger]).end().code, 0);
    let key = seal["key"].as_str().unwrap();
    let check = |name: &str, report: &Value, more: &[&str]| {
        let file = caller.file(name, report.to_string());
        let words = ["audit", "report", file.to_str().unwrap()];
        let ended = caller.blastbox(words.iter().chain(more)).end();
        (ended.code, ended.text())
    };
    let page = caller.file("page.html", "");
    campaign(caller, &[&options[..], &["--html", page.to_str().unwrap()]].concat());
    let kept = caller.blastbox(["audit", "report", page.to_str().unwrap(), "--ledger", ledger]).end();
    assert!(kept.code == 0 && kept.text().contains("the ledger has it"), "{}: {}", kept.code, kept.text());
    let (code, told) = check("whole", &report, &["--ledger", ledger, "--key", key]);
    assert!(code == 0 && told.contains("the ledger has it"), "{code}: {told}");
    let no = |name: &str, report: &Value, more: &[&str], why: &str| {
        let (code, told) = check(name, report, more);
        assert!(code == 1 && told.contains(why), "{name}: {code}: {told}");
    };
    let mut changed = report.clone();
    changed["rows"][0]["cells"][0]["verdict"] = Value::from("escaped");
    no("changed", &changed, &[], "changed after it was sealed");
    let mut bare = report.clone();
    bare["seal"] = Value::Null;
    no("bare", &bare, &[], "no seal");
    // The seal of another report of the same ledger, and its record in place of one's own.
    let mut swapped = report.clone();
    swapped["seal"] = second["seal"].clone();
    no("swapped", &swapped, &[], "changed after it was sealed");
    let mut moved = report.clone();
    moved["seal"]["record"] = second["seal"]["record"].clone();
    no("moved", &moved, &[], "signature");
    no("stranger", &report, &["--key", &format!("ed25519:{}", "0".repeat(64))], "another key");
    let elsewhere = caller.directory("other");
    campaign(caller, &["--only", "control.lie-refused", "--state-dir", elsewhere.to_str().unwrap()]);
    let other = elsewhere.join("ledger");
    no("elsewhere", &report, &["--ledger", other.to_str().unwrap()], "the ledger");
}
