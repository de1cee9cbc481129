//! The driver's side: which operations were sent to the agent and are not over.

use std::collections::HashMap;
use std::sync::Arc;

use blastbox_wire::agent::{Fault, FileAct, FileAsk, FileEnd, FileSay, HostFrame, User};
use blastbox_wire::limits::{FILE_WINDOW, MAX_FILE_OPS};

use super::Summary;
use super::error::FileError;
use super::expect::Expect;
use super::port::Port;
use crate::driver::Driver;
use crate::outcome::{Ending, Loss};

/// Linux's number for "not now".
const EAGAIN: i32 = 11;

/// Something that an owner wants for an operation.
#[derive(Debug)]
pub(crate) enum FileOrder {
    Begin { act: Box<FileAct>, user: User, ticket: Ticket },
    Data { bytes: Vec<u8> },
    DataEnd,
}

/// A question on its way to the driver. One that never gets there, because the box ended first, says so.
#[derive(Debug)]
pub(crate) struct Ticket(Option<Arc<Port>>);

impl Ticket {
    pub(super) fn new(port: Arc<Port>) -> Self {
        Self(Some(port))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(port) = self.0.take() {
            port.end(Err(FileError::BoxEnded(Ending::Dismissed)));
        }
    }
}

/// One operation.
#[derive(Debug)]
struct Pending {
    port: Arc<Port>,
    expect: Expect,
    /// What the agent may still send.
    window: u32,
    /// What it has not taken yet.
    sent: u32,
    stopping: bool,
}

/// All operations of one box.
#[derive(Debug, Default)]
pub(crate) struct FileTable {
    pending: HashMap<u32, Pending>,
}

impl Drop for FileTable {
    fn drop(&mut self) {
        // Only a driver that was dropped with its runtime still has some.
        self.end(&Ending::Lost(Loss::WardenGone));
    }
}

impl FileTable {
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The box has ended, and with it everything that was asked of it.
    pub(crate) fn end(&mut self, ending: &Ending) {
        for pending in std::mem::take(&mut self.pending).into_values() {
            pending.port.end(Err(FileError::BoxEnded(ending.clone())));
        }
    }

    /// What has to be sent for an order. `None`: nothing, because it is over or never began.
    fn obey(&mut self, op: u32, order: FileOrder) -> Option<FileAsk> {
        match order {
            FileOrder::Begin { act, user, mut ticket } => {
                // Where its owner went away before it had begun, nothing begins.
                let port = ticket.0.take().filter(|port| !port.is_abandoned())?;
                if self.pending.len() >= MAX_FILE_OPS {
                    port.end(Err(FileError::Failed { fault: Fault::TooMany, errno: EAGAIN }));
                    return None;
                }
                let expect = Expect::of(&act);
                let pending = Pending { port, expect, window: FILE_WINDOW, sent: 0, stopping: false };
                self.pending.insert(op, pending);
                Some(match user {
                    User::Payload => FileAsk::Begin { window: FILE_WINDOW, act: *act },
                    User::Root => FileAsk::BeginAsRoot { window: FILE_WINDOW, act: *act },
                })
            }
            FileOrder::Data { bytes } => {
                let pending = self.pending.get_mut(&op).filter(|pending| !pending.stopping)?;
                let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                pending.sent = pending.sent.saturating_add(length);
                pending.expect.sent(length);
                Some(FileAsk::Data { bytes })
            }
            FileOrder::DataEnd => {
                let pending = self.pending.get_mut(&op).filter(|pending| !pending.stopping)?;
                pending.expect.all_sent();
                Some(FileAsk::DataEnd)
            }
        }
    }

    /// Credit that is due, and operations whose owner is gone.
    fn due(&mut self) -> Vec<HostFrame> {
        let mut due = Vec::new();
        for (&op, pending) in &mut self.pending {
            if pending.stopping {
                continue;
            }
            if pending.port.is_abandoned() {
                pending.stopping = true;
                due.push(HostFrame::File { op, ask: FileAsk::Stop });
            } else if let Some(bytes) = pending.port.take_credit() {
                pending.window = pending.window.saturating_add(bytes);
                due.push(HostFrame::File { op, ask: FileAsk::Credit { bytes } });
            }
        }
        due
    }

    /// What the agent says of an operation. An error is a lie.
    fn hear(&mut self, op: u32, say: FileSay<'_>) -> Result<(), &'static str> {
        let Some(pending) = self.pending.get_mut(&op) else {
            return Err("a word about a file operation that nobody asked for");
        };
        pending.expect.check(&say)?;
        let cost = u32::try_from(say.cost()).unwrap_or(u32::MAX);
        pending.window = pending.window.checked_sub(cost).ok_or("more about a file than its window")?;
        match say {
            FileSay::Taken { bytes } => {
                pending.sent = pending.sent.checked_sub(bytes).ok_or("more of a file taken than was sent")?;
                pending.port.room.add_permits(usize::try_from(bytes).unwrap_or(0));
            }
            FileSay::Done { end } => {
                let end = match end {
                    FileEnd::Finished { amount, skipped, coverage } => {
                        Ok(Summary { amount, skipped, coverage })
                    }
                    FileEnd::Failed { fault, errno } => Err(FileError::Failed { fault, errno }),
                };
                pending.port.end(end);
                self.pending.remove(&op);
            }
            other => pending.port.put(other),
        }
        Ok(())
    }
}

impl Driver {
    /// An order about files.
    pub(crate) fn obey_file(&mut self, op: u32, order: FileOrder) {
        if let Some(ask) = self.log.files.obey(op, order) {
            self.send(&HostFrame::File { op, ask });
        }
    }

    /// Tells the agent what was consumed, and what nobody wants any more.
    pub(crate) fn send_file_credit(&mut self) {
        let due = self.log.files.due();
        due.iter().for_each(|frame| self.send(frame));
    }

    /// A word of the agent about files. An error is a lie, and ends the box.
    pub(crate) fn hear_file(&mut self, op: u32, say: FileSay<'_>) -> Result<(), &'static str> {
        self.log.files.hear(op, say)
    }
}
