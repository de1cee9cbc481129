//! File operations of the host, on the box's files in memory. Each is done in steps, as far as the host's credit goes.
//!
//! Taking archives in and watching are not offered: the host is told so and does without.

mod pack;
mod walk;
mod work;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blastbox_wire::agent::{AgentFrame, Fault, FileAsk, FileEnd, FileSay};
use blastbox_wire::limits::{FILE_WINDOW, MAX_FILE_CHUNK, MAX_FILE_OPS};
use rustix::io::Errno;

use self::work::{Next, Work};
use crate::control::Control;
use crate::files::{ROOT, Tree, Trouble};

/// The operations that are under way.
pub(crate) struct Desk {
    tree: Arc<Mutex<Tree>>,
    jobs: BTreeMap<u32, Job>,
}

/// One of them.
struct Job {
    work: Work,
    /// Bytes that may still be sent for it.
    credit: u64,
    /// Bytes of the host that were not used yet.
    pieces: std::collections::VecDeque<Vec<u8>>,
    held: usize,
    ended: bool,
}

impl Desk {
    pub(crate) fn new(tree: Arc<Mutex<Tree>>) -> Self {
        Self { tree, jobs: BTreeMap::new() }
    }

    /// A thread that panicked aborts the worker, so no lock is ever poisoned.
    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Whether a command cannot begin there.
    pub(crate) fn is_missing(&self, directory: &[u8]) -> bool {
        let tree = self.tree();
        !tree.find(ROOT, directory).is_ok_and(|ino| tree.list(ino, 0, 0).is_ok())
    }

    /// The host says something about an operation. One that is over is not known any more, and that is no mistake.
    pub(crate) fn hear(&mut self, op: u32, ask: FileAsk, control: &mut Control) -> Result<(), &'static str> {
        match (ask, self.jobs.get_mut(&op)) {
            (FileAsk::Begin { .. } | FileAsk::BeginAsRoot { .. }, Some(_)) => {
                return Err("a second file operation of this number");
            }
            (FileAsk::Begin { window, act }, None) => {
                let begun = if self.jobs.len() >= MAX_FILE_OPS {
                    Err(FileEnd::Failed { fault: Fault::TooMany, errno: Errno::AGAIN.raw_os_error() })
                } else {
                    Work::begin(&mut self.tree(), act)
                };
                match begun {
                    Ok(work) => {
                        let (credit, pieces) = (u64::from(window), std::collections::VecDeque::new());
                        self.jobs.insert(op, Job { work, credit, pieces, held: 0, ended: false });
                    }
                    Err(end) => control.send(&AgentFrame::File { op, say: FileSay::Done { end } }),
                }
            }
            (FileAsk::BeginAsRoot { .. }, None) => {
                // A guest has no users, so that none is root.
                let end = FileEnd::Failed { fault: Fault::NotPermitted, errno: Errno::PERM.raw_os_error() };
                control.send(&AgentFrame::File { op, say: FileSay::Done { end } });
            }
            (_, None) => {}
            (FileAsk::Credit { bytes }, Some(job)) => {
                job.credit = job.credit.saturating_add(u64::from(bytes));
            }
            (FileAsk::Data { bytes }, Some(job)) => {
                let held = job.held.saturating_add(bytes.len());
                if !job.work.takes_data()
                    || job.ended
                    || u32::try_from(held).map_or(true, |held| held > FILE_WINDOW)
                {
                    return Err("file data that nobody takes, over its window, or after its end");
                }
                if !bytes.is_empty() {
                    job.held = held;
                    job.pieces.push_back(bytes);
                }
            }
            (FileAsk::DataEnd, Some(job)) => {
                if !job.work.takes_data() {
                    return Err("an end of data that nobody takes");
                }
                job.ended = true;
            }
            (FileAsk::Stop, Some(_)) => {
                let end = FileEnd::Failed { fault: Fault::Stopped, errno: Errno::CANCELED.raw_os_error() };
                self.close(op, end, control);
            }
        }
        Ok(())
    }

    /// Carries every operation as far as it goes now.
    pub(crate) fn pump(&mut self, control: &mut Control) {
        let ops: Vec<u32> = self.jobs.keys().copied().collect();
        for op in ops {
            while control.has_room() {
                let Some(job) = self.jobs.get_mut(&op) else { break };
                let mut tree = self.tree.lock().unwrap_or_else(PoisonError::into_inner);
                match job.step(op, &mut tree, control) {
                    Next::Again => {}
                    Next::Sleep => break,
                    Next::Done(end) => {
                        drop(tree);
                        self.close(op, end, control);
                        break;
                    }
                }
            }
        }
    }

    fn close(&mut self, op: u32, end: FileEnd, control: &mut Control) {
        if let Some(job) = self.jobs.remove(&op) {
            job.work.close(&mut self.tree());
        }
        control.send(&AgentFrame::File { op, say: FileSay::Done { end } });
    }
}

impl Job {
    fn step(&mut self, op: u32, tree: &mut Tree, control: &mut Control) -> Next {
        let piece = if self.work.takes_data() { self.pieces.pop_front() } else { None };
        if let Some(piece) = &piece {
            self.held = self.held.saturating_sub(piece.len());
        }
        let allowance = usize::try_from(self.credit).unwrap_or(usize::MAX).min(MAX_FILE_CHUNK);
        let credit = &mut self.credit;
        let mut say = |say: FileSay<'_>| {
            *credit = credit.saturating_sub(u64::try_from(say.cost()).unwrap_or(u64::MAX));
            control.send(&AgentFrame::File { op, say });
        };
        match self.work.step(tree, piece.as_deref(), self.ended, allowance, &mut say) {
            Ok(next) => next,
            Err(trouble) => Next::Done(failed(trouble)),
        }
    }
}

/// Why an operation failed, in the host's words.
fn failed(trouble: Trouble) -> FileEnd {
    let (fault, errno) = match trouble {
        Trouble::NotFound => (Fault::NotFound, Errno::NOENT),
        Trouble::Exists => (Fault::Exists, Errno::EXIST),
        Trouble::NotDirectory => (Fault::NotDirectory, Errno::NOTDIR),
        Trouble::IsDirectory => (Fault::IsDirectory, Errno::ISDIR),
        Trouble::NotEmpty => (Fault::NotEmpty, Errno::NOTEMPTY),
        Trouble::NoSpace => (Fault::NoSpace, Errno::NOSPC),
        Trouble::TooLarge => (Fault::TooLarge, Errno::FBIG),
        Trouble::NameTooLong => (Fault::NameTooLong, Errno::NAMETOOLONG),
        Trouble::BadPath | Trouble::Outside => (Fault::BadPath, Errno::INVAL),
        Trouble::ReadOnly => (Fault::ReadOnly, Errno::ROFS),
        Trouble::NotOffered => (Fault::NotPermitted, Errno::NOSYS),
        Trouble::Failed => (Fault::Failed, Errno::IO),
    };
    FileEnd::Failed { fault, errno: errno.raw_os_error() }
}
