//! Clients that others publish, unmodified and pinned, against a real daemon: E2B's SDKs (suites in `tests/e2b`), told where
//! the daemon is by the three variables that a user would set, frameworks for agents that use them (`tests/e2b/agents`), and the official
//! client of MCP (`tests/mcp`).
#![expect(clippy::expect_used, clippy::panic, reason = "only tests; one that cannot work must fail at once")]

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use blastbox_tests::{Caller, Held, both_ways, fill_with, wait_until};
use rustix::process::Signal;

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
    templates_that_the_sdks_build,
    templates_on_an_image_of_the_store,
    templates_where_nobody_asked_for_them,
    the_checks_of_inspect_ai
);

/// The bound of one suite. Nothing is asserted with it: a suite that needs it has hung.
const PATIENCE: Duration = Duration::from_secs(420);
/// More sandboxes at once than a small host promises by itself; they idle.
const CONFIG: &str = "[host]\nboxes = 100\nmemory = \"200GiB\"\ncpus = \"100\"\npatience = \"120s\"\n";

/// A daemon that listens for E2B's SDKs, and a key for it.
struct Daemon {
    held: Option<Held>,
    url: String,
    key: String,
}

impl Daemon {
    fn start(caller: &Caller) -> Self {
        Self::start_with(caller, CONFIG)
    }

    fn start_with(caller: &Caller, config: &str) -> Self {
        Self::start_in(caller, config, &[])
    }

    fn start_in(caller: &Caller, config: &str, more: &[&str]) -> Self {
        let place = |name: &str| caller.place().join(name).display().to_string();
        let (state, socket) = (place("state"), place("api.sock"));
        let config = caller.file("daemon.toml", config).display().to_string();
        let key = Self::key(caller, &["suite"], "bbx_");
        let (said, says) = rustix::pipe::pipe().expect("a pipe");
        let null =
            || OwnedFd::from(File::options().read(true).write(true).open("/dev/null").expect("/dev/null"));
        let words = ["serve", "--quiet", "--state-dir", &state, "--socket", &socket, "--config", &config];
        let words = words.into_iter().chain(["--listen", "127.0.0.1:0"]).chain(more.iter().copied());
        let held = caller.blastbox(words).start_with([null(), null(), says]);
        let mut lines = BufReader::new(File::from(said)).lines().map_while(Result::ok);
        let mut before = Vec::new();
        let url = lines.find_map(|line| {
            let url = line.strip_prefix("blastbox: listening on ").filter(|url| url.starts_with("http://"));
            let url = url.map(ToOwned::to_owned);
            before.push(line);
            url
        });
        let url = url.unwrap_or_else(|| panic!("the daemon does not listen: {before:?}"));
        // It must never wait for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Self { held: Some(held), url, key }
    }

    /// Makes a key for the daemon, which may run already.
    fn key(caller: &Caller, words: &[&str], begins: &str) -> String {
        let state = caller.place().join("state").display().to_string();
        let words = ["key", "create", "--state-dir", &state].into_iter().chain(words.iter().copied());
        let made = caller.blastbox(words).end();
        assert_eq!(made.code, 0, "{}", made.err);
        let said = made.text();
        let key = said.split_whitespace().find(|word| word.starts_with(begins));
        key.expect("a key was printed").to_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut held) = self.held.take() {
            if !held.is_over() {
                held.signal(Signal::TERM);
            }
            // What does not end in time is killed with `held`.
            wait_until(|| held.is_over());
        }
    }
}

/// Where `make test` puts the SDKs. `None`: it could not, and the test counts as skipped.
fn installed(caller: &Caller, language: &str) -> Option<PathBuf> {
    let target = std::env::var_os("BLASTBOX_BIN_DIR").map(PathBuf::from);
    let target = target.and_then(|programs| programs.parent().map(Path::to_owned));
    let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"));
    let place = std::path::absolute(target.join("e2b").join(language)).ok()?;
    if place.join(".holds").is_file() {
        return Some(place);
    }
    caller.skip("the published client is not installed (tools/e2b.sh says why)");
    None
}

fn suite(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("e2b").join(name)
}

/// Words for pytest: quiet, ended by the first failure, and with a line for every test that was skipped.
const PYTEST: [&str; 8] = ["-m", "pytest", "-q", "-x", "-rs", "--no-header", "-p", "no:cacheprovider"];
/// Words for Node: one line for every test, in a form that is the same in each of its versions.
const NODE: [&str; 2] = ["--test", "--test-reporter=tap"];

/// What a suite says that it has skipped: where, and why. By pytest as `SKIPPED [2] conftest.py:47: why`, for so many tests; by Node
/// as `ok 3 - name # SKIP why`.
fn skipped(said: &str) -> Vec<(String, &str)> {
    let mut found = Vec::new();
    for line in said.lines().map(str::trim) {
        if let Some((count, rest)) = line.strip_prefix("SKIPPED [").and_then(|rest| rest.split_once("] ")) {
            let (place, why) = rest.split_once(": ").unwrap_or((rest, "no reason"));
            let count = count.parse().unwrap_or(1);
            found.extend((1..=count).map(|number: u32| (format!("{place} ({number} of {count})"), why)));
        } else if let Some((name, why)) = line.split_once(" # SKIP").filter(|_| line.starts_with("ok ")) {
            found.push((name.to_owned(), why.trim()));
        }
    }
    found
}

#[test]
fn what_a_suite_skips_is_counted() {
    let pytest = "..s.s\nSKIPPED [2] conftest.py:47: this host: frozen\nSKIPPED [1] test_x.py:9: no tun\n3 passed, 3 skipped";
    let places: Vec<String> =
        skipped(pytest).into_iter().map(|(place, why)| format!("{place}|{why}")).collect();
    assert_eq!(
        places,
        [
            "conftest.py:47 (1 of 2)|this host: frozen",
            "conftest.py:47 (2 of 2)|this host: frozen",
            "test_x.py:9 (1 of 1)|no tun"
        ]
    );
    let node = "TAP version 13\n    ok 1 - pauses # SKIP this host freezes no box\nok 2 - runs\n# skipped 1";
    assert_eq!(skipped(node), [("ok 1 - pauses".to_owned(), "this host freezes no box")]);
}

/// Runs a suite as whoever runs the tests: only the daemon is the caller's. What it skips counts as skipped beside the test.
#[expect(clippy::disallowed_methods, reason = "a suite of tests is no program of ours")]
fn run(caller: &Caller, program: &Path, words: &[&Path], daemon: &Daemon, more: &[(&str, &Path)]) {
    let mut command = Command::new(program);
    command.args(words).env("E2B_API_URL", &daemon.url).env("E2B_SANDBOX_URL", &daemon.url);
    command.env("E2B_API_KEY", &daemon.key).envs(more.iter().copied());
    command.env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
    let (said, says) = rustix::pipe::pipe().expect("a pipe");
    let other = says.try_clone().expect("the same pipe");
    let mut child = command.stdout(says).stderr(other).spawn().expect("start the suite");
    // The command holds the ends that the suite writes to.
    drop(command);
    let reader = std::thread::spawn(move || std::io::read_to_string(File::from(said)).unwrap_or_default());
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().expect("look at the suite") {
            Some(status) => break status,
            None if begun.elapsed() > PATIENCE => {
                child.kill().ok();
                child.wait().ok();
                panic!("the suite hangs:\n{}", reader.join().unwrap_or_default());
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let said = reader.join().unwrap_or_default();
    assert!(status.success(), "{said}");
    for (part, why) in skipped(&said) {
        caller.leave_out(&part, why);
    }
}

/// Runs these suites with the Python that an environment has.
fn pytest(caller: &Caller, place: &Path, suites: &[PathBuf], daemon: &Daemon, more: &[(&str, &Path)]) {
    let words: Vec<&Path> =
        PYTEST.map(Path::new).into_iter().chain(suites.iter().map(PathBuf::as_path)).collect();
    run(caller, &place.join("bin/python"), &words, daemon, more);
}

fn the_sdk_for_python(caller: &Caller) {
    let Some(place) = installed(caller, "python") else { return };
    pytest(caller, &place, &[suite("python")], &Daemon::start(caller), &[]);
}

fn the_sdk_for_javascript(caller: &Caller) {
    javascript(caller, "js/suite.cjs", &Daemon::start(caller));
}

/// Runs a suite for Node.
fn javascript(caller: &Caller, name: &str, daemon: &Daemon) {
    let Some(place) = installed(caller, "node") else { return };
    let node = ["/usr/bin/node", "/usr/local/bin/node"].map(Path::new).into_iter().find(|node| node.exists());
    let Some(node) = node else { return caller.skip("there is no node") };
    let suite = suite(name);
    let words: Vec<&Path> = NODE.map(Path::new).into_iter().chain([suite.as_path()]).collect();
    run(caller, node, &words, daemon, &[("NODE_PATH", &place.join("node_modules"))]);
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

/// An image of the store has a content that can be named, so that steps on it are used again.
fn templates_on_an_image_of_the_store(caller: &Caller) {
    let Some(place) = installed(caller, "python") else { return };
    let busybox = ["/usr/bin/busybox", "/bin/busybox"].map(Path::new).into_iter().find(|path| path.exists());
    let Some(busybox) = busybox else { return caller.skip("no busybox (apt-get install busybox-static)") };
    let image = caller.directory("small");
    fill_with(caller, &image, &[("usr/", ""), ("usr/bin/", ""), ("etc/", ""), ("opt/", ""), ("root/", "")]);
    std::fs::copy(busybox, image.join("usr/bin/busybox")).expect("busybox");
    caller.own(&image.join("usr/bin/busybox"));
    for name in ["sh", "cat", "id", "mkdir", "cp", "dirname", "find", "chmod", "pwd", "rm", "ls", "true"] {
        std::os::unix::fs::symlink("busybox", image.join("usr/bin").join(name)).expect("a link");
    }
    std::os::unix::fs::symlink("usr/bin", image.join("bin")).expect("a link");
    let text = |path: PathBuf| path.display().to_string();
    let (image, store) = (text(image), text(caller.place().join("store")));
    let made = caller.blastbox(["image", "import", &image, "--name", "small", "--store", &store]).end();
    assert_eq!(made.code, 0, "{}", made.err);
    let daemon = Daemon::start_in(caller, &with_builds(), &["--store", &store]);
    pytest(caller, &place, &[suite("templates_stored")], &daemon, &[]);
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
