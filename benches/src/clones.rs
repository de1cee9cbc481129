//! Virtual machines that begin as copies of one that sleeps, beside machines that boot by themselves: time and work until the first
//! command has ended, what eight of them hold, and what the host has to do for each.
//!
//! A machine with a workspace boots by itself, which is how a cold start is had on any host. The work of a machine is that of its
//! whole group, as its receipt says; the host's part is what daemon and warden do meanwhile.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use blastbox_wire::event::Hash;
use serde_json::{Value, json};

use crate::boxes::programs;
use crate::daemon::{Daemon, create, hear};
use crate::http::Client;
use crate::memory::pss;
use crate::options::Options;
use crate::paper::{Finding, Promise, Row, Wrong};
use crate::process::run;
use crate::sample::{Samples, Summary};

const TITLE: &str = "clones · virtual machines that begin as copies, beside machines that boot";
/// Copies that are there at once.
const CROWD: usize = 8;
/// What one of them may hold, in KiB.
const MOST_SHARE: u64 = 30 * 1024;
const MOST_HOST: Duration = Duration::from_millis(30);
const MOST_WORK: Duration = Duration::from_millis(300);
/// What the literature says of boots and copies of small machines on hardware, in milliseconds.
const QUOTED: (u32, u32) = (125, 28);
/// What the receipt of a machine says where the host's processor runs it.
const ON_KVM: &str = "keeps guest and host apart (KVM)";

/// An image and a kernel in a store of their own; dropping it removes them.
struct Workshop {
    place: PathBuf,
    program: String,
}

impl Drop for Workshop {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.place).ok();
    }
}

/// Measures it.
pub(crate) fn measure(options: &Options) -> Result<Finding, Wrong> {
    let workshop = match Workshop::open()? {
        Ok(workshop) => workshop,
        Err(missing) => {
            let row = Row::said("virtual machines", "tools/kernel.sh", missing.to_owned());
            return Ok(Finding { title: TITLE, rows: vec![row], promises: Vec::new() });
        }
    };
    let (mut boots, mut boot_work) = (Samples::new(), Samples::new());
    let line = workshop.boot_line();
    for _ in 0..options.samples(5, 2) {
        boots.add(run(&line)?);
        boot_work.add(work(&read_json(&workshop.receipt())?)?);
    }
    // Leaves the template of this kind on disk, where a daemon finds it.
    run(&workshop.copy_line())?;
    let seen = Clones::measure(&workshop, options.samples(20, 6))?;
    let (boots, clones, work) = (boots.summary(), seen.times.summary(), seen.work.summary());
    let body = workshop.body().to_string();
    let mut rows = vec![
        Row::times("boot: run, until it has ended", &line.join(" "), boots),
        Row::times("  work of the machine", "usage.cpu_micros of its receipt", boot_work.summary()),
        Row::times("copy: until /bin/true has ended", &format!("POST /v1/boxes {body}, exec"), clones),
        Row::times("  work of the machine", "usage.cpu_micros of its receipt", work),
        Row::said(
            "  work of daemon and warden",
            "utime + stime of /proc/PID/stat, mean of all copies",
            format!("{:.1} ms", seen.host.as_secs_f64() * 1e3),
        ),
        Row::said(
            "8 copies that wait, and after a command",
            "Pss of each QEMU, /proc/PID/smaps_rollup, mean",
            format!("{} and {} MiB each", seen.share / 1024, seen.used / 1024),
        ),
    ];
    if read_json(&workshop.receipt())?.to_string().contains(ON_KVM) {
        rows.push(Row::said(
            "on KVM, beside what is quoted",
            "p50 and p99 of the above",
            beside(boots, clones),
        ));
    }
    let promises = vec![
        Promise::at_most("a copy's first command costs at most 0.1 of a boot's", 0.1, clones, boots),
        bound("a copy takes at most 0.3 CPU s", work, MOST_WORK),
        Promise {
            says: "daemon and warden work at most 30 ms for a copy".to_owned(),
            measured: format!("{:.1} ms", seen.host.as_secs_f64() * 1e3),
            kept: Some(seen.host <= MOST_HOST),
        },
        Promise {
            says: "8 copies that wait hold at most 30 MiB each".to_owned(),
            measured: format!("{} KiB each", seen.share),
            kept: Some(seen.share <= MOST_SHARE),
        },
        Promise {
            says: "the template is the same, byte for byte, when they have run".to_owned(),
            measured: if seen.same { "it is" } else { "it is not" }.to_owned(),
            kept: Some(seen.same),
        },
    ];
    Ok(Finding { title: TITLE, rows, promises })
}

/// The fifth percentile decides: other people's work on the machine only ever adds.
fn bound(says: &str, measured: Summary, most: Duration) -> Promise {
    let most = most.as_secs_f64() * 1e3;
    let Summary { p5, median, .. } = measured;
    let said = format!("{p5:.0} ms by p5, {median:.0} ms by median; at most {most:.0}");
    Promise { says: says.to_owned(), measured: said, kept: Some(p5 <= most) }
}

/// Boots and copies on hardware, each beside what others say of theirs.
fn beside(boots: Summary, clones: Summary) -> String {
    let (boot, copy) = QUOTED;
    let [boots, clones] =
        [boots, clones].map(|Summary { median, p99, .. }| format!("{median:.0} and {p99:.0} ms"));
    format!("boot {boots} ({boot} are quoted), copy {clones} ({copy} are quoted)")
}

/// What was seen of copies.
struct Clones {
    times: Samples,
    work: Samples,
    /// What daemon and warden work for one.
    host: Duration,
    /// Of each of [`CROWD`] that waits for its first command, in KiB.
    share: u64,
    /// The same when one has ended there: under emulation that is mostly what QEMU made of the guest's instructions.
    used: u64,
    same: bool,
}

impl Clones {
    fn measure(workshop: &Workshop, count: usize) -> Result<Self, Wrong> {
        let daemon = Daemon::start_in("[pool]\nmax = 0\n", &["--store", &workshop.store()])?;
        let mut client = daemon.client()?;
        let body = workshop.body().to_string();
        // The first one waits for the template.
        let first = begin(&mut client, &body)?;
        end(&mut client, &first)?;
        let before = workshop.templates()?;
        let (mut times, mut work_of, mut host) = (Samples::new(), Samples::new(), Duration::ZERO);
        for _ in 0..count {
            let (begun, busy) = (Instant::now(), daemon.work()?);
            let made = begin(&mut client, &body)?;
            times.add_since(begun);
            // In ticks, which are coarse: only their sum says something.
            host += daemon.work()?.saturating_sub(busy);
            work_of.add(work(&end(&mut client, &made)?)?);
        }
        let crowd = (0..CROWD).map(|_| create(&mut client, &body)).collect::<Result<Vec<_>, _>>()?;
        let machines = daemon.machines()?;
        if machines.len() != CROWD {
            return Err(format!("{} machines of {CROWD} boxes", machines.len()).into());
        }
        let mean = || -> Result<u64, Wrong> {
            let shares = machines.iter().map(|&pid| pss(pid)).collect::<Result<Vec<_>, _>>()?;
            Ok(shares.iter().sum::<u64>() / u64::try_from(CROWD)?)
        };
        let share = mean()?;
        for made in &crowd {
            hear(&mut client, made, &["/bin/true"])?;
        }
        let used = mean()?;
        for made in &crowd {
            end(&mut client, made)?;
        }
        let host = host / u32::try_from(count)?;
        Ok(Self { times, work: work_of, host, share, used, same: workshop.templates()? == before })
    }
}

/// A box whose first command has ended; its path.
fn begin(client: &mut Client, body: &str) -> Result<String, Wrong> {
    let made = create(client, body)?;
    hear(client, &made, &["/bin/true"])?;
    Ok(made)
}

/// Ends a box; its receipt.
fn end(client: &mut Client, made: &str) -> Result<Value, Wrong> {
    client.ask("DELETE", made, "")
}

/// What a machine's group has worked.
fn work(receipt: &Value) -> Result<Duration, Wrong> {
    let micros = receipt.pointer("/usage/cpu_micros").and_then(Value::as_u64);
    Ok(Duration::from_micros(micros.ok_or("no group counts the work of a box here")?))
}

fn read_json(path: &Path) -> Result<Value, Wrong> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

impl Workshop {
    /// `Err`: what is missing here.
    fn open() -> Result<Result<Self, &'static str>, Wrong> {
        if !Path::new("/usr/bin/qemu-system-x86_64").exists() {
            return Ok(Err("QEMU is not installed (apt-get install qemu-system-x86)"));
        }
        let Some(busybox) =
            ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists())
        else {
            return Ok(Err("there is no busybox (apt-get install busybox-static)"));
        };
        let Some((kernel, modules)) = kernel() else {
            return Ok(Err("there is no kernel for guests (tools/kernel.sh fetches Debian's)"));
        };
        let place = std::env::temp_dir().join(format!("blastbox-bench-machines-{}", std::process::id()));
        let root = place.join("root");
        fs::create_dir_all(root.join("bin"))?;
        fs::create_dir_all(place.join("work"))?;
        fs::copy(busybox, root.join("bin/busybox"))?;
        fs::set_permissions(root.join("bin/busybox"), fs::Permissions::from_mode(0o755))?;
        for tool in ["sh", "true"] {
            symlink("busybox", root.join("bin").join(tool))?;
        }
        let program = programs()?.join("blastbox").display().to_string();
        let workshop = Self { place, program };
        let (root, store) = (root.display().to_string(), workshop.store());
        let (kernel, modules) = (kernel.display().to_string(), modules.display().to_string());
        workshop.tell(&["image", "import", &root, "--name", "tools", "--store", &store])?;
        workshop.tell(&["kernel", "add", &kernel, "--modules", &modules, "--store", &store])?;
        Ok(Ok(workshop))
    }

    fn tell(&self, words: &[&str]) -> Result<(), Wrong> {
        let line = std::iter::once(self.program.as_str()).chain(words.iter().copied());
        run(&line.map(str::to_owned).collect::<Vec<_>>())?;
        Ok(())
    }

    fn store(&self) -> String {
        self.place.join("store").display().to_string()
    }

    fn receipt(&self) -> PathBuf {
        self.place.join("receipt.json")
    }

    /// A machine that boots by itself.
    fn boot_line(&self) -> Vec<String> {
        let work = format!("{}:ro", self.place.join("work").display());
        let (store, receipt) = (self.store(), self.receipt().display().to_string());
        self.line(&["--store", &store, "--workspace", &work, "--receipt", &receipt])
    }

    /// One that begins as a copy.
    fn copy_line(&self) -> Vec<String> {
        self.line(&["--store", &self.store()])
    }

    fn line(&self, more: &[&str]) -> Vec<String> {
        let run = ["run", "--quiet", "--tier", "microvm", "--accept", "emulated-cpu", "--image", "tools"];
        let words = std::iter::once(self.program.as_str()).chain(run).chain(more.iter().copied());
        words.chain(["--", "/bin/true"]).map(str::to_owned).collect()
    }

    fn body(&self) -> Value {
        json!({ "tier": "microvm", "accept": ["emulated-cpu"], "image": "tools" })
    }

    /// The digest of everything that is in the templates' files.
    fn templates(&self) -> Result<Vec<Hash>, Wrong> {
        let mut files: Vec<PathBuf> =
            fs::read_dir(self.place.join("store/templates"))?.flatten().map(|entry| entry.path()).collect();
        files.sort();
        if files.is_empty() {
            return Err("no template was kept".into());
        }
        files.iter().map(|file| Ok(Hash::of([fs::read(file)?.as_slice()]))).collect()
    }
}

/// The kernel and its modules, where the tests have theirs.
fn kernel() -> Option<(PathBuf, PathBuf)> {
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/kernel");
    let at = std::env::var_os("BLASTBOX_KERNEL").map_or_else(usual, PathBuf::from);
    let only = |folder: PathBuf, beginning: &str| {
        let named =
            |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(beginning));
        fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).find(named)
    };
    Some((only(at.join("boot"), "vmlinuz-")?, only(at.join("lib/modules"), "")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_stands_beside_what_was_measured() {
        let of = |millis: u64| {
            let mut samples = Samples::new();
            samples.add(Duration::from_millis(millis));
            samples.summary()
        };
        let said = "boot 300 and 300 ms (125 are quoted), copy 40 and 40 ms (28 are quoted)";
        assert_eq!(beside(of(300), of(40)), said);
    }
}
