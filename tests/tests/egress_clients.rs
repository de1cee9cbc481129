//! Real programs in a real box, as they are: each believes the box's authority, reaches the server that a rule allows through
//! a gateway that reads every request, and gets there with a secret that it never had. The same program for a name that no rule
//! allows gets nowhere, although that name has an address and a server behind it.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

use std::collections::HashMap;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use blastbox_tests::internet::{Internet, PUBLIC, Visitor};
use blastbox_tests::{Boxed, Caller, both_ways, text};

both_ways!(
    curl_speaks_both_versions_uploads_and_is_not_led_away,
    curl_uploads_without_a_length_and_goes_by_either_proxy,
    python_reads_with_its_own_library,
    python_reads_with_requests,
    node_reads_with_fetch,
    git_clones_over_https,
    git_pushes_over_https,
    pip_installs_from_an_index,
    a_program_in_go_reads_with_its_own_tls,
);

const ALLOWED: &str = "files.example.com";
const DENIED: &str = "denied.example.com";
const TOKEN: &str = "the-secret-that-no-client-has-42";
const HELLO: &str = "hello from the server\n";
const POLICY: &str = "threat = \"medium\"\naccept = [\"shared-kernel\", \"host-image\", \"shared-uid\", \
    \"no-memory-limit\", \"no-cpu-limit\", \"no-pids-limit\", \"weak-landlock\", \"swap-unlimited\", \"silent-denials\"]\n\
    [network]\nmode = \"allow\"\nallow = [{ host = \"files.example.com\", tls = \"inspect\" }]\n\
    [credentials]\nmode = \"brokered\"\nbind = [{ secret = \"token\", host = \"files.example.com\" }]\n";

type Files = HashMap<String, Vec<u8>>;

/// A small internet whose server has these files for whoever has the token, under the name that is allowed and the one that is
/// not, and what a box needs to reach it.
struct Scene {
    internet: Internet,
    policy: PathBuf,
    sources: PathBuf,
}

impl Scene {
    /// `None`, and reported: this host has not the program, or cannot have a small internet.
    fn build(caller: &Caller, program: &str, mut files: Files) -> Option<Self> {
        files.insert("/hello".to_owned(), HELLO.into());
        Self::serving(caller, program, move |head, body| answer(&files, head, body.len()))
    }

    /// The same with a server that answers so.
    fn serving(
        caller: &Caller,
        program: &str,
        answer: impl Fn(&str, &[u8]) -> Vec<u8> + Send + Sync + 'static,
    ) -> Option<Self> {
        if !Path::new(program).exists() {
            caller.skip(&format!("{program} is not installed"));
            return None;
        }
        let internet = Internet::build(caller)?;
        internet.name(ALLOWED, &[&[PUBLIC]]);
        internet.name(DENIED, &[&[PUBLIC]]);
        let serve = move |visitor: &mut Visitor<'_>| {
            while let Some(head) = visitor.head() {
                let Some(body) = visitor.body(&head) else { return };
                visitor.say(&answer(&head, &body));
            }
        };
        if !internet.secure_server(caller, &[ALLOWED, DENIED], serve) {
            return None;
        }
        let private = |path: PathBuf| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            path
        };
        let token = private(caller.file("token", TOKEN));
        let sources = format!("[secrets.token]\nhosts = [{ALLOWED:?}]\nfile = {token:?}\n");
        let sources = private(caller.file("secrets.toml", sources));
        Some(Self { internet, policy: caller.file("policy.toml", POLICY), sources })
    }

    /// A script in a box.
    fn sh(&self, caller: &Caller, script: &str) -> Boxed {
        let (policy, sources) = (text(&self.policy), text(&self.sources));
        let words = ["run", "--json", "--timeout", "50s", "--policy", policy, "--secrets", sources];
        let words = [&words[..], &["--", "/bin/sh", "-c", script]].concat();
        self.internet.blastbox(caller, &words).end().boxed()
    }

    /// Runs a program for the host that is allowed and, in a second box, for the one that is not; `HOST` in its script stands for
    /// either. What it printed for the first.
    fn both(&self, caller: &Caller, script: &str) -> String {
        let boxed = self.sh(caller, &script.replace("HOST", ALLOWED)).fine();
        assert!(!boxed.stdout.contains(TOKEN) && !boxed.stderr.contains(TOKEN), "{boxed:?}");
        let served = self.internet.requests();
        assert!(!served.is_empty() && served.iter().all(|head| is_for(head, ALLOWED)), "{served:?}");
        assert!(served.iter().all(|head| head.contains(TOKEN)), "{served:?}");
        self.fails(caller, &script.replace("HOST", DENIED));
        boxed.stdout
    }

    /// Runs a program that does not reach the host that no rule allows: it says so itself, and nobody outside has heard of it.
    fn fails(&self, caller: &Caller, script: &str) {
        let boxed = self.sh(caller, script);
        let (outcome, code) = (boxed.outcome(), boxed.receipt.exit_code);
        assert!(outcome == "exited" && code != 0, "{outcome} {code}\n{}\n{}", boxed.stdout, boxed.stderr);
        let denied = &boxed.receipt.network.denied;
        let told = |reason: &str| denied.iter().any(|line| line.target == DENIED && line.reason == reason);
        assert!(told("host-not-allowed"), "{denied:?}\n{}", boxed.stderr);
        let requests = self.internet.requests();
        assert!(!requests.iter().any(|head| is_for(head, DENIED)), "{requests:?}");
        assert!(!self.internet.questions().iter().any(|name| name == DENIED));
    }
}

fn is_for(head: &str, host: &str) -> bool {
    head.to_ascii_lowercase().contains(&format!("host: {host}\r\n"))
}

fn answer(files: &Files, head: &str, uploaded: usize) -> Vec<u8> {
    let mut words = head.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default().trim_end_matches('/');
    let (status, more, body) = match files.get(path) {
        _ if !head.contains(&format!("Bearer {TOKEN}\r\n")) => {
            ("401 Unauthorized", String::new(), Vec::new())
        }
        _ if method == "POST" => ("200 OK", String::new(), format!("{uploaded} bytes\n").into_bytes()),
        _ if path == "/elsewhere" => {
            ("302 Found", format!("Location: https://{DENIED}/hello\r\n"), Vec::new())
        }
        _ if path == "/told" => ("200 OK", String::new(), head.as_bytes().to_vec()),
        Some(file) if path.starts_with("/simple/") => {
            ("200 OK", "Content-Type: text/html\r\n".to_owned(), file.clone())
        }
        Some(file) => ("200 OK", String::new(), file.clone()),
        None => ("404 Not Found", String::new(), Vec::new()),
    };
    let length = body.len();
    [format!("HTTP/1.1 {status}\r\n{more}Content-Length: {length}\r\n\r\n").into_bytes(), body].concat()
}

fn curl_speaks_both_versions_uploads_and_is_not_led_away(caller: &Caller) {
    let Some(scene) = Scene::build(caller, "/usr/bin/curl", Files::new()) else { return };
    let script = "set -e; for version in --http1.1 --http2; do curl -sS -w '%{http_version}\\n' $version https://HOST/hello; done; \
                  head -c 5000000 /dev/zero | curl -sS --data-binary @- https://HOST/up";
    assert_eq!(scene.both(caller, script), format!("{HELLO}1.1\n{HELLO}2\n5000000 bytes\n"));
    // A server that tells what it was told does not tell the secret.
    let told = scene.sh(caller, &format!("curl -sS https://{ALLOWED}/told")).fine().stdout;
    assert!(told.contains(&format!("Bearer {}\r\n", "*".repeat(TOKEN.len()))), "{told}");
    // A redirect is an answer like any other: whoever follows it asks anew.
    scene.fails(caller, &format!("curl -sS -L https://{ALLOWED}/elsewhere"));
}

/// What has no length beforehand is sent in chunks. The gateway's own doors lead to the same server.
fn curl_uploads_without_a_length_and_goes_by_either_proxy(caller: &Caller) {
    let Some(scene) = Scene::build(caller, "/usr/bin/curl", Files::new()) else { return };
    let script = "set -e; for version in --http1.1 --http2; do head -c 300000 /dev/zero | curl -sS $version -X POST -T - https://HOST/up; \
                  done; curl -sS -x http://198.18.0.1:3128 https://HOST/hello; \
                  curl -sS --socks5-hostname 198.18.0.1:1080 https://HOST/hello";
    assert_eq!(scene.both(caller, script), format!("{0}{0}{HELLO}{HELLO}", "300000 bytes\n"));
    let requests = scene.internet.requests();
    let chunked = |head: &&String| head.to_ascii_lowercase().contains("transfer-encoding: chunked\r\n");
    assert_eq!(requests.iter().filter(chunked).count(), 2, "{requests:?}");
}

fn python_reads_with_its_own_library(caller: &Caller) {
    let Some(scene) = Scene::build(caller, "/usr/bin/python3", Files::new()) else { return };
    let script = "/usr/bin/python3 -c 'import urllib.request as r; print(r.urlopen(\"https://HOST/hello\").read().decode(), end=\"\")'";
    assert_eq!(scene.both(caller, script), HELLO);
}

fn python_reads_with_requests(caller: &Caller) {
    // Debian's pip carries it, where it is not installed by itself.
    let import = "try: import requests\nexcept ImportError: from pip._vendor import requests";
    let python = Path::new("/usr/bin/python3");
    if python.exists() && caller.program(python, ["-c", import]).end().code != 0 {
        return caller.skip("Python has no requests (apt-get install python3-requests)");
    }
    let Some(scene) = Scene::build(caller, "/usr/bin/python3", Files::new()) else { return };
    let script =
        format!("/usr/bin/python3 -c '{import}\nprint(requests.get(\"https://HOST/hello\").text, end=\"\")'");
    assert_eq!(scene.both(caller, &script), HELLO);
}

fn node_reads_with_fetch(caller: &Caller) {
    let Some(scene) = Scene::build(caller, "/usr/bin/node", Files::new()) else { return };
    let script =
        "node -e 'fetch(\"https://HOST/hello\").then(r => r.text()).then(t => process.stdout.write(t))'";
    assert_eq!(scene.both(caller, script), HELLO);
}

fn git_clones_over_https(caller: &Caller) {
    let git = Path::new("/usr/bin/git");
    let mut files = Files::new();
    if git.exists() {
        let script = "set -e; export HOME=$PWD GIT_CONFIG_NOSYSTEM=1; git() { /usr/bin/git -c user.name=t -c user.email=t@t -c init.defaultBranch=main \"$@\"; }; \
                      git init -q work; echo content > work/file; git -C work add file; git -C work commit -q -m first; \
                      git clone -q --bare work repo.git; git -C repo.git update-server-info";
        let ended = caller.program(Path::new("/bin/sh"), ["-c", script]).end();
        assert_eq!(ended.code, 0, "{}", ended.err);
        gather(&caller.place().join("repo.git"), "/repo.git", &mut files);
    }
    let Some(scene) = Scene::build(caller, "/usr/bin/git", files) else { return };
    let script = "/usr/bin/git clone -q https://HOST/repo.git /tmp/copy && cat /tmp/copy/file";
    assert_eq!(scene.both(caller, script), "content\n");
}

/// A server that takes what is pushed, by git's own program for that. What is pushed has no length beforehand, and more than one request.
fn git_pushes_over_https(caller: &Caller) {
    const BACKEND: &str = "/usr/lib/git-core/git-http-backend";
    if !Path::new(BACKEND).exists() {
        return caller.skip("git has no git-http-backend");
    }
    let script = "set -e; export HOME=$PWD GIT_CONFIG_NOSYSTEM=1; /usr/bin/git -c init.defaultBranch=main init -q --bare pushed.git; \
                  /usr/bin/git -C pushed.git config http.receivepack true; /usr/bin/git -C pushed.git config safe.directory '*'";
    let ended = caller.program(Path::new("/bin/sh"), ["-c", script]).end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    let root = caller.place().join(".");
    let serve = move |head: &str, body: &[u8]| git_backend(BACKEND, &root, head, body);
    let Some(scene) = Scene::serving(caller, "/usr/bin/git", serve) else { return };
    let script = "set -e; cd /tmp; export HOME=/tmp; git() { /usr/bin/git -c user.name=t -c user.email=t@t -c init.defaultBranch=main \
                  -c http.postBuffer=65536 \"$@\"; }; git init -q work; cd work; head -c 300000 /dev/urandom > large; echo content > file; \
                  git add .; git commit -q -m first; git push -q https://HOST/pushed.git main; git rev-parse HEAD";
    let pushed = scene.both(caller, script);
    let here = "cd pushed.git && HOME=$PWD /usr/bin/git -c safe.directory='*' rev-parse main";
    let ended = caller.program(Path::new("/bin/sh"), ["-c", here]).end();
    assert_eq!(ended.text(), pushed, "{}", ended.err);
}

/// The answer of git's own server, which speaks CGI.
#[expect(clippy::disallowed_methods, reason = "the server of a test, outside of every box")]
fn git_backend(program: &str, root: &Path, head: &str, body: &[u8]) -> Vec<u8> {
    if !head.contains(&format!("Bearer {TOKEN}\r\n")) {
        return b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n".to_vec();
    }
    let mut words = head.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let field = |name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        lines
            .filter(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
            .next()
            .unwrap_or_default()
    };
    let mut running = Command::new(program)
        .env_clear()
        .envs([
            ("REQUEST_METHOD", method),
            ("PATH_INFO", path),
            ("QUERY_STRING", query),
            ("GIT_HTTP_EXPORT_ALL", "1"),
        ])
        .envs([("CONTENT_TYPE", field("content-type")), ("HTTP_CONTENT_ENCODING", field("content-encoding"))])
        .envs([("GIT_PROTOCOL", field("git-protocol")), ("CONTENT_LENGTH", &body.len().to_string())])
        .envs([
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "safe.directory"),
            ("GIT_CONFIG_VALUE_0", "*"),
        ])
        .envs([("GIT_PROJECT_ROOT", root), ("HOME", root)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    running.stdin.take().unwrap().write_all(body).unwrap();
    let said = running.wait_with_output().unwrap().stdout;
    let end = said.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let (fields, content) = (String::from_utf8_lossy(&said[..end]), &said[end + 4..]);
    let status = fields.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK");
    let rest = fields.lines().filter(|line| !line.starts_with("Status: ")).map(|line| format!("{line}\r\n"));
    let rest = rest.collect::<String>();
    let head = format!("HTTP/1.1 {status}\r\n{rest}Content-Length: {}\r\n\r\n", content.len());
    [head.as_bytes(), content].concat()
}

/// Every file beneath a directory, by its path there.
fn gather(directory: &Path, at: &str, files: &mut Files) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{at}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            gather(&entry.path(), &name, files);
        } else {
            files.insert(name, std::fs::read(entry.path()).unwrap());
        }
    }
}

fn pip_installs_from_an_index(caller: &Caller) {
    let python = Path::new("/usr/bin/python3");
    let mut files = Files::new();
    if python.exists() {
        if caller.program(python, ["-m", "pip", "--version"]).end().code != 0 {
            return caller.skip("Python has no pip (apt-get install python3-pip)");
        }
        let make = "import zipfile\nz = zipfile.ZipFile('tiny-1.0-py3-none-any.whl', 'w')\n\
            z.writestr('tiny.py', 'word = \"installed\"')\nz.writestr('tiny-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')\n\
            z.writestr('tiny-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
            z.writestr('tiny-1.0.dist-info/RECORD', '')\nz.close()";
        let ended = caller.program(python, ["-c", make]).end();
        assert_eq!(ended.code, 0, "{}", ended.err);
        let wheel = "tiny-1.0-py3-none-any.whl";
        files.insert(format!("/{wheel}"), std::fs::read(caller.place().join(wheel)).unwrap());
        let page = format!("<!DOCTYPE html><html><body><a href=\"/{wheel}\">{wheel}</a></body></html>");
        files.insert("/simple/tiny".to_owned(), page.into_bytes());
    }
    let Some(scene) = Scene::build(caller, "/usr/bin/python3", files) else { return };
    // Without a second try, which only takes its time.
    let script = "/usr/bin/python3 -m pip --disable-pip-version-check --retries 0 install -q --no-deps --no-cache-dir \
                  --target /tmp/site -i https://HOST/simple/ tiny && PYTHONPATH=/tmp/site /usr/bin/python3 -c 'import tiny; print(tiny.word)'";
    assert_eq!(scene.both(caller, script), "installed\n");
}

/// gron is a small program in Go that reads a page by itself, with Go's own TLS: nothing of OpenSSL is in it.
fn a_program_in_go_reads_with_its_own_tls(caller: &Caller) {
    let files = Files::from([("/page".to_owned(), b"{\"said\": \"hello\"}".to_vec())]);
    let Some(scene) = Scene::build(caller, "/usr/bin/gron", files) else { return };
    let said = scene.both(caller, "/usr/bin/gron --monochrome https://HOST/page");
    assert_eq!(said, "json = {};\njson.said = \"hello\";\n");
}
