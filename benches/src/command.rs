//! `blastbox run`, beside bubblewrap, crun and runc, in turns whose order changes. All three peers have a filter of system calls, as boxes have; bubblewrap,
//! which brings none, also runs without.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::allowlist;
use crate::boxes::programs;
use crate::bundle::{Bundles, Limits, hardening};
use crate::filter::Filter;
use crate::options::Options;
use crate::paper::{Finding, Promise, Row, Wrong};
use crate::process::{Shell, installed, run};
use crate::sample::{Samples, Summary};

const WARM_UP: usize = 5;

/// bubblewrap, with everything that it can unshare and mounts that show what our boxes show.
const BWRAP: &str = "--unshare-all --die-with-parent --new-session --cap-drop ALL --clearenv --hostname box \
    --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/sbin /sbin --symlink usr/lib /lib --symlink usr/lib64 /lib64 \
    --ro-bind-try /etc/ld.so.cache /etc/ld.so.cache --ro-bind-try /etc/ssl/certs /etc/ssl/certs \
    --ro-bind-try /etc/alternatives /etc/alternatives --proc /proc --dev /dev --tmpfs /dev/shm --tmpfs /tmp \
    --tmpfs /home/user --tmpfs /workspace --chdir /home/user --setenv PATH /usr/bin:/bin --remount-ro / /bin/true";

/// What crun 1.8 needs where the controllers are on the old interface: it refuses a mix.
const ONLY_UNIFIED: &str = "umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup";

/// One competitor.
struct Runner {
    name: &'static str,
    line: Vec<String>,
    shell: Option<Shell>,
    /// What it inherits under the number that its options name.
    filter: Option<Filter>,
    times: Samples,
    trouble: Option<String>,
    /// What there is to say besides.
    note: String,
}

impl Runner {
    fn new(name: &'static str, line: Vec<String>) -> Self {
        let (shell, filter, trouble) = (None, None, None);
        Self { name, line, shell, filter, times: Samples::default(), trouble, note: String::new() }
    }

    fn peer(name: &'static str, arguments: &str, program: &str) -> Self {
        let Some(path) = installed(program) else {
            let trouble = Some("could not run: it is not installed".to_owned());
            return Self { trouble, ..Self::new(name, vec![name.to_owned()]) };
        };
        let words = arguments.split_whitespace().map(str::to_owned);
        Self::new(name, [path.display().to_string()].into_iter().chain(words).collect())
    }

    /// bubblewrap under the filter that crun and runc have: it takes one, and brings none.
    fn filtered(bundles: &Bundles) -> Self {
        let mut peer = Self::peer("bwrap, filtered", BWRAP, "bwrap");
        match Filter::compile(&bundles.path) {
            Ok(filter) => peer.filter = Some(filter),
            Err(error) => {
                peer.trouble = Some(format!("could not run: its filter could not be compiled: {error}"))
            }
        }
        let calls = allowlist::length();
        peer.note =
            format!("OCI seccomp allowlist of {calls} calls as a binary tree; no Landlock, no limits");
        peer
    }

    /// crun or runc, with as much as this host lets it have: limits by cgroups, else none, else none and another view of
    /// the cgroups.
    fn oci(name: &'static str, bundles: &Bundles) -> Self {
        let root = bundles.path.join(name);
        let line = |options: &str, limits| {
            let bundle = bundles.with(limits);
            format!("--root {} {options} run --bundle {} box", root.display(), bundle.display())
        };
        let mut peer = Self::peer(name, &line("", Limits::ByCgroups), name);
        peer.note = format!("{}; limits of memory, processes and processor time by cgroups", hardening());
        if peer.trouble.is_some() || run(&peer.line).is_ok() {
            return peer;
        }
        // runc takes its cgroups as they are, limits or not.
        let options = if name == "crun" { "--cgroup-manager=disabled" } else { "" };
        peer = Self::peer(name, &line(options, Limits::None), name);
        peer.note = format!("{}; without limits: it refuses the cgroups of this host", hardening());
        if run(&peer.line).is_err() {
            match Shell::with_own_mounts(ONLY_UNIFIED) {
                Ok(shell) => peer.shell = Some(shell),
                Err(error) => peer.trouble = Some(format!("could not run: {error}")),
            }
        }
        peer
    }

    fn run(&mut self) -> io::Result<Duration> {
        match (&mut self.shell, &self.filter) {
            (Some(shell), _) => shell.run(&self.line),
            (None, Some(filter)) => {
                let opened = filter.open()?;
                let options = ["--seccomp".to_owned(), opened.as_raw_fd().to_string()];
                let (program, others) = self.line.split_at(1);
                run(&[program, &options, others].concat())
            }
            (None, None) => run(&self.line),
        }
    }

    /// One turn. What does not work is not tried again.
    fn turn(&mut self, counts: bool) {
        if self.trouble.is_none() {
            match self.run() {
                Ok(took) if counts => self.times.add(took),
                Ok(_) => {}
                Err(error) => self.trouble = Some(format!("could not run: {error}")),
            }
        }
    }

    fn summary(&self) -> Option<Summary> {
        self.trouble.is_none().then(|| self.times.summary())
    }

    fn row(&self) -> Row {
        let mut how = self.line.join(" ");
        if self.shell.is_some() {
            how = format!("(by a waiting shell with its own mounts: {ONLY_UNIFIED}) {how}");
        }
        if self.filter.is_some() {
            how = format!(
                "{how}\n      (with --seccomp FD, which is what filter.py has made of the allowlist)"
            );
        }
        if !self.note.is_empty() {
            how = format!("{how}\n      ({})", self.note);
        }
        let note = self.trouble.clone().unwrap_or_default();
        Row { name: self.name.to_owned(), how, times: self.summary(), note }
    }
}

/// Another order in every turn: what one leaves to the kernel to clear away, as container engines do for milliseconds, must not always
/// be in the way of the same next one.
struct Order {
    places: Vec<usize>,
    chance: u32,
}

impl Order {
    fn new(count: usize) -> Self {
        Self { places: (0..count).collect(), chance: 0x9e37_79b9 }
    }

    fn next_turn(&mut self) -> &[usize] {
        for last in (1..self.places.len()).rev() {
            self.chance ^= self.chance << 13;
            self.chance ^= self.chance >> 17;
            self.chance ^= self.chance << 5;
            let other = usize::try_from(self.chance).unwrap_or_default() % (last + 1);
            self.places.swap(last, other);
        }
        &self.places
    }
}

/// Measures it.
pub(crate) fn measure(options: &Options) -> Result<Finding, Wrong> {
    let bundles = Bundles::write()?;
    let ours = programs()?.join("blastbox").display().to_string();
    let words = ["run", "--quiet", "--", "/bin/true"].map(str::to_owned);
    let mut runners = [
        Runner {
            note: "every layer: seccomp with reported denials, Landlock, limits by cgroups".to_owned(),
            ..Runner::new("blastbox run", [ours].into_iter().chain(words).collect())
        },
        Runner::filtered(&bundles),
        Runner {
            note: "no seccomp, no Landlock, no limits".to_owned(),
            ..Runner::peer("bwrap, no filter", BWRAP, "bwrap")
        },
        Runner::oci("crun", &bundles),
        Runner::oci("runc", &bundles),
        Runner::new("bare process", vec!["/bin/true".to_owned()]),
    ];
    let mut order = Order::new(runners.len());
    for turn in 0..WARM_UP + options.samples(120, 20) {
        for place in order.next_turn() {
            if let Some(runner) = runners.get_mut(*place) {
                runner.turn(turn >= WARM_UP);
            }
        }
    }
    let summaries = runners.each_ref().map(Runner::summary);
    let [Some(ours), bwrap, unfiltered, crun, runc, _] = summaries else {
        return Err(runners.first().and_then(|us| us.trouble.clone()).unwrap_or_default().into());
    };
    let against = |says: &str, most, theirs: Option<Summary>| match theirs {
        Some(theirs) => Promise::at_most(says, most, ours, theirs),
        None => Promise { says: says.to_owned(), measured: "the peer did not run".to_owned(), kept: None },
    };
    Ok(Finding {
        title: "command · one command from start to exit, in turns whose order changes",
        rows: runners.iter().map(Runner::row).collect(),
        promises: vec![
            against("faster than bwrap under the filter that crun and runc have", 1.0, bwrap),
            // Said, and not promised: it lets through every system call of the host's kernel.
            Promise { kept: None, ..against("beside bwrap without any filter", 1.0, unfiltered) },
            against("three times as fast as crun", 0.333, crun),
            against("three times as fast as runc", 0.333, runc),
        ],
    })
}
