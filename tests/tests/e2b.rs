//! Clients that others publish, unmodified and pinned, against a real daemon: E2B's SDKs (suites in `tests/e2b`), told where
//! the daemon is by the three variables that a user would set, frameworks for agents that use them (`tests/e2b/agents`), and the official
//! client of MCP (`tests/mcp`).
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::path::{Path, PathBuf};

use base64::Engine as _;
use blastbox_tests::machines::{ONE_AT_A_TIME, Workshop, with_kernel};
use blastbox_tests::suites::{
    CONFIG, Daemon, PYTEST, installed, javascript, javascript_with, pytest, run, store_of, store_with, suite,
};
use blastbox_tests::{Caller, both_ways};

both_ways!(
    the_sdk_for_python,
    the_sdk_for_javascript,
    the_sdks_over_https_by_the_names_of_sandboxes,
    the_first_generation_of_the_sdk,
    the_code_interpreter_of_an_older_sdk,
    the_code_interpreter_for_python,
    the_code_interpreter_for_javascript,
    the_code_interpreter_from_the_pool,
    the_code_interpreter_on_the_image_that_is_made_for_it,
    the_agents_of_smolagents,
    the_agents_of_langchain,
    the_agents_of_openai,
    the_agents_of_openai_with_an_older_sdk,
    the_client_of_mcp,
    the_sdk_as_root,
    the_sdk_where_there_is_no_root,
    the_image_that_is_made_as_base,
    machines_that_the_sdks_copy,
    the_code_interpreter_in_machines_that_are_prepared,
    machines_on_disk_are_known_to_the_next_daemon,
    sandboxes_of_a_daemon_that_was_killed_are_over,
    the_checks_of_inspect_ai
);

fn the_sdk_for_python(caller: &Caller) {
    let Some(place) = installed(caller, "python") else { return };
    let pair = pair(caller);
    let more = [("E2B_PAIR", pair.as_path())];
    pytest(caller, &place, &[suite("python")], &Daemon::start(caller), &more);
}

/// A certificate that nobody has signed but itself, with its key, for a server in a sandbox.
fn pair(caller: &Caller) -> PathBuf {
    let made = rcgen::generate_simple_self_signed(["inside".to_owned()]).expect("a certificate");
    let parts =
        [("CERTIFICATE", made.cert.der().to_vec()), ("PRIVATE KEY", made.signing_key.serialize_der())];
    let text = parts.map(|(name, bytes)| {
        let body = base64::engine::general_purpose::STANDARD.encode(bytes);
        format!("-----BEGIN {name}-----\n{body}\n-----END {name}-----\n")
    });
    let text = text.concat();
    let path = caller.place().join("pair.pem");
    std::fs::write(&path, text).expect("write it");
    path
}

fn the_sdk_for_javascript(caller: &Caller) {
    javascript(caller, "sdk.test.mjs", &Daemon::start(caller));
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its number").port()
}

/// Clients of a door with TLS, whose authority is the daemon's own: a domain, a key and whom to trust are all that they are told.
fn over_https(caller: &Caller, clients: impl FnOnce(&Daemon, &[(&str, &Path)])) {
    let port = free_port();
    let domain = format!("sbx.test:{port}");
    let config =
        format!("{CONFIG}[e2b]\ndomain = \"{domain}\"\n[e2b.https]\nlisten = \"127.0.0.1:{port}\"\n");
    let mut daemon = Daemon::start_with(caller, &config);
    // What is not set is made of the domain.
    daemon.url = String::new();
    // Some versions send no key that does not look like E2B's.
    daemon.key = Daemon::key(caller, &["older", "--e2b"], "e2b_");
    let authority = caller.place().join("state/https/sbx.test/authority.crt");
    let trusted = caller.place().join("authority.crt");
    std::fs::copy(&authority, &trusted).expect("the authority, for clients");
    let more = [
        ("E2B_DOMAIN", Path::new(&domain)),
        ("SSL_CERT_FILE", trusted.as_path()),
        ("NODE_EXTRA_CA_CERTS", trusted.as_path()),
    ];
    clients(&daemon, &more);
}

fn the_sdks_over_https_by_the_names_of_sandboxes(caller: &Caller) {
    let Some(place) = installed(caller, "python") else { return };
    over_https(caller, |daemon, more| {
        pytest(caller, &place, &[suite("https")], daemon, more);
        javascript_with(caller, "https.test.mjs", daemon, more);
    });
}

/// Paths and defaults of the API's first generation, as its last client uses them.
fn the_first_generation_of_the_sdk(caller: &Caller) {
    let Some(place) = installed(caller, "older") else { return };
    if interprets(caller) {
        let suite = suite("older").join("test_first.py");
        over_https(caller, |daemon, more| pytest(caller, &place, &[suite], daemon, more));
    }
}

/// A client whose code goes to the names of sandboxes, whatever it is told of addresses.
fn the_code_interpreter_of_an_older_sdk(caller: &Caller) {
    let Some(place) = installed(caller, "openai") else { return };
    if interprets(caller) {
        let suite = suite("older").join("test_second.py");
        over_https(caller, |daemon, more| pytest(caller, &place, &[suite], daemon, more));
    }
}

/// Without an image of its own the template is the host's Python, where that has IPython.
fn interprets(caller: &Caller) -> bool {
    let there = Path::new("/usr/lib/python3/dist-packages/IPython").is_dir();
    if !there {
        caller.skip("the host's Python has no IPython (package ipython3)");
    }
    there
}

fn the_code_interpreter_for_python(caller: &Caller) {
    let Some(place) = installed(caller, "interpreter") else { return };
    if !interprets(caller) {
        return;
    }
    pytest(caller, &place, &[suite("interpreter")], &Daemon::start(caller), &[]);
}

/// Kernels that run before their boxes are anybody's.
fn the_code_interpreter_from_the_pool(caller: &Caller) {
    let Some(place) = installed(caller, "interpreter") else { return };
    if !interprets(caller) {
        return;
    }
    let pool = "[pool]\nmax = 3\n[[pool.warm]]\ntemplate = \"code-interpreter-v1\"\nmin = 2\n";
    let daemon = Daemon::start_with(caller, &format!("{CONFIG}{pool}"));
    pytest(caller, &place, &[suite("pooled")], &daemon, &[]);
    javascript(caller, "pooled.test.mjs", &daemon);
}

/// `blastbox image make code-interpreter`, for real: what it makes is what the SDKs ask for, with nothing of the host in it.
fn the_code_interpreter_on_the_image_that_is_made_for_it(caller: &Caller) {
    let Some(place) = installed(caller, "interpreter") else { return };
    let Some(store) = store_with(caller, "code-interpreter") else { return };
    let daemon = Daemon::start_in(caller, CONFIG, &["--store", &store]);
    pytest(caller, &place, &[suite("interpreter_image"), suite("interpreter")], &daemon, &[]);
    javascript(caller, "interpreter.test.mjs", &daemon);
}

/// Agents of a framework, whose models are scripts, and whose code runs in boxes.
fn agents(caller: &Caller, environment: &str, suites: &[&str]) {
    let Some(place) = installed(caller, environment) else { return };
    if !interprets(caller) {
        return;
    }
    let mut daemon = Daemon::start(caller);
    if environment == "openai" {
        // Its SDK sends no key that does not look like E2B's.
        daemon.key = Daemon::key(caller, &["older", "--e2b"], "e2b_");
    }
    let suites: Vec<PathBuf> = suites.iter().map(|name| suite("agents").join(name)).collect();
    pytest(caller, &place, &suites, &daemon, &[]);
}

fn the_agents_of_smolagents(caller: &Caller) {
    agents(caller, "agents", &["test_smolagents.py"]);
}

fn the_agents_of_langchain(caller: &Caller) {
    agents(caller, "langchain", &["test_langchain.py"]);
}

fn the_agents_of_openai(caller: &Caller) {
    agents(caller, "agents", &["test_openai.py", "test_openai_tool.py"]);
}

fn the_agents_of_openai_with_an_older_sdk(caller: &Caller) {
    agents(caller, "openai", &["test_openai.py"]);
}

fn the_code_interpreter_for_javascript(caller: &Caller) {
    if interprets(caller) {
        javascript(caller, "interpreter.test.mjs", &Daemon::start(caller));
    }
}

fn the_client_of_mcp(caller: &Caller) {
    let Some(place) = installed(caller, "mcp") else { return };
    let daemon = Daemon::start(caller);
    let suite = Path::new(env!("CARGO_MANIFEST_DIR")).join("mcp");
    let (url, program) = (PathBuf::from(format!("{}/mcp", daemon.url)), caller.blastbox_path());
    let more = [("MCP_URL", url.as_path()), ("MCP_KEY", Path::new(&daemon.key)), ("MCP_PROGRAM", &program)];
    pytest(caller, &place, &[suite], &daemon, &more);
}

/// What stands where E2B's SDKs expect bash: they start every command with it.
const BASH: &str = "#!/bin/sh\nexec /bin/sh \"$@\"\n";

/// A template whose sandboxes are virtual machines, and the store with its image: the one that daemons have here who are told of none.
fn machines(caller: &Caller) -> Option<(String, Workshop<'_>)> {
    let workshop = Workshop::in_state(caller, |root| {
        let bash = root.join("bin/bash");
        std::fs::write(&bash, BASH).expect("write a script");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&bash, mode).expect("make it a program");
    })?;
    let template = "[e2b.templates.machine]\nimage = \"tools\"\ntier = \"microvm\"\naccept = [\"emulated-cpu\"]\nmemory = \"384MiB\"\n";
    Some((format!("{CONFIG}{template}"), workshop))
}

/// A suite before a daemon ends, and one with the next daemon in its place; between them one with a daemon whose operator closed what
/// was open, where sandboxes wait on disk.
fn restarted(caller: &Caller, config: &str, template: &str, paused: &str) {
    let Some(place) = installed(caller, "python") else { return };
    let kept = caller.place().join("kept.json");
    let told = [
        ("E2B_KEPT", kept.as_path()),
        ("E2B_TEMPLATE", Path::new(template)),
        ("E2B_PAUSED", Path::new(paused)),
    ];
    let first = Daemon::start_with(caller, config);
    let key = first.key.clone();
    pytest(caller, &place, &[suite("restart").join("test_before.py")], &first, &told);
    // In order, or not.
    let after = if paused == "yes" {
        drop(first);
        let closed = Daemon::start_again(caller, &config.replace(OPEN, ""), &[], key.clone());
        pytest(caller, &place, &[suite("restart").join("test_closed.py")], &closed, &told);
        "test_after.py"
    } else {
        first.kill();
        "test_gone.py"
    };
    let next = Daemon::start_again(caller, config, &[], key);
    pytest(caller, &place, &[suite("restart").join(after)], &next, &told);
}

/// Sandboxes reach everything where nobody says otherwise.
const OPEN: &str = "[e2b]\ninternet = \"dangerously-open\"\n";

/// What was paused to disk goes on with the next daemon, by its name, tokens and all.
fn machines_on_disk_are_known_to_the_next_daemon(caller: &Caller) {
    let _turn = ONE_AT_A_TIME.lock();
    let Some((config, workshop)) = machines(caller) else { return };
    workshop.with_templates(|| restarted(caller, &format!("{config}{OPEN}"), "machine", "yes"));
}

/// What ran does not outlive a daemon that was killed, and the next one does not speak of it.
fn sandboxes_of_a_daemon_that_was_killed_are_over(caller: &Caller) {
    restarted(caller, CONFIG, "base", "no");
}

/// Snapshots and forks, of a template whose sandboxes are virtual machines.
fn machines_that_the_sdks_copy(caller: &Caller) {
    let _turn = ONE_AT_A_TIME.lock();
    let Some(place) = installed(caller, "python") else { return };
    let Some((config, workshop)) = machines(caller) else { return };
    // Whose tier nobody names: a jail would do for it, and have a root.
    let either =
        "[e2b.templates.either]\nimage = \"tools\"\naccept = [\"emulated-cpu\"]\nmemory = \"384MiB\"\n";
    workshop.with_templates(|| {
        let daemon = Daemon::start_with(caller, &format!("{config}{either}"));
        let other = Daemon::key(caller, &["other", "--tenant", "other"], "bbx_");
        let kept = caller.place().join("state/snapshots");
        let more = [("E2B_OTHER_KEY", Path::new(&other)), ("E2B_SNAPSHOTS", kept.as_path())];
        pytest(caller, &place, &[suite("copies")], &daemon, &more);
        pytest(caller, &place, &[suite("wire").join("test_copies.py")], &daemon, &more);
        javascript(caller, "copies.test.mjs", &daemon);
    });
}

/// What is asked of a host that has room for four machines and a little more. As root alone: thirty seconds pass until what is not
/// ready is told so, and it is the daemon that says it, whoever started it.
#[test]
fn machines_that_a_host_has_no_room_for() {
    let Some(caller) = &Caller::root("e2b::machines_that_a_host_has_no_room_for") else { return };
    let _turn = ONE_AT_A_TIME.lock();
    let Some(place) = installed(caller, "python") else { return };
    let Some((config, workshop)) = machines(caller) else { return };
    let small = config.replace("200GiB", "1800MiB").replace("120s", "1s");
    // It is the host that says no, not a quota, and nothing waits for the next one.
    let small = format!("{small}[default_quota]\nmemory = \"100GiB\"\n[pool]\nmin = 0\nmax = 0\n");
    workshop.with_templates(|| {
        let daemon = Daemon::start_with(caller, &small);
        let id = daemon.id().to_string();
        let modules = [suite("wire").join("test_packed.py")];
        pytest(caller, &place, &modules, &daemon, &[("BLASTBOX_DAEMON", Path::new(&id))]);
    });
}

/// Python with what it imports in virtual machines before they are anybody's, on the image that is made for it; and in copies of them.
fn the_code_interpreter_in_machines_that_are_prepared(caller: &Caller) {
    let _turn = ONE_AT_A_TIME.lock();
    let Some(place) = installed(caller, "interpreter") else { return };
    let Some(images) = store_with(caller, "code-interpreter") else { return };
    let more = "[pool]\nmax = 2\nttl = \"1h\"\n[[pool.warm]]\ntemplate = \"code-interpreter-v1\"\nmin = 2\nimports = [\"decimal\"]\n\
        [e2b.templates.code-interpreter-v1]\ntier = \"microvm\"\naccept = [\"emulated-cpu\"]\nmemory = \"512MiB\"\n";
    with_kernel(caller, &images, "code-interpreter", || {
        let daemon = Daemon::start_with(caller, &format!("{CONFIG}{more}"));
        pytest(caller, &place, &[suite("prepared")], &daemon, &[]);
    });
}

/// Root of the box, without a word of the operator.
fn the_sdk_as_root(caller: &Caller) {
    if !caller.is_root() {
        return caller.skip("without root on the host no box has a root");
    }
    let Some(place) = installed(caller, "python") else { return };
    pytest(caller, &place, &[suite("root")], &Daemon::start(caller), &[]);
}

/// None, where the operator wants none; without root on the host nobody has to say so.
fn the_sdk_where_there_is_no_root(caller: &Caller) {
    let Some(place) = installed(caller, "python") else { return };
    let more = if caller.is_root() { "[e2b]\nroot = \"none\"\n" } else { "" };
    let daemon = Daemon::start_with(caller, &format!("{CONFIG}{more}"));
    pytest(caller, &place, &[suite("root_off")], &daemon, &[]);
}

/// `blastbox image make base`, for real: what it makes is what the SDKs ask for where nobody names a template.
fn the_image_that_is_made_as_base(caller: &Caller) {
    if !caller.is_root() {
        return caller.skip("without root on the host no box has a root");
    }
    let Some(place) = installed(caller, "python") else { return };
    let Some(store) = store_with(caller, "base") else { return };
    let daemon = Daemon::start_in(caller, CONFIG, &["--store", &store]);
    pytest(caller, &place, &[suite("base_image")], &daemon, &[]);
}

/// inspect-ai's own checks of a provider, through the package in `sdk/inspect-blastbox`, at the daemon's socket.
fn the_checks_of_inspect_ai(caller: &Caller) {
    if !caller.is_root() {
        return caller.skip("without root on the host no box has a root, and evaluations name users");
    }
    let Some(place) = installed(caller, "inspect") else { return };
    // The host's own view cannot have another user: its /etc is read-only.
    let image = "code-interpreter";
    let store = store_of(caller, image);
    let words: Vec<&str> = store.iter().flat_map(|store| ["--store", store.as_str()]).collect();
    let daemon = Daemon::start_in(caller, CONFIG, &words);
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/inspect-blastbox");
    let words = PYTEST.into_iter().chain(["--rootdir"]).map(Path::new);
    let checks = package.join("tests");
    let left_out: &[&str] = match &store {
        Some(_) => &[],
        None => {
            caller.leave_out(
                "test_exec_as_user of inspect-ai",
                "it adds a user, which the host's view cannot have",
            );
            &["--deselect", "tests/test_self_check.py::test_exec_as_user"]
        }
    };
    let left_out = left_out.iter().map(Path::new);
    let words: Vec<&Path> =
        words.chain([package.as_path()]).chain(left_out).chain([checks.as_path()]).collect();
    let (source, socket) = (package.join("src"), caller.place().join("api.sock"));
    let image = if store.is_some() { image } else { "host" };
    run(
        caller,
        &place.join("bin/python"),
        &words,
        &daemon,
        &[("PYTHONPATH", &source), ("BLASTBOX_SOCKET", &socket), ("BLASTBOX_IMAGE", Path::new(image))],
    );
}
