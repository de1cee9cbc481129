//! `blastbox escape` on this host: nothing comes out, and no cell is empty of proof.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

use blastbox_tests::campaign::campaign;
use blastbox_tests::tiers::gvisor;
use blastbox_tests::{Caller, both_ways};
use serde_json::Value;

/// Of 359 attempts under one profile: more than a busy host breaks, less than would go unnoticed. `make escape` lets as many pass.
const MOST_DOUBTFUL: usize = 8;
/// Of a hundred attempts, how many controls must be seen to succeed: what a kernel does not have loaded, root cannot show either,
/// and an ordinary user can show less.
const FIRED: [usize; 2] = [70, 85];

both_ways!(
    nothing_comes_out_and_what_proves_nothing_is_named,
    the_same_attempt_comes_out_where_its_control_is_off,
    what_is_not_on_this_host_is_not_said_to_be_held,
    a_tier_with_a_kernel_of_its_own_is_judged_by_the_host,
    every_tier_of_this_host_has_a_column_and_the_jail_the_first,
    what_an_allowlist_does_not_name_stays_in_the_box,
    what_a_lying_box_answers_to_a_copy_stays_in_the_target,
    a_name_that_is_none_is_refused_and_the_list_runs_nothing,
);

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
                "held" | "not_applicable" | "absent" => {}
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
    let unproven = |row: &&Value| row["cells"][0]["verdict"] == "held" && row["cells"][0]["proven"] == false;
    assert!(rows.iter().filter(unproven).all(|row| row["control"]["state"] != "fired"));
    let alone = rows.iter().filter(|row| row["second_state"]["state"] == "held").count();
    assert!(
        lifted.is_none() || alone > [120, 150][usize::from(caller.is_root())],
        "only {alone} second layers were seen to hold alone"
    );
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

/// A kernel without modules or another file of `/proc` refuses everybody: what a box is answered there shows nothing about the box.
fn what_is_not_on_this_host_is_not_said_to_be_held(caller: &Caller) {
    let (code, report) =
        campaign(caller, &["--only", "information.modules", "--only", "information.partitions"]);
    assert_eq!(code, 0);
    let loads = std::path::Path::new("/proc/modules").exists();
    let (state, verdict) = if loads { ("fired", "held") } else { ("absent", "absent") };
    let row = |id: &str| report["rows"].as_array().unwrap().iter().find(|row| row["id"] == id).unwrap();
    let modules = row("information.modules");
    assert_eq!(
        (&modules["control"]["state"], &modules["cells"][0]["verdict"]),
        (&state.into(), &verdict.into())
    );
    assert_eq!(row("information.partitions")["cells"][0]["verdict"], "held", "every host has those");
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
