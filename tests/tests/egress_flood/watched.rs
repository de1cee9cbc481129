//! A box whose program and its test wait for each other, and what its gateway has meanwhile.

use std::io::{BufRead as _, BufReader, Lines, PipeReader, PipeWriter, Write as _};
use std::os::unix::fs::PermissionsExt as _;

use blastbox_tests::census::family;
use blastbox_tests::internet::Internet;
use blastbox_tests::{Caller, Held, text};
use blastbox_wire::receipt::Receipt;
use serde_json::Value;

pub(crate) const ACCEPT: &str = "threat = \"medium\"\naccept = [\"shared-kernel\", \"host-image\", \"shared-uid\", \
    \"no-memory-limit\", \"no-cpu-limit\", \"no-pids-limit\", \"weak-landlock\", \"swap-unlimited\", \"silent-denials\"]\n";
const SPEAK: &str = r#"
import errno, json, os, socket, ssl, sys, time
def tell(*what): print(json.dumps(what), flush=True)
def wait(): sys.stdin.readline()
def tls(host):
    return ssl.create_default_context().wrap_socket(socket.create_connection((host, 443), timeout=40), server_hostname=host)
def get(host, path="/", more=""):
    with tls(host) as one:
        one.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n".encode())
        got = b""
        while True:
            more = one.recv(65536)
            if not more: break
            got += more
        head, _, body = got.partition(b"\r\n\r\n")
        return head.decode().lower(), body
def connected(at):
    one = socket.socket()
    one.settimeout(40)
    try: one.connect(at)
    except OSError: one.close(); raise
    return one
def again(what):
    "Once more where a limit says so: connections are given back when their end has come through."
    for _ in range(4000):
        try: return what()
        except ConnectionRefusedError: time.sleep(0.01)
    return "refused for ever"
"#;

/// A file that only its owner reads, as sources of secrets have to be.
pub(crate) fn private_file(caller: &Caller, name: &str, content: &str) -> std::path::PathBuf {
    let path = caller.file(name, content);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// A box whose program and its test wait for each other: a line from the one, a line from the other.
pub(crate) struct Watched {
    held: Held,
    lines: Lines<BufReader<PipeReader>>,
    go: PipeWriter,
    receipt: std::path::PathBuf,
}

impl Watched {
    pub(crate) fn start(
        internet: &Internet,
        caller: &Caller,
        policy: &str,
        more: &[&str],
        code: &str,
    ) -> Self {
        let folder = caller.directory("code");
        let script = folder.join("code.py");
        std::fs::write(&script, format!("{SPEAK}\n{code}")).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o644)).unwrap();
        let policy = caller.file("policy.toml", format!("{ACCEPT}{policy}\n[files]\nopen_files = 12288\n"));
        let receipt = caller.place().join("receipt.json");
        let workspace = format!("{}:ro", text(&folder));
        let words = ["run", "-i", "--timeout", "280s", "--policy", text(&policy), "--workspace", &workspace];
        let last = ["--receipt", text(&receipt), "--", "/usr/bin/python3", "/workspace/code.py"];
        let words = [&words[..], more, &last].concat();
        let (input, go) = std::io::pipe().unwrap();
        let (output, out) = std::io::pipe().unwrap();
        let err = std::fs::File::create(caller.place().join("complaints")).unwrap();
        let streams = [input.into(), out.into(), err.into()];
        let held = internet.blastbox(caller, &words).start_with(streams);
        Self { held, lines: BufReader::new(output).lines(), go, receipt }
    }

    pub(crate) fn says(&mut self, caller: &Caller) -> Value {
        let line = self.lines.next();
        let complaints = || std::fs::read_to_string(caller.place().join("complaints")).unwrap_or_default();
        assert!(line.is_some(), "the box ended early: {}", complaints());
        serde_json::from_str(&line.unwrap().unwrap()).unwrap()
    }

    pub(crate) fn go_on(&mut self) {
        self.go.write_all(b"\n").unwrap();
    }

    /// A line of the gateway's own status, in bytes: what it has in memory (`VmRSS`), what it ever had (`VmHWM`).
    pub(crate) fn gateway(&self, line: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.gateway_pid())).unwrap();
        let field = status.lines().find_map(|text| text.strip_prefix(line)).unwrap();
        field.trim_start_matches(':').trim().split(' ').next().unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Its open descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.gateway_pid())).unwrap().count()
    }

    pub(crate) fn gateway_pid(&self) -> u32 {
        let gateway = family(self.held.id()).into_iter().find(|process| process.name == "blastbox-egress");
        gateway.unwrap().pid
    }

    pub(crate) fn end(self) -> Receipt {
        assert_eq!(self.held.end().code, 0);
        let receipt: Receipt = serde_json::from_slice(&std::fs::read(self.receipt).unwrap()).unwrap();
        assert!(!receipt.network.gateway_lost);
        receipt
    }
}

pub(crate) fn reasons<'r>(receipt: &'r Receipt, target: &str) -> Vec<&'r str> {
    let lines = receipt.network.denied.iter().filter(|line| line.target == target);
    lines.map(|line| line.reason.as_str()).collect()
}
