//! A process that a test started. It is ended by its id when its time is over or its test fails.

use std::io::{Read, Write as _};
use std::process::{Child, ExitStatus};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use crate::Ended;

/// The bound of every process. Nothing is asserted with it: a run that needs it has hung.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running process with its streams read aside, so that it never waits for its reader.
#[derive(Debug)]
pub struct Held {
    child: Child,
    out: Option<JoinHandle<Vec<u8>>>,
    err: Option<JoinHandle<Vec<u8>>>,
    over: bool,
}

impl Held {
    pub(crate) fn new(mut child: Child, input: &[u8]) -> Self {
        if let Some(mut stdin) = child.stdin.take()
            && !input.is_empty()
        {
            let input = input.to_vec();
            // A program that ends without reading all of it is not at fault.
            thread::spawn(move || stdin.write_all(&input).ok());
        }
        let out = child.stdout.take().map(read_aside);
        let err = child.stderr.take().map(read_aside);
        Self { child, out, err, over: false }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(pid(&self.child), signal).expect("signal a process of the test");
    }

    /// Whether it has ended.
    pub fn is_over(&mut self) -> bool {
        self.over = self.over || self.child.try_wait().expect("look at a process of the test").is_some();
        self.over
    }

    /// Waits for its end and takes what it printed.
    pub fn end(self) -> Ended {
        self.end_within(PATIENCE)
    }

    /// The same for one that may take longer than others: a suite of tests.
    pub fn end_within(mut self, patience: Duration) -> Ended {
        let status = self.wait(patience);
        let read = |reader: Option<JoinHandle<Vec<u8>>>| {
            reader.map(|reader| reader.join().expect("read what was printed")).unwrap_or_default()
        };
        let (out, err) = (read(self.out.take()), read(self.err.take()));
        Ended::new(status, out, &err)
    }

    fn wait(&mut self, patience: Duration) -> ExitStatus {
        if self.is_over() {
            return self.child.wait().expect("the status of a process that has ended");
        }
        let process = pidfd_open(pid(&self.child), PidfdFlags::empty()).expect("hold a process of the test");
        let mut looked = [PollFd::from_borrowed_fd(std::os::fd::AsFd::as_fd(&process), PollFlags::IN)];
        let bound = Timespec { tv_sec: i64::try_from(patience.as_secs()).unwrap_or(60), tv_nsec: 0 };
        let ended = rustix::io::retry_on_intr(|| poll(&mut looked, Some(&bound)));
        assert!(ended.is_ok_and(|count| count > 0), "it hangs: process {}", self.child.id());
        let status = self.child.wait().expect("wait for a process of the test");
        self.over = true;
        status
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.is_over() {
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

fn pid(child: &Child) -> Pid {
    let number = i32::try_from(child.id()).expect("a process id is a number");
    Pid::from_raw(number).expect("a process id is not 0")
}

fn read_aside(mut stream: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before an error is what there is.
        stream.read_to_end(&mut bytes).ok();
        bytes
    })
}
