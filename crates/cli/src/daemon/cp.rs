//! `blastbox cp`: files and directories into a box, out of it, and from box to box.
//!
//! What comes out of a box is an attacker's: see [`unpack`] for what is made of it on the host.

mod left_out;
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
use left_out::LeftOut;
use progress::Progress;
use side::{BoxFile, Side};

pub(crate) const HELP: &str = "Examples:\n  blastbox cp job.py BOX:                     to where the box's commands start\n  \
blastbox cp src BOX:/home/user/project     a directory with everything in it\n  \
blastbox cp BOX:result.csv .               out of the box\n  blastbox cp BOX:out/. results              what is in it, without its name\n  \
blastbox cp BOX1:data BOX2:/tmp            from box to box\n\n\
Paths in a box are absolute, or from where its commands start: /workspace, in a box without one /home/user. Links inside a directory are copied as links. Out of a box\n\
come only links that stay inside what was copied; nothing is ever written through a link, and no set-id bit is kept.\n\
What cannot be read is left out, counted and named, and the exit code is then 1.";

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
    /// From where and to where, in full.
    from: String,
    to: String,
    #[serde(flatten)]
    left_out: LeftOut,
}

#[derive(Debug, Deserialize)]
struct StatView {
    kind: String,
    mode: String,
    /// Where it is in its box, in full; absent where that is no text.
    #[serde(default)]
    path: Option<String>,
}

#[derive(Debug, Deserialize)]
struct WrittenView {
    bytes: u64,
    #[serde(default)]
    path: Option<String>,
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
    let Copied { bytes, from, to, left_out } = &copied;
    output::say(&format!(
        "blastbox: copied {bytes} bytes from {} to {}\n",
        from.escape_debug(),
        to.escape_debug()
    ));
    if let Some(line) = left_out.line() {
        output::say(&format!("blastbox: {line}\n"));
    }
    Ok(u8::from(left_out.count() > 0))
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
        (Ok(answer), Ok(left_out)) => {
            let bytes = super::client::whole(answer).await?;
            let written: WrittenView = serde_json::from_slice(&bytes).map_err(DaemonProblem::Unreadable)?;
            let to = target.shown_at(written.path.as_deref());
            Ok(Copied { bytes: written.bytes, from: absolute(from), to, left_out })
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
    let lands = target.lands().display().to_string();
    let route = if directory { from.route("/tar", "") } else { from.route("", "") };
    let answer = client.send(Method::GET, &route, &with_trailers(), Sent::Whole(None)).await?;
    let (pieces, waiting) = mpsc::channel(AHEAD);
    let counter = progress.counter();
    let writing = tokio::task::spawn_blocking(move || target.fill(waiting, &counter));
    let passed = progress.during(pass(answer.into_body(), pieces)).await;
    let written = writing.await.unwrap_or(Err(DaemonProblem::CopyBroke));
    // A writer that gave up says why; else the line must have held to its end.
    let ((bytes, not_made), not_sent) = match (passed, written) {
        (Err(problem), Ok(_) | Err(DaemonProblem::CopyBroke)) => return Err(problem),
        (passed, written) => (written?, passed.unwrap_or_default()),
    };
    let left_out = not_sent.and(not_made);
    Ok(Copied { bytes, from: from.shown_at(found.path.as_deref()), to: lands, left_out })
}

/// Only who says that he hears what comes behind the last bytes is told it.
fn with_trailers() -> [(&'static str, String); 1] {
    [("te", "trailers".to_owned())]
}

fn absolute(path: &std::path::Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// Passes an answer on to its end, and says what the box has left out. Only then the writer is told that it is whole.
async fn pass(mut body: Incoming, to: mpsc::Sender<Option<Vec<u8>>>) -> Result<LeftOut, DaemonProblem> {
    let mut left_out = LeftOut::default();
    while let Some(frame) = body.frame().await {
        match frame.map_err(DaemonProblem::BrokeOff)?.into_data() {
            Ok(bytes) => {
                if to.send(Some(bytes.into())).await.is_err() {
                    return Ok(left_out);
                }
            }
            Err(other) => left_out = other.into_trailers().as_ref().map(LeftOut::said_by).unwrap_or_default(),
        }
    }
    // An error: the writer gave up, and says why.
    to.send(None).await.ok();
    Ok(left_out)
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
    let answer = client.send(Method::GET, &out, &with_trailers(), Sent::Whole(None)).await?;
    let (pieces, body) = mpsc::channel(AHEAD);
    let counter = progress.counter();
    let passing = tokio::spawn(async move {
        let (mut body, mut left_out) = (answer.into_body(), LeftOut::default());
        while let Some(frame) = body.frame().await {
            let piece = match frame.map(hyper::body::Frame::into_data) {
                Ok(Ok(bytes)) => Ok(Vec::from(bytes)),
                Ok(Err(other)) => {
                    left_out = other.into_trailers().as_ref().map(LeftOut::said_by).unwrap_or_default();
                    continue;
                }
                Err(error) => Err(std::io::Error::other(error)),
            };
            counter.add(piece.as_ref().map_or(0, Vec::len));
            let broke = piece.is_err();
            if pieces.send(piece).await.is_err() || broke {
                break;
            }
        }
        left_out
    });
    let sending = client.send(Method::PUT, &into, &[], Sent::Poured(body));
    let answer = progress.during(sending).await?;
    let bytes = super::client::whole(answer).await?;
    let written: WrittenView = serde_json::from_slice(&bytes).map_err(DaemonProblem::Unreadable)?;
    // The target is whole, and so was what it was sent.
    let left_out = passing.await.map_err(|_| DaemonProblem::CopyBroke)?;
    let (from, to) = (from.shown_at(found.path.as_deref()), target.shown_at(written.path.as_deref()));
    Ok(Copied { bytes: written.bytes, from, to, left_out })
}
