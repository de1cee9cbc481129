//! The one thread of a confined daemon that stays outside of its walls.
//!
//! A filter and Landlock go with a thread to everything that it starts, and a warden under them could make no box. So this
//! thread starts the programs of ours: wardens and gateways, each from a sealed copy, and the compiler of modules. It takes no
//! other order. It is a thread and not a process: whoever can write the daemon's memory can make it do more. SECURITY.md says so.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use crate::warden::{Started, start_here};

/// A program to be started.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) program: PathBuf,
    pub(crate) name: &'static str,
    pub(crate) argument: Option<String>,
    pub(crate) socket: OwnedFd,
}

/// The compiler of modules, to be started with these words. What it says is heard by whoever asks.
#[derive(Debug)]
pub(crate) struct Compiler {
    pub(crate) program: PathBuf,
    pub(crate) words: Vec<OsString>,
}

#[derive(Debug)]
enum Job {
    Start(Order, SyncSender<io::Result<Started>>),
    Compile(Compiler, SyncSender<io::Result<Child>>),
}

static OUTSIDE: OnceLock<SyncSender<Job>> = OnceLock::new();

/// Starts the thread, in a process that is not confined yet. From now on it starts every program of ours.
pub(crate) fn stay() -> io::Result<()> {
    let (to, jobs) = sync_channel::<Job>(1);
    let work = move || {
        for job in jobs {
            // Whoever asked may have given up; the program then ends with its socket, or by itself.
            match job {
                Job::Start(order, answer) => drop(answer.send(start_here(order))),
                // A terminal's interrupt is the daemon's to act upon.
                Job::Compile(compiler, answer) => {
                    drop(answer.send(compiler.command().process_group(0).spawn()));
                }
            }
        }
    };
    // Never joined, and never over before the process is: the death signal of a warden is tied to its thread.
    thread::Builder::new().name("outside".to_owned()).spawn(work)?;
    // A second one is not needed, and ends at once.
    OUTSIDE.set(to).ok();
    Ok(())
}

/// Starts a program: outside where there is such a thread, here where there is none.
pub(crate) fn start(order: Order) -> io::Result<Started> {
    let Some(outside) = OUTSIDE.get() else { return start_here(order) };
    ask(outside, |answer| Job::Start(order, answer))
}

/// Starts the compiler, likewise.
pub(crate) fn compile(compiler: Compiler) -> io::Result<Child> {
    let Some(outside) = OUTSIDE.get() else { return compiler.command().spawn() };
    ask(outside, |answer| Job::Compile(compiler, answer))
}

fn ask<T>(outside: &SyncSender<Job>, job: impl FnOnce(SyncSender<io::Result<T>>) -> Job) -> io::Result<T> {
    let gone = |()| io::Error::other("the thread that starts programs is gone");
    let (to, from) = sync_channel(1);
    outside.send(job(to)).map_err(|_| gone(()))?;
    from.recv().map_err(|_| gone(()))?
}

impl Compiler {
    #[expect(clippy::disallowed_methods, reason = "isolation starts processes")]
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.words).env_clear();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}
