//! A daemon to measure: `blastbox serve` as anybody starts it, on loopback with a key, in a directory of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::boxes::programs;
use crate::http::Client;
use crate::memory::pss;
use crate::paper::Wrong;
use crate::process::{said, talking};

/// As many boxes as a benchmark asks for; what they promise is never used.
const CONFIG: &str = "[host]\nboxes = 2000\nmemory = \"4096GiB\"\ncpus = \"4000\"\n";

/// A daemon; dropping it ends it, and waits for that.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    directory: PathBuf,
    address: SocketAddr,
    key: String,
}

/// What a process holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holds {
    /// Resident memory, in KiB.
    pub(crate) rss: u64,
    /// The most that it ever was.
    pub(crate) peak: u64,
    /// Open descriptors; only root sees them, because the daemon cannot be looked into.
    pub(crate) descriptors: Option<usize>,
    /// Threads.
    pub(crate) threads: u64,
}

impl Daemon {
    /// Starts one.
    pub(crate) fn start() -> Result<Self, Wrong> {
        Self::start_with("")
    }

    /// Starts one with more in its configuration.
    pub(crate) fn start_with(more: &str) -> Result<Self, Wrong> {
        Self::start_in(more, &[])
    }

    /// The same, with more words to it.
    pub(crate) fn start_in(more: &str, words: &[&str]) -> Result<Self, Wrong> {
        let program = programs()?.join("blastbox").display().to_string();
        let directory = std::env::temp_dir().join(format!("blastbox-bench-{}", std::process::id()));
        fs::create_dir_all(&directory)?;
        let (config, state) = (directory.join("daemon.toml"), directory.join("state").display().to_string());
        fs::write(&config, format!("{CONFIG}{more}"))?;
        let key = said(&[&program, "key", "create", "bench", "--state-dir", &state])?;
        let socket = directory.join("socket").display().to_string();
        let config = config.display().to_string();
        let serve = [&program, "serve", "--quiet", "--listen", "127.0.0.1:0", "--socket", &socket];
        let own = ["--state-dir", &state, "--config", &config];
        let mut child = talking(&[&serve[..], &own, words].concat())?;
        let address = child.stderr.take().ok_or("no standard error").map(|words| {
            let mut lines = BufReader::new(words).lines().map_while(Result::ok);
            let address = lines.find_map(|line| line.split_once("http://").map(|(_, at)| at.to_owned()));
            // Whatever it says later is read, so that it never waits for somebody to read it.
            std::thread::spawn(move || lines.for_each(drop));
            address
        });
        let directory_too = directory.clone();
        match address {
            Ok(Some(address)) => Ok(Self { child, directory, address: address.trim().parse()?, key }),
            Ok(None) | Err(_) => {
                child.kill()?;
                child.wait()?;
                fs::remove_dir_all(directory_too)?;
                Err("the daemon did not say where it listens".into())
            }
        }
    }

    /// Where it listens, for others.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The key that it takes.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// A connection of its own.
    pub(crate) fn client(&self) -> Result<Client, Wrong> {
        Ok(Client::connect(self.address, &self.key)?)
    }

    /// What the daemon and its warden have worked so far. What that forked for a box is the box's as soon as it is one.
    pub(crate) fn work(&self) -> Result<Duration, Wrong> {
        let own = std::iter::once(self.child.id()).chain(below(self.child.id()));
        let ticks = own.map(ticks).sum::<Result<u64, Wrong>>()?;
        Ok(Duration::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second()))
    }

    /// Every QEMU of its boxes.
    pub(crate) fn machines(&self) -> Result<Vec<u32>, Wrong> {
        Ok(self.tree()?.into_iter().filter(|&pid| name(pid).starts_with("qemu")).collect())
    }

    /// Its process and every one beneath.
    fn tree(&self) -> Result<Vec<u32>, Wrong> {
        let (mut all, mut at) = (vec![self.child.id()], 0);
        while let Some(&pid) = all.get(at) {
            all.extend(below(pid));
            at += 1;
        }
        Ok(all)
    }

    /// What the daemon's own process holds.
    pub(crate) fn holds(&self) -> Result<Holds, Wrong> {
        let pid = self.child.id();
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).ok_or(format!("no {name}"))
        };
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok().map(Iterator::count);
        Ok(Holds { rss: field("VmRSS")?, peak: field("VmHWM")?, descriptors, threads: field("Threads")? })
    }

    /// The proportional share of the daemon, its warden and every agent, in KiB, and how many processes that are.
    pub(crate) fn share_of_all(&self) -> Result<(u64, usize), Wrong> {
        let all = self.tree()?;
        let shares = all.iter().map(|&pid| pss(pid)).collect::<Result<Vec<_>, _>>()?;
        Ok((shares.iter().sum(), all.len()))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM).ok();
        }
        self.child.wait().ok();
        fs::remove_dir_all(&self.directory).ok();
    }
}

/// Makes a box; its path.
pub(crate) fn create(client: &mut Client, body: &str) -> Result<String, Wrong> {
    let card = client.ask("POST", "/v1/boxes", body)?;
    Ok(format!("/v1/boxes/{}", card.get("id").and_then(|id| id.as_str()).ok_or("a card without an id")?))
}

/// Runs a command in a box; its path.
pub(crate) fn exec(client: &mut Client, made: &str, words: &[&str]) -> Result<String, Wrong> {
    let begun = client.ask("POST", &format!("{made}/execs"), &json!({ "command": words }).to_string())?;
    Ok(format!("{made}/execs/{}", begun.get("exec").and_then(|exec| exec.as_u64()).ok_or("no number")?))
}

/// Creates a box, runs `/bin/true` and hears how it ended. The box is still there; its path.
pub(crate) fn create_and_run(client: &mut Client) -> Result<String, Wrong> {
    let made = create(client, "{}")?;
    hear(client, &made, &["/bin/true"])?;
    Ok(made)
}

/// Runs a command in a box and hears that it ended well.
pub(crate) fn hear(client: &mut Client, made: &str, words: &[&str]) -> Result<(), Wrong> {
    let exec = exec(client, made, words)?;
    let mut heard = Vec::new();
    client.listen(&format!("{exec}/events"), |piece| heard.extend_from_slice(piece))?;
    let heard = String::from_utf8_lossy(&heard);
    if !heard.contains("\"how\":\"exited\",\"code\":0") {
        return Err(format!("{words:?} ended badly: {heard}").into());
    }
    Ok(())
}

/// The children of a process, whichever of its threads made them.
fn below(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

/// What a process is called.
fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default()
}

/// User and system time of a process, in ticks.
fn ticks(pid: u32) -> Result<u64, Wrong> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // Its name may hold anything; after it every word is a number but the first.
    let (_, rest) = stat.rsplit_once(") ").ok_or("no name")?;
    let field =
        |at: usize| rest.split(' ').nth(at).and_then(|word| word.parse::<u64>().ok()).ok_or("no time");
    Ok(field(11)? + field(12)?)
}

/// The same, and ends the box.
pub(crate) fn cycle(client: &mut Client) -> Result<(), Wrong> {
    let made = create_and_run(client)?;
    client.ask("DELETE", &made, "").map(drop)
}
