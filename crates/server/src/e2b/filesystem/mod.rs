//! `filesystem.Filesystem`: what lies in a sandbox, with the rights of its user.

mod entry;
pub(super) mod watch;
pub(super) mod watchers;

use std::sync::Arc;
use std::time::Duration;

use blastbox_engine::keeper::ExecEnded;
use blastbox_engine::{FileError, LiveBox};
use blastbox_wire::agent::{Coverage, Depth, Entry, EntryKind, Fault, Links, Parents, Target};
use serde::Deserialize;
use serde_json::{Value, json};

use super::envd::paths;
use super::errand;
use super::no::echo;
use super::rpc::Context;
use super::rpc::error::{Code, RpcError};
use crate::entry::{Gathered, gather};

/// Entries of one list. A client that wants more lists directories one by one.
const MOST_ENTRIES: u32 = 50_000;
/// Bytes of one list: names are the guest's, and long ones are memory of the daemon's.
const MOST_LISTED: usize = 8 * 1024 * 1024;
/// Levels of one list.
const DEEPEST: u32 = 1_000;
const DIRECTORY: u32 = 0o755;
/// How long a move from one mount to another may take.
const CARRY: Duration = Duration::from_secs(60);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Path {
    path: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Move {
    source: String,
    destination: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct List {
    path: String,
    depth: u32,
}

fn resolve(context: &Context, path: &str) -> Result<String, RpcError> {
    let foreign =
        |_| RpcError::new(Code::InvalidArgument, format!("'{}' is another user's home", echo(path)));
    paths::resolve(path, context.user).map_err(foreign)
}

impl Context {
    pub(super) fn live(&self) -> Result<Arc<LiveBox>, RpcError> {
        self.desk.live(&self.sandbox).map_err(|_| RpcError::gone())
    }

    fn show(&self, path: &str, entry: &Entry) -> Value {
        entry::show(path, entry, self.sandbox.marks.on(path))
    }
}

/// Why the box said no, as E2B says it.
fn trouble(error: &FileError, path: &str) -> RpcError {
    let path = echo(path);
    let Some(fault) = error.fault() else { return RpcError::gone() };
    let (code, message) = match fault {
        Fault::NotFound => (Code::NotFound, format!("path '{path}' not found")),
        Fault::Exists => (Code::AlreadyExists, format!("path '{path}' already exists")),
        Fault::NotDirectory => (Code::InvalidArgument, format!("path '{path}' is not a directory")),
        Fault::IsDirectory => (Code::InvalidArgument, format!("path '{path}' is a directory")),
        Fault::NotRegular => (Code::InvalidArgument, format!("path '{path}' is not a regular file")),
        Fault::NameTooLong | Fault::BadPath => (Code::InvalidArgument, format!("path '{path}' is not valid")),
        Fault::NotPermitted => (Code::PermissionDenied, format!("permission denied: '{path}'")),
        Fault::ReadOnly => {
            (Code::PermissionDenied, format!("permission denied: '{path}' is on a read-only file system"))
        }
        Fault::Loop => (Code::FailedPrecondition, format!("path '{path}' is a cyclic link")),
        Fault::NotEmpty => {
            (Code::FailedPrecondition, format!("path '{path}' is a directory that is not empty"))
        }
        Fault::NoSpace | Fault::TooLarge => {
            (Code::Internal, format!("not enough space in the sandbox for '{path}'"))
        }
        Fault::TooMany => {
            (Code::ResourceExhausted, "too many file operations at once in this sandbox".to_owned())
        }
        Fault::CrossDevice | Fault::Busy | Fault::BadArchive | Fault::Stopped | Fault::Failed => {
            (Code::Internal, format!("'{path}': {error}"))
        }
    };
    RpcError::new(code, message)
}

/// Stat: one entry; of a link, the link.
pub(super) async fn stat(context: &Context, Path { path }: Path) -> Result<Value, RpcError> {
    let path = resolve(context, &path)?;
    let live = context.live()?;
    let entry = live
        .files_as(context.user)
        .stat(path.as_bytes(), Links::Keep)
        .await
        .map_err(|e| trouble(&e, &path))?;
    Ok(json!({ "entry": context.show(&path, &entry) }))
}

/// MakeDir: like `mkdir -p`, except that one that is there already is said so.
pub(super) async fn make_directory(context: &Context, Path { path }: Path) -> Result<Value, RpcError> {
    let path = resolve(context, &path)?;
    let live = context.live()?;
    let files = live.files_as(context.user);
    match files.make_directory(path.as_bytes(), DIRECTORY, Parents::Make).await {
        Ok(()) => {}
        Err(error) if error.fault() == Some(Fault::Exists) => {
            let there = files.stat(path.as_bytes(), Links::Follow).await.map_err(|e| trouble(&e, &path))?;
            let shown = echo(&path);
            return Err(match there.kind {
                EntryKind::Directory => {
                    RpcError::new(Code::AlreadyExists, format!("directory already exists: {shown}"))
                }
                EntryKind::File | EntryKind::Link | EntryKind::Other => RpcError::new(
                    Code::InvalidArgument,
                    format!("path already exists but it is not a directory: {shown}"),
                ),
            });
        }
        Err(error) => return Err(trouble(&error, &path)),
    }
    context.sandbox.marks.removed(&path);
    let entry = files.stat(path.as_bytes(), Links::Keep).await.map_err(|e| trouble(&e, &path))?;
    Ok(json!({ "entry": context.show(&path, &entry) }))
}

/// Move: another name, in a directory that is made where it is missing.
pub(super) async fn rename(context: &Context, Move { source, destination }: Move) -> Result<Value, RpcError> {
    let (from, to) = (resolve(context, &source)?, resolve(context, &destination)?);
    let live = context.live()?;
    let files = live.files_as(context.user);
    // Told apart from a missing destination, which is made; and before anything is made for it.
    files.stat(from.as_bytes(), Links::Keep).await.map_err(|e| trouble(&e, &from))?;
    match files.rename(from.as_bytes(), to.as_bytes(), Target::Replace, Parents::Make).await {
        Ok(()) => {}
        Err(error) if error.fault() == Some(Fault::CrossDevice) => carry(context, &from, &to).await?,
        Err(error) => return Err(trouble(&error, &to)),
    }
    context.sandbox.marks.moved(&from, &to);
    let entry = files.stat(to.as_bytes(), Links::Keep).await.map_err(|e| trouble(&e, &to))?;
    Ok(json!({ "entry": context.show(&to, &entry) }))
}

/// The writable places of a box are one disk and several mounts, between which the kernel renames nothing: a copy, then.
async fn carry(context: &Context, from: &str, to: &str) -> Result<(), RpcError> {
    let words = ["/bin/mv", "-f", "-T", "--", from, to];
    let done = errand::run_as(context.user, &context.desk, &context.sandbox, &words, CARRY)
        .await
        .map_err(|_| RpcError::gone())?;
    match done.ended {
        ExecEnded::Exited { code: 0 } => Ok(()),
        ExecEnded::BoxEnded { .. } => Err(RpcError::gone()),
        ExecEnded::Exited { .. }
        | ExecEnded::Signalled { .. }
        | ExecEnded::FuelSpent { .. }
        | ExecEnded::NotStarted { .. } => {
            Err(RpcError::new(Code::Internal, echo(String::from_utf8_lossy(&done.stderr).trim())))
        }
    }
}

/// Remove: like `rm -rf`. What is not there is gone already.
pub(super) async fn remove(context: &Context, Path { path }: Path) -> Result<Value, RpcError> {
    let path = resolve(context, &path)?;
    let live = context.live()?;
    match live.files_as(context.user).remove(path.as_bytes(), Depth::All).await {
        Ok(_) => {}
        Err(error) if matches!(error.fault(), Some(Fault::NotFound | Fault::NotDirectory)) => {}
        Err(error) => return Err(trouble(&error, &path)),
    }
    context.sandbox.marks.removed(&path);
    Ok(json!({}))
}

/// ListDir: depth-first, in the order of names.
pub(super) async fn list(context: &Context, List { path, depth }: List) -> Result<Value, RpcError> {
    let path = resolve(context, &path)?;
    let live = context.live()?;
    let files = live.files_as(context.user);
    let failed = |error| trouble(&error, &path);
    let listing = files.list(path.as_bytes(), depth.clamp(1, DEEPEST), MOST_ENTRIES).await.map_err(failed)?;
    let too_much = |what: &str| {
        RpcError::new(Code::OutOfRange, format!("'{}' has more than {what}; list less deep", echo(&path)))
    };
    let mut entries = match gather(listing, path.len(), MOST_LISTED).await.map_err(failed)? {
        Gathered::Fits(entries, Coverage::Whole) => entries,
        Gathered::Fits(_, Coverage::Cut) => return Err(too_much(&format!("{MOST_ENTRIES} entries"))),
        Gathered::TooLong => return Err(too_much(&format!("{MOST_LISTED} bytes of entries"))),
    };
    entries.sort_by(|left, right| entry::in_order(&left.path, &right.path));
    let root = path.trim_end_matches('/');
    let show = |entry: &Entry| {
        let whole = format!("{root}/{}", String::from_utf8_lossy(&entry.path));
        context.show(&whole, entry)
    };
    Ok(json!({ "entries": entries.iter().map(show).collect::<Vec<_>>() }))
}
