//! `blastbox snapshot`, `blastbox restore` and `blastbox fork`: boxes that run, copied with everything that runs in them.

use blastbox_engine::keeper::SnapshotId;
use blastbox_policy::Seconds;
use blastbox_server::ask::{Forks, NewBox};
use blastbox_wire::BoxId;
use clap::{Args, Subcommand};
use hyper::Method;
use serde::Deserialize;
use serde_json::Value;

use super::Where;
use super::create::{self, StayFlags};
use super::problem::DaemonProblem;
use super::table::{moment, table};
use crate::output::{self, plain};
use crate::problem::Problem;

pub(crate) const HELP: &str = "Examples:\n  snap=$(blastbox snapshot BOX)\n  blastbox restore $snap\n  \
blastbox snapshot ls\n  blastbox snapshot rm $snap\n\n\
Only boxes of the tier microvm, without credentials. The box stands still for a moment and goes on.\n\
What is in its memory is in the file: keep it as you would keep the box.";

pub(crate) const RESTORE_HELP: &str = "Examples:\n  box=$(blastbox restore SNAPSHOT)\n  blastbox restore SNAPSHOT --life 10m --label job=7\n\n\
The same as create --snapshot. Policy, limits and image are the snapshot's; randomness, a clock and a name its own.";

pub(crate) const FORK_HELP: &str = "Examples:\n  blastbox fork BOX\n  blastbox fork BOX --count 4 --life 10m\n\n\
Each fork has everything that runs in the box, and randomness, a clock and a name of its own.";

#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    #[command(subcommand)]
    verb: Option<SnapshotVerb>,
    /// The box
    #[arg(value_name = "BOX", required = true)]
    id: Option<BoxId>,
    #[command(flatten)]
    place: Where,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum SnapshotVerb {
    /// List snapshots
    #[command(after_help = "Example:\n  blastbox snapshot ls --json")]
    Ls(ListArgs),
    /// Take snapshots away; boxes that began with them live on
    #[command(after_help = "Example:\n  blastbox snapshot rm SNAPSHOT")]
    Rm(RemoveArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Those of every tenant, and files that cannot be read; only at the daemon's socket
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    place: Where,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct RemoveArgs {
    /// Which
    #[arg(value_name = "SNAPSHOT", required = true)]
    ids: Vec<SnapshotId>,
    #[command(flatten)]
    place: Where,
}

#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    /// The box
    #[arg(value_name = "BOX")]
    id: BoxId,
    /// How many
    #[arg(long, value_name = "N", default_value_t = 1)]
    count: usize,
    /// How long each lives at most [default: 1h]
    #[arg(long, value_name = "TIME")]
    life: Option<Seconds>,
    /// How long each lives without a command and without a request [default: 15m]
    #[arg(long, value_name = "TIME")]
    idle: Option<Seconds>,
    #[command(flatten)]
    place: Where,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The snapshot
    #[arg(value_name = "SNAPSHOT")]
    id: SnapshotId,
    #[command(flatten)]
    stay: StayFlags,
    #[command(flatten)]
    place: Where,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl RestoreArgs {
    pub(super) fn asked(&self) -> NewBox {
        create::from_snapshot(&self.id, &self.stay)
    }
}

/// A snapshot, as the daemon tells it.
#[derive(Debug, Deserialize)]
struct SnapshotView {
    id: String,
    #[serde(default)]
    tenant: String,
    #[serde(rename = "box")]
    of: String,
    image: String,
    created_at: String,
    bytes: u64,
}

/// A file that nobody can read, as the daemon tells it.
#[derive(Debug, Deserialize)]
struct UnreadableView {
    id: String,
    bytes: u64,
    why: String,
}

pub(crate) async fn snapshot(args: SnapshotArgs) -> Result<u8, Problem> {
    let SnapshotArgs { verb, id, place, json } = args;
    match (verb, id) {
        (Some(SnapshotVerb::Ls(args)), _) => list(args).await,
        (Some(SnapshotVerb::Rm(args)), _) => remove(args).await,
        (None, Some(id)) => take(&id, &place, json).await,
        // The parser wants one of the two.
        (None, None) => Ok(2),
    }
}

async fn take(id: &BoxId, place: &Where, json: bool) -> Result<u8, Problem> {
    let card: Value = place.client()?.post(&format!("/v1/boxes/{}/snapshot", id.as_str())).await?;
    if json {
        output::print_json(&card)?;
        return Ok(0);
    }
    let id = card.get("id").and_then(Value::as_str).unwrap_or_default();
    output::print(&format!("{}\n", plain(id)))?;
    Ok(0)
}

async fn list(args: ListArgs) -> Result<u8, Problem> {
    let path = if args.all { "/v1/snapshots?all=true" } else { "/v1/snapshots" };
    let told: Value = args.place.client()?.get(path).await?;
    let cards = told.get("snapshots").cloned().unwrap_or_default();
    if args.json {
        output::print_json(if args.all { &told } else { &cards })?;
        return Ok(0);
    }
    let cards: Vec<SnapshotView> = serde_json::from_value(cards).map_err(DaemonProblem::Unreadable)?;
    let unread = told.get("unreadable").cloned().unwrap_or_else(|| Value::Array(Vec::new()));
    let unread: Vec<UnreadableView> = serde_json::from_value(unread).map_err(DaemonProblem::Unreadable)?;
    let size = |bytes: u64| format!("{} MiB", bytes >> 20);
    let row = |view: &SnapshotView| {
        let SnapshotView { id, tenant, of, image, created_at, bytes } = view;
        let whose = args.all.then(|| plain(tenant));
        let rest = [plain(of), plain(image), moment(created_at), size(*bytes)];
        std::iter::once(plain(id)).chain(whose).chain(rest).collect()
    };
    let lost = |UnreadableView { id, bytes, why }: &UnreadableView| {
        let none = || "-".to_owned();
        vec![plain(id), none(), none(), plain(why), none(), size(*bytes)]
    };
    let rows: Vec<Vec<String>> = cards.iter().map(row).chain(unread.iter().map(lost)).collect();
    let whose = args.all.then_some("TENANT");
    let head: Vec<&str> =
        ["SNAPSHOT"].into_iter().chain(whose).chain(["BOX", "IMAGE", "CREATED", "SIZE"]).collect();
    output::print(&table(&head, &rows))?;
    Ok(0)
}

async fn remove(args: RemoveArgs) -> Result<u8, Problem> {
    let client = args.place.client()?;
    for id in &args.ids {
        let path = format!("/v1/snapshots/{}", id.as_str());
        client.ask::<Value>(Method::DELETE, &path, None::<&()>).await?;
    }
    Ok(0)
}

pub(crate) async fn restore(args: RestoreArgs) -> Result<u8, Problem> {
    create::make(&args.place.client()?, &args.asked(), args.json).await
}

pub(crate) async fn fork(args: ForkArgs) -> Result<u8, Problem> {
    let ForkArgs { id, count, life, idle, place, json } = args;
    let asked = Forks { count: Some(count), life, idle };
    let path = format!("/v1/boxes/{}/fork", id.as_str());
    let made: Value = place.client()?.ask(Method::POST, &path, Some(&asked)).await?;
    if json {
        output::print_json(&made)?;
        return Ok(0);
    }
    for card in made.get("boxes").and_then(Value::as_array).into_iter().flatten() {
        let id = card.get("id").and_then(Value::as_str).unwrap_or_default();
        output::print(&format!("{}\n", plain(id)))?;
    }
    Ok(0)
}
