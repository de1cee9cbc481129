//! What an owner of an operation holds: something to read from, or something to write to.

use std::sync::Arc;

use blastbox_wire::agent::{Change, Entry, Fault};
use blastbox_wire::limits::MAX_FILE_CHUNK;
use tokio::sync::mpsc;

use super::Summary;
use super::error::FileError;
use super::port::{Item, Port};
use super::table::FileOrder;
use crate::desk::{Bells, Order};
use crate::outcome::Ending;

/// An operation, as long as somebody wants it.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) op: u32,
    pub(super) port: Arc<Port>,
    pub(super) orders: mpsc::Sender<Order>,
    pub(super) bells: Arc<Bells>,
}

impl Handle {
    pub(super) async fn order(&self, order: FileOrder) -> Result<(), FileError> {
        let order = Order::File { op: self.op, order };
        self.orders.send(order).await.map_err(|_| FileError::BoxEnded(Ending::Dismissed))
    }

    pub(super) async fn begun(&self, path: &[u8]) -> Result<Entry, FileError> {
        let begun = self.port.begun().await?;
        // An end without a beginning is a lie, and the driver hears it as one.
        let entry = begun.ok_or(FileError::Failed { fault: Fault::Failed, errno: 0 })?;
        Ok(Entry { path: path.to_vec(), ..entry })
    }

    pub(super) async fn next(&self) -> Result<Option<Item>, FileError> {
        let item = self.port.next().await;
        if self.port.owes_credit() {
            self.bells.credit.notify_one();
        }
        item
    }

    pub(super) async fn summary(&self) -> Result<Summary, FileError> {
        self.port.ended().await
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.port.abandon() {
            self.bells.credit.notify_one();
        }
    }
}

/// Bytes of a file or an archive, on their way out of the box.
#[derive(Debug)]
pub struct Download {
    handle: Handle,
    entry: Option<Entry>,
    left_out: Vec<Entry>,
}

impl Download {
    pub(super) fn new(handle: Handle, entry: Option<Entry>) -> Self {
        Self { handle, entry, left_out: Vec::new() }
    }

    /// What is being read; nothing for an archive. The size is what the box says, and no more than that comes.
    #[must_use]
    pub fn entry(&self) -> Option<&Entry> {
        self.entry.as_ref()
    }

    /// The next bytes; `None` at the end. Cancel safe. Taking them is what brings more.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, FileError> {
        loop {
            match self.handle.next().await? {
                Some(Item::Bytes(bytes)) => return Ok(Some(bytes)),
                Some(Item::Entries(named)) => self.left_out.extend(named),
                Some(Item::Changes(_)) => {}
                None => return Ok(None),
            }
        }
    }

    /// The first of what an archive leaves out, after the last bytes; how much there is in all says [`Self::summary`]. Where one
    /// of them is no pipe, socket or device it is a file that somebody may miss, and where all of them are, there is no such file.
    #[must_use]
    pub fn left_out(&self) -> &[Entry] {
        &self.left_out
    }

    /// How it was done, after the last bytes.
    pub async fn summary(&self) -> Result<Summary, FileError> {
        self.handle.summary().await
    }
}

/// The entries of a directory.
#[derive(Debug)]
pub struct Listing {
    handle: Handle,
}

impl Listing {
    pub(super) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// The next entries, with paths beneath the directory; `None` at the end. Cancel safe.
    pub async fn next(&mut self) -> Result<Option<Vec<Entry>>, FileError> {
        loop {
            match self.handle.next().await? {
                Some(Item::Entries(entries)) => return Ok(Some(entries)),
                Some(Item::Bytes(_) | Item::Changes(_)) => {}
                None => return Ok(None),
            }
        }
    }

    /// How it was done, after the last entries.
    pub async fn summary(&self) -> Result<Summary, FileError> {
        self.handle.summary().await
    }

    /// All of them at once, and how complete they are. As many as were asked for are held in memory.
    pub async fn collect(mut self) -> Result<(Vec<Entry>, Summary), FileError> {
        let mut all = Vec::new();
        while let Some(entries) = self.next().await? {
            all.extend(entries);
        }
        let summary = self.handle.summary().await?;
        Ok((all, summary))
    }
}

/// What happens beneath a directory.
#[derive(Debug)]
pub struct Watching {
    handle: Handle,
}

impl Watching {
    pub(super) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// The next changes; `None` when the directory itself is gone. Cancel safe.
    pub async fn next(&mut self) -> Result<Option<Vec<Change>>, FileError> {
        loop {
            match self.handle.next().await? {
                Some(Item::Changes(changes)) => return Ok(Some(changes)),
                Some(Item::Bytes(_) | Item::Entries(_)) => {}
                None => return Ok(None),
            }
        }
    }
}

/// Bytes on their way into the box: a file, or an archive to unpack.
#[derive(Debug)]
pub struct Upload {
    handle: Handle,
}

impl Upload {
    pub(super) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// Passes bytes on; waits while the box does not take them. An error is how the whole operation ended.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        for chunk in bytes.chunks(MAX_FILE_CHUNK) {
            let size = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
            let Ok(room) = self.handle.port.room.acquire_many(size).await else {
                return Err(self.ended_early().await);
            };
            // What is sent belongs to the agent now; its word that it was taken brings the room back.
            room.forget();
            if self.handle.order(FileOrder::Data { bytes: chunk.to_vec() }).await.is_err() {
                return Err(self.ended_early().await);
            }
        }
        Ok(())
    }

    /// Says that all was sent, and waits until all is there. Only then is a replaced file the new one.
    pub async fn finish(self) -> Result<Summary, FileError> {
        if self.handle.order(FileOrder::DataEnd).await.is_err() {
            return Err(self.ended_early().await);
        }
        self.handle.summary().await
    }

    async fn ended_early(&self) -> FileError {
        match self.handle.summary().await {
            Err(error) => error,
            // It cannot be done before all was sent: the driver hears that as a lie.
            Ok(_) => FileError::Failed { fault: Fault::Failed, errno: 0 },
        }
    }
}
