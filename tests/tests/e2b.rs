//! Clients that others publish, unmodified and pinned, against a real daemon: E2B's SDKs (suites in `tests/e2b`), told where
//! the daemon is by the three variables that a user would set, frameworks for agents that use them (`tests/e2b/agents`), and the official
//! client of MCP (`tests/mcp`).
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::path::{Path, PathBuf};

use blastbox_tests::machines::{ONE_AT_A_TIME, Workshop};
use blastbox_tests::suites::{CONFIG, Daemon, PYTEST, installed, javascript, pytest, run, suite};
use blastbox_tests::{Caller, both_ways, fill_with};

both_ways!(
    the_sdk_for_python,
    the_sdk_for_javascript,
    the_code_interpreter_for_python,
    the_code_interpreter_for_javascript,
    the_code_interpreter_from_the_pool,
    the_agents_of_smolagents,
    the_agents_of_langchain,
    the_agents_of_openai,
    the_agents_of_openai_with_an_older_sdk,
    the_client_of_mcp,
    the_sdk_as_root,
    machines_that_the_sdks_copy,
    templates_that_the_sdks_build,
    templates_on_an_image_of_the_store,
    templates_whose_steps_are_root,
    templates_where_nobody_asked_for_them,
    the_checks_of_inspect_ai
);

fn the_sdk_for_python(caller: &Caller) {
    let Some(place) = installed(caller, "python") else { return };
    pytest(caller, &place, &[suite("python")], &Daemon::start(caller), &[]);
}

fn the_sdk_for_javascript(caller: &Caller) {
    javascript(caller, "js/suite.cjs", &Daemon::start(caller));
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
    javascript(caller, "js/pooled.cjs", &daemon);
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
        javascript(caller, "js/interpreter.cjs", &Daemon::start(caller));
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

/// Templates are built only where the operator asks for it.
fn with_builds() -> String {
    format!("{CONFIG}[e2b.builds]\n")
}

/// A daemon whose operator has said nothing of builds.
fn templates_where_nobody_asked_for_them(caller: &Caller) {
    let Some(place) = installed(caller, "python") else { return };
    let daemon = Daemon::start(caller);
    pytest(caller, &place, &[suite("templates_off")], &daemon, &[]);
}

/// Steps that change a sandbox's home, which every daemon can have.
fn templates_that_the_sdks_build(caller: &Caller) {
    let Some(place) = installed(caller, "python") else { return };
    let daemon = Daemon::start_with(caller, &with_builds());
    let other = Daemon::key(caller, &["other", "--tenant", "other"], "bbx_");
    pytest(caller, &place, &[suite("templates")], &daemon, &[("E2B_OTHER_KEY", Path::new(&other))]);
    javascript(caller, "js/templates.cjs", &daemon);
}

/// A store with a small image of this name, made of busybox under these names.
fn small(caller: &Caller, more: &[&str]) -> Option<String> {
    let busybox = ["/usr/bin/busybox", "/bin/busybox"].map(Path::new).into_iter().find(|path| path.exists());
    let Some(busybox) = busybox else {
        caller.skip("no busybox (apt-get install busybox-static)");
        return None;
    };
    let image = caller.directory("small");
    fill_with(caller, &image, &[("usr/", ""), ("usr/bin/", ""), ("etc/", ""), ("opt/", ""), ("root/", "")]);
    std::fs::copy(busybox, image.join("usr/bin/busybox")).expect("busybox");
    caller.own(&image.join("usr/bin/busybox"));
    let usual = ["sh", "cat", "id", "mkdir", "cp", "dirname", "find", "chmod", "pwd", "rm", "ls", "true"];
    for name in usual.iter().chain(more) {
        std::os::unix::fs::symlink("busybox", image.join("usr/bin").join(name)).expect("a link");
    }
    std::os::unix::fs::symlink("usr/bin", image.join("bin")).expect("a link");
    let text = |path: PathBuf| path.display().to_string();
    let (image, store) = (text(image), text(caller.place().join("store")));
    let made = caller.blastbox(["image", "import", &image, "--name", "small", "--store", &store]).end();
    assert_eq!(made.code, 0, "{}", made.err);
    Some(store)
}

/// An image of the store has a content that can be named, so that steps on it are used again.
fn templates_on_an_image_of_the_store(caller: &Caller) {
    let Some(place) = installed(caller, "python") else { return };
    let Some(store) = small(caller, &[]) else { return };
    let daemon = Daemon::start_in(caller, &with_builds(), &["--store", &store]);
    pytest(caller, &place, &[suite("templates_stored")], &daemon, &[]);
}

/// Steps that are root of their boxes, where the operator allows it.
fn templates_whose_steps_are_root(caller: &Caller) {
    if !caller.is_root() {
        return caller.skip("without root on the host no box has a root");
    }
    let Some(place) = installed(caller, "python") else { return };
    let Some(store) = small(caller, &["chown", "ln", "mkfifo", "mknod", "mount", "mv", "test"]) else {
        return;
    };
    let config = format!("{}root = \"allowed\"\n", with_builds());
    let daemon = Daemon::start_in(caller, &config, &["--store", &store]);
    pytest(caller, &place, &[suite("templates_root")], &daemon, &[]);
}

/// What stands where E2B's SDKs expect bash: they start every command with it.
const BASH: &str = "#!/bin/sh\nexec /bin/sh \"$@\"\n";

/// Snapshots and forks, of a template whose sandboxes are virtual machines.
fn machines_that_the_sdks_copy(caller: &Caller) {
    let _turn = ONE_AT_A_TIME.lock();
    let Some(place) = installed(caller, "python") else { return };
    let workshop = Workshop::with(caller, |root| {
        let bash = root.join("bin/bash");
        std::fs::write(&bash, BASH).expect("write a script");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&bash, mode).expect("make it a program");
    });
    let Some(workshop) = workshop else { return };
    workshop.first_files();
    let template = "[e2b.templates.machine]\nimage = \"tools\"\ntier = \"microvm\"\naccept = [\"emulated-cpu\"]\nmemory = \"384MiB\"\n";
    let daemon = Daemon::start_in(caller, &format!("{CONFIG}{template}"), &["--store", &workshop.store]);
    let other = Daemon::key(caller, &["other", "--tenant", "other"], "bbx_");
    let kept = caller.place().join("state/snapshots");
    let more = [("E2B_OTHER_KEY", Path::new(&other)), ("E2B_SNAPSHOTS", kept.as_path())];
    pytest(caller, &place, &[suite("copies")], &daemon, &more);
    javascript(caller, "js/copies.cjs", &daemon);
}

/// Root of the box, where the operator allows it.
fn the_sdk_as_root(caller: &Caller) {
    if !caller.is_root() {
        return caller.skip("without root on the host no box has a root");
    }
    let Some(place) = installed(caller, "python") else { return };
    let daemon = Daemon::start_with(caller, &format!("{CONFIG}[e2b]\nroot = \"allowed\"\n"));
    pytest(caller, &place, &[suite("root")], &daemon, &[]);
}

/// inspect-ai's own checks of a provider, through the package in `sdk/inspect-blastbox`, at the daemon's socket.
fn the_checks_of_inspect_ai(caller: &Caller) {
    if !caller.is_root() {
        return caller.skip("without root on the host no box has a root, and evaluations name users");
    }
    let Some(place) = installed(caller, "inspect") else { return };
    let daemon = Daemon::start(caller);
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/inspect-blastbox");
    let words = PYTEST.into_iter().chain(["--rootdir"]).map(Path::new);
    let checks = package.join("tests");
    // The host's own view cannot have another user: its /etc is read-only. An image of Debian passes this one too.
    caller.leave_out("test_exec_as_user of inspect-ai", "it adds a user, which the host's view cannot have");
    let left_out = ["--deselect", "tests/test_self_check.py::test_exec_as_user"].map(Path::new);
    let words: Vec<&Path> =
        words.chain([package.as_path()]).chain(left_out).chain([checks.as_path()]).collect();
    let (source, socket) = (package.join("src"), caller.place().join("api.sock"));
    run(
        caller,
        &place.join("bin/python"),
        &words,
        &daemon,
        &[("PYTHONPATH", &source), ("BLASTBOX_SOCKET", &socket)],
    );
}
