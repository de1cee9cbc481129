//! The way out: a box's gateway, beside a plain wire, slirp4netns and pasta, in turns. Needs root, for the namespaces that
//! it measures in; nothing leaves them.

pub(crate) mod secure;
mod world;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout};
use std::time::Duration;

use serde::Deserialize;

use crate::boxes::programs;
use crate::options::Options;
use crate::paper::{Finding, Promise, Row, Wrong};
use crate::process::{conversing, installed, run, talking};
use crate::sample::Samples;
use world::{Holder, MTU, PORT, RELAY, SERVER, World};

const CLIENT: &str = include_str!("network/client.py");
/// Limits far above what is measured: they are not what is measured.
const POLICY: &str = r#"
threat = "high"
accept = ["host-image", "shared-kernel"]
[network]
mode = "allow"
dangerously_allow_private = [{ cidr = "10.9.9.9/32", ports = [7000] }]
allow = [{ host = "10.9.9.9", ports = [7000], protocol = "tcp" }]
[network.limits]
flows = 4096
connections_per_second = 100000
bandwidth = "1 TiB"
bytes = "64 TiB"
bytes_per_host = "64 TiB"
"#;

/// What the client says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Found {
    up: f64,
    down: f64,
    round_trip: f64,
    connections: f64,
    connections_beside_idle: f64,
}

/// One way out.
struct Way {
    name: &'static str,
    line: Vec<String>,
    /// Where its client finds the server.
    server: &'static str,
    found: Vec<Found>,
    trouble: Option<String>,
}

impl Way {
    fn new(name: &'static str, line: Vec<String>) -> Self {
        Self { name, line, server: SERVER, found: Vec::new(), trouble: None }
    }

    fn missing(name: &'static str) -> Self {
        let trouble = Some("could not run: it is not installed".to_owned());
        Self { trouble, ..Self::new(name, Vec::new()) }
    }

    fn turn(&mut self, seconds: f64) {
        if self.trouble.is_none() {
            match converse(&self.line, self.server, seconds, 0.0).and_then(Talk::rest) {
                Ok(found) => self.found.push(found),
                Err(wrong) => self.trouble = Some(format!("could not run: {wrong}")),
            }
        }
    }

    /// The middle one.
    fn middle(&self, of: impl Fn(&Found) -> f64) -> Option<f64> {
        let mut all: Vec<f64> = self.found.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }

    fn row(&self) -> Row {
        let says = || {
            let giga = |rate: f64| rate * 8e-9;
            Some(format!(
                "{:6.2} Gbit/s up {:6.2} down {:6.0} µs round trip {:6.0} connections/s {:6.0} beside 500 idle ones",
                giga(self.middle(|found| found.up)?),
                giga(self.middle(|found| found.down)?),
                self.middle(|found| found.round_trip)?,
                self.middle(|found| found.connections)?,
                self.middle(|found| found.connections_beside_idle)?,
            ))
        };
        let note = self.trouble.clone().or_else(says).unwrap_or_default();
        Row::said(self.name, &format!("{} < client.py", self.line.join(" ")), note)
    }
}

/// A client that runs.
struct Talk {
    child: Child,
    from: BufReader<ChildStdout>,
    found: Found,
}

impl Talk {
    fn rest(mut self) -> Result<Found, Wrong> {
        std::io::copy(&mut self.from, &mut std::io::sink())?;
        let status = self.child.wait()?;
        if status.success() { Ok(self.found) } else { Err(format!("the client ended with {status}").into()) }
    }
}

/// Has Python run the client somewhere, until it has said what it found.
fn converse(line: &[String], server: &str, seconds: f64, linger: f64) -> Result<Talk, Wrong> {
    // Whoever does not answer is not waited for.
    let most = ["/usr/bin/timeout", "--kill-after=1", "90"].map(str::to_owned);
    let line: Vec<String> = most.iter().chain(line).cloned().collect();
    let mut child = conversing(&line)?;
    let settings = format!("ADDRESS, SECONDS, LINGER = ({server:?}, {PORT}), {seconds}, {linger}\n");
    let (Some(mut to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("the client has no pipes".into());
    };
    to.write_all(settings.as_bytes())?;
    to.write_all(CLIENT.as_bytes())?;
    drop(to);
    let (mut said, mut from) = (String::new(), BufReader::new(from));
    from.read_line(&mut said)?;
    let found = serde_json::from_str(&said).map_err(|_| {
        // Nobody waits for it any more; it is killed, and its end does not matter.
        child.kill().ok();
        child.wait().ok();
        format!("the client said {said:?}")
    })?;
    Ok(Talk { child, from, found })
}

/// Memory of the gateway that a process has started, in MiB, as far as it is its own.
fn gateway_memory(of: u32) -> Option<f64> {
    let parent = |pid: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let all = std::fs::read_dir("/proc").ok()?.flatten();
    let gateway = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).find(|&pid| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim() == "blastbox-egress"
            && std::iter::successors(Some(pid), |&pid| parent(pid)).take(8).any(|pid| pid == of)
    })?;
    let memory = std::fs::read_to_string(format!("/proc/{gateway}/smaps_rollup")).ok()?;
    let pss = memory.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    pss.trim().strip_suffix(" kB")?.parse::<f64>().ok().map(|kib| kib / 1024.0)
}

/// slirp4netns for a namespace of its own. What serves it ends with the second value.
fn slirp(world: &World, holder: &Holder) -> Result<(Way, Option<Child>), Wrong> {
    let Some(program) = installed("slirp4netns") else { return Ok((Way::missing("slirp4netns"), None)) };
    let program = program.display().to_string();
    let line = world.on_host(&[&program, "--configure", "--mtu", MTU, &holder.pid(), "tap0"]);
    let words: Vec<&str> = line.iter().map(String::as_str).collect();
    let serving = talking(&words)?;
    // Its link is there when it answers; asked for at most a second.
    let look = holder.inside(&["/usr/sbin/ip", "route", "get", SERVER]);
    for _ in 0..100 {
        if run(&look).is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok((Way::new("slirp4netns", holder.inside(&["/usr/bin/python3", "-"])), Some(serving)))
}

fn pasta(world: &World) -> Way {
    let Some(program) = installed("pasta") else { return Way::missing("pasta (passt)") };
    let program = program.display().to_string();
    let how = ["--runas", "0", "--config-net", "--no-map-gw", "--quiet", "--mtu", MTU, "--"];
    let words = [&[&*program][..], &how, &["/usr/bin/python3", "-"]].concat();
    Way::new("pasta (passt)", world.on_host(&words))
}

/// Measures it.
pub(crate) fn measure(options: &Options) -> Result<Finding, Wrong> {
    let world = World::build()?;
    let policy = std::env::temp_dir().join(format!("blastbox-bench-{}.toml", std::process::id()));
    std::fs::write(&policy, POLICY)?;
    let finding = measure_in(&world, &policy.display().to_string(), options);
    std::fs::remove_file(&policy)?;
    finding
}

fn measure_in(world: &World, policy: &str, options: &Options) -> Result<Finding, Wrong> {
    let blastbox = programs()?.join("blastbox").display().to_string();
    let boxed = |words: &[&str]| {
        let all = [&[&*blastbox, "run", "--quiet", "--timeout", "300s"], words].concat();
        world.on_host(&all)
    };
    let gateway = boxed(&["--policy", policy, "--lang", "python"]);
    let holder = Holder::start()?;
    let (slirp, serving) = slirp(world, &holder)?;
    let mut ways = [
        Way::new("blastbox's gateway", gateway.clone()),
        Way::new("plain wire (veth)", world.on_host(&["/usr/bin/python3", "-"])),
        Way {
            server: RELAY,
            ..Way::new("plain wire and a relay", world.behind_relay(&["/usr/bin/python3", "-"]))
        },
        slirp,
        pasta(world),
    ];
    let seconds = if options.quick { 0.5 } else { 2.0 };
    for _ in 0..options.samples(5, 2) {
        ways.iter_mut().for_each(|way| way.turn(seconds));
    }
    if let Some(mut serving) = serving {
        // It ends with its namespace too; this is sooner.
        serving.kill().ok();
        serving.wait().ok();
    }
    let talk = converse(&gateway, SERVER, 0.0, 1.0)?;
    let memory = gateway_memory(talk.child.id());
    talk.rest()?;
    let (mut with, mut without) = (Samples::new(), Samples::new());
    let lines = [boxed(&["--policy", policy, "--", "/bin/true"]), boxed(&["--", "/bin/true"])];
    for _ in 0..options.samples(40, 10) {
        for (line, times) in lines.iter().zip([&mut with, &mut without]) {
            times.add(run(line)?);
        }
    }
    let (with, without) = (with.summary(), without.summary());
    let mut rows: Vec<Row> = ways.iter().map(Way::row).collect();
    let said = memory.map_or("not seen".to_owned(), |memory| format!("{memory:.1} MiB"));
    rows.push(Row::said("memory of the gateway", "Pss of blastbox-egress, 500 idle connections", said));
    for (name, line, times) in
        [("a box with network", &lines[0], with), ("a box without", &lines[1], without)]
    {
        rows.push(Row::times(name, &line.join(" "), times));
    }
    let [ours, wire, relay, slirp, _] = &ways;
    let more = with.p5 - without.p5;
    Ok(Finding {
        title: "network · the way out of a box, beside a plain wire and user-space stacks, in turns",
        rows,
        promises: vec![
            least("bulk up, as a share of a plain wire", 0.8, ratio(ours, wire, |found| found.up)),
            least("bulk down, as a share of a plain wire", 0.8, ratio(ours, wire, |found| found.down)),
            least("bulk up, beside a relay", 0.8, ratio(ours, relay, |found| found.up)),
            least("bulk down, beside a relay", 0.8, ratio(ours, relay, |found| found.down)),
            least("bulk up, beside slirp4netns", 1.0, ratio(ours, slirp, |found| found.up)),
            least("bulk down, beside slirp4netns", 1.0, ratio(ours, slirp, |found| found.down)),
            most("added round trip, in µs", 60.0, added(ours, wire)),
            least("new connections in a second", 1000.0, ours.middle(|found| found.connections)),
            least(
                "of them left beside 500 idle ones",
                0.8,
                ours.middle(|found| found.connections_beside_idle / found.connections),
            ),
            most("memory of a gateway, in MiB", 12.0, memory),
            most("a box with network is ready later, in ms", 5.0, Some(more)),
        ],
    })
}

fn ratio(ours: &Way, theirs: &Way, of: impl Fn(&Found) -> f64) -> Option<f64> {
    Some(ours.middle(&of)? / theirs.middle(&of)?)
}

fn added(ours: &Way, wire: &Way) -> Option<f64> {
    Some(ours.middle(|found| found.round_trip)? - wire.middle(|found| found.round_trip)?)
}

fn least(says: &str, least: f64, measured: Option<f64>) -> Promise {
    let word = measured.map_or("not seen".to_owned(), |value| format!("{value:.2}; at least {least}"));
    Promise { says: says.to_owned(), measured: word, kept: measured.map(|value| value >= least) }
}

pub(crate) fn most(says: &str, most: f64, measured: Option<f64>) -> Promise {
    let word = measured.map_or("not seen".to_owned(), |value| format!("{value:.2}; at most {most}"));
    Promise { says: says.to_owned(), measured: word, kept: measured.map(|value| value <= most) }
}
