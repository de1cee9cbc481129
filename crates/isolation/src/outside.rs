//! The one thread of a confined daemon that stays outside of its walls.
//!
//! A filter and Landlock go with a thread to everything that it starts, and a warden under them could make no box. So this
//! thread starts the programs of ours, each from a sealed copy, and takes no other order. It is a thread and not a
//! process: whoever can write the daemon's memory can make it do more. SECURITY.md says so.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
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

type Job = (Order, SyncSender<io::Result<Started>>);

static OUTSIDE: OnceLock<SyncSender<Job>> = OnceLock::new();

/// Starts the thread, in a process that is not confined yet. From now on it starts every program of ours.
pub(crate) fn stay() -> io::Result<()> {
    let (to, jobs) = sync_channel::<Job>(1);
    let work = move || {
        for (order, answer) in jobs {
            // Whoever asked may have given up; the program then ends with its socket.
            answer.send(start_here(order)).ok();
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
    let gone = |_| io::Error::other("the thread that starts programs is gone");
    let (to, from) = sync_channel(1);
    outside.send((order, to)).map_err(|_| gone(()))?;
    from.recv().map_err(|_| gone(()))?
}
