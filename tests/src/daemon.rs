//! `blastbox serve` for one test: started, stopped at a place of its life, killed, started again.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::census::{child_of, descendants};
use crate::{Caller, Held, Start, programs, wait_until};

/// A daemon's state directory and socket, and whoever serves there now.
#[derive(Debug)]
pub struct Daemon<'a> {
    caller: &'a Caller,
    program: PathBuf,
    state: PathBuf,
    socket: PathBuf,
    config: Option<String>,
    store: Option<String>,
    served: Option<Held>,
}

/// Whole lives, which come to every place that a life comes to: one with commands, paused while one runs; one whose command
/// cannot be started, paused while none runs; one that ends after its command, one while it is paused, one before it did anything.
pub const LIFE: &str = "
box=$(bb create --memory 64MiB) || exit 1
bb exec $box -- /bin/true || exit 2
bb exec --detach $box -- /bin/sh -c 'echo up; exec sleep 60' || exit 3
until bb logs $box 2 | grep -q up; do :; done
if bb pause $box; then bb resume $box || exit 4; fi
bb kill $box || exit 5
box=$(bb create --memory 64MiB) || exit 6
bb exec $box -- /no/such/program && exit 7
if bb pause $box; then bb resume $box || exit 8; bb pause $box || exit 9; fi
bb kill $box || exit 10
box=$(bb create --memory 64MiB) || exit 11
bb exec $box -- /bin/true || exit 12
bb kill $box || exit 13
box=$(bb create --memory 64MiB) || exit 14
bb pause $box
bb kill $box || exit 15
box=$(bb create --memory 64MiB) || exit 16
bb kill $box || exit 17
";

/// The same beside boxes in stock, a box with a gateway, and files on their way: `$net` is a policy with network, `$file` a file.
pub const BUSY_LIFE: &str = "
first=$(bb create --memory 64MiB) || exit 21
until bb metrics | grep -q '^blastbox_pool_boxes [1-9]'; do :; done
warm=$(bb create --memory 64MiB) || exit 22
bb cp $file $warm:/tmp/up || exit 23
bb cp $warm:/tmp/up $file.back || exit 24
rm $file.back
if wired=$(bb create --memory 64MiB --policy $net); then bb exec $wired -- /bin/true || exit 25; fi
";

impl<'a> Daemon<'a> {
    /// A daemon that is not started yet, of the programs that are shipped.
    pub fn shipped(caller: &'a Caller) -> Self {
        Self::of(caller, caller.blastbox_path())
    }

    /// The same, started, with no boxes in stock.
    pub fn without_stock(caller: &'a Caller) -> Self {
        let config = caller.file("daemon.toml", "[pool]\nmax = 0\n");
        let mut daemon = Self::shipped(caller).with_config(config.display().to_string());
        daemon.start(None);
        assert!(daemon.await_answer());
        daemon
    }

    /// The same of a program that was built with places to be stopped at. `None`: nobody built it.
    pub fn with_failpoints(caller: &'a Caller) -> Option<Self> {
        match programs::with_failpoints(caller.place()) {
            Some(directory) => Some(Self::of(caller, directory.join("blastbox"))),
            None => {
                caller.skip("the programs with failpoints are not built: `make test` builds them");
                None
            }
        }
    }

    fn of(caller: &'a Caller, program: PathBuf) -> Self {
        let (state, socket) = (caller.place().join("state"), caller.place().join("s"));
        Self { caller, program, state, socket, config: None, store: None, served: None }
    }

    /// Has its state in another directory.
    #[must_use]
    pub fn in_state(mut self, state: PathBuf) -> Self {
        self.state = state;
        self
    }

    /// Answers elsewhere, beside another one.
    #[must_use]
    pub fn at(mut self, socket: PathBuf) -> Self {
        self.socket = socket;
        self
    }

    /// Reads this configuration.
    #[must_use]
    pub fn with_config(mut self, file: String) -> Self {
        self.config = Some(file);
        self
    }

    /// Has images and kernels of this store.
    #[must_use]
    pub fn with_store(mut self, store: String) -> Self {
        self.store = Some(store);
        self
    }

    /// The program that serves.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Where its state is.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Where it answers.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The command that serves, not yet started.
    pub fn command(&self) -> Start<'a> {
        let words = ["serve", "--quiet", "--state-dir"].map(Into::into).into_iter();
        let words = words.chain([self.state.clone().into_os_string(), "--socket".into()]);
        let words = words.chain([self.socket.clone().into_os_string()]);
        let config = self.config.iter().flat_map(|file| ["--config".into(), file.into()]);
        let store = self.store.iter().flat_map(|store| ["--store".into(), store.into()]);
        self.caller.program(&self.program, words.chain(config).chain(store))
    }

    /// Starts it.
    pub fn start(&mut self, failpoint: Option<&str>) {
        let mut command = self.command();
        if let Some(point) = failpoint {
            command = command.env("BLASTBOX_FAILPOINT", point);
        }
        self.served = Some(command.start());
    }

    /// Goes on with a daemon that was started otherwise.
    pub fn adopt(&mut self, served: Held) {
        self.served = Some(served);
    }

    /// The process that serves.
    pub fn id(&self) -> u32 {
        self.served.as_ref().expect("a daemon that was started").id()
    }

    /// Whether it answers: whoever can connect only knows that it is going to.
    pub fn answers(&self) -> bool {
        let Ok(mut line) = UnixStream::connect(&self.socket) else { return false };
        let asked = line.write_all(b"GET /healthz HTTP/1.1\r\nhost: b\r\nconnection: close\r\n\r\n");
        asked.is_ok()
            && line.set_read_timeout(Some(Duration::from_millis(500))).is_ok()
            && line.read(&mut [0; 64]).is_ok_and(|length| length > 0)
    }

    /// Waits until it answers; `false`: it has ended, or is stopped.
    pub fn await_answer(&mut self) -> bool {
        wait_until(|| self.answers() || self.is_over() || self.is_stopped());
        !self.is_over() && !self.is_stopped()
    }

    /// Whether its process has ended.
    pub fn is_over(&mut self) -> bool {
        self.served.as_mut().is_none_or(Held::is_over)
    }

    /// Whether its process is stopped at the place that was chosen.
    pub fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    }

    /// Its warden.
    pub fn warden(&self) -> Option<u32> {
        child_of(self.id())
    }

    /// The first process of one of its boxes.
    pub fn agent(&self) -> Option<u32> {
        child_of(self.warden()?)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.served.as_ref().expect("a daemon that was started").signal(signal);
    }

    /// Kills it, and waits for its end.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        let mut served = self.served.take().expect("a daemon that was started");
        // Not what it printed: its warden writes to the same pipe, and may live on for a while.
        assert!(wait_until(|| served.is_over()), "a killed daemon does not end");
    }

    /// Waits for its end and says how it was.
    pub fn end(&mut self) -> crate::Ended {
        self.served.take().expect("a daemon that was started").end()
    }

    /// Tells it to end, and waits until it has.
    #[track_caller]
    pub fn stop(&mut self) {
        self.signal(Signal::TERM);
        let ended = self.end();
        assert_eq!(ended.code, 0, "{}", ended.err);
    }

    /// `blastbox` as a client of this daemon, not yet started: the shipped one, since places to be stopped at are the daemon's, and a
    /// build that has them takes longer to begin.
    pub fn client(&self, words: &[&str]) -> Start<'a> {
        self.caller.blastbox(words).env("BLASTBOX_SOCKET", &self.socket.display().to_string())
    }

    /// `blastbox` as a client, to its end, which must be a good one. What it printed.
    #[track_caller]
    pub fn ask(&self, words: &[&str]) -> String {
        let ended = self.client(words).end();
        assert_eq!(ended.code, 0, "{words:?}: {}", ended.err);
        ended.text().trim().to_owned()
    }

    /// A shell script in which `bb` is a client.
    pub fn script(&self, script: &str) -> Held {
        let script = format!("bb() {{ {} \"$@\"; }}\n{script}", self.caller.blastbox_path().display());
        let shell = self.caller.program(Path::new("/bin/sh"), ["-c", &script]);
        shell.env("BLASTBOX_SOCKET", &self.socket.display().to_string()).start()
    }
}

/// Kills a process and everything that it started, by number.
pub fn end_tree(root: u32) {
    // So that it starts nothing between the look and the end.
    signal(root, Signal::STOP);
    let family = descendants();
    let mut doomed = vec![root];
    let mut next = 0;
    while let Some(parent) = doomed.get(next).copied() {
        doomed.extend(family.iter().filter(|process| process.parent == parent).map(|process| process.pid));
        next += 1;
    }
    for pid in doomed {
        signal(pid, Signal::KILL);
    }
}

/// Signals a process by its number; one that has ended is no trouble.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        kill_process(pid, signal).ok();
    }
}
