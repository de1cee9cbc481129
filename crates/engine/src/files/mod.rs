//! Files of a box, through its agent: the host never opens one of them itself.
//!
//! - [`Files`]: what can be asked, one function each.
//! - [`Download`], [`Listing`], [`Watching`]: what comes out, piece by piece. Whoever stops reading stops the agent too;
//!   no more than one window waits here for anybody.
//! - [`Upload`]: what goes in, as fast as the box takes it.
//!
//! Dropping any of them ends the operation; half a file under a passing name is removed by the agent.
//!
//! Must not: believe the agent. What it may say of an operation is known ([`port`]), and anything else ends the box.

mod error;
mod expect;
mod port;
mod streams;
mod table;

#[cfg(test)]
mod tests;

pub use error::FileError;
pub use streams::{Download, Listing, Upload, Watching};
pub(crate) use table::{FileOrder, FileTable};

use std::sync::Arc;
use std::sync::atomic::Ordering;

use blastbox_wire::agent::{
    Coverage, Depth, Entry, Extent, Fault, FileAct, Links, Parents, Target, User, Writing,
};
use blastbox_wire::limits::{MAX_LISTED, MAX_PATH};

use self::port::{Item, Port};
use self::streams::Handle;
use self::table::Ticket;
use crate::live::LiveBox;

/// Linux's number for a name that is too long.
const ENAMETOOLONG: i32 = 36;

/// Which part of a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Where to begin.
    pub offset: u64,
    /// Bytes at most.
    pub most: u64,
    /// Whether what is added meanwhile is read too.
    pub extent: Extent,
}

impl Slice {
    /// The whole file, as it is when it is opened.
    pub const WHOLE: Self = Self { offset: 0, most: u64::MAX, extent: Extent::Seen };
}

/// How much of an archive is unpacked at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnpackLimits {
    /// Bytes of file content.
    pub bytes: u64,
    /// Entries of any kind.
    pub entries: u64,
}

/// How an operation was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Bytes of a read, write or archive; entries of a list or removal.
    pub amount: u64,
    /// Entries that the box's user may not read, or that are never read.
    pub skipped: u64,
    /// Whether a bound of the question ended it.
    pub coverage: Coverage,
}

/// The files of one box. Paths are the box's own: absolute, or relative to its home directory. Everything is done as
/// the box's user, unless another one is named.
#[derive(Debug, Clone, Copy)]
pub struct Files<'a> {
    live: &'a LiveBox,
    user: User,
}

impl LiveBox {
    /// Its files.
    #[must_use]
    pub fn files(&self) -> Files<'_> {
        Files { live: self, user: User::Payload }
    }

    /// Its files, with the rights of one of its users. Root of the box may do nothing in a box that has none.
    #[must_use]
    pub fn files_as(&self, user: User) -> Files<'_> {
        Files { live: self, user }
    }
}

impl Files<'_> {
    /// Reads a file. Links are followed; pipes and devices are refused. Returns when it is open.
    pub async fn read(&self, path: &[u8], slice: Slice) -> Result<Download, FileError> {
        let Slice { offset, most, extent } = slice;
        let handle = self.begin(FileAct::Read { path: path.to_vec(), offset, most, extent }).await?;
        let entry = handle.begun(path).await?;
        Ok(Download::new(handle, Some(entry)))
    }

    /// Writes a file from what is then given to the [`Upload`]. A failure to open it comes with the first bytes, or with
    /// the end.
    pub async fn write(
        &self,
        path: &[u8],
        mode: u32,
        writing: Writing,
        parents: Parents,
    ) -> Result<Upload, FileError> {
        let act = FileAct::Write { path: path.to_vec(), mode, writing, parents };
        Ok(Upload::new(self.begin(act).await?))
    }

    /// Lists a directory, `depth` levels of it (1 is the directory alone), `most` entries at most. In no order.
    pub async fn list(&self, path: &[u8], depth: u32, most: u32) -> Result<Listing, FileError> {
        let act = FileAct::List { path: path.to_vec(), depth: depth.max(1), most: most.min(MAX_LISTED) };
        Ok(Listing::new(self.begin(act).await?))
    }

    /// What is known of one entry.
    pub async fn stat(&self, path: &[u8], links: Links) -> Result<Entry, FileError> {
        let handle = self.begin(FileAct::Stat { path: path.to_vec(), links }).await?;
        let mut found = None;
        while let Some(item) = handle.next().await? {
            if let Item::Entries(entries) = item {
                found = entries.into_iter().next();
            }
        }
        // The driver has counted them: exactly one came.
        let entry = found.ok_or(FileError::Failed { fault: Fault::Failed, errno: 0 })?;
        Ok(Entry { path: path.to_vec(), ..entry })
    }

    /// Makes a directory. One that is there already is an error.
    pub async fn make_directory(&self, path: &[u8], mode: u32, parents: Parents) -> Result<(), FileError> {
        self.done(FileAct::MakeDirectory { path: path.to_vec(), mode, parents }).await.map(drop)
    }

    /// Gives an entry another name.
    pub async fn rename(
        &self,
        from: &[u8],
        to: &[u8],
        target: Target,
        parents: Parents,
    ) -> Result<(), FileError> {
        self.done(FileAct::Move { from: from.to_vec(), to: to.to_vec(), target, parents }).await.map(drop)
    }

    /// Removes an entry, with everything in it where that is asked for. Tells how many went.
    pub async fn remove(&self, path: &[u8], depth: Depth) -> Result<u64, FileError> {
        self.done(FileAct::Remove { path: path.to_vec(), depth }).await.map(|summary| summary.amount)
    }

    /// Watches a directory. Returns when the watch stands: what happens from then on is told.
    pub async fn watch(&self, path: &[u8], depth: Depth) -> Result<Watching, FileError> {
        let handle = self.begin(FileAct::Watch { path: path.to_vec(), depth }).await?;
        handle.begun(path).await?;
        Ok(Watching::new(handle))
    }

    /// A directory, or one file, as a tar stream.
    pub async fn tar_out(&self, path: &[u8]) -> Result<Download, FileError> {
        Ok(Download::new(self.begin(FileAct::Pack { path: path.to_vec() }).await?, None))
    }

    /// Unpacks a tar stream, given to the [`Upload`], beneath a directory.
    pub async fn tar_in(
        &self,
        path: &[u8],
        parents: Parents,
        limits: UnpackLimits,
    ) -> Result<Upload, FileError> {
        let UnpackLimits { bytes: most_bytes, entries: most_entries } = limits;
        let act = FileAct::Unpack { path: path.to_vec(), parents, most_bytes, most_entries };
        Ok(Upload::new(self.begin(act).await?))
    }

    async fn done(&self, act: FileAct) -> Result<Summary, FileError> {
        let handle = self.begin(act).await?;
        while handle.next().await?.is_some() {}
        handle.summary().await
    }

    async fn begin(&self, act: FileAct) -> Result<Handle, FileError> {
        if expect::paths(&act).iter().any(|path| path.len() > MAX_PATH) {
            // The agent would take such a frame for a broken host, and end.
            return Err(FileError::Failed { fault: Fault::NameTooLong, errno: ENAMETOOLONG });
        }
        // Commands and operations have numbers of their own kinds; that they share a counter harms nobody.
        let op = self.live.next_exec.fetch_add(1, Ordering::Relaxed);
        let port = Arc::new(Port::default());
        let handle = Handle {
            op,
            port: Arc::clone(&port),
            orders: self.live.orders.clone(),
            bells: Arc::clone(&self.live.bells),
        };
        handle
            .order(FileOrder::Begin { act: Box::new(act), user: self.user, ticket: Ticket::new(port) })
            .await?;
        Ok(handle)
    }
}
