//! `blastbox cp`: files and directories into a box, out of it, and from box to box.
//!
//! What comes out of a box is an attacker's: see [`unpack`] for what is made of it on the host.

mod pack;
mod progress;
mod side;
mod unpack;

use blastbox_policy::Bytes;
use clap::Args;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::Where;
use super::client::{Client, Sent};
use super::problem::DaemonProblem;
use crate::output;
use crate::problem::Problem;
use progress::Progress;
use side::{BoxFile, Side};

pub(crate) const HELP: &str = "Examples:\n  blastbox cp job.py BOX:                     into the box's home directory\n  \
blastbox cp src BOX:/home/user/project     a directory with everything in it\n  \
blastbox cp BOX:result.csv .               out of the box\n  blastbox cp BOX:out/. results              what is in it, without its name\n  \
blastbox cp BOX1:data BOX2:/tmp            from box to box\n\n\
Paths in a box are absolute, or beneath its home directory. Links inside a directory are copied as links. Out of a box\n\
come only links that stay inside what was copied; nothing is ever written through a link, and no set-id bit is kept.\n\
What cannot be read is left out and counted, and the exit code is then 1.";

/// Pieces that may wait between a disk and a box.
const AHEAD: usize = 4;

#[derive(Debug, Args)]
pub(crate) struct CpArgs {
    /// From where: PATH or BOX:PATH
    #[arg(value_name = "[BOX:]SRC")]
    from: Side,
    /// To where: PATH or BOX:PATH
    #[arg(value_name = "[BOX:]DST")]
    to: Side,
    /// Most bytes that are taken out of a box: it may pretend to hold any number
    #[arg(long, value_name = "SIZE", default_value = "16GiB")]
    limit: Bytes,
    /// Print what was copied as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

/// What was copied.
#[derive(Debug, Default, Serialize)]
struct Copied {
    bytes: u64,
    /// Entries that were left out.
    skipped: u64,
}

#[derive(Debug, Deserialize)]
struct StatView {
    kind: String,
    mode: String,
}

#[derive(Debug, Deserialize)]
struct WrittenView {
    bytes: u64,
}

pub(crate) async fn cp(args: CpArgs) -> Result<u8, Problem> {
    let client = args.place.client()?;
    let mut progress = Progress::new();
    let copied = match (&args.from, &args.to) {
        (Side::Host(from), Side::Box(to)) => into_box(&client, from, to, &mut progress).await,
        (Side::Box(from), Side::Host(to)) => out_of_box(&client, from, to, args.limit.0, &mut progress).await,
        (Side::Box(from), Side::Box(to)) => between(&client, from, to, &mut progress).await,
        (Side::Host(_), Side::Host(_)) => Err(DaemonProblem::NoBox),
    };
    progress.clear();
    let copied = copied?;
    if args.json {
        output::print_json(&copied)?;
    }
    if copied.skipped > 0 {
        output::say(&format!("blastbox: {} entries were left out\n", copied.skipped));
    }
    Ok(u8::from(copied.skipped > 0))
}

/// What an entry of a box is; `None` where there is none. Links are followed, inside the box.
async fn look(client: &Client, file: &BoxFile) -> Result<Option<StatView>, DaemonProblem> {
    match client.get(&file.route("/stat", "&follow=true")).await {
        Ok(found) => Ok(Some(found)),
        Err(DaemonProblem::No(no)) if no.code == "file_not_found" => Ok(None),
        Err(other) => Err(other),
    }
}

/// Where a copy with this name ends up: in a directory that is there, or under the name itself.
async fn landing(client: &Client, to: &BoxFile, name: Option<&[u8]>) -> Result<BoxFile, DaemonProblem> {
    let is_directory = look(client, to).await?.is_some_and(|found| found.kind == "directory");
    Ok(match name {
        Some(name) if is_directory || to.names_a_directory() => to.join(name),
        _ => to.clone(),
    })
}

async fn into_box(
    client: &Client,
    from: &std::path::Path,
    to: &BoxFile,
    progress: &mut Progress,
) -> Result<Copied, DaemonProblem> {
    let source = pack::Source::open(from)?;
    let target = landing(client, to, source.name()).await?;
    let route = match &source {
        pack::Source::File { mode, .. } => target.route("", &format!("&mode={:o}", mode & 0o777)),
        pack::Source::Directory { .. } => target.route("/tar", "&parents=true"),
    };
    let (pieces, body) = mpsc::channel(AHEAD);
    let counter = progress.counter();
    // A disk may be slow: it is read on a thread of its own.
    let reading = tokio::task::spawn_blocking(move || source.pour(&pieces, &counter));
    let sending = client.send(Method::PUT, &route, &[], Sent::Poured(body));
    let answer = progress.during(sending).await;
    let read = reading.await.unwrap_or_else(|_| Err(DaemonProblem::CopyBroke));
    match (answer, read) {
        // Ours is the cause, and what the daemon says of a broken line its effect.
        (_, Err(problem @ DaemonProblem::ReadHost { .. })) | (Err(problem), _) => Err(problem),
        (Ok(_), Err(problem)) => Err(problem),
        (Ok(answer), Ok(skipped)) => {
            let bytes = super::client::whole(answer).await?;
            let written: WrittenView = serde_json::from_slice(&bytes).map_err(DaemonProblem::Unreadable)?;
            Ok(Copied { bytes: written.bytes, skipped })
        }
    }
}

async fn out_of_box(
    client: &Client,
    from: &BoxFile,
    to: &std::path::Path,
    limit: u64,
    progress: &mut Progress,
) -> Result<Copied, DaemonProblem> {
    let found = look(client, from).await?.ok_or_else(|| DaemonProblem::NoFile(from.shown()))?;
    let directory = found.kind == "directory";
    let mode = u32::from_str_radix(&found.mode, 8).unwrap_or(0o600);
    let target = unpack::Target::open(to, from.name(), directory, mode, limit)?;
    let route = if directory { from.route("/tar", "") } else { from.route("", "") };
    let answer = client.send(Method::GET, &route, &[], Sent::Whole(None)).await?;
    let (pieces, waiting) = mpsc::channel(AHEAD);
    let counter = progress.counter();
    let writing = tokio::task::spawn_blocking(move || target.fill(waiting, &counter));
    let passed = progress.during(pass(answer.into_body(), pieces)).await;
    let written = writing.await.unwrap_or(Err(DaemonProblem::CopyBroke));
    // A writer that gave up says why; else the line must have held to its end.
    let (bytes, skipped) = match (passed, written) {
        (Err(problem), Ok(_) | Err(DaemonProblem::CopyBroke)) => return Err(problem),
        (_, written) => written?,
    };
    Ok(Copied { bytes, skipped })
}

/// Passes an answer on to its end. Only then the writer is told that it is whole.
async fn pass(mut body: Incoming, to: mpsc::Sender<Option<Vec<u8>>>) -> Result<(), DaemonProblem> {
    while let Some(frame) = body.frame().await {
        if let Ok(bytes) = frame.map_err(DaemonProblem::BrokeOff)?.into_data()
            && to.send(Some(bytes.into())).await.is_err()
        {
            return Ok(());
        }
    }
    // An error: the writer gave up, and says why.
    to.send(None).await.ok();
    Ok(())
}

async fn between(
    client: &Client,
    from: &BoxFile,
    to: &BoxFile,
    progress: &mut Progress,
) -> Result<Copied, DaemonProblem> {
    let found = look(client, from).await?.ok_or_else(|| DaemonProblem::NoFile(from.shown()))?;
    let target = landing(client, to, from.name()).await?;
    let (out, into) = if found.kind == "directory" {
        (from.route("/tar", ""), target.route("/tar", "&parents=true"))
    } else {
        let mode = u32::from_str_radix(&found.mode, 8).unwrap_or(0o600) & 0o777;
        (from.route("", ""), target.route("", &format!("&mode={mode:o}")))
    };
    let answer = client.send(Method::GET, &out, &[], Sent::Whole(None)).await?;
    let (pieces, body) = mpsc::channel(AHEAD);
    let counter = progress.counter();
    tokio::spawn(async move {
        let mut body = answer.into_body();
        while let Some(frame) = body.frame().await {
            let piece = match frame {
                Ok(frame) => frame.into_data().map_or_else(|_| Vec::new(), Into::into),
                Err(error) => return drop(pieces.send(Err(std::io::Error::other(error))).await),
            };
            counter.add(piece.len());
            if pieces.send(Ok(piece)).await.is_err() {
                return;
            }
        }
    });
    let sending = client.send(Method::PUT, &into, &[], Sent::Poured(body));
    let answer = progress.during(sending).await?;
    let bytes = super::client::whole(answer).await?;
    let written: WrittenView = serde_json::from_slice(&bytes).map_err(DaemonProblem::Unreadable)?;
    Ok(Copied { bytes: written.bytes, skipped: 0 })
}
