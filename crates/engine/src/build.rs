//! One step of a recipe, in a box of its own: the command, and afterwards what the image's directories have become.
//!
//! Trust: the box is hostile. What comes out of it is bounded here and unpacked by the store's own hand, as every archive is.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;

use blastbox_images::Image;
use blastbox_policy::SealedPolicy;
use blastbox_wire::agent::{Exit, User};
use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::{BoxSpec, Command, CreateError, Engine, ExecEnd, ExecEvent, FileError, LiveBox, Stream};

/// So much is written at once.
const GULP: usize = 1 << 20;

/// Why a step made nothing.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// There was no box for it.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// Its command ended with another code than 0.
    #[error("the command ended with code {0}")]
    Code(u8),
    /// A signal ended its command.
    #[error("signal {0} ended the command")]
    Signal(u8),
    /// Its command could not be started.
    #[error("the command could not be started: {0}")]
    NotStarted(std::io::Error),
    /// The box ended before the command did.
    #[error("the box ended before the command: {0}")]
    BoxEnded(String),
    /// What it made could not be read.
    #[error("what it made in /{at} could not be read")]
    Read {
        /// Where.
        at: String,
        /// Why.
        #[source]
        source: FileError,
    },
    /// It made more than an image may be.
    #[error("it made more than {most} bytes")]
    TooLarge {
        /// So many are taken.
        most: u64,
    },
    /// What it made could not be kept while it was read.
    #[error("cannot keep what it made in {path}")]
    Spool {
        /// Where.
        path: std::path::PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

/// What a step is run with.
#[derive(Debug)]
pub struct BuildStep<'a> {
    /// What may happen. Gives the box a root.
    pub policy: &'a SealedPolicy,
    /// What it begins with.
    pub image: &'a Image,
    /// What is run.
    pub command: Command,
    /// A directory for files without a name.
    pub spool: &'a Path,
    /// Bytes of archives, all together.
    pub most: u64,
}

/// What a step made.
#[derive(Debug)]
pub struct StepMade {
    /// The directories at the top of the image, each as an archive.
    pub packed: Vec<(String, File)>,
    /// What is in none of them: pipes, sockets, devices, and what could not be read.
    pub left_out: u64,
}

impl Engine {
    /// Runs the command, hears what it says, and takes along what the image's directories are then. On an error nothing stays.
    pub async fn run_step(
        &self,
        step: BuildStep<'_>,
        hear: &mut (dyn FnMut(Stream, &[u8]) + Send),
    ) -> Result<StepMade, StepError> {
        let BuildStep { policy, image, command, spool, most } = step;
        let live =
            self.create(BoxSpec { policy, image, workspace: None, volumes: &[], secrets: &[] }).await?;
        let packed = match run(&live, command, hear).await {
            Ok(()) => pack_trees(&live, image, spool, most).await,
            Err(error) => Err(error),
        };
        live.end().await;
        packed
    }
}

async fn run(
    live: &LiveBox,
    command: Command,
    hear: &mut (dyn FnMut(Stream, &[u8]) + Send),
) -> Result<(), StepError> {
    let exec = live.exec(command).await;
    loop {
        match exec.next().await {
            ExecEvent::Started { .. } => {}
            ExecEvent::Output { stream, bytes } => hear(stream, &bytes),
            // It is offered nothing that it could call.
            ExecEvent::Called(_) => {}
            ExecEvent::Ended(end) => {
                return match end {
                    ExecEnd::Exited { exit: Exit::Code(0), .. } => Ok(()),
                    ExecEnd::Exited { exit: Exit::Code(code), .. } => Err(StepError::Code(code)),
                    ExecEnd::Exited { exit: Exit::Signal(signal), .. } => Err(StepError::Signal(signal)),
                    ExecEnd::Exited { exit: Exit::FuelSpent, .. } => {
                        Err(StepError::BoxEnded("all its work was spent".to_owned()))
                    }
                    ExecEnd::NotStarted { errno, .. } => {
                        Err(StepError::NotStarted(std::io::Error::from_raw_os_error(errno)))
                    }
                    ExecEnd::BoxEnded(ending) => Err(StepError::BoxEnded(format!("{ending:?}"))),
                };
            }
        }
    }
}

/// What the directories of an image have become in a box that has a root, as archives in files without a name.
pub async fn pack_trees(
    live: &LiveBox,
    image: &Image,
    spool: &Path,
    most: u64,
) -> Result<StepMade, StepError> {
    let mut left = most;
    let mut made = StepMade { packed: Vec::new(), left_out: 0 };
    for tree in image.trees().into_iter().filter(|tree| tree.is_directory) {
        let at = tree.at.relative().to_owned();
        let (file, left_out) = pack(live, &at, spool, &mut left, most).await?;
        made.packed.push((at, file));
        made.left_out = made.left_out.saturating_add(left_out);
    }
    Ok(made)
}

/// A disk may take its time, and others wait for this thread.
async fn write(mut file: File, bytes: Vec<u8>) -> std::io::Result<File> {
    let written = tokio::task::spawn_blocking(move || file.write_all(&bytes).map(|()| file)).await;
    written.unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()))
}

async fn pack(
    live: &LiveBox,
    at: &str,
    spool: &Path,
    left: &mut u64,
    most: u64,
) -> Result<(File, u64), StepError> {
    let unread = |source| StepError::Read { at: at.to_owned(), source };
    let unkept = |source: std::io::Error| StepError::Spool { path: spool.to_owned(), source };
    // Without a name: nobody has to clean up after whoever is killed.
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = openat(CWD, spool, flags, Mode::from_raw_mode(0o600)).map_err(|errno| unkept(errno.into()))?;
    let mut file = File::from(file);
    let mut download =
        live.files_as(User::Root).tar_out(format!("/{at}").as_bytes()).await.map_err(unread)?;
    let mut waiting = Vec::new();
    while let Some(bytes) = download.next().await.map_err(unread)? {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        *left = left.checked_sub(length).ok_or(StepError::TooLarge { most })?;
        waiting.extend_from_slice(&bytes);
        if waiting.len() >= GULP {
            file = write(file, std::mem::take(&mut waiting)).await.map_err(unkept)?;
        }
    }
    file = write(file, waiting).await.map_err(unkept)?;
    let summary = download.summary().await.map_err(unread)?;
    file.rewind().map_err(unkept)?;
    Ok((file, summary.skipped))
}
