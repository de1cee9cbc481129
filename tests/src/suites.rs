//! Suites of tests for clients that others publish, run against a real daemon, and the daemon.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::internet::Internet;
use crate::{Caller, Held, Start, wait_until};

/// The bound of one suite. Nothing is asserted with it: a suite that needs it has hung.
const PATIENCE: Duration = Duration::from_secs(600);
/// More sandboxes at once than a small host promises by itself; they idle.
pub const CONFIG: &str = "[host]\nboxes = 100\nmemory = \"200GiB\"\ncpus = \"100\"\npatience = \"120s\"\n";

/// A daemon that listens for E2B's SDKs, and a key for it.
#[derive(Debug)]
pub struct Daemon {
    held: Option<Held>,
    /// Where it listens. Empty where clients are not to be told.
    pub url: String,
    /// A key of the tenant that every key has which names none.
    pub key: String,
    /// Words in front of whatever is to reach it.
    before: Vec<String>,
}

impl Daemon {
    /// One that says nothing special.
    pub fn start(caller: &Caller) -> Self {
        Self::start_with(caller, CONFIG)
    }

    /// With this configuration.
    pub fn start_with(caller: &Caller, config: &str) -> Self {
        Self::start_in(caller, config, &[])
    }

    /// The same, with more words.
    pub fn start_in(caller: &Caller, config: &str, more: &[&str]) -> Self {
        let key = Self::key(caller, &["suite"], "bbx_");
        Self::start_again(caller, config, more, key)
    }

    /// One on the host of a small internet; suites run there too.
    pub fn start_on(internet: &Internet, caller: &Caller, config: &str) -> Self {
        let key = Self::key(caller, &["suite"], "bbx_");
        let mut started = Self::begin(caller, config, &[], key, |words| internet.blastbox(caller, words));
        started.before = internet.before_programs();
        started
    }

    /// The same for the next one in its place, which knows this key already.
    pub fn start_again(caller: &Caller, config: &str, more: &[&str], key: String) -> Self {
        Self::begin(caller, config, more, key, |words| caller.blastbox(words.iter().copied()))
    }

    fn begin<'c>(
        caller: &'c Caller,
        config: &str,
        more: &[&str],
        key: String,
        program: impl FnOnce(&[&str]) -> Start<'c>,
    ) -> Self {
        let place = |name: &str| caller.place().join(name).display().to_string();
        let (state, socket) = (place("state"), place("api.sock"));
        let config = caller.file("daemon.toml", config).display().to_string();
        let (said, says) = rustix::pipe::pipe().expect("a pipe");
        let null =
            || OwnedFd::from(File::options().read(true).write(true).open("/dev/null").expect("/dev/null"));
        let words = ["serve", "--quiet", "--state-dir", &state, "--socket", &socket, "--config", &config];
        let words: Vec<&str> =
            words.into_iter().chain(["--listen", "127.0.0.1:0"]).chain(more.iter().copied()).collect();
        let held = program(&words).start_with([null(), null(), says]);
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
        Self { held: Some(held), url, key, before: Vec::new() }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.held.as_ref().expect("a daemon that was started").id()
    }

    /// Ends it as no daemon would end itself.
    pub fn kill(mut self) {
        if let Some(mut held) = self.held.take() {
            held.signal(Signal::KILL);
            assert!(wait_until(|| held.is_over()), "a daemon that was killed is over");
        }
    }

    /// Makes a key for the daemon, which may run already.
    pub fn key(caller: &Caller, words: &[&str], begins: &str) -> String {
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

/// Where `make test` puts what tests need.
fn target() -> PathBuf {
    let programs = std::env::var_os("BLASTBOX_BIN_DIR").map(PathBuf::from);
    let target = programs.and_then(|programs| programs.parent().map(Path::to_owned));
    target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"))
}

/// The store with an image of Debian, which `make test` makes where it can. `None`: it could not, and the test counts as skipped.
pub fn store_with(caller: &Caller, image: &str) -> Option<String> {
    let store = store_of(caller, image);
    if store.is_none() {
        let there = target().join("images/names").join(image).exists();
        caller.skip(match there {
            true => "the store with images of Debian belongs to another user",
            false => "an image of Debian could not be made (tools/images.sh says why)",
        });
    }
    store
}

/// The same for a test that can do without.
pub fn store_of(caller: &Caller, image: &str) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;
    let store = std::path::absolute(target().join("images")).ok()?;
    let found = std::fs::metadata(store.join("names").join(image)).ok()?;
    // A store is its owner's, and nobody else opens it.
    ((found.uid() == 0) == caller.is_root()).then(|| store.display().to_string())
}

/// Where `make test` puts the SDKs. `None`: it could not, and the test counts as skipped.
pub fn installed(caller: &Caller, language: &str) -> Option<PathBuf> {
    let target = target();
    let place = std::path::absolute(target.join("e2b").join(language)).ok()?;
    if place.join(".holds").is_file() {
        return Some(place);
    }
    caller.skip("the published client is not installed (tools/e2b.sh says why)");
    None
}

/// Where a suite is.
pub fn suite(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("e2b").join(name)
}

/// Words for pytest: quiet, ended by the first failure, and with a line for every test that was skipped.
pub const PYTEST: [&str; 8] = ["-m", "pytest", "-q", "-x", "-rs", "--no-header", "-p", "no:cacheprovider"];

/// What a suite says that it has skipped: where, and why. By pytest as `SKIPPED [2] conftest.py:47: why`, for so many tests; by vitest
/// as `tests/e2b/js/run.mjs` has it, `ok 3 - name # SKIP why`.
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

/// Runs a suite as whoever runs the tests: only the daemon is the caller's. What it skips counts as skipped beside the test.
#[expect(clippy::disallowed_methods, reason = "a suite of tests is no program of ours")]
pub fn run(caller: &Caller, program: &Path, words: &[&Path], daemon: &Daemon, more: &[(&str, &Path)]) {
    let mut all = daemon.before.iter().map(Path::new).chain([program]).chain(words.iter().copied());
    let mut command = Command::new(all.next().unwrap_or(program));
    command.args(all);
    if daemon.url.is_empty() {
        command.env_remove("E2B_API_URL").env_remove("E2B_SANDBOX_URL");
    } else {
        command.env("E2B_API_URL", &daemon.url).env("E2B_SANDBOX_URL", &daemon.url);
    }
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
pub fn pytest(caller: &Caller, place: &Path, suites: &[PathBuf], daemon: &Daemon, more: &[(&str, &Path)]) {
    let words: Vec<&Path> =
        PYTEST.map(Path::new).into_iter().chain(suites.iter().map(PathBuf::as_path)).collect();
    run(caller, &place.join("bin/python"), &words, daemon, more);
}

/// Runs a suite for Node with vitest.
pub fn javascript(caller: &Caller, name: &str, daemon: &Daemon) {
    javascript_with(caller, name, daemon, &[]);
}

/// The same, with more variables.
pub fn javascript_with(caller: &Caller, name: &str, daemon: &Daemon, more: &[(&str, &Path)]) {
    let Some(place) = installed(caller, "node") else { return };
    let node = ["/usr/bin/node", "/usr/local/bin/node"].map(Path::new).into_iter().find(|node| node.exists());
    let Some(node) = node else { return caller.skip("there is no node") };
    let (runner, suite) = (suite("js/run.mjs"), suite("js").join(name));
    let words = [runner.as_path(), suite.as_path()];
    let modules = place.join("node_modules");
    let more: Vec<(&str, &Path)> = more.iter().copied().chain([("NODE_PATH", modules.as_path())]).collect();
    run(caller, node, &words, daemon, &more);
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let node = " RUN  v4.1.12\nok 1 - pauses # SKIP this host freezes no box\nok 2 - runs\n Tests  1 passed | 1 skipped (2)";
        assert_eq!(skipped(node), [("ok 1 - pauses".to_owned(), "this host freezes no box")]);
    }
}
